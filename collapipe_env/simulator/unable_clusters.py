"""Plans for systems in which some clusters cannot hold the encoder, and sit the round out ([X])."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from collapipe_env.ground.arrays import BoolArray
from collapipe_env.physics.allocation import Allocation
from collapipe_env.simulator.state import SystemState

PLENTY = 1e15
"""Memory assumed on devices of unable clusters while a plan is searched [byte]."""
WHOLE = 1e-9
"""Distance of the sum of shares from 1 up to which they count as the whole uplink."""


def with_room_everywhere(state: SystemState, able: BoolArray, blocks: int) -> SystemState:
    """A state in which every cluster can hold the encoder, so that a search finds plans.

    In clusters that cannot hold it, all devices are made present, with memory for everything.

    Args:
        state: The system (E, ...).
        able: Clusters that can hold the encoder (E, N), bool.
        blocks: ``L``.
    """
    if able.all():
        return state
    each = able[..., None]
    return replace(
        state,
        memory_cap=np.where(each, state.memory_cap, blocks),
        memory_bytes=np.where(each, state.memory_bytes, PLENTY),
        present=state.present | ~each,
        # Their queues do not move in this round, so the search must ignore them.
        backlog=np.where(each, state.backlog, 0.0),
    )


def sitting_out(plan: Allocation, plays: BoolArray) -> Allocation:
    """A plan that some clusters may sit out; the others share the whole uplink in proportion.

    Args:
        plan: The plan (E, ...).
        plays: Clusters that take part (E, N), bool.
    """
    share = plan.bandwidth
    used = np.where(plays, share, 0.0).sum(axis=-1, keepdims=True)
    # Shares that sum to 1 already stay as they are, to the last bit.
    off = plays & (used > 0.0) & (np.abs(used - 1.0) > WHOLE)
    share = np.where(off, share / np.where(off, used, 1.0), share)
    return replace(plan, bandwidth=share, participates=plays.astype(np.int64))
