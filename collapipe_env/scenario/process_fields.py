"""Fields of processes in a scenario: ``dynamics.processes``, by the name of the process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, TypeAdapter, ValidationError

from collapipe_env.ground.errors import CollaPipeError, shown
from collapipe_env.scenario.fields import SPEC_CONFIG
from collapipe_env.scenario.plain_data import adapter
from collapipe_env.scenario.process_names import PROCESSES
from collapipe_env.scenario.validation_errors import InnerFieldError, first_fault


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


def _spec(name: str, fields: object) -> Any:
    """Fields of a process as its ``Spec``; ``None`` where it is switched off, as a base's process may be."""
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
    try:
        spec = _adapter(kind).validate_python(dict(fields))
    except ValidationError as error:
        fault = first_fault(error, kind, fields)
        raise InnerFieldError(f"{name}.{fault.place}".rstrip("."), fault.text) from None
    for field, value in fields.items():
        read = getattr(spec, field)
        # Text and booleans are not accepted as numbers, as in the other sections.
        other = isinstance(value, str) or isinstance(value, bool) is not isinstance(read, bool)
        if isinstance(read, int | float) and other:
            raise InnerFieldError(
                f"{name}.{field}", f"got {shown(value)}, but expected {type(read).__name__}"
            )
    try:
        hash(spec)
    except TypeError:
        text = "it has fields that cannot be hashed: use tuples instead of lists"
        raise InnerFieldError(name, text) from None
    return spec


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    if "__pydantic_config__" not in vars(kind):
        kind.__pydantic_config__ = SPEC_CONFIG  # the same rules as in the other sections
    return adapter(kind)


def _plain(pairs: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    return {name: _adapter(type(spec)).dump_python(spec, mode="json") for name, spec in pairs}


ProcessFields = Annotated[
    tuple[tuple[str, Any], ...],
    BeforeValidator(_read),
    PlainSerializer(_plain),
]
"""Pairs of a process's name and its fields, an object of its ``Spec``; hashable, a mapping in files."""
