"""Tables of a data set's parts: from a file, from a folder with a file for each part, or from the hub."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from collapipe_env.ground.errors import DataError
from collapipe_env.ground.typed_paths import why_unusable
from collapipe_env.tasks.data_parts import Samples, choose_named
from collapipe_env.tasks.hub import hub_tables
from collapipe_env.tasks.table_files import ENDINGS, Table, read_table, stem_of


def part_files(folder: Path, stem: Callable[[Path], str]) -> tuple[dict[str, Path], list[Path]]:
    """Return the file of each part of a folder, and all its files of data, without hidden ones.

    A file's ``stem`` is the text that tells its part; it is empty for files that hold no data.

    Raises:
        DataError: If two files fit a part equally well.
    """
    listed = {file.name: stem(file) for file in sorted(folder.iterdir()) if file.is_file()}
    files = {name: said for name, said in listed.items() if said and not name.startswith(".")}
    named = choose_named(files, str(folder))
    return {part: folder / name for part, name in named.items()}, [folder / name for name in files]


_table_stem = partial(stem_of, endings=ENDINGS)


def tables_at(
    path: Path | str,
    read: Callable[[Path], Table] = read_table,
    stem: Callable[[Path], str] = _table_stem,
    *,
    train: str = "train.tsv, train.csv or train.jsonl",
    sole: bool = True,
) -> dict[str, Table]:
    """Return the table of each part of a data set; a file that ``path`` names is for training.

    Args:
        path: A file, a folder, or the name of a data set of the hub.
        read: Reads a file.
        stem: As for :func:`part_files`.
        train: Usual names of a folder's training file, for errors.
        sole: Whether a folder's sole file, other than ``.txt``, is for training, whatever its name.

    Raises:
        DataError: If there is no training part, two files fit a part, or a table cannot be read.
    """
    if isinstance(path, str):
        return hub_tables(path)
    if path.is_file():
        return {"train": read(path)}
    if not path.is_dir():
        raise DataError(f"{path}: {why_unusable(path)}; give the path of a file like {train}, or its folder")
    named, files = part_files(path, stem)
    if "train" not in named:
        tables = [file for file in files if not stem_of(file, (".txt",))]
        if not sole or len(tables) != 1:
            some = f", and {len(tables)} tables where a single one could be split" if sole else ""
            raise DataError(f"{path}: no {train} in this folder{some}; add a training file or name a file")
        named = {"train": tables[0]}
    return {part: read(file) for part, file in named.items()}


def samples_of(
    table: Table,
    rows: Sequence[Sequence[str]],
    places: Sequence[str],
    columns: Sequence[tuple[str, str, Sequence[int]]],
    languages: tuple[str, str] | None = None,
) -> Samples:
    """Return the samples in two columns of a table.

    Args:
        rows: Its rows as texts.
        columns: Of the inputs and of the answers: name for errors, field of the scenario's ``learning`` that
            names columns, and columns, whose cells are joined by spaces.

    Raises:
        DataError: If a cell is empty, or no text.
    """
    found: list[tuple[str, ...]] = []
    for name, setting, chosen in columns:
        for column in chosen:
            table.require_read(column, setting)
        cells = tuple(" ".join(cell for i in chosen if (cell := row[i].strip())) for row in rows)
        if "" in cells:
            raise DataError(f"{places[cells.index('')]}: the {name} is empty; fill it in or drop the line")
        found.append(cells)
    return Samples(found[0], found[1], tuple(places), languages)
