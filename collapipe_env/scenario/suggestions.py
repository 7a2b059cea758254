"""Suggestions for values that a field refuses: the intended choice, the forgotten list."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from collapipe_env.ground.errors import nearest_name, shown

_CHOICE = re.compile(r"'((?:[^'\\]|\\.)*)'")
_PLAIN = re.compile(r"[A-Za-z_][\w.-]*")
_SEQUENCES = {"tuple_type": tuple, "list_type": list}


def expected_text(fault: Mapping[str, Any], field: str, hint: object = None) -> str:
    """Return the value that a field expects, with a suggestion of what to write if there is one.

    Args:
        fault: One of pydantic's errors: its ``type``, ``msg`` and ``input``.
        field: Name of the field, or of the entry of a list.
        hint: The field's type; ``None`` where it is not known.

    Returns:
        Such as ``"the input should be a list: write modes: [delayed]"``.
    """
    kind, message, value = fault["type"], str(fault["msg"]), fault["input"]
    text = "the " + (message[0].lower() + message[1:]).replace("a valid tuple", "a list")
    if kind == "literal_error":
        meant = _meant(value, message)
        return f"{text}; did you mean {meant!r}?" if meant is not None else text
    if kind in _SEQUENCES:
        entry = _entry(value, _SEQUENCES[kind], hint)
        return f"{text}: write {field}: [{entry}]" if entry is not None else text
    return text


def hints_of(section: type | None) -> dict[str, Any]:
    """Types of a dataclass's fields by name; empty if they cannot be determined."""
    try:
        return {} if section is None else get_type_hints(section, include_extras=True)
    except NameError:  # the class was made inside a function
        return {}


def _meant(value: object, message: str) -> str | None:
    """The choice in a message that is close to a text."""
    if not isinstance(value, str):
        return None
    choices = _CHOICE.findall(message)
    hint = nearest_name(value, choices)
    return next((choice for choice in choices if hint == f"did you mean {choice!r}?"), None)


def _entry(value: object, sequence: type, hint: object) -> str | None:
    """The value as an entry of the expected list, in YAML; ``None`` if it cannot be one."""
    if hint is None or not isinstance(value, str | int | float):
        return None
    fault = _fault_of(sequence([value]), hint)
    if fault is not None and fault["type"] == "literal_error":
        value = _meant(value, fault["msg"])
        fault = _fault_of(sequence([value]), hint)
    if fault is not None:
        return None
    return value if isinstance(value, str) and _PLAIN.fullmatch(value) else shown(value)


def _fault_of(value: object, hint: Any) -> Mapping[str, Any] | None:
    """The first fault of a value checked against a type; ``None`` if it fits."""
    try:
        TypeAdapter(hint).validate_python(value, strict=True)
    except ValidationError as error:
        fault: Mapping[str, Any] = error.errors(include_url=False, include_context=False)[0]
        return fault
    return None
