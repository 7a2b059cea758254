"""A user's own code, named on the command line: ``package.module:Name``, ``path/to/file.py:Name``.

Code named in this way is imported, and so it runs. Nothing else runs; data files are never executed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from collapipe_env.ground.errors import CollaPipeError, nearest_name, reason, shortened
from collapipe_env.ground.registry import FORMS, Registry
from collapipe_env.schedulers import SCHEDULERS, Factory

_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class OwnCode:
    """A factory and its origin.

    Attributes:
        factory: Makes the scheduler.
        place: File and name of a Python object, empty for a reference, which says it itself; ``None`` for
            an object that no file defines, and that may be another one tomorrow.
        file: Its source file; ``None`` without one.
    """

    factory: Factory
    place: str | None
    file: str | None


class _Asked(NamedTuple):
    """A reference, the registry of its kind, and the form of such a thing in Python."""

    reference: str
    registry: Registry[Any]
    form: str = "class or function"

    def refused(self, why: str) -> CollaPipeError:
        """The error that begins with the reference."""
        return self.registry.error(f"{self.registry.kind} {shortened(self.reference)!r}{why}")

    def failed(self, error: BaseException, file: str | None) -> CollaPipeError:
        """The error for code that raised an error during its import."""
        return self.refused(f" cannot be imported: {blame(error, file)}")


_FILES: dict[Path, ModuleType] = {}
"""Files that were run in this process, each once, as modules are."""


def is_reference(name: str) -> bool:
    """Whether a name refers to a user's own code."""
    return ":" in name or name.endswith(".py")


def import_factory(reference: str, registry: Registry[Any] = SCHEDULERS) -> OwnCode:
    """Import the factory that a reference names.

    Args:
        reference: ``package.module:Name`` or ``path/to/file.py:Name``.
        registry: Registry of its kind, which knows the name and use of such things.

    Raises:
        CollaPipeError: Of the registry's class, if there is no such file, module or name, it cannot be
            imported, or the name is not callable.
    """
    asked = _Asked(reference, registry)
    code = _imported(asked)
    found: Any = code.factory
    if not callable(found):
        name = reference.rpartition(":")[2]
        raise asked.refused(
            f": {name} is an object of type {type(found).__name__}, which cannot be called: "
            f"name a class or function that {registry.use}"
        )
    return code


def import_object(reference: str, registry: Registry[Any]) -> OwnCode:
    """Import an object that a reference names, callable or not.

    Args:
        reference: ``package.module:Name`` or ``path/to/file.py:Name``.
        registry: Registry of its kind, which knows the name and use of such things.

    Returns:
        The object, as ``factory``, and its origin.

    Raises:
        CollaPipeError: Of the registry's class, if there is no such file, module or name, or it cannot be
            imported.
    """
    return _imported(_Asked(reference, registry, "object"))


def _imported(asked: _Asked) -> OwnCode:
    """The object that a reference names, as ``factory``, and its origin."""
    reference, registry = asked.reference, asked.registry
    source, colon, name = reference.rpartition(":")
    is_file = source.endswith(".py") or "/" in source or os.sep in source
    is_module = all(part.isidentifier() for part in source.split("."))
    if not colon or not name.isidentifier() or not (is_file or is_module):
        example = f"{reference.rstrip(':')}:Name" if reference.rstrip(":").endswith(".py") else FORMS
        raise asked.refused(f" names no {asked.form}: write {example}, which {registry.use}")
    module = _run_file(asked, source) if is_file else _import_module(asked, source)
    return OwnCode(_named(asked, module, name), "", getattr(module, "__file__", None))


def blame(error: BaseException, file: str | None) -> str:
    """Error in the user's code, in one line with file and line number.

    Args:
        file: The user's file; its last line in the traceback is named, or the last line outside this package.
    """
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{type(error).__name__}: {error.msg} ({error.filename}, line {error.lineno})"
    frames = _own_frames(error, file)
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {reason(error)}{place}"


def reached(error: BaseException, file: str | None) -> bool:
    """Whether an error arose inside the user's code, rather than in the call of it."""
    return bool(_own_frames(error, file))


def _own_frames(error: BaseException, file: str | None) -> list[traceback.FrameSummary]:
    frames = traceback.extract_tb(error.__traceback__)
    outside = [frame for frame in frames if not Path(frame.filename).is_relative_to(_PACKAGE)]
    return [frame for frame in frames if frame.filename == file] or [
        frame
        for frame in outside
        if frame.filename != contextlib.__file__ and not frame.filename.startswith("<frozen importlib")
    ]


def python_code(factory: Factory, source: object) -> OwnCode:
    """Return the code of a factory given as a Python object.

    Args:
        factory: Makes the scheduler.
        source: Class or function whose code is used.

    Returns:
        The code; without a place unless the factory is at the top level of a file, because only then the
        file defines it fully.
    """
    module = sys.modules.get(getattr(source, "__module__", ""))
    name = getattr(source, "__qualname__", "<unknown>")
    file = getattr(module, "__file__", None)
    if factory is not source or "<" in name or module is None or file is None or not Path(file).is_file():
        function = getattr(source, "act", source)
        file = getattr(getattr(function, "__code__", None), "co_filename", file)
        return OwnCode(factory, None, file)
    return OwnCode(factory, f"{file}:{name}", file)


def _run_file(asked: _Asked, source: str) -> ModuleType:
    path = Path(source)
    try:
        path = path.expanduser()
        found = path.is_file()
        what = "is not a file" if not found and path.exists() else "does not exist"
        path = path.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # too long, links in circles, a null byte, ~nobody
        found, what = False, f"cannot be read ({getattr(error, 'strerror', None) or error})"
    if not found:
        raise asked.refused(f": {shortened(source)} {what}: give the path of a Python file, as in {FORMS}")
    if path in _FILES:
        return _FILES[path]
    # A unique name, so that another module with the file's name is not replaced.
    name = f"_collapipe_own_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}_{path.stem}"
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    _make_importable(asked, path.parent)
    try:
        spec.loader.exec_module(module)
    except BaseException as error:  # SystemExit and whatever else the user's code raises
        sys.modules.pop(name, None)
        if isinstance(error, KeyboardInterrupt):
            raise
        raise asked.failed(error, str(path)) from error
    _FILES[path] = module
    return module


def _make_importable(asked: _Asked, folder: Path) -> None:
    """Let a file import its neighbours, after libraries of the same names; leave no caches beside them.

    Raises:
        CollaPipeError: If a neighbour has the name of a neighbour of an earlier file that was imported.
    """
    sys.dont_write_bytecode = True
    for other in {path.parent for path in _FILES} - {folder}:
        for file in sorted(folder.glob("*.py")):
            taken = getattr(sys.modules.get(file.stem), "__file__", None)
            if taken is not None and Path(taken).parent == other:
                raise asked.refused(
                    f": {file} has the name of {taken}, which is imported already: rename one of them"
                )
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _import_module(asked: _Asked, source: str) -> ModuleType:
    # The console script does not look into the current folder, unlike python -m.
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(source)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit and whatever else the user's code raises
        if (
            isinstance(error, ModuleNotFoundError)
            and error.name
            and f"{source}.".startswith(f"{error.name}.")
        ):
            raise asked.refused(
                f": there is no module {shortened(error.name)!r} here or among the installed ones: check its "
                f"spelling and the current folder, or name a file, as in {FORMS}"
            ) from None
        raise asked.failed(error, _file_of(error, source)) from error


def _file_of(error: BaseException, module: str) -> str | None:
    """The file of a module whose import failed: the last one in the traceback with its name."""
    end = module.replace(".", os.sep)
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    return next((f for f in reversed(files) if f.endswith((f"{end}.py", f"{end}{os.sep}__init__.py"))), None)


def _named(asked: _Asked, module: ModuleType, name: str) -> Any:
    try:
        found: Any = getattr(module, name, None)
    except Exception as error:  # modules may have a __getattr__
        raise asked.failed(error, module.__file__) from error
    if found is None:
        own = [
            key
            for key, value in vars(module).items()
            if not key.startswith("_")
            and (
                getattr(value, "__module__", None) == module.__name__
                if callable(value)
                else asked.form == "object" and isinstance(value, Mapping)
            )
        ]
        place = getattr(module, "__file__", None) or "that folder, which holds no __init__.py"
        hint = nearest_name(name, own) if own else f"it defines no {asked.form}"
        raise asked.refused(f": there is no {name!r} in {place}: {hint}")
    return found
