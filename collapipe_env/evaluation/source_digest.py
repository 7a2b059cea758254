"""A digest of Python source: a scheduler whose code was edited is measured again."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path

_LIBRARIES = frozenset({"site-packages", "dist-packages"})
"""Folders of installed packages, whose neighbours are not the user's own code."""
_PACKAGE = "collapipe_env"
"""Its version counts by itself; its source does not."""


def source_digest(path: Path, module: str | None = None) -> str:
    """SHA-256 of a source file and of the user's own modules that it imports, directly or through others.

    Imports are read, not executed. Those that lead to a file below the same root count: beside the file, or
    in the folder that a module's dotted name starts from. Of installed packages only the module's own counts.

    Args:
        path: The source file.
        module: Dotted name that it is imported by; ``None`` for a file that is named by its path.
    """
    path = path.resolve()
    root = path.parent
    if module is not None:
        steps = module.count(".") + (path.name == "__init__.py")
        root = path.parents[min(steps, len(path.parents) - 1)]
    only = module.partition(".")[0] if module is not None and root.name in _LIBRARIES else None
    found: dict[Path, bytes] = {}
    waiting = [path]
    while waiting:
        file = waiting.pop()
        if file in found:
            continue
        try:
            found[file] = file.read_bytes()
        except OSError:
            continue  # what cannot be read cannot be imported either, and importing says so
        waiting += _imported(file, found[file], root, only)
    digest = hashlib.sha256()
    for file in sorted(found):
        content = found[file]
        digest.update(f"{file.relative_to(root) if file.is_relative_to(root) else file}\0".encode())
        digest.update(f"{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _imported(file: Path, content: bytes, root: Path, only: str | None) -> Iterator[Path]:
    """Files below the root that a source file imports."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(root, alias.name.split("."), only)
        elif isinstance(node, ast.ImportFrom):
            start, limit = root, only
            if node.level:
                start, limit = file.parents[min(node.level, len(file.parents)) - 1], None
                if not start.is_relative_to(root):
                    continue
            parts = node.module.split(".") if node.module else []
            for alias in node.names:
                # The name may be a module of the package or something inside it; only a module has a file.
                yield from _files(start, [*parts, alias.name], limit)


def _files(folder: Path, parts: list[str], only: str | None) -> Iterator[Path]:
    """Files that ``import a.b.c`` runs, as far as they lie below the folder."""
    if parts[0] == _PACKAGE or only not in (None, parts[0]):
        return
    for part in parts:
        if (folder / f"{part}.py").is_file():
            yield folder / f"{part}.py"
            return
        folder = folder / part
        if not folder.is_dir():
            return
        if (folder / "__init__.py").is_file():
            yield folder / "__init__.py"
