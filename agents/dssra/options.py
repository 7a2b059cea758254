"""Option of a cluster in one number: micro-batches, setting of recomputation and blocks left to the server.

``M`` means the workload's own setting of recomputation and ``-M`` the other one. Every encoder block that the
server runs adds ``SERVER_BLOCK`` to the magnitude. Both occur only where the scenario opens these decisions.
The search passes options wherever it would otherwise pass numbers of micro-batches.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled_inner, compiled_leaf, inlined
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.parameters import Numbers

from .round_input import RoundInput

SERVER_BLOCK = 2.0**24
"""Magnitude of a block on the server in an option, larger than any number of micro-batches."""
NOTHING: Any = np.int64(0)
ONE: Any = np.int64(1)
"""No block and one block. For plain numbers, Numba would compile callees once more."""


@inlined
def micro_batches_of(option: float) -> float:
    """``M`` of an option."""
    return abs(option) % SERVER_BLOCK


@inlined
def server_blocks_of(option: float) -> int:
    """Encoder blocks that the server runs under an option."""
    return int(abs(option) / SERVER_BLOCK)


@inlined
def with_server_blocks(option: float, blocks: int) -> float:
    """The option with another number of blocks on the server, otherwise unchanged."""
    size = abs(option) % SERVER_BLOCK + blocks * SERVER_BLOCK
    return -size if option < 0.0 else size


@inlined
def ratio_of(option: float, inputs: RoundInput) -> float:
    """Cost of a device's backward pass over that of its forward pass, ``rho``, under an option."""
    ratio: float = inputs.ratio[1] if option < 0.0 else inputs.ratio[0]
    return ratio


@inlined
def server_seconds_of(option: float, inputs: RoundInput, parameters: Numbers) -> float:
    """Time of the server's forward pass of one sample under an option [s]."""
    kept = server_blocks_of(option)
    seconds: float = parameters.server_seconds + kept * parameters.server_block_seconds
    seconds /= inputs.server_share[0]
    return seconds


@inlined
def update_bits_of(option: float, parameters: Numbers) -> float:
    """A cluster's update under an option [bit]: blocks that the server trains need no transfer."""
    kept = server_blocks_of(option)
    bits: float = parameters.update_bits - kept * parameters.block_payload_bits
    return bits


@compiled_leaf
def saving_of(n: int, option: float, inputs: RoundInput) -> float:
    """Seconds by which another schedule than GPipe shortens a cluster's local step under an option."""
    if inputs.saving.shape[1] == 0:
        return 0.0
    sought = with_server_blocks(option, NOTHING)
    for choice in range(inputs.choices.shape[0]):
        if inputs.choices[choice] == sought:
            return float(inputs.saving[n, choice])
    return 0.0


@inlined
def cap_at(n: int, k: int, option: float, inputs: RoundInput) -> int:
    """Blocks that device k of a cluster can hold under an option."""
    cap: int = inputs.other_cap[n, k] if option < 0.0 else inputs.cap[n, k]
    return cap


@compiled_inner
def caps_of(n: int, option: float, inputs: RoundInput) -> IntArray:
    """Blocks that each device of a cluster can hold under an option (K,)."""
    caps = np.empty(inputs.cap.shape[1], dtype=np.int64)
    for k in range(caps.shape[0]):
        caps[k] = cap_at(n, k, option, inputs)
    return caps


@inlined
def block_joules(n: int, k: int, option: float, inputs: RoundInput) -> float:
    """Energy of one block in the round on device k of a cluster under an option, launches included [J]."""
    M = micro_batches_of(option)
    joules: float = inputs.block_energy[n, k] + M * inputs.launch_energy[n, k]
    if option < 0.0:
        joules = inputs.other_block_energy[n, k] + M * inputs.other_launch_energy[n, k]
    return joules


@compiled_leaf
def fits_option(n: int, segments: IntArray, option: float, inputs: RoundInput) -> bool:
    """Whether a cluster's devices can hold their blocks under an option."""
    fits = True
    for k in range(segments.shape[0]):
        fits = fits and segments[k] <= cap_at(n, k, option, inputs)
    return fits


@inlined
def is_open(inputs: RoundInput) -> bool:
    """Whether recomputation is a decision; the first and least choice is then negative."""
    return bool(inputs.choices[0] < 0.0)


def options_of(plan: Allocation, *, recompute: bool) -> FloatArray:
    """Options of a plan's clusters (..., N).

    Args:
        plan: The plan (...).
        recompute: The workload's setting of recomputation.
    """
    sizes = np.asarray(plan.micro_batches, dtype=np.float64)
    sizes = sizes + SERVER_BLOCK * np.asarray(plan.server.server_blocks)
    chosen = np.asarray(plan.said("recompute"))
    own = (chosen < 0) | ((chosen > 0) == recompute)
    return np.where(own, sizes, -sizes)


def recomputes(options: FloatArray, *, recompute: bool) -> IntArray:
    """Whether clusters recompute (..., N), 0 or 1.

    Args:
        options: Their options (..., N).
        recompute: The workload's setting of recomputation.
    """
    chosen: IntArray = ((options < 0.0) != recompute).astype(np.int64)
    return chosen


def numbers_of(options: FloatArray) -> tuple[IntArray, IntArray]:
    """Micro-batches and blocks on the server (..., N), int.

    Args:
        options: Options of clusters (..., N).
    """
    kept, numbers = np.divmod(np.abs(options), SERVER_BLOCK)
    return numbers.astype(np.int64), kept.astype(np.int64)
