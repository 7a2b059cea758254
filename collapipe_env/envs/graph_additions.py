"""Arrays of the graph observation that only some scenarios have: one of each owner."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from collapipe_env.dynamics.mobility import ANNOUNCED_S
from collapipe_env.dynamics.presence import PRESENCE
from collapipe_env.envs.features import carried, features_of
from collapipe_env.envs.graph_features import (
    FLAG,
    ONE_PLUS,
    SHARE,
    Form,
    GraphArray,
    GraphFeature,
)
from collapipe_env.ground.arrays import Array, at_most, namespace
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.feature import Feature
from collapipe_env.simulator.state import SystemState
from collapipe_env.simulator.system import MOBILITY, walking_side

LONGEST_S = 1e9
"""Longest stay that is shown [s]."""
_PLACE, _SPEED = Form(-5e3, 5e3), Form(0.0, 1e3)
"""Furthest places [m] and greatest speed [m/s] that are shown."""


def build(array: GraphArray, state: SystemState) -> Array:
    """The array (..., *axes, features) of a state (...) of any array library, float32; 0 for absent devices.

    Args:
        array: One of :func:`graph_additions`.
    """
    xp, real = namespace(state.loss), state.loss.dtype
    numbers = [f.form.of(xp.astype(f.value(state), real, copy=False)) for f in array.features if f.value]
    found = xp.stack(numbers, axis=-1)
    if array.axes == "N K":
        found = xp.where(state.present[..., None], found, 0.0)
    return xp.astype(found, xp.float32)


def graph_additions(scenario: Scenario) -> tuple[GraphArray, ...]:
    """Return the arrays that the features of a scenario add, in order."""
    features = features_of(scenario)
    names = {feature.name for feature in features}
    named = dict.fromkeys(feature.array for feature in features if feature.array)
    return (
        *(_array(name, [f for f in features if f.array == name]) for name in named),
        *(array for needs, array in _of_processes(scenario) if names & needs),
    )


def _array(name: str, features: list[Feature]) -> GraphArray:
    """Array of the features that name it."""
    axes = features[0].axes
    found = []
    for f in features:
        quantity = f.name.removeprefix("device_").removeprefix("cluster_")
        about, form = (f"the {f.about}", ONE_PLUS) if f.log1p else (f.about, Form(f.low, f.high))
        found.append(GraphFeature(quantity, about, f.unit, form, f.read))
    meaning = {"N K": "devices; 0 for absent ones", "N": "clusters", "": "the system"}
    return GraphArray(name, meaning[axes], axes, tuple(found))


def _of_processes(scenario: Scenario) -> Iterator[tuple[set[str], GraphArray]]:
    """Arrays of processes, and the features of the flat observation of which one must be there for it."""
    feature = GraphFeature
    about = "the edge server, if it has an energy budget or tenants that come and go"
    queue = "the energy queue z of the server, 0 without a budget"
    tenants = "share of the server used by tenants that come and go"
    server = (
        feature("backlog", queue, "budgets", ONE_PLUS, _server_queue),
        feature("tenants", tenants, "1", SHARE, _tenants_share),
    )
    yield {"server_backlog", "tenants_share"}, GraphArray("server", about, "", server)

    headroom = "thermal headroom: the governor's temperature over its set point, counted from 25 C"
    left = "share of the full clock that heat leaves"
    heat = (
        feature("headroom", headroom, "1", Form(0.0, 1.5), partial(carried, "heat", "headroom")),
        feature("clock_share", left, "1", SHARE, partial(carried, "heat", "share")),
    )
    yield {"heat_headroom"}, GraphArray("heat", "devices, if they warm up", "N K", heat)

    middle, place = 0.5 * walking_side(scenario), "place of the device, {}wards from its control unit"
    motion = (
        feature("east_m", place.format("east"), "m", _PLACE, partial(_from_middle, "x", middle)),
        feature("north_m", place.format("north"), "m", _PLACE, partial(_from_middle, "y", middle)),
        feature("speed_m_s", "speed of the device", "m/s", _SPEED, partial(carried, MOBILITY, "speed")),
    )
    about = "devices, if they move; 0 for absent ones"
    yield {f"{MOBILITY}_x"}, GraphArray("motion", about, "N K", motion)

    leaves = f"time until the device leaves on its present course; {ANNOUNCED_S:g} where it does not"
    value = partial(carried, MOBILITY, "leaves_s")
    departure = (feature("leaves_s", leaves, "s", Form(0.0, ANNOUNCED_S), value),)
    about = "devices, if they may leave; 0 for absent ones"
    yield {f"{MOBILITY}_leaves_s"}, GraphArray("departure", about, "N K", departure)

    announced = "1 for a device that is about to leave, and says so"
    since = "the time since the device came, or since the episode began"
    stay = (
        feature("announced", announced, "1", FLAG, partial(carried, PRESENCE, "announced")),
        feature("since_s", since, "s", ONE_PLUS, _since),
    )
    about = "devices, if they come and go; 0 for absent ones"
    yield {f"{PRESENCE}_announced", f"{PRESENCE}_since_s"}, GraphArray("stay", about, "N K", stay)


def _server_queue(state: SystemState) -> Array:
    backlog = state.server_backlog
    return namespace(state.loss).zeros_like(state.server_share) if backlog is None else backlog


def _tenants_share(state: SystemState) -> Array:
    return 1.0 - state.server_share


def _from_middle(name: str, middle: float, state: SystemState) -> Array:
    """Coordinate of devices, from the middle of the square [m]."""
    return state.processes[MOBILITY][name] - middle


def _since(state: SystemState) -> Array:
    return at_most(state.processes[PRESENCE]["since_s"], LONGEST_S)
