"""Memory of a device: what a plan needs, and what fits (`system_model.md` section 6)."""

from __future__ import annotations

from collapipe_env.arrays import Array, namespace
from collapipe_env.physics.workload import WorkloadCosts


def device_memory(
    blocks: Array, samples_in_flight: Array | float, block_state_bytes: Array | float, activation_bytes: float
) -> Array:
    """Memory that each device needs, ``delta (16 w + m y b alpha)``.

    Args:
        blocks: Blocks of the stage that each device hosts (..., K), 0 where it hosts none.
        samples_in_flight: Samples ``m y b`` whose activations the device holds at once (..., K);
            for GPipe ``y B``.
        block_state_bytes: ``16 w`` of one block [byte], or an array (..., 1).
        activation_bytes: ``alpha`` per sample and block [byte].

    Returns:
        Bytes (..., K).
    """
    return blocks * (block_state_bytes + samples_in_flight * activation_bytes)


def memory_cap_blocks(
    memory_bytes: Array, samples_in_flight: float, block_state_bytes: float, activation_bytes: float
) -> Array:
    """Largest number of whole blocks that fits a device's memory.

    Args:
        memory_bytes: Memory each device offers (..., K) [byte].
        samples_in_flight: Samples in flight at once (GPipe: the whole mini-batch ``B``).
        block_state_bytes: ``16 w`` of one block [byte].
        activation_bytes: ``alpha`` per sample and block [byte].

    Returns:
        Caps (..., K), whole numbers in the input's floating type.
    """
    xp = namespace(memory_bytes)
    return xp.floor(memory_bytes / (block_state_bytes + samples_in_flight * activation_bytes))


def samples_beside(
    memory_bytes: Array, blocks: Array, block_state_bytes: Array | float, activation_bytes: float
) -> Array:
    """Samples whose activations fit beside the state of some blocks: :func:`device_memory` solved for them.

    Args:
        memory_bytes: Memory that the device offers [byte].
        blocks: Blocks that it holds, > 0, of a shape that goes with it.
        block_state_bytes: ``16 w`` of one block [byte].
        activation_bytes: ``alpha`` per sample and block [byte].

    Returns:
        ``(memory / delta - 16 w) / alpha``, a real number up to rounding, below 0 where not even the state
        fits; :func:`fits` decides about a whole one.
    """
    return (memory_bytes / blocks - block_state_bytes) / activation_bytes


def memory_caps(costs: WorkloadCosts, memory_bytes: Array) -> Array:
    """Blocks that fit memories under GPipe, of the same shape, int64: the cap of every plan's decoding.

    Args:
        costs: Priced workload.
        memory_bytes: Memory that each device offers (..., K) [byte].
    """
    caps = memory_cap_blocks(
        memory_bytes, costs.batch_size, costs.block_state_bytes, costs.stored_activation_bytes
    )
    xp = namespace(caps)
    return xp.astype(caps, xp.int64)


def fits(needed_bytes: Array, memory_bytes: Array, slack: float = 0.0) -> Array:
    """Whether what a plan needs fits the memory; the one rule for checks and planners.

    Args:
        needed_bytes: :func:`device_memory` [byte], any shape.
        memory_bytes: Memory that the device offers [byte], of that shape.
        slack: Part of the memory by which rounding may exceed it.
    """
    return needed_bytes <= memory_bytes * (1.0 + slack)
