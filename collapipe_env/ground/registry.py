"""Registry of named entries of one kind, the package's own and the user's."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar, cast

from collapipe_env.ground.errors import (
    CollaPipeError,
    ScenarioError,
    fits_a_line,
    nearest_name,
    reason,
    shown,
)

Entry = TypeVar("Entry")

NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
LAZY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
"""An entry that is imported on first use: ``"package.module:Name"``."""
FORMS = "path/to/file.py:Name or package.module:Name"
"""Form of a user's own code on a command line."""


class Registry(Generic[Entry]):
    """Named entries of one kind.

    An entry is the thing itself or the text ``"package.module:Name"``, which is imported on first use; a
    registry can therefore list entries that are slow to import. The package's own entries are fixed.
    Installed packages add others by entry points, and :meth:`register` adds them for this process.

    Args:
        kind: The kind of its entries, as messages call it: ``"scheduler"``.
        shipped: The package's own entries, by name.
        group: Group of entry points by which installed packages add entries; ``None`` for none.
        error: Class of the errors that it raises.
        reserved: Names that have another meaning where this registry is used.
        hint: End of the error for an unknown name; for instance, how to name an unregistered entry.
        use: How an entry is used, if it has to be callable: ``"is called with the scenario"``.
        check: Called with the name and the thing when it is added; raises an error if the thing is not of
            this kind; or its place ``"package.module:name"``. Entries that are imported later are checked on
            first use.
        names: Form of the names that may be added; ``None`` for one line of 1 to 40 characters.
        likeness: Smallest ``difflib`` ratio, in [0, 1], of a name suggested by the error for an unknown one.

    Example:
        >>> shapes = Registry("shape", {"round": "math:pi"})
        >>> shapes.register("square", 4.0)
        4.0
        >>> shapes.names()
        ('round', 'square')
        >>> shapes.get("round")
        3.141592653589793
        >>> shapes.get("sqare")
        Traceback (most recent call last):
        ...
        collapipe_env.ground.errors.ScenarioError: shape 'sqare' is not known: did you mean 'square'?
    """

    def __init__(
        self,
        kind: str,
        shipped: Mapping[str, Entry | str] | None = None,
        *,
        group: str | None = None,
        error: type[CollaPipeError] = ScenarioError,
        reserved: tuple[str, ...] = (),
        hint: str = "",
        use: str | None = None,
        check: Callable[[str, Any], object] | str | None = None,
        names: re.Pattern[str] | None = NAME,
        likeness: float = 0.6,
    ) -> None:
        self.kind, self.group, self.error, self.use = kind, group, error, use
        self._shipped: dict[str, Entry | str] = dict(shipped or {})
        self._added: dict[str, Entry | str] = {}
        self._usable: dict[str, object] = {}  # what was imported and is known to be of this kind
        self._reserved, self._hint = reserved, hint
        self.changes = 0  # entries added so far, for what is kept by name
        self._check, self._form, self._likeness = check, names, likeness

    def register(self, name: str, entry: Any = None, *, replace: bool = False) -> Any:
        """Add an entry, for this process.

        Args:
            name: Its name: lower-case letters, digits and underscores, at most 40, beginning with a letter.
            entry: The thing, or ``"package.module:Name"``; ``None`` for a decorator.
            replace: Whether to replace an entry that was added before. Without it only a definition of the
                same module and qualified name may take its place, as when a notebook's cell is run twice, or
                equal data. The package's own entries cannot be replaced.

        Returns:
            The entry, or the decorator.

        Raises:
            CollaPipeError: Of the registry's class, if the name is taken or malformed, or the entry is not of
                this kind.
        """
        if (fault := self._name_fault(name)) is not None:
            raise self.error(fault)
        if entry is None:
            return lambda given: self.register(name, given, replace=replace)
        if not isinstance(entry, str):
            self._require_usable(name, entry)
        elif not LAZY.fullmatch(entry):
            raise self.error(
                f"{self.kind} {name!r}: {shown(entry)} does not say where it is: write 'package.module:Name'"
            )
        before = self._added.get(name, self._installed.get(name))
        if before is not None and not replace and not _same(before, entry):
            raise self.error(
                f"{self.kind} name {name!r} is taken by {origin(before)}: choose another, or give "
                "replace=True"
            )
        self._added[name] = cast("Entry | str", entry)
        self.changes += 1
        return entry

    @cached_property
    def _installed(self) -> dict[str, str]:
        """Entries of installed packages, ``"package.module:Name"`` by name; of two of a name, the first."""
        found: dict[str, str] = {}
        for point in entry_points(group=self.group) if self.group is not None else ():
            fault = self._name_fault(point.name)
            if fault is None and found.setdefault(point.name, point.value) != point.value:
                fault = f"{self.kind} name {point.name!r} is taken by {found[point.name]}"
            if fault is not None:
                place = f"{point.value} of {point.dist.name if point.dist is not None else 'a package'}"
                warnings.warn(f"{place} is left out: {fault}", RuntimeWarning, stacklevel=2)
        return found

    def get(self, name: str) -> Entry:
        """Return the entry of a name, imported if necessary.

        Raises:
            CollaPipeError: Of the registry's class, if there is no such entry (the message names the nearest)
                or it cannot be imported.
        """
        self.require(name)
        entry = self._entry(name)
        if not isinstance(entry, str):
            return entry
        try:
            found = EntryPoint(name, entry, self.group or "").load()
        except (ImportError, AttributeError) as error:
            raise self.error(
                f"{self.kind} {name!r} cannot be imported from {entry}: {reason(error)}"
            ) from error
        if self._usable.get(name) is not found:  # a check of signatures takes longer than a round
            self._require_usable(name, found)
            self._usable[name] = found
        return cast("Entry", found)

    def require(self, name: object) -> None:
        """Refuse a name that is not known; imports nothing.

        Raises:
            CollaPipeError: Of the registry's class; it names the nearest known name.
        """
        if name not in self:
            raise self.unknown(name)

    def unknown(self, name: object, more: tuple[str, ...] = ()) -> CollaPipeError:
        """Return the error for a name that is not known.

        Args:
            more: Further names that are valid at that place.
        """
        hint = f" ({self._hint})" if self._hint else ""
        nearest = nearest_name(name, (*self.names(), *more), self._likeness)
        return self.error(f"{self.kind} {shown(name)} is not known: {nearest}{hint}")

    def names(self) -> tuple[str, ...]:
        """Return the names: the package's own, then those added, each in their order."""
        return (*self._shipped, *self.added())

    def shipped(self) -> tuple[str, ...]:
        """Return the names of the package's own entries."""
        return tuple(self._shipped)

    def added(self) -> tuple[str, ...]:
        """Return the names that installed packages and this process added."""
        return tuple({**self._installed, **self._added})

    def where(self, name: str) -> str:
        """Return where the thing of a known name is defined, as ``package.module:Name``; imports nothing."""
        return origin(self._entry(name))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (
            name in self._shipped or name in self._added or name in self._installed
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def _entry(self, name: str) -> Entry | str:
        for entries in (self._shipped, self._added):
            if name in entries:
                return entries[name]
        return self._installed[name]

    def _require_usable(self, name: str, entry: object) -> None:
        if self.use is not None and not callable(entry):
            raise self.error(
                f"{self.kind} {name!r}: {shown(entry)} cannot be called: register a class or function that "
                f"{self.use}"
            )
        if isinstance(self._check, str):
            self._check = cast("Callable[[str, Any], object]", EntryPoint("check", self._check, "").load())
        if self._check is not None:
            self._check(name, entry)

    def _name_fault(self, name: object) -> str | None:
        if self._form is not None:
            if not isinstance(name, str) or not self._form.fullmatch(name):
                return (
                    f"{self.kind} name {shown(name)}: use lower-case letters, digits and underscores, at "
                    "most 40, beginning with a letter"
                )
        elif not isinstance(name, str) or not 1 <= len(name.strip()) <= 40 or not fits_a_line(name):
            return f"{self.kind} name {shown(name)}: use one line of 1 to 40 characters"
        if name in self._shipped or name in self._reserved:
            return f"{self.kind} name {name!r} is taken by the package: choose another"
        return None


def origin(entry: object) -> str:
    """Return where a thing is defined, as ``package.module:Name``.

    Args:
        entry: Class, function, object, or text of that form. For an object the class is returned; data
            (mappings, numbers) are shown.
    """
    if isinstance(entry, str):
        return entry
    named = entry if hasattr(entry, "__qualname__") else type(entry)
    module = str(getattr(named, "__module__", ""))
    return shown(entry) if module == "builtins" else f"{module}:{getattr(named, '__qualname__', '')}"


def _same(before: object, entry: object) -> bool:
    """Whether two definitions share module and qualified name; objects must be equal."""
    if isinstance(before, str) or isinstance(entry, str):
        return origin(before) == origin(entry)
    if hasattr(before, "__qualname__") and hasattr(entry, "__qualname__"):
        return _place(before) == _place(entry)
    return type(before) is type(entry) and bool(before == entry)


def _place(definition: Any) -> tuple[object, str]:
    """Its file, which may be run by its path and imported as well, or else its module; and its name there."""
    module = str(definition.__module__)
    return getattr(sys.modules.get(module), "__file__", module), definition.__qualname__
