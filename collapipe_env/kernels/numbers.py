"""Random numbers from a seed and a counter, in compiled loops (SplitMix64).

Number ``i`` of a stream is a hash of ``seed + i``: the output function of SplitMix64 (Steele, Lea and Flood,
2014, doi 10.1145/2660193.2660195), which passes BigCrush. Nothing is stored between rounds, rows do not
depend on each other, and a loop over a whole batch needs no generator object for each row: NumPy's generators
take several times as long for the fading of a round. Seeds come from NumPy's seed sequences
(:mod:`collapipe_env.dynamics.randomness`).
"""

from __future__ import annotations

import numpy as np

from collapipe_env.arrays import FloatArray, WordArray
from collapipe_env.compiled import compiled, inlined


@inlined
def number(word: np.uint64) -> float:
    """A number in (0, 1), both ends excluded, from the sum of a seed and a counter."""
    z = word * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    # 52 bits and a half: no number is rounded to 1.
    return (float(z >> np.uint64(12)) + 0.5) * 2.220446049250313e-16


@compiled
def products(seeds: WordArray, rounds: WordArray, stride: int, factors: int, out: FloatArray) -> None:
    """Write products of uniform numbers; their negative logarithms are Erlang distributed.

    Args:
        seeds: The rows' seeds (R,).
        rounds: How many rounds of the streams were used before (R,).
        stride: Numbers that a round uses, at least ``factors`` times the columns of ``out``.
        factors: Numbers in a product, 1 for the uniform numbers themselves.
        out: (R, C), written.
    """
    R, C = out.shape
    for r in range(R):
        word = seeds[r] + rounds[r] * np.uint64(stride)
        for i in range(C):
            out[r, i] = number(word + np.uint64(i))
        # Neighbouring columns in the inner loop: the processor computes several at once.
        for _ in range(1, factors):
            word += np.uint64(C)
            for i in range(C):
                out[r, i] *= number(word + np.uint64(i))
