"""Cases of which some run by default and the others with the slow tests."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def mostly_slow(cases: Iterable[Any], quick: Collection[int] = (0,)) -> list[Any]:
    """Mark cases as slow, but for a few.

    For tests whose cases differ in a detail: the default run plays enough of them to notice a break.

    Args:
        cases: Values of parameters, or ``pytest.param`` of them, whose marks stay.
        quick: Places of those that the default run plays.
    """
    return [case if place in quick else _slow(case) for place, case in enumerate(cases)]


def _slow(case: Any) -> Any:
    if hasattr(case, "marks"):  # pytest.param
        return pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.slow])
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
