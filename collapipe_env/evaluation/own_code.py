"""A user's own code, named on the command line: ``package.module:Name``, ``path/to/file.py:Name``.

Code named in this way is imported, and so it runs. Nothing else runs; data files are never executed.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from collapipe_env.evaluation.neighbours import Neighbours
from collapipe_env.evaluation.source_digest import source_digest
from collapipe_env.evaluation.sudden_end import no_sudden_end
from collapipe_env.ground.errors import CollaPipeError, nearest_name, reason, shortened
from collapipe_env.ground.registry import FORMS, Registry
from collapipe_env.schedulers import SCHEDULERS, Factory

_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class OwnCode:
    """A factory and its origin.

    Attributes:
        factory: Makes the scheduler.
        digest: Digest of its source, see :func:`source_digest`; ``None`` if the source does not define it
            fully.
        file: Its source file; ``None`` without one.
        neighbours: Modules beside it, for a file that was named by its path.
    """

    factory: Factory
    digest: str | None
    file: str | None
    neighbours: Neighbours | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The context in which its code runs and cannot end the process."""
        with no_sudden_end():
            if self.neighbours is None:
                yield
            else:
                with self.neighbours.importable():
                    yield


@dataclass(frozen=True)
class _Loaded:
    digest: str
    module: ModuleType
    neighbours: Neighbours | None


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


_FILES: dict[Path, _Loaded] = {}
"""Files that were run in this process; a file that was edited since is run again."""
_MODULES: dict[str, str] = {}
"""Digests of the modules that were imported here, taken at their import."""


def named_places() -> set[Path]:
    """Return the folders of the files, and the files of the modules, that were run here."""
    modules = (getattr(sys.modules.get(name), "__file__", None) for name in _MODULES)
    return {*(path.parent for path in _FILES), *(Path(file) for file in modules if file is not None)}


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
    loaded = _run_file(asked, source) if is_file else _import_module(asked, source)
    file = getattr(loaded.module, "__file__", None)
    return OwnCode(_named(asked, loaded.module, name), loaded.digest, file, loaded.neighbours)


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
        frame for frame in outside if frame.filename != contextlib.__file__
    ]


def python_code(factory: Factory, source: object) -> OwnCode:
    """Return the code of a factory given as a Python object.

    Args:
        factory: Makes the scheduler.
        source: Class or function whose code is used.

    Returns:
        The code; without a digest unless the factory is at the top level of a file, because only then its
        source defines it fully.
    """
    module = sys.modules.get(getattr(source, "__module__", ""))
    name = getattr(source, "__qualname__", "<unknown>")
    file = getattr(module, "__file__", None)
    if factory is not source or "<" in name or module is None or file is None or not Path(file).is_file():
        function = getattr(source, "act", source)
        file = getattr(getattr(function, "__code__", None), "co_filename", file)
        return OwnCode(factory, None, file)
    script = module.__name__ in ("__main__", "__mp_main__")
    return OwnCode(factory, source_digest(Path(file), None if script else module.__name__), file)


def _run_file(asked: _Asked, source: str) -> _Loaded:
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
    digest = source_digest(path)
    before = _FILES.get(path)
    if before is not None and before.digest == digest:
        return before
    try:
        content = path.read_bytes()
    except OSError as error:
        raise asked.refused(f": cannot read {path} ({error.strerror})") from None
    # A unique name, so that another module with the file's name is not replaced.
    module = ModuleType(f"_collapipe_scheduler_{digest[:16]}_{path.stem}")
    module.__file__ = str(path)
    neighbours = Neighbours(path.parent)
    sys.modules[module.__name__] = module
    try:
        with no_sudden_end(), neighbours.importable():
            # Compiled from these very bytes: Python's cache of compiled files may be older than the edit.
            exec(compile(content, str(path), "exec"), module.__dict__)  # noqa: S102 - a file the user told us to run
    except BaseException as error:  # SystemExit and whatever else the user's code raises
        sys.modules.pop(module.__name__, None)
        if isinstance(error, KeyboardInterrupt):
            raise
        raise asked.failed(error, str(path)) from error
    loaded = _FILES[path] = _Loaded(digest, module, neighbours)
    return loaded


def _import_module(asked: _Asked, source: str) -> _Loaded:
    # The console script does not look into the current folder, unlike python -m.
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        with no_sudden_end():
            module = import_module(source)
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
    file = getattr(module, "__file__", None)
    digest = "" if file is None else source_digest(Path(file), module.__name__)
    if _MODULES.setdefault(module.__name__, digest) != digest:
        raise asked.refused(
            f": {file} or a module that it imports was edited after it was imported: restart Python, or "
            "name the file (path/to/file.py:Name), which is read again"
        )
    return _Loaded(digest, module, None)


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
