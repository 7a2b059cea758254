"""Modules beside a user's file: importable by their plain names while its code runs, and only then."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

_PACKAGE = __name__.partition(".")[0]


class Neighbours:
    """Lets the code of one folder import its neighbours, as a script in that folder could.

    Two schedulers in different folders may each have a ``helper.py``: each gets its own, and nobody else
    meets either of them under that name.

    Args:
        folder: The folder of the user's file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._modules: dict[str, ModuleType] = {}
        # What the program has loaded from there already stays everybody's. So does this package, even
        # beside another copy of it: a scheduler works with the one that plays it.
        self._names = frozenset(
            name
            for name, file in _modules_in(folder)
            if name != _PACKAGE and not _loaded_from(file, sys.modules.get(name))
        )

    @contextmanager
    def importable(self) -> Iterator[None]:
        """While this lasts, the folder's modules hide others of the same names."""
        hidden = {} if sys.modules.keys().isdisjoint(self._names) else self._take_out()
        sys.modules.update(self._modules)
        sys.path.insert(0, self._folder)
        before = len(sys.modules)
        try:
            yield
        finally:
            if self._folder in sys.path:
                sys.path.remove(self._folder)
            # Called in every round: all modules are looked through only when some were added.
            if len(sys.modules) != before:
                self._modules = self._take_out()
            else:
                for name in self._modules:
                    sys.modules.pop(name, None)
            sys.modules.update(hidden)

    def _take_out(self) -> dict[str, ModuleType]:
        ours = [name for name in sys.modules if name.partition(".")[0] in self._names]
        return {name: sys.modules.pop(name) for name in ours}


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
