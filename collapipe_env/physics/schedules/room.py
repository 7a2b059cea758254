"""Room of a device's memory under a schedule: blocks, and micro-batches in flight beside them.

The inverse of :func:`collapipe_env.physics.schedules.storage.memory_terms` for groups of one device under
GPipe, 1F1B and ZB-H1, from the same formulas as every plan's memory (:mod:`collapipe_env.physics.memory`).
"""

from __future__ import annotations

from typing import NamedTuple

from collapipe_env.ground.arrays import Array, at_least, at_most, namespace
from collapipe_env.physics.allocation import GPIPE, ZERO_BUBBLE
from collapipe_env.physics.memory import device_memory, fits, memory_cap_blocks, samples_beside
from collapipe_env.physics.workload import WorkloadCosts


class StorageTerms(NamedTuple):
    """Terms of a device's memory under a schedule; arrays (..., N, 1).

    Attributes:
        least_samples: Samples whose activations it stores at least: all of the mini-batch under GPipe,
            otherwise those of one micro-batch.
        micro_batch: Samples ``b`` of a micro-batch.
        activation_bytes: Stored per sample and block [byte]: ``alpha``, under ZB-H1 ``alpha + omega``, since
            weight gradients need what a backward pass has recomputed.
        working_bytes: Working set beside the blocks [byte]: ``b omega``, under ZB-H1 0.
    """

    least_samples: Array
    micro_batch: Array
    activation_bytes: Array
    working_bytes: Array


def storage_terms(
    costs: WorkloadCosts,
    schedule: Array,
    micro_batches: Array,
    activation_bytes: Array | float,
    working_bytes: Array | float,
    like: Array,
) -> StorageTerms:
    """Return the terms of plans.

    Args:
        schedule: GPipe, 1F1B or ZB-H1, as a place in ``SCHEDULES`` (..., N).
        micro_batches: ``M`` (..., N), int.
        activation_bytes: ``alpha`` per sample and block [byte], or an array (..., N, 1).
        working_bytes: ``omega`` per sample [byte], or an array (..., N, 1).
        like: Array of the wanted real type.
    """
    xp = namespace(like)
    samples = (costs.batch_size / xp.astype(micro_batches, like.dtype))[..., None]
    nothing = xp.zeros_like(samples)
    stored, again = nothing + activation_bytes, nothing + working_bytes
    whole = nothing + costs.batch_size
    at_once, waits = (schedule == GPIPE)[..., None], (schedule == ZERO_BUBBLE)[..., None]
    return StorageTerms(
        least_samples=xp.where(at_once, whole, samples),
        micro_batch=samples,
        activation_bytes=xp.where(waits, stored + again, stored),
        working_bytes=xp.where(waits, nothing, samples * again),
    )


def blocks_that_fit(costs: WorkloadCosts, terms: StorageTerms, memory_bytes: Array) -> Array:
    """Blocks that each device can hold with the fewest samples in flight (..., N, K), at most ``L``.

    Args:
        memory_bytes: Memory that each device offers (..., N, K) [byte], 0 for absent ones.

    Returns:
        Whole numbers, int64.
    """
    caps = memory_cap_blocks(
        memory_bytes,
        terms.least_samples,
        costs.block_state_bytes,
        terms.activation_bytes,
        terms.working_bytes,
    )
    xp = namespace(caps)
    return xp.astype(at_most(caps, costs.blocks), xp.int64)


def micro_batches_that_fit(
    costs: WorkloadCosts, terms: StorageTerms, memory_bytes: Array, blocks: Array, most: Array
) -> Array:
    """Micro-batches whose activations each device can store beside its blocks (..., N, K), at least 1.

    Args:
        terms: Terms of the plans, 1F1B or ZB-H1.
        memory_bytes: Memory that each device offers (..., N, K) [byte].
        blocks: Blocks that it holds (..., N, K), int.
        most: Largest requested number (..., N, 1), int.

    Returns:
        Whole numbers from 1 to ``most``, int64.
    """
    xp = namespace(memory_bytes)
    held = xp.astype(at_least(blocks, 1), memory_bytes.dtype)

    def needed(count: Array) -> Array:
        samples = count * terms.micro_batch
        return device_memory(
            held, samples, costs.block_state_bytes, terms.activation_bytes, terms.working_bytes
        )

    room = memory_bytes - terms.working_bytes
    found = xp.floor(
        samples_beside(room, held, costs.block_state_bytes, terms.activation_bytes) / terms.micro_batch
    )
    bound = xp.zeros_like(found) + xp.astype(most, found.dtype)
    found = xp.minimum(at_least(found, 1.0), bound)
    # The quotient has rounding errors; the rule of the checks decides.
    more, fewer = found + 1.0, at_least(found - 1.0, 1.0)
    found = xp.where(fits(needed(found), memory_bytes), found, fewer)
    found = xp.where((more <= bound) & fits(needed(more), memory_bytes), more, found)
    return xp.astype(found, xp.int64)
