"""Every field of a scenario's sections: its default, unit and range."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from generated_parts import markdown_table

from collapipe_env.scenario import DeviceProfile, Scenario


def lines(place: str = "", kind: Any = Scenario) -> Iterator[tuple[str, str, str]]:
    """Name, default, and meaning of every field, section by section."""
    for name, field in kind.__pydantic_fields__.items():
        default, full = field.get_default(call_default_factory=True), f"{place}{name}"
        if dataclasses.is_dataclass(default):
            yield from lines(f"{full}.", type(default))
            continue
        yield f"`{full}`", _written(default), field.description
        if name == "profiles":
            yield from lines(f"{full}.", DeviceProfile)


def _written(default: Any) -> str:
    if isinstance(default, tuple):
        plain = not any(dataclasses.is_dataclass(one) for one in default)
        return f"[{', '.join(map(_written, default))}]" if plain else "one kind"
    if default is None or isinstance(default, bool):
        return {None: "null", True: "true", False: "false"}[default]
    return f"{default:g}" if isinstance(default, float) else str(default) or "(empty)"


def table(entry: Mapping[str, Any], quick: bool) -> str:
    """The table of all fields."""
    del entry, quick
    return markdown_table(("field", "default", "meaning, unit and range"), list(lines()), left=3)


def digest() -> bytes:
    """The fields themselves: any change of one makes the table stale."""
    return repr(list(lines())).encode()
