"""Modules beside a user's file: importable by their plain names, but only while its code runs.

They are always compiled from their source, which people read and digests cover. Python's caches may hold
other code, so they are neither read nor written in these folders.
"""

from __future__ import annotations

import site
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from pathlib import Path
from types import ModuleType

from collapipe_env.evaluation.source_digest import LIBRARIES

_PACKAGE = __name__.partition(".")[0]
_INSTALLED = (*LIBRARIES, Path(site.getusersitepackages()).resolve(), Path(__file__).resolve().parents[1])
"""Folders of libraries and of this package: they may lie in a user's folder, but are not the user's code."""
_UNCACHED: set[Path] = set()
"""Folders whose modules are compiled from their source."""


class Neighbours:
    """Lets the code of one folder import its neighbours, as a script in that folder could.

    Two schedulers in different folders may each have a ``helper.py``: each imports its own, and no other code
    finds either of them under that name.

    Args:
        folder: The folder of the user's file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        _leave_caches_alone(folder)
        self._modules: dict[str, ModuleType] = {}
        # Modules that the program has already loaded from there stay shared. So does this package, even
        # beside another copy of it: a scheduler works with the copy that plays it.
        self._names = frozenset(
            name
            for name, file in _modules_in(folder)
            if name != _PACKAGE and not _loaded_from(file, sys.modules.get(name))
        )

    @contextmanager
    def importable(self) -> Iterator[None]:
        """Inside this context, the folder's modules hide others of the same names."""
        hidden = {} if sys.modules.keys().isdisjoint(self._names) else self._take_out()
        sys.modules.update(self._modules)
        sys.path.insert(0, self._folder)
        before = len(sys.modules)
        try:
            yield
        finally:
            if self._folder in sys.path:
                sys.path.remove(self._folder)
            # Called in every round, so all modules are searched only if some were added.
            if len(sys.modules) != before:
                self._modules = self._take_out()
            else:
                for name in self._modules:
                    sys.modules.pop(name, None)
            sys.modules.update(hidden)

    def _take_out(self) -> dict[str, ModuleType]:
        ours = [name for name in sys.modules if name.partition(".")[0] in self._names]
        return {name: sys.modules.pop(name) for name in ours}


class _FromSource(SourceFileLoader):
    """Loads a module from its source, whatever lies in ``__pycache__``."""

    def path_stats(self, path: str) -> Mapping[str, object]:
        """Report no time of the last change, so that Python uses no cache."""
        raise OSError(f"{path}: no cache is used")


def _leave_caches_alone(folder: Path) -> None:
    """From now on, compile all modules of a folder and its sub-folders from their source."""
    if folder in _UNCACHED:
        return
    _UNCACHED.add(folder)
    if _finder not in sys.path_hooks:
        sys.path_hooks.insert(0, _finder)
    for path in filter(_is_uncached, list(sys.path_importer_cache)):
        sys.path_importer_cache.pop(path, None)


def _is_uncached(path: str) -> bool:
    """Whether a folder's modules are compiled from their source."""
    return is_within(Path(path or ".").resolve(), _UNCACHED)


def is_within(place: Path, places: Collection[Path]) -> bool:
    """Whether a path is one of some places or below one, and not part of an installed library."""
    around = {place, *place.parents}
    return not around.isdisjoint(places) and around.isdisjoint(_INSTALLED)


def _finder(path: str) -> FileFinder:
    """Find modules in a folder, for Python's :data:`sys.path_hooks`.

    Raises:
        ImportError: If the folder's caches may be used; other hooks then find its modules.
    """
    if not _is_uncached(path) or not Path(path or ".").is_dir():
        raise ImportError(f"{path}: not beside the user's own file")
    return FileFinder(
        path,
        (ExtensionFileLoader, EXTENSION_SUFFIXES),
        (_FromSource, SOURCE_SUFFIXES),
        (SourcelessFileLoader, BYTECODE_SUFFIXES),
    )


def _modules_in(folder: Path) -> Iterator[tuple[str, Path]]:
    """Names and files of the modules and packages directly in a folder."""
    for path in folder.iterdir():
        if path.suffix == ".py" and path.stem.isidentifier():
            yield path.stem, path
        elif path.name.isidentifier() and (path / "__init__.py").is_file():
            yield path.name, path / "__init__.py"


def _loaded_from(file: Path, module: ModuleType | None) -> bool:
    origin = getattr(module, "__file__", None)
    return origin is not None and Path(origin).resolve() == file.resolve()
