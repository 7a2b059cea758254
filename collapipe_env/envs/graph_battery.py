"""Features of the graph observation for scenarios in which devices have batteries."""

from __future__ import annotations

from collapipe_env.arrays import Array, at_least, namespace
from collapipe_env.dynamics.battery import BATTERY
from collapipe_env.envs.graph_observation import FLAG, ONE_PLUS, SHARE, GraphFeature
from collapipe_env.simulator.state import SystemState

BATTERY_FEATURES = (
    GraphFeature("level", "charge of the battery over what it holds", "1", SHARE),
    GraphFeature("eligible", "1 for a device whose battery lets it take part", "1", FLAG),
    GraphFeature("log_harvest_w", "log of 1 plus the power of the source that charges it", "W", ONE_PLUS),
)
"""Features of devices with batteries, in this order."""


def seen_batteries(state: SystemState, battery_j: float) -> Array:
    """Features of devices with batteries (..., N, K, len(BATTERY_FEATURES)).

    Devices that are away are also shown, because their charge decides whether they may return. Slots without
    a device hold 0.

    Args:
        state: The system (...), with the process ``battery``.
        battery_j: Energy of a full battery [J].
    """
    battery = state.processes[BATTERY]
    charge = battery["charge"]
    xp = namespace(charge)
    harvest = battery["harvest_w"] if "harvest_w" in battery else xp.zeros_like(charge)
    level = xp.clip(charge / battery_j, 0.0, 1.0)
    eligible = xp.astype(battery["eligible"], charge.dtype)
    return xp.stack((level, eligible, xp.log1p(at_least(harvest, 0.0))), axis=-1)
