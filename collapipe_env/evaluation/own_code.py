"""A user's own code, named on the command line: ``package.module:Name``, ``path/to/file.py:Name``.

Code named in this way is imported, and so it runs; data files are never executed. A scheduler is imported in
a process of its own (:mod:`~collapipe_env.evaluation.scheduler_process`), everything else where it is used.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import sys
import traceback
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from collapipe_env.ground.errors import CollaPipeError, nearest_name, reason, shortened
from collapipe_env.ground.registry import FORMS, Registry

_PACKAGE = Path(__file__).parents[1]
SOURCES: dict[str, ModuleType] = {}
"""Files (absolute paths) and modules that were imported for a name, in order; each file runs once."""


class OwnCode(NamedTuple):
    """An object of the user's, and the file that defines it, where there is one."""

    found: Any
    file: str | None


def is_reference(name: str) -> bool:
    """Whether a name refers to a user's own code."""
    return ":" in name or name.endswith(".py")


def import_own(reference: str, registry: Registry[Any], *, called: bool = True) -> OwnCode:
    """Import the object that a reference names.

    Args:
        reference: ``package.module:Name`` or ``path/to/file.py:Name``.
        registry: Registry of its kind, which knows the name and use of such things.
        called: Whether the object has to be callable.

    Raises:
        CollaPipeError: Of the registry's class, if there is no such file, module or name, it cannot be
            imported, or the object cannot be called.
    """
    form = "class or function" if called else "object"
    source, colon, name = reference.rpartition(":")
    is_file = source.endswith(".py") or "/" in source or os.sep in source
    is_module = all(part.isidentifier() for part in source.split("."))

    def refused(why: str) -> CollaPipeError:
        return registry.error(f"{registry.kind} {shortened(reference)!r}{why}")

    if not colon or not name.isidentifier() or not (is_file or is_module):
        example = f"{reference.rstrip(':')}:Name" if reference.rstrip(":").endswith(".py") else FORMS
        raise refused(f" names no {form}: write {example}, which {registry.use}")
    file = None
    try:
        if is_file:
            file = _file(source)
        module = import_source(file or source)
        found = getattr(module, name, None)  # modules may have a __getattr__
    except KeyboardInterrupt:
        raise
    except _NoFileError as error:
        raise refused(f": {error}: give the path of a Python file, as in {FORMS}") from None
    except BaseException as error:  # SystemExit and whatever else the user's code raises
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if not is_file and missing and f"{source}.".startswith(f"{missing}."):
            raise refused(
                f": there is no module {shortened(missing)!r} here or among the installed ones: check its "
                f"spelling and the current folder, or name a file, as in {FORMS}"
            ) from None
        raise refused(f" cannot be imported: {blame(error, file)}") from error
    file = getattr(module, "__file__", None)
    if found is None:
        own = [
            key
            for key, value in vars(module).items()
            if not key.startswith("_")
            and not isinstance(value, ModuleType)
            and (callable(value) or not called)
            and getattr(value, "__module__", module.__name__) == module.__name__
        ]
        hint = nearest_name(name, own) if own else f"it defines no {form}"
        raise refused(f": there is no {name!r} in {file or source}: {hint}")
    if called and not callable(found):
        raise refused(
            f": {name} is an object of type {type(found).__name__}, which cannot be called: "
            f"name a class or function that {registry.use}"
        )
    return OwnCode(found, file)


class _NoFileError(Exception):
    """There is no such file."""


def _file(source: str) -> str:
    """Absolute path of a Python file."""
    try:
        path = Path(source).expanduser().resolve()
        if path.is_file():
            return str(path)
        why = "is not a file" if path.exists() else "does not exist"
    except (OSError, RuntimeError, ValueError) as error:  # too long, links in circles, a null byte, ~nobody
        why = f"cannot be read ({getattr(error, 'strerror', None) or error})"
    raise _NoFileError(f"{shortened(source)} {why}")


def import_source(source: str) -> ModuleType:
    """Import a module, or run a file as a module, each once in a process.

    A file may import its neighbours, after libraries of the same names.

    Args:
        source: Name of a module, which may be in the current folder, or absolute path of a file.

    Raises:
        BaseException: Whatever the code raises.
    """
    if source in SOURCES:
        return SOURCES[source]
    if not source.endswith(".py"):
        here = os.getcwd()  # the console script does not look there, unlike python -m
        if here not in sys.path and "" not in sys.path:
            sys.path.insert(0, here)
        SOURCES[source] = import_module(source)
        return SOURCES[source]
    path = Path(source)
    # The same name in every process, and no other module's: what it defines can be pickled.
    name = f"_collapipe_own_{hashlib.sha256(source.encode()).hexdigest()[:16]}_{path.stem}"
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    sys.dont_write_bytecode = True  # no caches beside it
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    SOURCES[source] = module
    return module


def blame(error: BaseException, file: str | None) -> str:
    """Error in the user's code, in one line with file and line number.

    Args:
        file: The user's file; its last line in the traceback is named, or the last line outside this package.
    """
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{type(error).__name__}: {error.msg} ({error.filename}, line {error.lineno})"
    frames = own_frames(error, file)
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {reason(error)}{place}"


def own_frames(error: BaseException, file: str | None) -> list[traceback.FrameSummary]:
    """Places of an error in the user's file, or outside this package; none for an error in the call of it."""
    frames = traceback.extract_tb(error.__traceback__)
    return [frame for frame in frames if frame.filename == file] or [
        frame
        for frame in frames
        if not Path(frame.filename).is_relative_to(_PACKAGE)
        and frame.filename not in (contextlib.__file__, import_module.__code__.co_filename)
        and not frame.filename.startswith("<frozen importlib")
    ]


def place_of_object(made: object, source: object) -> str | None:
    """File and name of a class or function given as a Python object.

    Args:
        made: Class or function that was given.
        source: Class or function whose code is used.

    Returns:
        The place; ``None`` unless the object is at the top level of a file, because only then the file
        defines it fully.
    """
    module = sys.modules.get(getattr(source, "__module__", ""))
    name = getattr(source, "__qualname__", "<unknown>")
    file = getattr(module, "__file__", None)
    known = made is source and "<" not in name and file is not None and Path(file).is_file()
    return f"{file}:{name}" if known else None


def registered_name(registry: Registry[Any], text: str) -> str:
    """Return the registered name of a thing that was named on a command line.

    A user's own code is imported and registered. Its name ends in a digest of the text, so a namesake in
    another file is another thing.

    Args:
        registry: A registry, for instance of rewards or learners.
        text: A registered name, ``package.module:Name`` or ``path/to/file.py:Name``.

    Raises:
        CollaPipeError: Of the registry's class, if there is no such name, or the code cannot be imported.
    """
    if not is_reference(text):
        registry.require(text)
        return text
    found = import_own(text, registry).found
    digest = hashlib.sha256(text.encode()).hexdigest()
    plain = re.sub("[^a-z0-9]+", "_", text.rpartition(":")[2].lower()).strip("_")[:24]
    name = f"{plain if plain[:1].isalpha() else f'own_{plain}'}_{digest[:8]}"
    registry.register(name, found, replace=True)
    return name


def register_again(registry: Registry[Any], name: str, own: object) -> None:
    """Register a user's own thing in another process.

    Args:
        name: Its registered name.
        own: The thing, or its place in a file or module.

    Raises:
        CollaPipeError: If it cannot be imported.
    """
    if isinstance(own, str):
        registered_name(registry, own)
    else:
        registry.register(name, own)


def object_identity(own: object) -> str:
    """Return a text that identifies a user's own thing, to keep results of different ones apart.

    Args:
        own: As for :func:`register_again`; the name of a thing given by its place identifies it.
    """
    return "" if isinstance(own, str) else place_of_object(own, own) or secrets.token_hex(16)
