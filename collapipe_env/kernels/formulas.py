"""The formulas of the physics, for use in compiled loops.

They are the very functions of :mod:`collapipe_env.physics`, which work on arrays of any library: here they
are compiled for single numbers. Only the few elementary functions that they call on arrays
(:mod:`collapipe_env.ground.arrays`) have a form of their own for numbers.
"""

from __future__ import annotations

import math
from inspect import isfunction
from typing import Any

from numba import types
from numba.extending import overload, register_jitable

from collapipe_env.ground import arrays
from collapipe_env.physics import (
    delay,
    energy,
    loss_curve,
    memory,
    motion,
    overheads,
    packet_errors,
    queues,
    radio,
    rates,
    recovery,
    thermal,
)


def _is_number(value: Any) -> bool:
    return isinstance(value, types.Number | types.Boolean)


@overload(arrays.log1p, strict=False)
def _log1p(x: Any) -> Any:
    if not _is_number(x):
        return None

    def number(x: float) -> float:
        # Within two units in the last place, and faster than the C library's log1p. Where x is small, the
        # quotient undoes the rounding of 1 + x (Kahan).
        u = 1.0 + x
        if x > 0.5:
            return math.log(u)
        return x if u == 1.0 else math.log(u) * (x / (u - 1.0))

    return number


@overload(arrays.cos_sin_of_turns, strict=False)
def _cos_sin_of_turns(turns: Any) -> Any:
    if not _is_number(turns):
        return None

    def numbers(turns: float) -> tuple[float, float]:
        # Taylor series within an eighth of a turn, where sixteen powers leave only rounding errors. There are
        # no branches and calls, so the processor computes several at once.
        quarters = math.floor(4.0 * turns + 0.5)
        y = (2.0 * math.pi) * (turns - 0.25 * quarters)
        z = y * y
        a, b, c, d = z * (1.0 / 6.0), z * (1.0 / 20.0), z * (1.0 / 42.0), z * (1.0 / 72.0)
        e, f, g = z * (1.0 / 110.0), z * (1.0 / 156.0), z * (1.0 / 210.0)
        s = y - y * a * (1.0 - b * (1.0 - c * (1.0 - d * (1.0 - e * (1.0 - f * (1.0 - g))))))
        a, b, c, d = z * 0.5, z * (1.0 / 12.0), z * (1.0 / 30.0), z * (1.0 / 56.0)
        e, f, g, h = z * (1.0 / 90.0), z * (1.0 / 132.0), z * (1.0 / 182.0), z * (1.0 / 240.0)
        k = 1.0 - a * (1.0 - b * (1.0 - c * (1.0 - d * (1.0 - e * (1.0 - f * (1.0 - g * (1.0 - h)))))))
        quarter = quarters - 4.0 * math.floor(0.25 * quarters)
        odd = quarter == 1.0 or quarter == 3.0
        cosine, sine = (s, k) if odd else (k, s)
        cosine = -cosine if quarter == 1.0 or quarter == 2.0 else cosine
        sine = -sine if quarter >= 2.0 else sine
        return cosine, sine

    return numbers


@overload(arrays.where, strict=False)
def _where(condition: Any, x: Any, y: Any) -> Any:  # noqa: ARG001 - Numba looks at the names
    if not _is_number(condition):
        return None
    return lambda condition, x, y: x if condition else y


@overload(arrays.possible, strict=False)
def _possible(condition: Any) -> Any:
    if not _is_number(condition):
        return None
    return lambda condition: condition


def _of_number(function: Any) -> Any:
    """The form for numbers of an elementary function of one array."""

    def chosen(x: Any) -> Any:
        return (lambda x: function(x)) if _is_number(x) else None

    return chosen


def _of_bound(function: Any) -> Any:
    """The form for numbers of a bound on the values of an array."""

    def chosen(values: Any, bound: Any) -> Any:  # noqa: ARG001 - Numba looks at the names
        return (lambda values, bound: function(values, bound)) if _is_number(values) else None

    return chosen


for _array, _number in (
    (arrays.log, math.log),
    (arrays.exp, math.exp),
    (arrays.expm1, math.expm1),
    (arrays.floor, math.floor),
    (arrays.whole, int),
    (arrays.sqrt, math.sqrt),
):
    overload(_array, strict=False)(_of_number(_number))
overload(arrays.at_most, strict=False)(_of_bound(min))
overload(arrays.at_least, strict=False)(_of_bound(max))

for _module in (
    delay,
    energy,
    loss_curve,
    memory,
    motion,
    overheads,
    packet_errors,
    queues,
    radio,
    rates,
    recovery,
    thermal,
):
    for _formula in vars(_module).values():
        if isfunction(_formula) and _formula.__module__ == _module.__name__:
            # A call for every device would take longer than the walk of most, who stand still.
            register_jitable(forceinline=_formula is motion.paused_and_gone)(_formula)
