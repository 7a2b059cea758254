"""Declarations of scenario fields, each with its unit and its range in one line."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Sequence
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
)

from pydantic import AfterValidator, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from collapipe_env.ground.errors import ScenarioError, fits_a_line, shown
from collapipe_env.scenario.validation_errors import fault_text

SPEC_CONFIG = ConfigDict(extra="forbid", allow_inf_nan=False, validate_default=True)
"""Pydantic configuration of every scenario dataclass: no unknown field, no NaN, no infinity."""


T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def spec(cls: type[T]) -> type[T]:
    """Make a class a section of scenarios: a frozen pydantic dataclass that raises ``ScenarioError``.

    Descriptions of its fields are completed by the choices of their types.
    """
    built: Any = dataclass(frozen=True, kw_only=True, config=SPEC_CONFIG)(cls)
    for field in built.__pydantic_fields__.values():
        for hint in (field.annotation, *get_args(field.annotation)):
            if get_origin(hint) is Literal and get_origin(field.annotation) is not tuple:
                mark = "," if ";" in field.description else ";"  # after the unit, if there is one
                field.description += f"{mark} one of {', '.join(map(str, get_args(hint)))}"
    validate = built.__init__

    @functools.wraps(validate)
    def checked_init(self: T, *args: Any, **kwargs: Any) -> None:
        try:
            validate(self, *args, **kwargs)
        except ValidationError as error:
            raise ScenarioError(fault_text(error, cls, kwargs, cls.__name__)) from None

    built.__init__ = checked_init
    return cast("type[T]", built)


_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
_RANGE = re.compile(r"([\[(])([^ ,]+), ([^ ,]+)([\])])(?: (\S+))?")


class OnlyIf(NamedTuple):
    """Condition under which a field of the radio or of a process has an effect.

    Setting the field to a value other than its default gives a warning where the condition does not hold
    (:mod:`collapipe_env.simulator.idle_fields`).

    Attributes:
        words: The condition after "it is used only", for example ``with area: open``.
        holds: Whether it holds for an object of ``Spec``.
    """

    words: str
    holds: Callable[[Any], bool]

    def __call__(self, schema: dict[str, Any]) -> None:
        """Say it in the field's JSON schema; called by pydantic, which keeps it as the field's extra."""
        schema["only_if"] = self.words


def conditions(section: type) -> dict[str, OnlyIf]:
    """Return the conditions of fields that do not always have an effect, by name."""
    extras = {name: f.json_schema_extra for name, f in getattr(section, "__pydantic_fields__", {}).items()}
    return {name: extra for name, extra in extras.items() if isinstance(extra, OnlyIf)}


def real(default: float | None, meaning: str, limits: str, only_if: OnlyIf | None = None) -> Any:
    """Declare a float field (integers are accepted, strings and booleans are not).

    Args:
        default: Its default; with ``None`` the field may be null.
        limits: Its range as an interval, and its unit, such as ``"(0, 1e6] W"``; without a unit for a pure
            number. A parenthesis excludes the bound.
        only_if: Condition under which it has an effect; ``None`` if it always has.
    """
    parts = _RANGE.fullmatch(limits)
    if parts is None:
        raise ScenarioError(f"the range {shown(limits)} is no interval, with its unit: write '(0, 1e6] W'")
    least, low, high, most, unit = parts.groups()
    bounds: dict[str, Any] = {
        "ge" if least == "[" else "gt": float(low),
        "le" if most == "]" else "lt": float(high),
    }
    said = " and ".join(f"{_BOUNDS[name]} {bound:g}" for name, bound in bounds.items())
    text = f"{meaning}; unit {unit or 1}, range {said}{_or_null(default)}"
    return _declared(default, text, only_if, strict=True, **bounds)


def whole(default: int | None, meaning: str, low: int, high: int, only_if: OnlyIf | None = None) -> Any:
    """Declare an integer field from ``low`` to ``high`` (floats, strings and booleans are not accepted)."""
    text = f"{meaning}; integer, range {low} to {high}{_or_null(default)}"
    return _declared(default, text, only_if, strict=True, ge=low, le=high)


def switch(default: bool, meaning: str) -> Any:
    """Declare a field that is true or false."""
    return Field(default, kw_only=True, strict=True, description=f"{meaning}; no unit, true or false")


def field(default: Any, text: str, only_if: OnlyIf | None = None) -> Any:
    """Declare a field by meaning, unit and range; the choices of a ``Literal`` are added."""
    return _declared(default, text, only_if)


def _declared(default: Any, text: str, only_if: OnlyIf | None, **rules: Any) -> Any:
    extra: Any = only_if  # called with the schema
    return Field(default, kw_only=True, description=text, json_schema_extra=extra, **rules)


def section(kind: type, meaning: str) -> Any:
    """Declare a section of a scenario, by default as its class has it."""
    return Field(default_factory=kind, kw_only=True, description=f"{meaning}; units per field")


def _or_null(default: float | None) -> str:
    return ", or null" if default is None else ""


def require_ordered(field: str, values: Sequence[float], *, least: str | None = None) -> None:
    """Refuse a list that is not strictly ascending, or is empty where it must hold at ``least`` one of these.

    Raises:
        ValueError: If two neighbours are equal or in descending order.
    """
    if least is not None and not values:
        raise ValueError(f"{field} must hold at least one {least}")
    for before, after in itertools.pairwise(values):
        if not before < after:
            raise ValueError(
                f"{field} must be in ascending order without repeats, but {before:g} is followed by {after:g}"
            )


def require_range(spec: object, low: str, high: str) -> None:
    """Refuse a field above the one that bounds it.

    Raises:
        ValueError: With both fields and values.
    """
    least, most = getattr(spec, low), getattr(spec, high)
    if least > most:
        raise ValueError(f"{low} = {least:g} is above {high} = {most:g}")


def _writable(text: str) -> str:
    """Refuse text that cannot be written to files, folders or terminals."""
    if "\0" in text:
        raise ValueError(f"{shown(text)} holds a null character; leave it out")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(f"{shown(text)} holds half of a surrogate pair, which is no character; leave it out")
    return text


Text = Annotated[str, Field(strict=True), AfterValidator(_writable)]
"""Text, no bytes, that can be written to files, folders and terminals."""


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
