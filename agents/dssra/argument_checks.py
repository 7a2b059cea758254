"""Checks of arguments; errors name the caller, the argument, the expected value and the given one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

from collapipe_env.ground.errors import AllocationError, shown


def require_number(
    caller: str, name: str, value: Any, expected: str, low: float = -math.inf, high: float = math.inf
) -> float:
    """Return an argument that is a number within a range.

    Args:
        caller: Class or function that received it.
        expected: The range in words.
        low: Least value; ``math.nextafter`` gives one that is excluded.
        high: Greatest value.

    Raises:
        AllocationError: If it is not a real number, is NaN or lies outside the range.
    """
    real = isinstance(value, Real) and not isinstance(value, bool)
    if not (real and low <= value <= high):
        raise _refusal(caller, name, expected, value)
    return float(value)


def require_whole(caller: str, name: str, value: Any, least: int) -> int:
    """Return an argument that is a whole number.

    Args:
        caller: Class or function that received it.
        least: Least value.

    Raises:
        AllocationError: If it is not a whole number, or is less than ``least``.
    """
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not (whole and value >= least):
        raise _refusal(caller, name, f"a whole number of at least {least}", value)
    return int(value)


def require_choice(caller: str, name: str, value: object, choices: Sequence[str]) -> None:
    """Refuse an argument that is not one of the given texts.

    Args:
        caller: Class or function that received it.
        choices: The texts.

    Raises:
        AllocationError: If it is not one of them.
    """
    if not isinstance(value, str) or value not in choices:
        raise _refusal(caller, name, " or ".join(map(repr, choices)), value)


def require_weights(caller: str, tradeoff_v: object, convergence_weight: object) -> tuple[float, float]:
    """Return a trade-off and a weight of the convergence term.

    Args:
        caller: Class or function that received them.
        tradeoff_v: ``V`` [1/s], finite and above 0.
        convergence_weight: ``c``, finite and at least 0.

    Raises:
        AllocationError: Names the number and its range.
    """
    above, most = math.nextafter(0.0, 1.0), math.nextafter(math.inf, 0.0)
    return (
        require_number(caller, "tradeoff_v", tradeoff_v, "a finite number above 0", above, most),
        require_number(
            caller, "convergence_weight", convergence_weight, "a finite number of at least 0", 0.0, most
        ),
    )


def _refusal(caller: str, name: str, expected: str, value: object) -> AllocationError:
    return AllocationError(f"{caller}({name}: expected {expected}, got {shown(value)})")
