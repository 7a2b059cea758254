"""Arrays of the graph observation that only some scenarios have, one row of a table each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from collapipe_env.dynamics.mobility import ANNOUNCED_S
from collapipe_env.dynamics.presence import PRESENCE
from collapipe_env.envs.graph_observation import (
    BLOCKS,
    FLAG,
    ONE_PLUS,
    SHARE,
    Form,
    GraphFeature,
    graph_features,
    held,
)
from collapipe_env.envs.observed_processes import opened_features
from collapipe_env.ground.arrays import Array, at_most, log1p, namespace
from collapipe_env.kernels.graph_rows import LOG_BOUND
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.decision import Feature
from collapipe_env.simulator.process_registry import active_processes
from collapipe_env.simulator.state import Parameters, SystemState
from collapipe_env.simulator.system import MOBILITY, walking_side

SERVER_PROCESSES = ("server", "tenants")
"""Processes that move the terms of the server."""
SERVER_FEATURES = graph_features(
    (
        "log_backlog",
        "log of 1 plus the energy queue z of the server, 0 without a budget",
        "budgets",
        ONE_PLUS,
    ),
    ("tenants", "share of the server used by tenants that come and go", "1", SHARE),
)
HEAT_FEATURES = (
    GraphFeature(
        "headroom",
        "thermal headroom: the temperature that the governor reads over its set point, counted from 25 C",
        "1",
        Form(log=False, added=0.0, low=0.0, high=1.5),
    ),
    GraphFeature("clock_share", "share of the full clock that heat leaves", "1", SHARE),
)

_FURTHEST_M, _FASTEST_M_S = 5e3, 1e3

_PLACE = Form(False, 0.0, -_FURTHEST_M, _FURTHEST_M)
MOTION_FEATURES = (
    GraphFeature("east_m", "place of the device, eastwards from its control unit", "m", _PLACE),
    GraphFeature("north_m", "place of the device, northwards from its control unit", "m", _PLACE),
    GraphFeature("speed_m_s", "speed of the device", "m/s", Form(False, 0.0, 0.0, _FASTEST_M_S)),
)
"""Features of devices that move, in this order."""
DEPARTURE_FEATURES = (
    GraphFeature(
        "leaves_s",
        f"time until the device leaves on its present course; {ANNOUNCED_S:g} where it does not",
        "s",
        Form(False, 0.0, 0.0, ANNOUNCED_S),
    ),
)
"""Features of devices that may leave."""

LONGEST_S = 1e9
"""Longest stay that is shown [s]."""

STAY_FEATURES = (
    GraphFeature("announced", "1 for a device that is about to leave, and says so", "1", FLAG),
    GraphFeature(
        "log_since_s",
        "log of 1 plus the time since the device came, or since the episode began",
        "s",
        ONE_PLUS,
    ),
)
"""Features of devices that come and go, in this order."""


class GraphAddition(NamedTuple):
    """An array that a scenario adds to the graph observation.

    Attributes:
        name: Its name.
        description: Meaning of its leading axes.
        axes: Letters of its leading axes.
        features: Features on its last axis, in order.
        seen: Its values (..., *axes, len(features)) in a state (...), of any array library.
    """

    name: str
    description: str
    axes: tuple[str, ...]
    features: tuple[GraphFeature, ...]
    seen: Callable[[SystemState], Array]


def graph_additions(scenario: Scenario) -> tuple[GraphAddition, ...]:
    """Return the arrays that a scenario's open decisions and processes add, in order."""
    parameters, processes = system_parameters(scenario), active_processes(scenario)
    # Processes that show something under the scenario's visibility.
    active = {process.name for process in processes if process.shown}
    walks = {seen.carried for p in processes if p.name == MOBILITY for seen in p.shown}
    seen = opened_features(scenario)
    opened = [feature for feature in seen if feature.axes == "N K"]
    devices = ("N", "K")
    rows = (
        (
            bool(opened),
            GraphAddition(
                "opened",
                "devices, with open decisions",
                devices,
                tuple(
                    GraphFeature(
                        *(f.name, f.meaning, f.unit),
                        BLOCKS if f.unit == "blocks" else Form(False, 0.0, 0.0, float(f.high(scenario))),
                    )
                    for f in opened
                ),
                partial(_opened, [partial(feature.value, parameters) for feature in opened]),
            ),
        ),
        (
            not active.isdisjoint(SERVER_PROCESSES),
            GraphAddition(
                "server",
                "the edge server, if it has an energy budget or tenants that come and go",
                (),
                SERVER_FEATURES,
                _server,
            ),
        ),
        *((True, _of_clusters(parameters, feature)) for feature in seen[len(opened) :]),
        (
            "heat" in active,
            GraphAddition("heat", "devices, if they warm up", devices, HEAT_FEATURES, _heat),
        ),
        (
            "x" in walks,
            GraphAddition(
                "motion",
                "devices, if they move; 0 for absent ones",
                devices,
                MOTION_FEATURES,
                partial(_motion, 0.5 * walking_side(scenario)),
            ),
        ),
        (
            "leaves_s" in walks,
            GraphAddition(
                "departure",
                "devices, if they may leave; 0 for absent ones",
                devices,
                DEPARTURE_FEATURES,
                _departure,
            ),
        ),
        (
            PRESENCE in active,
            GraphAddition(
                "stay", "devices, if they come and go; 0 for absent ones", devices, STAY_FEATURES, _stay
            ),
        ),
    )
    return tuple(addition for there, addition in rows if there)


def _of_present(state: SystemState, *columns: Array) -> Array:
    """Columns (..., N, K) as features, 0 for absent devices."""
    xp = namespace(columns[0])
    return xp.where(state.present[..., None], xp.stack(columns, axis=-1), 0.0)


def _of_clusters(parameters: Parameters, feature: Feature) -> GraphAddition:
    """An array with what schedulers see of clusters for an open decision."""
    about = f"log of 1 plus the {feature.meaning}"
    columns = graph_features((f"log_{feature.name}", about, feature.unit, ONE_PLUS))
    seen = partial(_logarithm, partial(feature.value, parameters))
    return GraphAddition(feature.name, "clusters, with an open decision", ("N",), columns, seen)


def _logarithm(value: Callable[[SystemState], Array], state: SystemState) -> Array:
    return held(log1p(value(state)))[..., None]


def _opened(values: list[Callable[[SystemState], Array]], state: SystemState) -> Array:
    xp = namespace(state.backlog)
    return _of_present(state, *(xp.astype(value(state), xp.float32) for value in values))


def _server(state: SystemState) -> Array:
    nothing = namespace(state.loss).zeros_like(state.uplink_gain[..., 0])
    queue = nothing if state.server_backlog is None else at_most(log1p(state.server_backlog), LOG_BOUND)
    return namespace(state.loss).stack((queue, 1.0 - state.server_share), axis=-1)


def _heat(state: SystemState) -> Array:
    seen = state.processes["heat"]
    return _of_present(state, seen["headroom"], seen["share"])


def _motion(half: float, state: SystemState) -> Array:
    """Places from the middle of the square and speeds, within their bounds."""
    walk = state.processes[MOBILITY]
    xp = namespace(walk["x"])
    columns = zip((walk["x"] - half, walk["y"] - half, walk["speed"]), MOTION_FEATURES, strict=True)
    return _of_present(
        state, *(xp.clip(column, feature.form.low, feature.form.high) for column, feature in columns)
    )


def _departure(state: SystemState) -> Array:
    return _of_present(state, state.processes[MOBILITY]["leaves_s"])


def _stay(state: SystemState) -> Array:
    stay = state.processes[PRESENCE]
    xp = namespace(stay["since_s"])
    since = xp.log(1.0 + xp.clip(stay["since_s"], 0.0, LONGEST_S))
    return _of_present(state, xp.astype(stay["announced"], since.dtype), since)
