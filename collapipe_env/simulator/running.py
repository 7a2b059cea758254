"""The system as a plan runs it: clocks under the caps of the plan ([X])."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from collapipe_env.ground.arrays import Array
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.clock_caps import running_clocks
from collapipe_env.simulator.state import SystemState


def running_state(state: SystemState, allocation: Allocation) -> SystemState:
    """Return the system with the clocks that a plan lets devices run at; the same object without caps.

    Applying the same plan to the result changes nothing, bit for bit.

    Args:
        allocation: The plan (...), with leading axes that equal the state's or broadcast with them.
    """
    if allocation.clock_cap is None:
        return state
    return _under(state, allocation.clock_cap)


def slowest_state(state: SystemState, least: float) -> SystemState:
    """Return the system with all clocks as slow as caps allow, where energy is least.

    Args:
        state: The system (...), in NumPy arrays.
        least: Least cap, in (0, 1].
    """
    return _under(state, np.full(state.speed.shape, least))


def _under(state: SystemState, cap: Array) -> SystemState:
    """The system under caps."""
    running = running_clocks(
        state.speed, state.clock, state.compute_power, state.full_speed, state.cubic_power, cap
    )
    return replace(state, **running._asdict())
