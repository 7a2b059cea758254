"""Option of a cluster in one number: its micro-batches, and its setting of recomputation.

``M`` stands for the setting of the scenario's workload, ``-M`` for the other one, which only scenarios that
open the decision allow. The search hands options on where it would hand on numbers of micro-batches.
"""

from __future__ import annotations

import numpy as np

from collapipe_env.allocation import Allocation
from collapipe_env.arrays import FloatArray, IntArray
from collapipe_env.compiled import compiled_inner, compiled_leaf, inlined

from .round_input import RoundInput


@inlined
def micro_batches_of(option: float) -> float:
    """``M`` of an option."""
    return abs(option)


@inlined
def ratio_of(option: float, inputs: RoundInput) -> float:
    """Cost of a device's backward pass over that of its forward pass, ``rho``, under an option."""
    ratio: float = inputs.ratio[1] if option < 0.0 else inputs.ratio[0]
    return ratio


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
    M = abs(option)
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
    """Whether recomputation is to be decided: the first choice, the least, is negative then."""
    return bool(inputs.choices[0] < 0.0)


def options_of(plan: Allocation, *, recompute: bool) -> FloatArray:
    """Options of a plan's clusters (..., N).

    Args:
        plan: The plan (...).
        recompute: The workload's setting of recomputation.
    """
    counts = np.asarray(plan.micro_batches, dtype=np.float64)
    if plan.recompute is None:
        return counts
    chosen = np.asarray(plan.recompute)
    own = (chosen < 0) | ((chosen > 0) == recompute)
    return np.where(own, counts, -counts)


def recomputes(options: FloatArray, *, recompute: bool) -> IntArray:
    """Whether clusters recompute (..., N), 0 or 1.

    Args:
        options: Their options (..., N).
        recompute: The workload's setting of recomputation.
    """
    chosen: IntArray = ((options < 0.0) != recompute).astype(np.int64)
    return chosen
