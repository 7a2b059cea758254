"""A user's own code, named on the command line: ``package.module:Name``, ``path/to/file.py:Name``.

Code named in this way is imported, and so it runs; data files are never executed. A scheduler is imported in
a process of its own (:mod:`~collapipe_env.evaluation.scheduler_process`), everything else where it is used.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import re
import secrets
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from collapipe_env.ground.errors import CollaPipeError, SchedulerError, nearest_name, reason, shortened
from collapipe_env.ground.registry import FORMS, Registry

OWN_FILE = "_collapipe_own_"
"""Beginning of the names of modules that are files named by their paths."""
_NOT_OWN = (str(Path(__file__).parents[1]) + os.sep, importlib.__file__, "<frozen importlib")
_INSTALLED = tuple(sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib"))


class ToldError(SchedulerError):
    """An error of a scheduler in a process of its own; its message says everything."""


def is_reference(name: str) -> bool:
    """Whether a name refers to a user's own code."""
    return ":" in name or name.endswith(".py")


def file_of(reference: str) -> Path | None:
    """File that a reference names; ``None`` for one that names a module."""
    source = reference.rpartition(":")[0]
    return Path(os.path.expanduser(source)) if source.endswith(".py") else None


def import_own(reference: str, registry: Registry[Any], *, called: bool = True) -> Any:
    """Return the object that a reference names, imported.

    Args:
        registry: Registry of its kind, which knows the name and use of such things.
        called: Whether the object has to be callable.

    Raises:
        CollaPipeError: Of the registry's class, if there is no such file, module or name, it cannot be
            imported, or the object cannot be called.
    """
    form = "class or function" if called else "object"
    what = f"{registry.kind} {shortened(reference)!r}"
    source, _, name = reference.rpartition(":")
    file = file_of(reference)
    if not name.isidentifier() or not (file or all(part.isidentifier() for part in source.split("."))):
        stem = reference.rstrip(":")
        example = f"{stem}:Name" if stem.endswith(".py") else FORMS
        raise registry.error(f"{what} names no {form}: write {example}, which {registry.use}")
    if file and not os.path.isfile(file):
        raise registry.error(
            f"{what}: there is no file {shortened(source)!r}: give the path of a Python file, as in {FORMS}"
        )
    hint = f"check its spelling and the current folder, or name a file, as in {FORMS}"
    with blamed(registry.error, f"{what} cannot be imported", hint):
        module = import_source(os.path.realpath(file) if file else source)
        found = getattr(module, name, None)  # modules may have a __getattr__
    if found is None:
        own = [
            key
            for key, value in vars(module).items()
            if not key.startswith("_")
            and not isinstance(value, ModuleType)
            and (callable(value) or not called)
            and getattr(value, "__module__", module.__name__) == module.__name__
        ]
        nearest = nearest_name(name, own) if own else f"it defines no {form}"
        place = getattr(module, "__file__", None) or source
        raise registry.error(f"{what}: there is no {name!r} in {place}: {nearest}")
    if called and not callable(found):
        raise registry.error(
            f"{what}: {name} is an object of type {type(found).__name__}, which cannot be called: "
            f"name a class or function that {registry.use}"
        )
    return found


def import_source(source: str) -> ModuleType:
    """Import a module, or run a file as a module, each once in a process.

    A file may import its neighbours, after libraries of the same names.

    Args:
        source: Name of a module, which may be in the current folder, or absolute path of a file.

    Raises:
        BaseException: Whatever the code raises.
    """
    if not source.endswith(".py"):
        here = os.getcwd()  # the console script does not look there, unlike python -m
        if here not in sys.path and "" not in sys.path:
            sys.path.insert(0, here)
        return importlib.import_module(source)
    path = Path(source)
    # The same name in every process, and no other module's: what it defines can be pickled.
    name = f"{OWN_FILE}{hashlib.sha256(source.encode()).hexdigest()[:16]}_{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
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
    return module


@contextlib.contextmanager
def blamed(kind: type[CollaPipeError], what: str, hint: str) -> Iterator[None]:
    """Context of a call of the user's code, whose errors become one line with file and line number.

    Args:
        kind: Class of that error.
        what: Beginning of the line: what failed.
        hint: Its end where no line of the user's is at fault, but the call.
    """
    try:
        yield
    except (KeyboardInterrupt, ToldError):
        raise
    except BaseException as error:  # SystemExit and GeneratorExit, too: none of them ends the program
        said, file, line = reason(error), None, None
        if isinstance(error, SyntaxError) and error.filename is not None:
            said, file, line = error.msg, error.filename, error.lineno
        elif frame := _own_frame(error):
            file, line = frame.filename, frame.lineno
        end = f": {hint}" if file is None else f" ({file}, line {line})"
        raise kind(f"{what}: {type(error).__name__}: {said}{end}") from error


def _own_frame(error: BaseException) -> traceback.FrameSummary | None:
    """Last place of an error in the user's code, or else in a library; none for an error in its call."""
    every = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in every if not frame.filename.startswith(_NOT_OWN)]
    own = [frame for frame in frames if not frame.filename.startswith(_INSTALLED)]
    return next(reversed(own or frames), None)


def place_of_object(made: object) -> str | None:
    """File and name of a class or function; ``None`` where no file defines it fully, at its top level."""
    file = getattr(sys.modules.get(getattr(made, "__module__", "")), "__file__", None)
    name = getattr(made, "__qualname__", "<unknown>")
    return None if file is None or "<" in name else f"{file}:{name}"


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
    found = import_own(text, registry)
    plain = re.sub("[^a-z0-9]+", "_", text.rpartition(":")[2].lower()).strip("_")[:24]
    plain = plain if plain[:1].isalpha() else f"own_{plain}"
    name = f"{plain}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    registry.register(name, found, replace=True)
    return name


def register_again(registry: Registry[Any], name: str, own: object) -> None:
    """Register a user's own thing, or the thing at a place in a file or module, in another process."""
    if isinstance(own, str):
        registered_name(registry, own)
    else:
        registry.register(name, own)


def object_identity(own: object) -> str:
    """Text that tells results with different things apart, for one whose name does not: a Python object."""
    return "" if isinstance(own, str) else place_of_object(own) or secrets.token_hex(16)
