"""Random numbers from a seed and a counter, in compiled loops (SplitMix64).

Number ``i`` of a stream is a hash of ``seed + i``: the output function of SplitMix64 (Steele, Lea and Flood,
2014, doi 10.1145/2660193.2660195), which passes BigCrush. Nothing is stored between rounds, rows do not
depend on each other, and a loop over a whole batch needs no generator object for each row: NumPy's generators
take several times as long for the fading of a round. Seeds come from NumPy's seed sequences
(:mod:`collapipe_env.simulator.randomness`).
"""

from __future__ import annotations

import math

import numpy as np

from collapipe_env.ground.arrays import Array, FloatArray, cos_sin_of_turns, sqrt
from collapipe_env.ground.compiled import compiled, inlined, jitable

STEP = np.uint64(0x9E3779B97F4A7C15)
"""Step of the generator's state from one number to the next."""


@inlined
def number(word: np.uint64) -> float:
    """Return a number in (0, 1), both ends excluded, from the sum of a seed and a counter."""
    return number_at(word * STEP)


@inlined
def number_at(z: np.uint64) -> float:
    """Return the number of a generator's state: the sum of a seed and a counter, times :data:`STEP`."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    # 52 bits and a half: no number is rounded to 1.
    return (float(z >> np.uint64(12)) + 0.5) * 2.220446049250313e-16


@jitable
def normal_pair(logarithm: Array, u: Array) -> tuple[Array, Array]:
    """Return two independent standard normal numbers from two uniform ones (Box and Muller).

    Args:
        logarithm: Logarithm of the first uniform number, which is in (0, 1); an array or a number.
        u: The second one.
    """
    radius, (cosine, sine) = sqrt(-2.0 * logarithm), cos_sin_of_turns(u)
    return radius * cosine, radius * sine


@inlined
def normal_rows(u: FloatArray, first: int, apart: FloatArray, out: FloatArray) -> None:
    """Turn pairs of uniform numbers into normal ones.

    Args:
        u: Uniform numbers (R, ...).
        first: Column of the first pair.
        apart: Workspace for the pairs of a row (2, P).
        out: (R, 2 P) or (R, 2 P - 1), written.
    """
    R, C = out.shape
    pairs = apart.shape[1]
    for r in range(R):
        for pair in range(pairs):
            apart[0, pair] = math.log(u[r, first + 2 * pair])
            apart[1, pair] = u[r, first + 2 * pair + 1]
        # A loop of its own, without calls to the library: the processor computes several pairs at once.
        for pair in range(pairs):
            apart[0, pair], apart[1, pair] = normal_pair(apart[0, pair], apart[1, pair])
        for i in range(C):
            out[r, i] = apart[i % 2, i // 2]


@compiled
def normals(u: FloatArray, first: int, count: int) -> FloatArray:
    """Return standard normal numbers (R, count) from the columns of uniform ones from the first one on."""
    found = np.empty((u.shape[0], count))
    normal_rows(u, first, np.empty((2, (count + 1) // 2)), found)
    return found
