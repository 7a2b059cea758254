"""Profile of a calibrated machine: a scenario with its constants, and its check against all plans ([X])."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collapipe_env.evaluation.columns import Column
from collapipe_env.evaluation.table import Page
from collapipe_env.execution.calibration_fit import Constants
from collapipe_env.execution.calibration_rounds import MEMORY_BYTES, CalibrationPlan, FixedPlans, Measured
from collapipe_env.execution.planned_rounds import PlannedRounds
from collapipe_env.execution.script_replay import replayed_step
from collapipe_env.execution.scripts import ClusterScript
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.scenario.inheritance import merge
from collapipe_env.simulator.build import node_budgets, system_parameters

REFERENCE_HZ = 1e9
"""Clock of the devices [Hz], at which overheads equal the measured ones."""
QUIET_DBM_PER_HZ = -250.0
"""Noise so low that every signal exceeds the cap of the SNR, so that bandwidths alone set the rates."""
MOST_HZ = 1e12
"""Greatest bandwidth that a scenario may have [Hz]."""
TURNS = 4
"""Iterations that fit the edge bandwidths to a rate, to which they are not quite proportional."""
COLUMNS = (
    Column("plan"),
    Column("used"),
    Column("measured", "s", ".3f", name="T_step measured"),
    Column("range", "s"),
    Column("predicted", "s", ".3f", name="T_step by the profile"),
    Column("error", "%", "+.1f", 100.0),
)


def _sections(
    name: str, setting: Scenario, constants: Constants, edge_hz: tuple[float, float]
) -> dict[str, Any]:
    """Return :func:`calibrated`'s sections with bandwidths of uplink and downlink [Hz]."""
    device = setting.devices.profiles[0]
    power = "switched_capacitance" if device.active_power_w is None else "active_power_w"
    devices = setting.cluster.max_devices
    return {
        "name": name,
        "devices": {
            "profiles": [
                {
                    "name": "calibrated",
                    "clock_min_hz": REFERENCE_HZ,
                    "clock_max_hz": REFERENCE_HZ,
                    "flops_per_cycle": constants.flops / REFERENCE_HZ,
                    "memory_bytes": [MEMORY_BYTES],
                    power: getattr(device, power),
                }
            ]
        },
        "cluster": {
            "clusters": 1,
            "devices": devices,
            "server_flops": constants.server_flops,
        },
        "radio": {
            "noise_dbm_per_hz": QUIET_DBM_PER_HZ,
            "rate_attenuation": 1.0,
            "rate_ceiling": 1.0,  # bit/s/Hz
            "packet_diversity": None,
            "d2d_total_hz": min(constants.rate * (devices + 1), MOST_HZ),
            # A machine sends and receives at once.
            "d2d_radios": 2,
            "uplink_bandwidth_hz": edge_hz[0],
            "downlink_bandwidth_hz": edge_hz[1],
            "link_errors": "none",
        },
        "overheads": {
            "block_s": constants.block_s,
            "message_s": constants.message_s,
            "header_bits": 0.0,
            "latency_s": constants.latency_s,
            "edge_message_s": 0.0,
            "edge_latency_s": constants.edge_latency_s,
            "server_s": constants.server_s,
        },
        "budgets": node_budgets(setting)._asdict(),
    }


def calibrated(base: Scenario, name: str, setting: Scenario, constants: Constants) -> dict[str, Any]:
    """Return the sections that turn a base scenario into one of the measured machine.

    Args:
        base: Scenario that supplies everything that is not measured.
        name: Name of the new scenario.
        setting: Scenario in which the machine was measured.

    Returns:
        Name and sections of the new scenario, as its file has them next to ``base``.
    """
    bits = system_parameters(setting).costs.activation_bits * setting.workload.batch_size
    others = setting.cluster.max_devices - 1
    plan = CalibrationPlan((*(1,) * others, setting.workload.blocks - others), "gpipe", 1, fitted=True)
    edge_hz = (min(constants.edge_rate, MOST_HZ),) * 2
    for _ in range(TURNS):
        (script,) = _scripts(merged(base, _sections(name, setting, constants, edge_hz)), [plan])
        up, down = (
            min(hz * constants.edge_rate * seconds / bits, MOST_HZ)
            for hz, seconds in zip(edge_hz, (script.uplink_s, script.downlink_s), strict=True)
        )
        edge_hz = up, down
    return _sections(name, setting, constants, edge_hz)


def merged(base: Scenario, sections: Mapping[str, Any]) -> Scenario:
    """Return a scenario with changed sections, as a file with ``base`` is read."""
    return load_scenario(merge(base.to_dict(), sections))


def predicted_steps(scenario: Scenario, plans: Sequence[CalibrationPlan]) -> list[float]:
    """Return the ``T_step`` that the simulator predicts for plans in a scenario of one cluster [s]."""
    return [replayed_step(script)[0] for script in _scripts(scenario, plans)]


def _scripts(scenario: Scenario, plans: Sequence[CalibrationPlan]) -> list[ClusterScript]:
    """Return the cluster's script under each plan."""
    rounds = PlannedRounds(scenario, FixedPlans(scenario, plans), 0)
    return [rounds.next().script.clusters[0] for _ in plans]


@dataclass(frozen=True)
class CheckedPlan:
    """A plan's ``T_step``: median, shortest and longest measured, predicted by the simulator [s]; its error.

    The error is prediction over median, less 1.
    """

    plan: CalibrationPlan
    measured_s: float
    low_s: float
    high_s: float
    predicted_s: float
    error: float


def checked_plans(rounds: Sequence[Measured], scenario: Scenario) -> list[CheckedPlan]:
    """Return every plan with its prediction by the profile, the fitted plans first.

    Args:
        scenario: The calibrated scenario.
    """
    plans = sorted(
        {one.plan for one in rounds}, key=lambda p: (not p.fitted, p.blocks, p.schedule, p.micro_batches)
    )
    found = []
    for plan, predicted_s in zip(plans, predicted_steps(scenario, plans), strict=True):
        steps = [one.step_s for one in rounds if one.plan == plan]
        middle_s = float(np.median(steps))
        error = predicted_s / middle_s - 1.0
        found.append(CheckedPlan(plan, middle_s, min(steps), max(steps), predicted_s, error))
    return found


def worst(checked: Sequence[CheckedPlan], *, fitted: bool) -> float:
    """Return the largest error, with its sign, of the fitted plans or of the others."""
    return max((one.error for one in checked if one.plan.fitted == fitted), key=abs, default=0.0)


def calibration_page(
    title: str, checked: Sequence[CheckedPlan], constants: Constants, below: Sequence[str] = ()
) -> Page:
    """Return the table of all plans.

    Args:
        below: Further lines below the table.
    """
    rows = [
        {
            "plan": one.plan.name,
            "used": "fitted" if one.plan.fitted else "check",
            "measured": one.measured_s,
            "range": f"{one.low_s:.3f}..{one.high_s:.3f}",
            "predicted": one.predicted_s,
            "error": one.error,
        }
        for one in checked
    ]
    c = constants
    text = (
        f"A device: {c.flops / 1e9:.2f} GFLOP/s, {1e3 * c.block_s:.3f} ms a block. Messages between devices: "
        f"{1e3 * (c.message_s + c.latency_s):.3f} ms, of which they keep the line busy for "
        f"{1e3 * c.message_s:.3f} ms, and "
        f"{c.rate / 1e9:.3g} Gbit/s. To the server: {1e3 * c.edge_latency_s:.3f} ms and "
        f"{c.edge_rate / 1e9:.3g} Gbit/s. The head: {1e3 * c.server_s:.3f} ms and "
        f"{c.server_flops / 1e9:.3g} GFLOP/s."
    )
    errors = [abs(one.error) for one in checked if not one.plan.fitted]
    mean = f", mean size {100 * float(np.mean(errors)):.1f} %" if errors else ""
    verdict = (
        f"Largest error of T_step: {100 * worst(checked, fitted=True):+.1f} % where it was fitted, "
        f"{100 * worst(checked, fitted=False):+.1f} % on plans that were not{mean}."
    )
    important = "plan", "error", "used", "measured", "predicted"
    return Page(title, COLUMNS, rows, [text, verdict, *below], important)
