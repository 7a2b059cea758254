"""Memory of a device: a plan's need, and the blocks that fit (`system_model.md` section 6)."""

from __future__ import annotations

from collapipe_env.ground.arrays import Array, at_least, floor, whole
from collapipe_env.physics.workload import WorkloadCosts


def device_memory(
    blocks: Array,
    samples_in_flight: Array | float,
    block_state_bytes: Array | float,
    activation_bytes: Array | float,
    working_bytes: Array | float = 0.0,
) -> Array:
    """Memory that each device needs, ``delta (16 w + m y b alpha) + y b omega``.

    ``16 w`` is the state of a block with 32 bits everywhere. Where activations are recomputed, ``alpha``
    covers only the input of a block, and ``omega`` the activations restored for its backward pass, one block
    at a time.

    Args:
        blocks: Blocks of the stage that each device hosts (..., K), 0 where it hosts none.
        samples_in_flight: Samples ``m y b`` whose activations the device holds at once (..., K);
            for GPipe ``y B``.
        block_state_bytes: ``16 w`` of one block [byte], or an array (..., 1).
        activation_bytes: ``alpha`` per sample and block [byte], or an array (..., 1).
        working_bytes: ``y b omega`` of each device (..., K) [byte], 0 where it hosts none; or a number.

    Returns:
        Bytes (..., K).
    """
    return blocks * (block_state_bytes + samples_in_flight * activation_bytes) + working_bytes


def memory_cap_blocks(
    memory_bytes: Array,
    samples_in_flight: Array | float,
    block_state_bytes: float,
    activation_bytes: Array | float,
    working_bytes: Array | float = 0.0,
) -> Array:
    """Largest number of whole blocks that fits a device's memory.

    Args:
        memory_bytes: Memory each device offers (..., K) [byte].
        samples_in_flight: Samples in flight at once (GPipe: the whole mini-batch ``B``), or an array
            (..., 1).
        block_state_bytes: ``16 w`` of one block [byte].
        activation_bytes: ``alpha`` per sample and block [byte], or an array (..., 1).
        working_bytes: ``b omega`` that a device needs in addition to its first block [byte], or an array
            (..., 1).

    Returns:
        Caps (..., K), whole numbers in the input's floating type.
    """
    room = at_least(memory_bytes - working_bytes, 0.0)
    return floor(room / (block_state_bytes + samples_in_flight * activation_bytes))


def samples_beside(
    memory_bytes: Array,
    blocks: Array,
    block_state_bytes: Array | float,
    activation_bytes: Array | float,
) -> Array:
    """Samples whose activations fit beside the state of some blocks: the inverse of :func:`device_memory`.

    Args:
        memory_bytes: Memory that the device offers, less its working set [byte].
        blocks: Blocks that it holds, > 0, of a compatible shape.
        block_state_bytes: ``16 w`` of one block [byte].
        activation_bytes: ``alpha`` per sample and block [byte].

    Returns:
        ``(memory / delta - 16 w) / alpha``, a real number with rounding errors, below 0 where not even the
        state fits; :func:`fits` decides about a whole number.
    """
    return (memory_bytes / blocks - block_state_bytes) / activation_bytes


def memory_caps(costs: WorkloadCosts, memory_bytes: Array) -> Array:
    """Blocks that fit memories under GPipe, of the same shape, int64: the cap used to decode every plan.

    They fit with any allowed number of micro-batches: working sets are those of the largest micro-batch.

    Args:
        memory_bytes: Memory that each device offers (..., K) [byte].
    """
    return whole(memory_cap_blocks(memory_bytes, *gpipe_needs(costs)))


def gpipe_needs(costs: WorkloadCosts) -> tuple[float, float, float, float]:
    """Numbers of :func:`memory_cap_blocks` after the memory, for :func:`memory_caps`."""
    return (
        float(costs.batch_size),
        float(costs.block_state_bytes),
        float(costs.stored_activation_bytes),
        float(costs.batch_size / costs.fewest_micro_batches * costs.working_bytes),
    )


def fits(needed_bytes: Array, memory_bytes: Array, slack: float = 0.0) -> Array:
    """Whether a plan's need fits the memory: the common rule of checks and planners.

    Args:
        needed_bytes: :func:`device_memory` [byte], any shape.
        memory_bytes: Memory that the device offers [byte], of that shape.
        slack: Fraction of the memory by which rounding may exceed it.
    """
    return needed_bytes <= memory_bytes * (1.0 + slack)
