"""Digest of Python source; a scheduler is measured again after the digest of its code has changed."""

from __future__ import annotations

import ast
import hashlib
import sysconfig
from collections.abc import Iterator
from pathlib import Path

LIBRARIES = frozenset(
    Path(path).resolve()
    for name, path in sysconfig.get_paths().items()
    if name in ("stdlib", "platstdlib", "purelib", "platlib")
)
"""Folders of Python's own modules and of installed packages, which are not the user's own code."""
_PACKAGE = "collapipe_env"
"""This package: its version counts separately, its source does not."""


def source_digest(path: Path, module: str | None = None) -> str:
    """SHA-256 of a source file and of the user's own modules that it imports, directly or through others.

    Imports are read, not executed. Only imported files below one root count: the file's folder, or the folder
    in which a module's dotted name starts. Libraries are not followed: for a file of an installed package,
    the digest covers that file, and the names, sizes and times of the package's other files.

    Args:
        path: The source file.
        module: Dotted name that it is imported by; ``None`` for a file that is named by its path.
    """
    path = path.resolve()
    root = path.parent
    if module is not None:
        steps = module.count(".") + (path.name == "__init__.py")
        root = path.parents[min(steps, len(path.parents) - 1)]
    installed = root in LIBRARIES or root.name in ("site-packages", "dist-packages")
    found: dict[Path, bytes] = {}
    waiting = [path]
    while waiting:
        file = waiting.pop()
        if file in found:
            continue
        try:
            found[file] = file.read_bytes()
        except OSError:
            continue  # an unreadable file cannot be imported either, and the import says so
        if not installed:
            waiting += _imported(file, found[file], root)
    digest = hashlib.sha256()
    if installed and module is not None:
        for file in sorted((root / module.partition(".")[0]).rglob("*.py")):
            status = file.stat()
            digest.update(f"{file.relative_to(root)}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    for file in sorted(found):
        content = found[file]
        digest.update(f"{file.relative_to(root) if file.is_relative_to(root) else file}\0".encode())
        digest.update(f"{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _imported(file: Path, content: bytes, root: Path) -> Iterator[Path]:
    """Files below the root that a source file imports."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(root, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            start = root
            if node.level:
                start = file.parents[min(node.level, len(file.parents)) - 1]
                if not start.is_relative_to(root):
                    continue
            parts = node.module.split(".") if node.module else []
            for alias in node.names:
                # The name may be a module of the package or something inside it; only a module has a file.
                yield from _files(start, [*parts, alias.name])


def _files(folder: Path, parts: list[str]) -> Iterator[Path]:
    """Files that ``import a.b.c`` runs, as far as they lie below the folder."""
    if parts[0] == _PACKAGE:
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
