"""Tables of a data set's parts: from a file, from a folder with a file for each part, or from the hub."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from collapipe_env.ground.errors import DataError
from collapipe_env.ground.typed_paths import why_unusable
from collapipe_env.tasks.data_parts import choose_named
from collapipe_env.tasks.hub import hub_tables
from collapipe_env.tasks.table_files import Table, stem_of


def part_files(folder: Path, stem: Callable[[Path], str]) -> tuple[dict[str, Path], list[Path]]:
    """Return the file of each part of a folder, and all its files of data.

    Args:
        stem: Text that tells a file's part; empty for files that hold no data. Hidden files are left out.

    Raises:
        DataError: If two files fit a part equally well.
    """
    listed = {file.name: stem(file) for file in sorted(folder.iterdir()) if file.is_file()}
    files = {name: said for name, said in listed.items() if said and not name.startswith(".")}
    named = choose_named(files, str(folder))
    return {part: folder / name for part, name in named.items()}, [folder / name for name in files]


def tables_at(
    path: Path | str,
    read: Callable[[Path], Table],
    stem: Callable[[Path], str],
    train: str,
    advice: str,
    *,
    sole: bool = False,
    pairs: bool = False,
) -> dict[str, Table]:
    """Return the table of each part of a data set; a file that ``path`` names is for training.

    Args:
        path: A file, a folder, or the name of a data set of the hub.
        read: Reads a file.
        stem: As for :func:`part_files`.
        train: Usual names of a folder's training file, for errors.
        advice: Advice on a path where nothing is, for errors.
        sole: Whether a folder's sole file, other than ``.txt``, is for training, whatever its name.
        pairs: As for :func:`~collapipe_env.tasks.hub.hub_tables`.

    Raises:
        DataError: If there is no training part, two files fit a part, or a table cannot be read.
    """
    if isinstance(path, str):
        return hub_tables(path, pairs=pairs)
    if path.is_file():
        return {"train": read(path)}
    if not path.is_dir():
        raise DataError(f"{path}: {why_unusable(path)}; {advice}")
    named, files = part_files(path, stem)
    if "train" not in named:
        tables = [file for file in files if not stem_of(file, (".txt",))]
        if not sole or len(tables) != 1:
            some = f", and {len(tables)} tables where a single one could be split" if sole else ""
            raise DataError(f"{path}: no {train} in this folder{some}; add a training file or name a file")
        named = {"train": tables[0]}
    return {part: read(file) for part, file in named.items()}
