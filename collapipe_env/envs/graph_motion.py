"""Features of the graph observation for scenarios in which devices move."""

from __future__ import annotations

from collapipe_env.dynamics.mobility import ANNOUNCED_S
from collapipe_env.envs.graph_observation import Form, GraphFeature
from collapipe_env.ground.arrays import Array, namespace
from collapipe_env.simulator.state import SystemState
from collapipe_env.simulator.system import MOBILITY

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


def seen_motion(state: SystemState, side: float) -> Array:
    """Features of devices that move (..., N, K, len(MOTION_FEATURES)), 0 for absent ones.

    Args:
        state: The system (...), with the process ``mobility``.
        side: Side of the square that devices walk in [m].
    """
    walk, half = state.processes[MOBILITY], 0.5 * side
    xp = namespace(walk["x"])
    columns = (walk["x"] - half, walk["y"] - half, walk["speed"])
    held = [
        xp.clip(column, feature.form.low, feature.form.high)
        for column, feature in zip(columns, MOTION_FEATURES, strict=True)
    ]
    return xp.where(state.present[..., None], xp.stack(held, axis=-1), 0.0)


def seen_departures(state: SystemState) -> Array:
    """Features of devices that may leave (..., N, K, len(DEPARTURE_FEATURES)), 0 for absent ones.

    Args:
        state: The system (...), with the process ``mobility`` in an open area.
    """
    seconds = state.processes[MOBILITY]["leaves_s"]
    xp = namespace(seconds)
    return xp.where(state.present, seconds, 0.0)[..., None]
