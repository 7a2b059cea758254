"""Fields of processes in a scenario: ``dynamics.processes``, by the name of the process."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, SerializationInfo, TypeAdapter, ValidationError

from collapipe_env.ground.errors import CollaPipeError, nearest_name, shown
from collapipe_env.scenario.fields import described
from collapipe_env.scenario.suggestions import expected_text, hints_of
from collapipe_env.scenario.validation_errors import InnerFieldError


def _read(given: object) -> object:
    """Read pairs of name and fields from a mapping of plain data; each process's own ``Spec`` checks them."""
    if isinstance(given, tuple):
        given = dict(given)
    if not isinstance(given, Mapping):
        text = f"got {shown(given)}, but a mapping of processes to their fields is expected"
        raise InnerFieldError("", text)
    # In a fixed order, so that scenarios with the same processes are equal.
    specs = ((name, _spec(name, fields)) for name, fields in sorted(given.items()))
    return tuple((name, spec) for name, spec in specs if spec is not None)


@lru_cache(maxsize=128)
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    """The validator of a process's fields; building it takes far longer than using it."""
    return TypeAdapter(kind)


def _spec(name: str, fields: object) -> Any:
    """Fields of a process as its ``Spec``; ``None`` where it is switched off, as a base's process may be."""
    # Imported late: processes import scenarios.
    from collapipe_env.simulator.process_registry import PROCESSES

    try:
        kind = PROCESSES.get(name).Spec
    except CollaPipeError as error:
        raise InnerFieldError("", str(error)) from None
    if kind is None:
        raise InnerFieldError(
            "", f"the process {name!r} has no fields here: it reads other sections of the scenario"
        )
    if isinstance(fields, kind):
        return fields
    if fields is False or (isinstance(fields, str) and fields == "off"):
        return None
    if not isinstance(fields, Mapping):
        raise InnerFieldError(
            name,
            f"got {shown(fields)}, but a mapping of its fields is expected; {{}} for their defaults, off "
            "without the process",
        )
    known = [field.name for field in dataclasses.fields(kind)]
    for field, value in fields.items():
        if field not in known:
            hint = nearest_name(str(field), known) if known else "it has no fields"
            raise InnerFieldError(
                f"{name}.{field}", f"got {shown(value)}, but there is no field {shown(field)} here; {hint}"
            )
    try:
        spec = _adapter(kind).validate_python(dict(fields))  # type: ignore[arg-type]  # a class is hashable
    except ValidationError as error:
        raise _fault(name, kind, error) from None
    for field, value in fields.items():
        read, place = getattr(spec, field), f"{name}.{field}"
        # Text and booleans are not accepted as numbers, as in the other sections.
        other = isinstance(value, str) or isinstance(value, bool) is not isinstance(read, bool)
        if isinstance(read, int | float) and other:
            raise InnerFieldError(place, f"got {shown(value)}, but expected {type(read).__name__}")
        if isinstance(read, float) and not math.isfinite(read):
            raise InnerFieldError(place, f"got {shown(value)}, but expected a finite number")
    try:
        hash(spec)
    except TypeError:
        text = "it has fields that cannot be hashed: use tuples instead of lists"
        raise InnerFieldError(name, text) from None
    return spec


def _fault(name: str, kind: type, error: ValidationError) -> InnerFieldError:
    """The first fault of a process's fields."""
    first = error.errors(include_url=False, include_context=False)[0]
    steps = first["loc"]
    place = ".".join(str(step) for step in (name, *steps))
    if first["type"] == "value_error":  # a rule of the fields themselves: its message holds the values
        return InnerFieldError(place, first["msg"].removeprefix("Value error, "))
    last = str(steps[-1]) if steps else name
    hint = hints_of(kind).get(last) if len(steps) == 1 else None
    return InnerFieldError(place, f"got {shown(first['input'])}, but {expected_text(first, last, hint)}")


def _plain(pairs: tuple[tuple[str, Any], ...], info: SerializationInfo) -> dict[str, Any]:
    return {
        name: _adapter(type(spec)).dump_python(spec, mode="json", exclude_defaults=info.exclude_defaults)
        for name, spec in pairs
    }


ProcessFields = Annotated[
    tuple[tuple[str, Any], ...],
    BeforeValidator(_read),
    PlainSerializer(_plain),
    described("processes that are on, by name, with their fields; units per process, none by default"),
]
"""Pairs of a process's name and its fields, an object of its ``Spec``; hashable, a mapping in files."""
