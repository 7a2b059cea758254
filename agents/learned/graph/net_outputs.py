"""Decisions from the numbers of the net's heads, for numbers and arrays alike."""

from __future__ import annotations

from collapipe_env.ground.arrays import Array, exp, log1p
from collapipe_env.ground.compiled import jitable

OFFSETS = 9
"""Counts, from 0, whose logits have an offset of their own."""
STEEPEST = 8.0
"""Steepest slope of the logits around the wanted count."""


@jitable
def sigmoid(x: Array) -> Array:
    """``1 / (1 + exp(-x))``."""
    return 1.0 / (1.0 + exp(-x))


@jitable
def power_of(raw: Array) -> Array:
    """Power in decibels, 0 for the least and 1 for the greatest."""
    return sigmoid(raw)


@jitable
def wanted_micro_batches(raw: Array) -> Array:
    """Wanted number of micro-batches, as its logarithm to the base 2."""
    return 4.0 + 2.0 * raw


@jitable
def bell(count: Array, raw_wanted: Array, raw_steep: Array, mean_blocks: Array) -> Array:
    """Logits of counts around a wanted one.

    Far from the middle they are straight lines, so that gradients stay bounded.

    Args:
        raw_wanted: The head's number for the wanted count.
        raw_steep: The head's number for the slope.
        mean_blocks: Blocks of a device on average.
    """
    wanted = log1p(exp(raw_wanted + 0.5413)) * mean_blocks
    apart = count - wanted
    steep: Array = STEEPEST * sigmoid(raw_steep - 1.5)
    return -steep * ((1.0 + apart * apart) ** 0.5 - 1.0)
