"""Features of the graph observation for scenarios in which devices come and go."""

from __future__ import annotations

from collapipe_env.dynamics.presence import PRESENCE
from collapipe_env.envs.graph_observation import FLAG, ONE_PLUS, GraphFeature
from collapipe_env.ground.arrays import Array, namespace
from collapipe_env.simulator.state import SystemState

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


def seen_stays(state: SystemState) -> Array:
    """Features of devices that come and go (..., N, K, len(STAY_FEATURES)), 0 for absent ones.

    Args:
        state: The system (...), with the process ``presence``.
    """
    stay = state.processes[PRESENCE]
    xp = namespace(stay["since_s"])
    since = xp.log(1.0 + xp.clip(stay["since_s"], 0.0, LONGEST_S))
    columns = xp.stack((xp.astype(stay["announced"], since.dtype), since), axis=-1)
    return xp.where(state.present[..., None], columns, 0.0)
