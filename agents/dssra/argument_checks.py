"""Checks of arguments; errors name the caller, the argument, the expected value and the given one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

from collapipe_env.ground.errors import AllocationError, shown

ABOVE_0, FINITE = math.nextafter(0.0, 1.0), math.nextafter(math.inf, 0.0)
"""Least and greatest finite numbers above 0."""


def require_number(
    caller: str, name: str, value: Any, expected: str, low: float = -math.inf, high: float = math.inf
) -> float:
    """Return an argument that is a number from ``low`` to ``high``, which ``expected`` says in words.

    Raises:
        AllocationError: If it is not a real number, is NaN or lies outside the range.
    """
    real = isinstance(value, Real) and not isinstance(value, bool)
    if not (real and low <= value <= high):
        raise _refusal(caller, name, expected, value)
    return float(value)


def require_whole(caller: str, name: str, value: Any, least: int) -> int:
    """Return an argument that is a whole number of at least ``least``.

    Raises:
        AllocationError: If it is not.
    """
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not (whole and value >= least):
        raise _refusal(caller, name, f"a whole number of at least {least}", value)
    return int(value)


def require_choice(caller: str, name: str, value: object, choices: Sequence[str]) -> None:
    """Refuse an argument that is not one of the given texts.

    Raises:
        AllocationError: If it is not one of them.
    """
    if not isinstance(value, str) or value not in choices:
        raise _refusal(caller, name, " or ".join(map(repr, choices)), value)


def require_weights(caller: str, tradeoff_v: object, convergence_weight: object) -> tuple[float, float]:
    """Return a trade-off ``V`` [1/s] and a weight ``c`` of the convergence term.

    Raises:
        AllocationError: If ``V`` is not finite and above 0, or ``c`` not finite and at least 0.
    """
    weight, expected = convergence_weight, "a finite number of at least 0"
    return (
        require_number(caller, "tradeoff_v", tradeoff_v, "a finite number above 0", ABOVE_0, FINITE),
        require_number(caller, "convergence_weight", weight, expected, 0.0, FINITE),
    )


def _refusal(caller: str, name: str, expected: str, value: object) -> AllocationError:
    return AllocationError(f"{caller}({name}: expected {expected}, got {shown(value)})")
