"""Compiled functions: Numba's ``njit``, typed so that the decorated function keeps its type for checkers.

Compiled code is kept on disk. Numba recompiles a function when its own file changes, but not when the file of
a function that it calls changes, although the kept code contains both: after such an edit or update, old
physics would run unnoticed. Here a change to a compiled source recompiles the functions of all modules that
import it, directly or not.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import warnings
from collections.abc import Callable
from functools import cache, lru_cache
from importlib.util import resolve_name
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np
from numba.core import event
from numba.extending import register_jitable

from collapipe_env.ground.inner_compiler import INNER_OPTIONS

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function of numbers, arrays and named tuples on first call, and keep the result on disk.

    The interpreter's lock is released while the function runs.
    """
    # no_cfunc_wrapper: nothing calls these functions from C.
    jit, config = cast("Any", numba.njit), cast("Any", numba.config)
    if config.DISABLE_JIT:  # compiled code does not warn of overflow or division by zero either
        quiet: Callable[P, R] = np.errstate(all="ignore")(function)
        return quiet
    common = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    try:
        wrapped: Callable[P, R] = jit(cache=True, **common)(function)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        _warn_of_no_cache()
        wrapped = jit(**common)(function)
    path = getattr(getattr(wrapped, "stats", None), "cache_path", None)
    if path:
        _cache_paths.add(path)
    _stamp(wrapped)
    _announce()
    return wrapped


def compiled_inner(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    """Compile a function that only compiled code calls, when the first caller is compiled.

    It lacks the wrapper for calls from Python, which unpacks named tuples of arrays and takes much of the
    compile time. It is not kept on disk by itself, only as part of its callers.

    Args:
        options: Further options of ``numba.njit``.
    """
    common = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, "no_cpython_wrapper": True}
    jit: Any = numba.njit
    wrapped: Callable[P, R] = jit(**common, **INNER_OPTIONS, **options)(function)
    return wrapped


def called_from_python(inner: Callable[P, R]) -> Callable[P, R]:
    """Return a function of :func:`compiled_inner` or :func:`compiled_leaf`, to be called from Python."""
    plain: Callable[P, R] = getattr(inner, "py_func", inner)  # with NUMBA_DISABLE_JIT=1 it is plain already
    return compiled(plain)


def compiled_leaf(function: Callable[P, R]) -> Callable[P, R]:
    """Compile, like :func:`compiled_inner`, a function that neither creates nor returns arrays.

    References to arrays then need no counting, which otherwise takes as long as ten additions for every array
    argument, and much of the compile time.
    """
    return compiled_inner(function, _nrt=False)


def jitable(function: Callable[P, R]) -> Callable[P, R]:
    """Let compiled code call a function that works on numbers and arrays alike; Python runs it uncompiled."""
    register: Any = register_jitable
    registered: Callable[P, R] = register(function)
    return registered


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Compile as :func:`compiled_leaf` does, and inline the code in its callers: for the innermost loops."""
    return compiled_inner(function, _nrt=False, forceinline=True)


def source_stamp(module: str) -> str:
    """Return a digest of the source files that a module's compiled code depends on.

    These are its own file and those that it imports, directly or through each other, as far as they are
    compiled: those that name this module, those below ``kernels`` and ``physics``, whose formulas and
    constants become part of compiled code, and ``inner_compiler.py``.
    """
    reached, left = {module}, [module]
    while left:
        new = [name for name in _source(left.pop())[1] if name not in reached]
        reached.update(new)
        left += new
    return hashlib.sha256(b"".join(_source(name)[0] for name in sorted(reached))).hexdigest()


_IMPORT = re.compile(r"^\s*(?:from|import) +([.\w]+)(?: +import +(\([^)]*\)|[^#\n]*))?", re.MULTILINE)


@cache
def _source(module: str) -> tuple[bytes, list[str]]:
    """Digest of a module's file, and the modules with compiled sources that it imports."""
    text, named = _text(module), set[str]()
    for source, names in _IMPORT.findall(text):
        whole = resolve_name(source, getattr(sys.modules[module], "__package__", None) or "")
        # What is imported from a package may be a module of it.
        named |= {whole, *(f"{whole}.{word}" for word in re.findall(r"\w+", names))}
    loaded_too = (name for name in named if name.startswith("collapipe_env.") and name in sys.modules)
    return hashlib.sha256(text.encode()).digest(), sorted(filter(_is_compiled, loaded_too))


@cache
def _is_compiled(module: str) -> bool:
    if module.split(".")[1] in ("kernels", "physics") or module.endswith(".inner_compiler"):
        return True
    return "collapipe_env.ground.compiled" in _text(module)


@cache
def _text(module: str) -> str:
    """Source of a module; empty where it is not loaded from a file, as for what one types."""
    path = getattr(sys.modules.get(module), "__file__", None)
    return "" if path is None else Path(path).read_text(encoding="utf-8")


_WHAT_IS_COMPILED = {
    "agents.dssra": "DSSRA's search",
    "agents.learned": "the graph net",
    "baselines": "a baseline's planner",
}
"""Name of the compiled part in messages, by folder of the package; other folders: the simulator's loops."""


def cache_folder() -> Path | None:
    """Return the common folder of all compiled code on disk; ``None`` if none is kept."""
    return Path(os.path.commonpath(_cache_paths)) if _cache_paths else None


_cache_paths: set[str] = set()


def own_module(event: Any) -> list[str]:
    """Return the parts of the module name of an event ``numba:compile``; empty outside the package."""
    function = getattr((event.data or {}).get("dispatcher"), "py_func", None)
    module = str(getattr(function, "__module__", "")).split(".")
    return module if module[0] == "collapipe_env" else []


class _Announcement(event.Listener):
    """Says on a terminal that a part is being compiled, once for each part."""

    def __init__(self) -> None:
        self.said: set[str] = set()

    def on_start(self, event: Any) -> None:
        module = own_module(event)
        if not module:
            return
        folder = ".".join(module[1:3]) if module[1] == "agents" else module[1]
        part = _WHAT_IS_COMPILED.get(folder, "the simulator's loops")
        if part in self.said:
            return
        self.said.add(part)
        if sys.stderr is not None and sys.stderr.isatty():
            print(
                f"collapipe-env: compiling {part} for this machine, once (up to a minute; "
                "`collapipe warm-up` does it all beforehand) ...",
                file=sys.stderr,
            )

    def on_end(self, event: Any) -> None:
        pass


@lru_cache(maxsize=1)
def _warn_of_no_cache() -> None:
    warnings.warn(
        "Numba finds no folder to keep compiled code in, so every process recompiles: set NUMBA_CACHE_DIR "
        "to a folder that only you can write to (code in it is executed)",
        stacklevel=4,
    )


@lru_cache(maxsize=1)
def _announce() -> None:
    listen: Any = event.register
    listen("numba:compile", _Announcement())


def _stamp(wrapped: Any) -> None:
    """Make compiled code on disk depend on all sources within it, not on the function's file alone."""
    # Numba has no public interface for this; without these attributes (another Numba, or no cache) only this
    # protection is lost.
    file: Any = getattr(getattr(wrapped, "_cache", None), "_cache_file", None)
    if hasattr(file, "_version"):
        # Numba reads no more than the version of code that another one kept, which may not be readable.
        file._version = (file._version, source_stamp(wrapped.py_func.__module__))
