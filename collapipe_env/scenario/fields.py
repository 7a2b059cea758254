"""Declarations of scenario fields, each with its unit and its range in one line."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field

from collapipe_env.ground.errors import fits_a_line, shown

SPEC_CONFIG = ConfigDict(extra="forbid", allow_inf_nan=False, validate_default=True)
"""Pydantic configuration of every scenario dataclass: no unknown field, no NaN, no infinity."""


def real(
    meaning: str,
    unit: str,
    *,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
) -> Any:
    """Describe a float field with its unit and range (integers are accepted, strings and booleans are not).

    Args:
        meaning: Meaning of the number.
        unit: Unit of the number, ``"1"`` for a pure number.
        ge: Smallest allowed value, included.
        gt: Lower bound, excluded.
        le: Largest allowed value, included.
        lt: Upper bound, excluded.

    Returns:
        Field information for ``typing.Annotated``.
    """
    text = f"{meaning}; unit {unit}, {_range_text(ge, gt, le, lt)}"
    return Field(strict=True, ge=ge, gt=gt, le=le, lt=lt, description=text)


def whole(meaning: str, low: int, high: int) -> Any:
    """Describe an integer field with its range (floats, strings and booleans are not accepted).

    Args:
        meaning: The things counted.
        low: Smallest allowed value.
        high: Largest allowed value.

    Returns:
        Field information for ``typing.Annotated``.
    """
    return Field(strict=True, ge=low, le=high, description=f"{meaning}; integer, range {low} to {high}")


def described(text: str) -> Any:
    """Describe a field whose type alone states what is allowed.

    Args:
        text: Meaning, unit and range.

    Returns:
        Field information for ``typing.Annotated``.
    """
    return Field(description=text)


def require_ordered(field: str, values: Sequence[float]) -> None:
    """Refuse a list that is not strictly ascending.

    Args:
        field: The list's name, for the message.
        values: Entries of the list.

    Raises:
        ValueError: If two neighbours are equal or in descending order.
    """
    for before, after in itertools.pairwise(values):
        if not before < after:
            raise ValueError(
                f"{field} must be in ascending order without repeats, but {before:g} is followed by {after:g}"
            )


def _range_text(ge: float | None, gt: float | None, le: float | None, lt: float | None) -> str:
    """Return a range in words, such as ``"range above 0 and at most 1"``."""
    parts = []
    if ge is not None:
        parts.append(f"at least {ge:g}")
    if gt is not None:
        parts.append(f"above {gt:g}")
    if le is not None:
        parts.append(f"at most {le:g}")
    if lt is not None:
        parts.append(f"below {lt:g}")
    return "range " + (" and ".join(parts) if parts else "any finite number")


def _writable(text: str) -> str:
    """Refuse text that cannot be written to files, folders or terminals."""
    if "\0" in text:
        raise ValueError(f"{shown(text)} holds a null character; leave it out")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(f"{shown(text)} holds half of a surrogate pair, which is no character; leave it out")
    return text


Text = Annotated[str, AfterValidator(_writable)]
"""Text that can be written to files, folders and terminals."""


def _in_one_line(text: str) -> str:
    """Refuse names that tables cannot show."""
    if not fits_a_line(text):
        raise ValueError(f"{shown(text)} holds a line break or a control character; leave it out")
    return text


Name = Annotated[Text, AfterValidator(_in_one_line)]
"""Text that tables, pages and terminals can show."""

Positive = Annotated[float, Field(strict=True, gt=0.0, le=1e18)]
"""A positive finite number, for the entries of a list."""

Count = Annotated[int, Field(strict=True, ge=1, le=65536)]
"""A positive integer, for the entries of a list."""
