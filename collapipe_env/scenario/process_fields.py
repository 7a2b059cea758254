"""Fields of processes in a scenario: ``dynamics.processes``, by the name of the process."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, TypeAdapter, ValidationError

from collapipe_env.errors import CollaPipeError, nearest_name, shown
from collapipe_env.scenario.fields import described


def _read(given: object) -> object:
    """Pairs of name and fields from a mapping of plain data, each checked by the process's own ``Spec``."""
    if isinstance(given, tuple):
        given = dict(given)
    if not isinstance(given, Mapping):
        raise ValueError(f"{shown(given)} is no mapping of processes to their fields")
    # In one order, so that scenarios that say the same are equal.
    specs = ((name, _spec(name, fields)) for name, fields in sorted(given.items()))
    return tuple((name, spec) for name, spec in specs if spec is not None)


def _spec(name: str, fields: object) -> Any:
    """Fields of a process as its ``Spec``; ``None`` where it is switched off, as one of the base may be."""
    # Imported late: processes know of scenarios.
    from collapipe_env.dynamics.process import PROCESSES

    try:
        kind = PROCESSES.get(name).Spec
    except CollaPipeError as error:
        raise ValueError(str(error)) from None
    if kind is None:
        raise ValueError(f"the process {name!r} has no fields here: it reads other sections of the scenario")
    if isinstance(fields, kind):
        return fields
    if fields is False or (isinstance(fields, str) and fields == "off"):
        return None
    if not isinstance(fields, Mapping):
        raise ValueError(
            f"{name} is {shown(fields)}, not a mapping of its fields; {{}} for their defaults, off without it"
        )
    known = [field.name for field in dataclasses.fields(kind)]
    for field in fields:
        if field not in known:
            hint = nearest_name(str(field), known) if known else "it has no fields"
            raise ValueError(f"{name} has no field {shown(field)}; {hint}")
    try:
        spec = TypeAdapter(kind).validate_python(dict(fields))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(str(part) for part in (name, *first["loc"]))
        raise ValueError(f"{place} = {shown(first['input'])}: {first['msg']}") from None
    for field, value in fields.items():
        read = getattr(spec, field)
        # Texts and truth values are no numbers here, as in the other sections.
        if isinstance(read, int | float) and (type(value) is bool) is not (type(read) is bool):
            raise ValueError(f"{name}.{field} = {shown(value)}: expected {type(read).__name__}")
        if isinstance(value, str) is not isinstance(read, str) and isinstance(read, int | float):
            raise ValueError(f"{name}.{field} = {shown(value)}: expected {type(read).__name__}")
        if isinstance(read, float) and not math.isfinite(read):
            raise ValueError(f"{name}.{field} = {shown(value)}: expected a finite number")
    try:
        hash(spec)
    except TypeError:
        raise ValueError(f"{name} has fields that cannot be hashed: use tuples instead of lists") from None
    return spec


def _plain(pairs: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    return {name: dataclasses.asdict(spec) for name, spec in pairs}


def without_neutral_processes(sections: dict[str, Any], pairs: tuple[tuple[str, Any], ...]) -> None:
    """Leave fields of processes that came later out of a scenario's plain data where they change nothing.

    Args:
        sections: Plain data of a whole scenario, changed in place.
        pairs: Its processes and their fields.
    """
    for name, spec in pairs:
        for field in dataclasses.fields(spec):
            if field.metadata.get("neutral") and getattr(spec, field.name) == field.default:
                del sections["dynamics"]["processes"][name][field.name]


ProcessFields = Annotated[
    tuple[tuple[str, Any], ...],
    BeforeValidator(_read),
    PlainSerializer(_plain),
    described("processes that are on, by name, with their fields; units per process, none by default"),
]
"""Pairs of a process's name and its fields, an object of its ``Spec``; hashable, a mapping in files."""
