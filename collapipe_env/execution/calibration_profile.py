"""Profile of a calibrated machine: a scenario with its constants, and the times that it predicts ([X])."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from collapipe_env.execution.calibration_fit import Constants
from collapipe_env.execution.calibration_plans import MEMORY_BYTES, CalibrationPlan, FixedPlans
from collapipe_env.execution.planned_rounds import PlannedRounds
from collapipe_env.execution.script_replay import replayed_step
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.scenario.inheritance import merge
from collapipe_env.simulator.build import system_parameters

REFERENCE_HZ = 1e9
"""Clock of the devices [Hz], at which overheads equal the measured ones."""
QUIET_DBM_PER_HZ = -250.0
"""Noise so low that every signal exceeds the cap of the SNR, so that bandwidths alone set the rates."""
MOST_HZ = 1e12
"""Greatest bandwidth that a scenario may have [Hz]."""
TURNS = 4
"""Iterations that fit the edge bandwidths to a rate, to which they are not quite proportional."""


def profile_of(
    setting: Scenario, constants: Constants, edge_hz: tuple[float, float] = (MOST_HZ, MOST_HZ)
) -> dict[str, Any]:
    """Return the sections of a scenario that hold a machine's constants; the rest is the base's.

    Args:
        setting: Scenario in which the machine was measured.
        edge_hz: Bandwidths of uplink and downlink [Hz].
    """
    devices = setting.devices.profiles[0]
    power = (
        {"switched_capacitance": devices.switched_capacitance}
        if devices.active_power_w is None
        else {"active_power_w": devices.active_power_w}
    )
    return {
        "devices": {
            "profiles": [
                {
                    "name": "calibrated",
                    "clock_min_hz": REFERENCE_HZ,
                    "clock_max_hz": REFERENCE_HZ,
                    "flops_per_cycle": constants.flops / REFERENCE_HZ,
                    "memory_bytes": [MEMORY_BYTES],
                    **power,
                }
            ]
        },
        "cluster": {
            "clusters": 1,
            "devices": setting.cluster.max_devices,
            "server_flops": constants.server_flops,
        },
        "radio": {
            "noise_dbm_per_hz": QUIET_DBM_PER_HZ,
            "snr_cap_db": 0.0,  # 1 bit/s/Hz
            "d2d_bandwidth_hz": min(constants.rate, MOST_HZ),
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
        "budgets": {
            "device_energy_j": setting.budgets.device_energy_j,
            "cu_energy_j": setting.budgets.cu_energy_j,
        },
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
    one_each = (*(1,) * (setting.cluster.max_devices - 1), _rest(setting))
    plan = CalibrationPlan(one_each, "gpipe", 1, fitted=True)
    edge_hz = (min(constants.edge_rate, MOST_HZ),) * 2
    for _ in range(TURNS):
        trial = merged(base, {"name": name, **profile_of(setting, constants, edge_hz)})
        script = PlannedRounds(trial, FixedPlans(trial, [plan]), 0).next().script.clusters[0]
        up, down = (
            min(hz * constants.edge_rate * seconds / bits, MOST_HZ)
            for hz, seconds in zip(edge_hz, (script.uplink_s, script.downlink_s), strict=True)
        )
        edge_hz = up, down
    return {"name": name, **profile_of(setting, constants, edge_hz)}


def merged(base: Scenario, sections: Mapping[str, Any]) -> Scenario:
    """Return a scenario with changed sections, as a file with ``base`` is read.

    Args:
        sections: The changes.
    """
    return load_scenario(merge(base.to_dict(), sections))


def predicted_steps(scenario: Scenario, plans: Sequence[CalibrationPlan]) -> list[float]:
    """Return the ``T_step`` that the simulator predicts for plans [s].

    Args:
        scenario: Scenario of one cluster.
    """
    rounds = PlannedRounds(scenario, FixedPlans(scenario, plans), 0)
    return [replayed_step(rounds.next().script.clusters[0])[0] for _ in plans]


def _rest(setting: Scenario) -> int:
    """Return the blocks left for the last device if every other device has one."""
    return setting.workload.blocks - setting.cluster.max_devices + 1
