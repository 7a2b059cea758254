"""Links of a pipeline plan: senders and receivers (`system_model.md` section 4).

Nodes of a cluster are the CU (node 0) and its devices (1..K). A plan's stages are visited in slot order;
stages without blocks are skipped. The CU is the group of one before the first stage and after the last. Every
hop between consecutive groups is a pipeline element of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from collapipe_env.ground.arrays import Array, concatenate, namespace
from collapipe_env.physics.allocation import Allocation


@dataclass(frozen=True, eq=False)
class PlanGraph:
    """The chain of groups that a plan forms.

    Attributes:
        active: Devices that hold a segment (..., N, K), bool.
        successor: ``successor[i, j]`` is True where node ``i`` sends activations to node ``j``
            (..., N, K+1, K+1); column 0 is the CU at the end of the chain.
        same_stage: True where two devices share a stage (..., N, K, K); ``None`` for groups of one.
        leader: The lowest-indexed device of each stage (..., N, K), bool.
        share: Sample shares with the CU's 1 in front (..., N, K+1); ``None`` for groups of one.
    """

    active: Array
    successor: Array
    same_stage: Array | None
    leader: Array
    share: Array | None

    def wrap_around(self) -> PlanGraph:
        """Return the same groups joined by one hop, from the last stage to the first (interleaved chunks)."""
        first = self.successor[..., 0, 1:]  # receivers of the CU
        last = self.successor[..., 1:, 0]  # senders to the CU
        xp = namespace(first)
        # In a chain of one stage nothing leaves the device between chunks.
        several = xp.any(first != last, axis=-1)[..., None, None]
        pairs = last[..., :, None] & first[..., None, :] & several
        join = np.concatenate if xp is np else xp.concat
        row = xp.zeros_like(pairs[..., :1, :])
        below = join((row, pairs), axis=-2)
        successor = concatenate((xp.zeros_like(below[..., :1]), below))
        return replace(self, successor=successor)

    def per_stage(self, values: Array) -> Array:
        """Group maximum at each stage's leader, zero elsewhere (..., N, K): ready for sums over stages."""
        if self.same_stage is None:
            return values
        xp = namespace(values)
        largest = xp.max(xp.where(self.same_stage, values[..., None, :], 0.0), axis=-1)
        return xp.where(self.leader, largest, 0.0)

    def per_group(self, values: Array) -> Array:
        """The same for values of nodes (..., N, K+1), where the CU is a group of its own."""
        if self.same_stage is None:
            return values
        return concatenate((values[..., :1], self.per_stage(values[..., 1:])))


def plan_graph(allocation: Allocation) -> PlanGraph:
    """Build the chain of groups of an allocation.

    Args:
        allocation: Any feasible allocation with leading axes ``...``.
    """
    blocks = allocation.blocks
    xp = namespace(blocks)
    occupied = blocks > 0
    cumulative = np.cumsum if xp is np else xp.cumulative_sum
    # Rank 1..S of each occupied slot among the occupied ones; the CU is rank 0 and rank S + 1.
    rank = cumulative(xp.astype(occupied, xp.int64), axis=-1)
    stages = rank[..., -1:]
    active, device_rank = occupied, rank
    if allocation.is_grouped:
        stage, share = allocation.groups
        slot = xp.where(stage < 0, 0, stage)
        active = (stage >= 0) & xp.take_along_axis(occupied, slot, axis=-1)
        device_rank = xp.take_along_axis(rank, slot, axis=-1)
    device_rank = xp.where(active, device_rank, -2)
    receiver = concatenate((stages + 1, device_rank))
    sender = concatenate((xp.zeros_like(stages), device_rank))
    successor = receiver[..., None, :] == sender[..., :, None] + 1
    if not allocation.is_grouped:
        return PlanGraph(active, successor, None, active, None)
    same = (device_rank[..., :, None] == device_rank[..., None, :]) & active[..., :, None]
    # A device leads its stage when no member of the stage comes before it.
    device = getattr(active, "device", None)
    places = xp.arange(active.shape[-1], device=device)
    leader = active & (xp.argmax(xp.astype(same, xp.int8), axis=-1) == places)
    ones = xp.ones(stages.shape, dtype=share.dtype, device=device)
    return PlanGraph(active, successor, same, leader, concatenate((ones, share)))
