"""Migration: optimiser moments follow their blocks from one round's plan to the next ([X]).

After the aggregation every owner of a block needs fresh weights anyway, so a moved block costs only its
optimiser's two moments in addition. Holders of blocks are an array (..., N, L, K+1), bool: column 0 for the
edge server, column ``k + 1`` for device ``k``. In a group every member holds the stage's blocks.
"""

from __future__ import annotations

from typing import NamedTuple

from collapipe_env.ground.arrays import Array, concatenate, namespace
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.segments import pipeline_blocks

STAY, TRAVEL, LOST = range(3)
"""Fates of a block's moments: they stay, travel to another device, or start again from zero."""


class Migration(NamedTuple):
    """Rules of a scenario for the moments of blocks that change hands.

    Attributes:
        block_bits: Both moments of one block [bit].
        moves: Whether moments travel; otherwise they start again from zero.
        through_cu: Whether they travel over the CU, in two hops, instead of directly.
    """

    block_bits: float
    moves: bool
    through_cu: bool


class Handover(NamedTuple):
    """Blocks whose moments change hands.

    Attributes:
        moved: Blocks whose moments node ``i`` sends to node ``j`` (..., N, K, K), devices only.
        leaving: Blocks whose moments leave a device (..., N, K), each counted once.
        moments: ``STAY``, ``TRAVEL`` or ``LOST`` for every block (..., N, L), int.
        involved: Devices that held or hold a block (..., N, K), bool.
    """

    moved: Array
    leaving: Array
    moments: Array
    involved: Array


class PhaseTimes(NamedTuple):
    """Phase in which moments or replicas travel.

    Attributes:
        duration: ``T_mig`` or ``T_rep`` (..., N) [s].
        sent: Airtime of each node (..., N, K+1) [s].
        received: Airtime that each node receives (..., N, K+1) [s].
    """

    duration: Array
    sent: Array
    received: Array


def block_holders(allocation: Allocation, blocks: int) -> Array:
    """Holders of every block under a plan (..., N, L, K+1), bool.

    Args:
        allocation: Any feasible plan (..., N, K).
        blocks: Encoder depth ``L``.
    """
    slots = pipeline_blocks(allocation)
    xp = namespace(slots)
    ends = xp.cumulative_sum(slots, axis=-1)
    index = xp.arange(blocks, device=getattr(slots, "device", None))[:, None]
    held = ((ends - slots)[..., None, :] <= index) & (index < ends[..., None, :])
    width = allocation.blocks.shape[-1]
    if held.shape[-1] > width:  # chunks: slot after slot, once for each chunk
        chunks = held.shape[-1] // width
        held = xp.any(xp.reshape(held, (*held.shape[:-1], chunks, width)), axis=-2)
    if allocation.is_grouped:
        stage = allocation.groups.stage[..., None, :]
        slot = xp.where(stage < 0, 0, stage)
        here = xp.take_along_axis(held, xp.broadcast_to(slot, (*held.shape[:-1], slot.shape[-1])), axis=-1)
        held = here & (stage >= 0)
    # Blocks after those of the devices are the server's; a plan without split training has none.
    server = index >= ends[..., None, -1:]
    return concatenate((server, held))


def handover(before: Array, present: Array, after: Array, moves: bool) -> Handover:
    """Blocks that change hands between two plans.

    The old lead, the lowest-indexed present device that holds a block, sends its moments to every device that
    holds it now and did not before. Nothing is sent between server and devices: those moments, and those
    whose holders are gone, start again from zero.

    Args:
        before: Holders in the round before (..., N, L, K+1), bool; none anywhere before the first round.
        present: Present devices (..., N, K), bool.
        after: Holders now (..., N, L, K+1), bool.
    """
    xp = namespace(before)
    held, holds = before[..., 1:] & present[..., None, :], after[..., 1:]
    new = holds & ~held
    several = xp.astype(held, xp.int64)
    lead = held & (xp.cumulative_sum(several, axis=-1) == 1)
    some_new = xp.any(new, axis=-1)
    started = xp.any(before, axis=-1)
    changed = started & (some_new | (after[..., 0] & ~before[..., 0]))
    involved = xp.any(held | holds, axis=-2)
    if not moves:
        leaving = xp.zeros_like(involved, dtype=xp.float64)
        moved = leaving[..., :, None] * leaving[..., None, :]
        return Handover(moved, leaving, LOST * xp.astype(changed, xp.int64), involved)
    travels = xp.any(held, axis=-1) & some_new
    sent, wanted = xp.astype(lead, xp.float64), xp.astype(new, xp.float64)
    moved = xp.matmul(xp.matrix_transpose(sent), wanted)
    leaving = xp.sum(sent * xp.astype(travels, xp.float64)[..., None], axis=-2)
    moments = TRAVEL * xp.astype(travels, xp.int64) + LOST * xp.astype(changed & ~travels, xp.int64)
    return Handover(moved, leaving, moments, involved)


def moving_times(change: Handover, seconds: Array, through_cu: bool) -> PhaseTimes:
    """Duration and airtimes of the phase in which moments move.

    Directly, senders and receivers serve one message at a time and pairs go in parallel: the phase lasts as
    long as its busiest sender or receiver. Over the CU, it lasts as long as the CU sends or receives.

    Args:
        seconds: Airtime of one block's moments from node to node (..., N, K+1, K+1) [s]; sender first.
    """
    xp = namespace(seconds)
    moved, leaving = (xp.astype(array, seconds.dtype) for array in change[:2])
    if through_cu:
        up = _airtime(leaving, seconds[..., 1:, 0])
        down = _airtime(xp.sum(moved, axis=-2), seconds[..., 0, 1:])
        cu_in, cu_out = xp.sum(up, axis=-1), xp.sum(down, axis=-1)
        duration = xp.where(cu_in > cu_out, cu_in, cu_out)
        sent, received = (cu_out[..., None], up), (cu_in[..., None], down)
        return PhaseTimes(duration, concatenate(sent), concatenate(received))
    times = _airtime(moved, seconds[..., 1:, 1:])
    out, into = xp.sum(times, axis=-1), xp.sum(times, axis=-2)
    duration = xp.max(xp.where(out > into, out, into), axis=-1)
    nothing = xp.zeros_like(duration)[..., None]
    return PhaseTimes(duration, concatenate((nothing, out)), concatenate((nothing, into)))


def _airtime(blocks: Array, seconds: Array) -> Array:
    """Airtime of a number of blocks; zero where nothing is sent, however bad the link."""
    return namespace(blocks).where(blocks > 0.0, blocks * seconds, 0.0)
