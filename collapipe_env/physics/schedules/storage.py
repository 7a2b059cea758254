"""Storage of activations: micro-batches that each stage keeps under a schedule, and the memory they need.

One rule (`algorithms.md` section 5.2, [R], [X]): GPipe stores ``M``; 1F1B ``min(K_s, M)``; async
``min(K_s, H M)``; ZB-H1 its limit; interleaved the chunks in flight, each counted as the stage's largest. A
micro-batch in flight at a stage is in flight at every stage before it, so ``K_s`` is the least cap so far.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collapipe_env.ground.arrays import Array, FloatArray, IntArray, from_host, loop_array, namespace, on_host
from collapipe_env.ground.compiled import compiled, compiled_leaf
from collapipe_env.physics.allocation import ASYNC, GPIPE, INTERLEAVED, ZERO_BUBBLE, Allocation
from collapipe_env.physics.workload import RecomputationTerms, WorkloadCosts


@compiled_leaf
def stored_in_stage(
    schedule: int, cap: int, held: int, chunks: int, micro_batches: int, local_steps: float
) -> float:
    """Micro-batches whose activations one stage has room for.

    Args:
        schedule: Place in ``SCHEDULES``.
        cap: Its own cap under ``zb-h1``, otherwise the least one up to it.
        held: Blocks, >= 1.
        chunks: ``v``.
        micro_batches: ``M``.
        local_steps: ``H``.
    """
    if schedule == GPIPE:
        return float(micro_batches)
    if schedule == ASYNC:
        return float(min(cap, local_steps * micro_batches))
    if schedule == INTERLEAVED:
        largest = -(-held // chunks)
        return min(cap, micro_batches * chunks) * (largest / held)
    return float(min(cap, micro_batches))


@compiled
def stored_by_stage(
    schedule: int, caps: IntArray, blocks: IntArray, chunks: int, micro_batches: int, local_steps: float
) -> FloatArray:
    """Micro-batches whose activations each stage of a chain has room for (S,), 0 in stages without blocks.

    Args:
        schedule: Place in ``SCHEDULES``.
        caps: Caps in pipeline order (S,), >= 1 in stages with blocks.
        blocks: Blocks (S,).
        chunks: ``v``.
        micro_batches: ``M``.
        local_steps: ``H``.
    """
    S = len(caps)
    stored = np.zeros(S)
    running = np.iinfo(np.int64).max
    for s in range(S):
        if blocks[s] <= 0:
            continue
        running = min(running, caps[s])
        cap = caps[s] if schedule == ZERO_BUBBLE else running
        stored[s] = stored_in_stage(schedule, cap, blocks[s], chunks, micro_batches, local_steps)
    return stored


@compiled
def _store_rows(
    schedule: IntArray,
    caps: IntArray,
    blocks: IntArray,
    chunks: IntArray,
    micro_batches: IntArray,
    local_steps: IntArray,
    stored: FloatArray,
) -> None:
    """Write :func:`stored_by_stage` of each row (R, K)."""
    for r in range(len(stored)):
        stored[r] = stored_by_stage(
            schedule[r], caps[r], blocks[r], chunks[r], micro_batches[r], local_steps[r]
        )


def stored_micro_batches(allocation: Allocation, local_steps: int) -> FloatArray:
    """Micro-batches whose activations each stage slot has room for (..., N, K), 0 in slots without blocks.

    Args:
        local_steps: ``H`` of the workload, for plans that name none.
    """
    schedules = allocation.schedules
    slots = [on_host(a) for a in (schedules.caps, allocation.blocks)]
    steps = allocation.whole_steps(local_steps)
    given = (schedules.schedule, schedules.chunks, allocation.micro_batches, steps)
    clusters = [on_host(a) for a in given]
    shape = np.broadcast_shapes(*(a.shape for a in slots), *((*a.shape, 1) for a in clusters[:3]))
    K = shape[-1]

    def rows(array: npt.NDArray[Any], *last: int) -> IntArray:
        whole = np.broadcast_to(array, (*shape[:-1], *last)).reshape(-1, *last)
        return loop_array(whole, np.int64)

    caps, blocks = (rows(a, K) for a in slots)
    schedule, chunks, micro_batches, taken = (rows(a) for a in clusters)
    stored = np.empty(blocks.shape)
    _store_rows(schedule, caps, blocks, chunks, micro_batches, taken, stored)
    return stored.reshape(shape)


def memory_terms(
    costs: WorkloadCosts, allocation: Allocation, terms: RecomputationTerms
) -> tuple[Array | float, Array | float, Array | float]:
    """Terms of a plan's memory: samples in flight, bytes of a block's state, and the working set.

    Args:
        allocation: Any plan (...).

    Returns:
        ``m_s y_k b`` (..., N, K) or a number; ``16 w`` per block, with a second copy of the weights
        under ``async`` (..., N, 1) or a number; and ``y_k b omega`` (..., N, K), 0 where nothing is hosted,
        or the number 0.
    """
    samples: Array | float = costs.batch_size
    state: Array | float = costs.block_state_bytes
    if allocation.is_scheduled:
        like = allocation.device_power
        stored = stored_micro_batches(allocation, costs.local_steps)
        samples_each = costs.batch_size / on_host(allocation.micro_batches).astype(np.float64)
        samples = allocation.per_device(from_host(stored * samples_each[..., None], like))
        extra = np.where(on_host(allocation.schedule) == ASYNC, costs.block_copy_bytes, 0.0)
        state = from_host(costs.block_state_bytes + extra, like)[..., None]
    samples = allocation.of_share(samples)
    return samples, state, _working_set(costs, allocation, terms.working_bytes, samples)


def _working_set(
    costs: WorkloadCosts, allocation: Allocation, working_bytes: Array | float, in_flight: Array | float
) -> Array | float:
    """Bytes that backward passes recompute, ``y_k b omega`` (..., N, K), or the number 0.

    Under ZB-H1 the weight gradients of a micro-batch need what its backward pass has recomputed. So the
    working sets of all blocks and of all micro-batches in flight are counted: recomputing saves nothing.
    """
    if isinstance(working_bytes, int | float) and not working_bytes:
        return 0.0
    xp = namespace(allocation.device_power)
    real = allocation.device_power.dtype
    blocks = xp.astype(allocation.device_blocks, real)
    samples = allocation.of_share((costs.batch_size / xp.astype(allocation.micro_batches, real))[..., None])
    working = xp.where(blocks > 0, samples * working_bytes, xp.zeros_like(blocks))
    waits = (allocation.schedules.schedule == ZERO_BUBBLE)[..., None]
    return xp.where(waits, blocks * in_flight * working_bytes, working)
