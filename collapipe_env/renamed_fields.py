"""Renamed fields of data classes: the former names still work, with a DeprecationWarning."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from collapipe_env.deprecation import warn_deprecated

_Class = TypeVar("_Class", bound=type)


def renamed_fields(**names: str) -> Callable[[_Class], _Class]:
    """Decorate a data class whose fields had other names before.

    A former name is accepted as a keyword of the constructor and can be read as an attribute. Its value
    replaces one given under the current name, because ``dataclasses.replace`` gives both.

    Args:
        **names: Current name of each former name, such as ``success="survival"``.
    """

    def decorate(cls: _Class) -> _Class:
        build: Callable[..., None] = vars(cls)["__init__"]

        @functools.wraps(build)
        def __init__(self: Any, *values: Any, **fields: Any) -> None:  # noqa: N807
            for old, new in names.items():
                if old in fields:
                    warn_deprecated(_renaming(cls, old, new))
                    fields[new] = fields.pop(old)
            build(self, *values, **fields)

        cls.__init__ = __init__  # type: ignore[misc]
        for old, new in names.items():
            setattr(cls, old, _former(cls, old, new))
        return cls

    return decorate


def _former(cls: type, old: str, new: str) -> property:
    """Return a property that reads a field under its former name."""

    def read(self: Any) -> Any:
        warn_deprecated(_renaming(cls, old, new))
        return getattr(self, new)

    return property(read, doc=f"Former name of ``{new}``.")


def _renaming(cls: type, old: str, new: str) -> str:
    """Return the text of the warning."""
    return f"{cls.__name__}.{old} is now called {new}"
