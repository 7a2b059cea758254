"""The features of a scenario's observations, in one table: a new one is a row here, or a source of rows.

What a process carries and what an open decision needs is declared beside them; here it joins the core.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

from collapipe_env.ground.arrays import Array
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.decision import opened_rows
from collapipe_env.simulator.feature import Feature
from collapipe_env.simulator.process_registry import active_processes
from collapipe_env.simulator.state import SystemState

GAIN_BOUND = 3.0
"""Bound of the gain and loss features; 1 is the edge of the ordinary range."""


def features_of(scenario: Scenario) -> tuple[Feature, ...]:
    """Features of the flat observation in order, some of which the graph observation shows too.

    Raises:
        ScenarioError: If two features have one name.
    """
    found: dict[str, Feature] = {}
    for source in SOURCES:
        for feature in source(scenario):
            if feature.name in found:
                raise ScenarioError(
                    f"two features of the observation are called {feature.name!r}: rename one"
                )
            found[feature.name] = feature
    return tuple(found.values())


def core_features(scenario: Scenario) -> Iterator[Feature]:
    """Features of every scenario.

    Gains are in dB, scaled so that the path losses that the layout can produce span [-1, 1] (fading goes a
    little beyond).
    """
    cap = scenario.budgets.backlog_cap
    top_speed = max(p.clock_max_hz * p.flops_per_cycle for p in scenario.devices.profiles)
    blocks, rounds = float(scenario.blocks), float(scenario.dynamics.rounds)
    uniform_loss = math.log(max(scenario.workload.outputs, 2))
    c = scenario.cluster
    d2d = decibel_range(*scenario.radio.d2d_links.range_db(c.hop_min_m, c.longest_hop_m))
    d2e = decibel_range(*scenario.radio.d2e_links.range_db(c.cu_distance_min_m, c.cu_distance_max_m))
    queue, fading = "energy queue z of the {}, capped", GAIN_BOUND - 1.0
    gain = partial(Feature, least=-1.0, beyond=(fading, fading), decibel=True)
    centred = partial(Feature, least=-1.0)
    yield from (
        Feature("device_backlog", "N K", "budgets", 0.0, cap, queue.format("device"),
                "backlog", cut=(..., slice(1, None))),
        centred("device_speed", "N K", "FLOP/s", 0.0, top_speed,
                "present compute speed", "speed"),
        centred("device_capacity", "N K", "blocks", 0.0, blocks,
                "blocks that the memory holds, at most L", "memory_cap"),
        gain("device_hop_gain", "N K", "dB", *d2d, "gain from the previous node",
             hop_gains),
        gain("device_cu_gain", "N K", "dB", *d2d, "gain to the CU",
             "d2d_gain", cut=(..., 0, slice(1, None))),
        Feature("device_present", "N K", "1", 0.0, 1.0, "1 if the device is present", "present"),
        gain("uplink_gain", "N", "dB", *d2e,
             "gain from the CU to the base station", "uplink_gain"),
        Feature("cu_backlog", "N", "budgets", 0.0, cap, queue.format("CU"),
                "backlog", cut=(..., 0)),
        Feature("round", "", "rounds", 0.0, rounds, "rounds played", "round_index"),
        centred("loss", "", "nats", 0.0, 2.0 * uniform_loss,
                "smoothed evaluation loss, shown as 0 for that of a uniform guess",
                "loss", beyond=(0.0, fading)),
    )  # fmt: skip


def clock_features(scenario: Scenario) -> Iterator[Feature]:
    """Clocks of devices, where launches depend on them and ``device_speed`` does not determine them."""
    profiles, extra = scenario.devices.profiles, scenario.overheads
    if len({profile.flops_per_cycle for profile in profiles}) > 1 and (extra.block_s or extra.update_s):
        top = max(profile.clock_max_hz for profile in profiles)
        yield Feature("device_clock", "N K", "Hz", 0.0, top, "present clock", "clock")


def process_features(scenario: Scenario) -> Iterator[Feature]:
    """Carried arrays that processes show, named after both."""
    for process in active_processes(scenario):
        for name, array in process.told.items():
            if array.shown is not None:
                value = partial(carried, process.name, name)
                yield Feature(f"{process.name}_{name}", array.axes, array.unit, *array.shown, array.about,
                              value, masked=False)  # fmt: skip


def decision_features(scenario: Scenario) -> Iterator[Feature]:
    """Features that the open decisions of a scenario need, those of devices first."""
    parameters = system_parameters(scenario)
    rows = opened_rows(parameters.opened)
    found = [feature for row in rows for feature in row.features(scenario, parameters)]
    yield from sorted(found, key=lambda feature: feature.axes != "N K")


SOURCES: tuple[Callable[[Scenario], Iterator[Feature]], ...] = (
    core_features,
    clock_features,
    process_features,
    decision_features,
)
"""Sources of features, in the order of the observation."""


def decibel_range(most: float, least: float) -> tuple[float, float]:
    """Range of path gains between two [dB], at least 10 dB to either side of its middle."""
    middle, half = 0.5 * (most + least), max(0.5 * (most - least), 10.0)
    return middle - half, middle + half


def hop_gains(state: SystemState) -> Array:
    """Return the gain of every device from the node before it (E, N, K)."""
    return state.d2d_gain.diagonal(1, -2, -1)


def carried(process: str, name: str, state: SystemState) -> Array:
    """Return an array that a process carries."""
    return state.processes[process][name]
