"""Validation errors as one line per fault: dotted path, value, allowed values, nearest name."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from collapipe_env.ground.errors import nearest_name, shortened, shown

SHOWN = 10
"""Number of faults that a message lists before it only counts the rest."""

_MISSING = object()
_CHOICE = re.compile(r"'((?:[^'\\]|\\.)*)'")
_PLAIN = re.compile(r"[A-Za-z_][\w.-]*")
_SEQUENCES = {"tuple_type": tuple, "list_type": list}


class InnerFieldError(ValueError):
    """A fault and its place, which may be inside a field that pydantic treats as a unit: a process's fields.

    Args:
        place: Dotted path; empty for the thing itself.
        text: The fault, with the value and the allowed values.
    """

    def __init__(self, place: str, text: str) -> None:
        super().__init__(f"{place}: {text}" if place else text)
        self.place = place
        self.text = text


def fault_text(error: ValidationError, root: type, data: object, source: str) -> str:
    """Describe all faults of a validation.

    Returns:
        One line for one fault; otherwise a heading and one line for each.
    """
    faults = _faults(error, data)
    lines = [str(_fault(path, items, root)) for path, items in faults[:SHOWN]]
    if len(faults) == 1:
        return f"{source}: {lines[0]}"
    if len(faults) > SHOWN:
        lines.append(f"and {len(faults) - SHOWN:,} more")
    return f"{source}: {len(faults):,} faults\n" + "\n".join(f"  {line}" for line in lines)


def first_fault(error: ValidationError, root: type, data: object) -> InnerFieldError:
    """Return the first fault of a validation; arguments as for :func:`fault_text`."""
    return _fault(*_faults(error, data)[0], root)


def _faults(error: ValidationError, data: object) -> list[tuple[tuple[int | str, ...], list[Any]]]:
    """Pydantic's errors by their place in the data."""
    faults: dict[tuple[int | str, ...], list[Any]] = {}
    for item in error.errors(include_url=False):
        path = tuple(_path_in(data, item["loc"], item["type"]))
        faults.setdefault(path, []).append(item)
    # Where an entry of a list is at fault, a fault of the list itself is only another branch of a union.
    above = {path[:length] for path in faults for length in range(1, len(path))}
    return [(path, items) for path, items in faults.items() if path not in above]


class _Declared(NamedTuple):
    """Declaration at a place: its type, the dataclass in that type, and its description."""

    section: type | None
    hint: object = None
    text: str = ""


def _declared(root: type, path: Iterable[int | str]) -> _Declared:
    """Follow field names and list indices from a dataclass; an entry of a list is declared with its list."""
    found = _Declared(root)
    for step in path:
        if isinstance(step, str):
            hint = _hints_of(found.section).get(step)
            field = getattr(found.section, "__pydantic_fields__", {}).get(step)
            found = _Declared(_dataclass_in(hint), hint, getattr(field, "description", None) or "")
    return found


def _fault(path: Sequence[int | str], items: Sequence[Any], root: type) -> InnerFieldError:
    """Describe the fault at one place; pydantic reports one for each branch of a union."""
    fault = items[0].get("ctx", {}).get("error")
    if isinstance(fault, InnerFieldError):
        place = shortened(".".join(map(str, (*path, fault.place))).rstrip("."))
        return InnerFieldError(place, fault.text)
    here, above = _declared(root, path), _declared(root, path[:-1])
    allowed = " or ".join(dict.fromkeys(_allowed(item, path, here, above.section) for item in items))
    dotted = shortened(".".join(map(str, path)))
    # A rule between fields: its message holds the values.
    if not path or (items[0]["type"] == "value_error" and here.section is not None):
        return InnerFieldError(dotted, allowed)
    note = f" ({here.text})" if here.text and here.section is None else ""
    return InnerFieldError(dotted, f"got {shown(items[-1]['input'])}, but {allowed}{note}")


def _allowed(item: Mapping[str, Any], path: Sequence[int | str], here: _Declared, above: type | None) -> str:
    """Return the allowed values as text, or the rule that is broken."""
    kind, message = item["type"], str(item["msg"])
    if kind in {"unexpected_keyword_argument", "extra_forbidden"}:
        name = str(path[-1])
        return f"there is no field {shown(name)} here; {nearest_name(name, _field_names(above))}"
    if kind == "missing":
        return "this field is required"
    if kind == "dataclass_type":
        return f"a mapping is expected with fields among {', '.join(_field_names(here.section))}"
    if kind == "value_error":
        return shortened(message.removeprefix("Value error, "), 2_000)
    if kind == "unexpected_positional_argument":
        return "fields are given by name, not by position"
    text = "the " + (message[0].lower() + message[1:]).replace("a valid tuple", "a list")
    if kind == "literal_error" and (meant := _meant(item["input"], message)) is not None:
        return f"{text}; did you mean {meant!r}?"
    if kind in _SEQUENCES and path and isinstance(path[-1], str):
        entry = _entry(item["input"], _SEQUENCES[kind], here.hint)
        return f"{text}: write {path[-1]}: [{entry}]" if entry is not None else text
    return text


def _path_in(data: object, loc: Sequence[int | str], kind: str) -> list[int | str]:
    """Keep the steps of pydantic's location that exist in the data; the others name branches of a union."""
    path: list[int | str] = []
    current = data
    for position, step in enumerate(loc):
        found = _step(current, step)
        last = position == len(loc) - 1
        if found is not _MISSING:
            current = found
        elif not (last and kind in {"missing", "invalid_key", "unexpected_keyword_argument"}):
            continue
        path.append(step)
    return path


def _step(value: object, step: int | str) -> object:
    if isinstance(value, Mapping):
        return value.get(step, _MISSING)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return value[step] if isinstance(step, int) and step < len(value) else _MISSING
    if dataclasses.is_dataclass(value) and isinstance(step, str):
        return getattr(value, step, _MISSING)
    return _MISSING


def _field_names(cls: type | None) -> list[str]:
    """Return the names of a dataclass's fields; none for ``None``."""
    return [] if cls is None else [field.name for field in dataclasses.fields(cls)]


def _dataclass_in(hint: object) -> type | None:
    """Find the dataclass in a type hint such as ``tuple[X, ...]`` or ``X | None``."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return hint
    return next((found for part in get_args(hint) if (found := _dataclass_in(part)) is not None), None)


def _hints_of(section: type | None) -> dict[str, Any]:
    """Types of a dataclass's fields by name; empty if they cannot be determined."""
    try:
        return {} if section is None else get_type_hints(section, include_extras=True)
    except NameError:  # the class was made inside a function
        return {}


def _meant(value: object, message: str) -> str | None:
    """The choice in a message that is close to a text."""
    if not isinstance(value, str):
        return None
    return next(iter(difflib.get_close_matches(value, _CHOICE.findall(message), n=1)), None)


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
