"""Pairs of sentences from local files; every error names the file and, where there is one, the line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collapipe_env.errors import DataError
from collapipe_env.tasks.data_parts import choose_named, held_out
from collapipe_env.tasks.table_files import read_text
from collapipe_env.typed_paths import why_unusable

DEV_NAMES = ("dev", "val", "valid", "validation", "devel", "development")
"""Names of the development part, in order of preference."""
TABLE_ENDINGS = (".tsv", ".tsv.gz")
"""Endings of a file that holds both languages."""
HEADERS = (("source", "target"), ("src", "tgt"))
"""Usual first lines of such a file."""


@dataclass(frozen=True)
class Pairs:
    """Sentences and their translations, none empty.

    Attributes:
        sources: Sentences.
        targets: As many translations.
    """

    sources: tuple[str, ...]
    targets: tuple[str, ...]

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.sources)

    def subset(self, indices: np.ndarray) -> Pairs:
        """Return the pairs at ``indices``, in that order."""
        return Pairs(tuple(self.sources[i] for i in indices), tuple(self.targets[i] for i in indices))


def load_parallel(path: Path, languages: tuple[str, str] | None = None) -> tuple[Pairs, Pairs, Pairs]:
    """Read the training, development and test pairs of a folder or of a table.

    A folder holds two files for each part, with one sentence a line, whose endings are the languages:
    ``train.en`` and ``train.de``; ``dev`` (or ``val``, ``valid``, ``devel`` and their long forms); and
    ``test``, otherwise the first name that begins with ``test``. Without these, it holds a table for each
    part (``train.tsv``, ``dev.tsv``, ``test.tsv``; see :func:`collapipe_env.tasks.data_parts.choose_named`),
    or a single table. A table is a ``.tsv`` file whose lines hold sentence, tab, translation, unless a header
    ``source``/``target``, ``src``/``tgt`` or of ``languages`` says otherwise. All files may be gzipped
    (``.gz``). A missing part is taken from the training pairs by a fixed permutation.

    Args:
        path: The folder or the file.
        languages: Endings of source and target files. None takes the only two: English is the source if it is
            one of them, otherwise they are in alphabetical order.

    Returns:
        Training, development and test pairs, at least one each.

    Raises:
        DataError: If something is missing or malformed.
    """
    if path.is_dir():
        tables = {} if _line_files(path) else _tables(path)
        if tables:
            return _with_held_out(path, *_read_tables(tables, languages))
        source, target = languages or _languages(path)
        train = _read_part(path, "train", source, target)
        dev_name = next((name for name in DEV_NAMES if _has_part(path, name, source, target)), None)
        test_name = _test_name(path, source, target)
        dev = None if dev_name is None else _read_part(path, dev_name, source, target)
        test = None if test_name is None else _read_part(path, test_name, source, target)
        return _with_held_out(path, train, dev, test)
    if path.is_file():
        return _with_held_out(path, read_table(path, languages), None, None)
    raise DataError(
        f"{path}: {why_unusable(path)}; give a folder with train.LANGUAGE files or train.tsv, or a .tsv "
        "file of pairs"
    )


def read_files(source: Path, target: Path) -> Pairs:
    """Read two files whose lines pair up as sentence and translation; blank pairs are skipped.

    Args:
        source: File of sentences, plain or gzipped.
        target: File of translations.

    Raises:
        DataError: If one cannot be read, the numbers of lines differ, or a line is blank in one file only.
    """
    sides = [_lines(source), _lines(target)]
    counts = [len(side) for side in sides]
    pairs: list[tuple[str, str]] = []
    for number, (sentence, translation) in enumerate(zip(*sides, strict=False), start=1):
        if bool(sentence) != bool(translation):
            blank, other = (source, target) if translation else (target, source)
            raise DataError(
                f"{blank}:{number}: blank, but {other.name}:{number} is not; fill it in or blank both"
            )
        if sentence:
            pairs.append((sentence, translation))
    if counts[0] != counts[1]:
        longer, shorter = (source, target) if counts[0] > counts[1] else (target, source)
        raise DataError(
            f"{longer}:{min(counts) + 1}: no line of {shorter.name} pairs with it ({longer.name} has "
            f"{max(counts)} lines, {shorter.name} {min(counts)}); give both equally many"
        )
    return _pairs(source, pairs)


def read_table(path: Path, languages: tuple[str, str] | None = None) -> Pairs:
    """Read pairs from one file of tab-separated columns, never quoted; blank lines are skipped.

    Args:
        path: A file that ends in .tsv or .tsv.gz.
        languages: Names of the source and the target column, if its header has them.

    Raises:
        DataError: If it cannot be read, or a line has a wrong number of columns or a blank sentence or
            translation.
    """
    return _read_table(path, languages, _Columns())[0]


@dataclass(frozen=True)
class _Columns:
    """Indices of the columns of a table that are read, and the number of all its columns."""

    source: int = 0
    target: int = 1
    count: int = 2


def _read_table(path: Path, languages: tuple[str, str] | None, columns: _Columns) -> tuple[Pairs, _Columns]:
    """Read as :func:`read_table`, with columns for a table without header; also return the columns."""
    if not path.name.lower().endswith(TABLE_ENDINGS):
        raise DataError(
            f"{path}: a single file of pairs must end in {' or '.join(TABLE_ENDINGS)}; name it so, or give "
            "a folder with train.LANGUAGE files"
        )
    rows = [
        (number, [cell.strip() for cell in line.split("\t")])
        for number, line in enumerate(_lines(path, strip=False), start=1)
        if line.strip()
    ]
    if rows:
        header = [cell.lower() for cell in rows[0][1]]
        known = HEADERS if languages is None else ((languages[0].lower(), languages[1].lower()), *HEADERS)
        for source, target in known:
            if {source, target} <= set(header):
                columns = _Columns(header.index(source), header.index(target), len(header))
                rows = rows[1:]
                break
    pairs: list[tuple[str, str]] = []
    for number, cells in rows:
        if len(cells) != columns.count:
            raise DataError(
                f"{path}:{number}: {len(cells)} columns where {columns.count} are expected; write sentence, "
                "tab, translation, or add a header line source<tab>target"
            )
        sentence, translation = cells[columns.source], cells[columns.target]
        if not sentence or not translation:
            side = "translation" if sentence else "sentence"
            raise DataError(f"{path}:{number}: the {side} is blank; fill it in or drop the line")
        pairs.append((sentence, translation))
    return _pairs(path, pairs), columns


def _tables(folder: Path) -> dict[str, Path]:
    """Return the tables of a folder by part; a single one is for training, whatever its name."""
    files: dict[str, Path] = {}
    for name in _names(folder):
        if name.lower().endswith(TABLE_ENDINGS[0]) and (file := _file(folder, name)) is not None:
            files[name[: -len(TABLE_ENDINGS[0])]] = file
    named = {part: files[stem] for part, stem in choose_named(list(files), str(folder)).items()}
    if files and "train" not in named:
        if len(files) > 1:
            raise DataError(
                f"{folder}: no train.tsv in this folder, and {len(files)} tables where a single one could be "
                "split; add it or name a file"
            )
        named = {"train": next(iter(files.values()))}
    return named


def _read_tables(
    tables: Mapping[str, Path], languages: tuple[str, str] | None
) -> tuple[Pairs, Pairs | None, Pairs | None]:
    """Read the table of each part; one without header has the training table's columns."""
    train, columns = _read_table(tables["train"], languages, _Columns())
    dev, test = (
        _read_table(tables[part], languages, columns)[0] if part in tables else None
        for part in ("dev", "test")
    )
    return train, dev, test


def _pairs(path: Path, pairs: list[tuple[str, str]]) -> Pairs:
    if not pairs:
        raise DataError(f"{path}: no pair of sentences in it; it needs one a line")
    sources, targets = zip(*pairs, strict=True)
    return Pairs(sources, targets)


def _lines(path: Path, *, strip: bool = True) -> list[str]:
    """Return the lines of a plain or gzipped UTF-8 file without blank ones at the end."""
    # Not splitlines, which would also cut at form feeds and Unicode separators within a sentence.
    lines = read_text(path).replace("\r\n", "\n").split("\n")
    while lines and not lines[-1].strip():
        del lines[-1]
    return [line.strip() for line in lines] if strip else lines


def _names(folder: Path) -> list[str]:
    """Return the sorted names of the files in a folder, without ``.gz``."""
    return sorted({file.name.removesuffix(".gz") for file in folder.iterdir() if file.is_file()})


def _file(folder: Path, name: str) -> Path | None:
    """Return the plain or gzipped file of that name, or None; refuse two of them."""
    found = [folder / ending for ending in (name, f"{name}.gz") if (folder / ending).is_file()]
    if len(found) > 1:
        raise DataError(f"{folder}: both {found[0].name} and {found[1].name} exist; keep one")
    return found[0] if found else None


def _line_files(folder: Path) -> list[str]:
    """Return the endings of the training files that are not tables."""
    endings = [name.removeprefix("train.") for name in _names(folder) if name.startswith("train.")]
    return [ending for ending in endings if not f".{ending}".lower().endswith(TABLE_ENDINGS[0])]


def _languages(folder: Path) -> tuple[str, str]:
    """Return the endings of the two training files."""
    endings = _line_files(folder)
    if len(endings) != 2:
        found = f"{len(endings)} files train.LANGUAGE" + (f" ({', '.join(endings)})" if endings else "")
        raise DataError(
            f"{folder}: {found} where two are expected; "
            + (
                "set languages to the source and the target"
                if endings[2:]
                else "add train.en and train.de, or a train.tsv of pairs"
            )
        )
    source, target = sorted(endings, key=lambda ending: (ending != "en", ending))
    return source, target


def _has_part(folder: Path, name: str, source: str, target: str) -> bool:
    """Whether a part has a file in at least one language."""
    return any(_file(folder, f"{name}.{language}") for language in (source, target))


def _test_name(folder: Path, source: str, target: str) -> str | None:
    """Return ``test`` if it has a file, otherwise the first name with a file that begins so, or None."""
    endings = (f".{source}", f".{target}")
    names = {
        name.removesuffix(ending)
        for name in _names(folder)
        for ending in endings
        if name.startswith("test") and name.endswith(ending)
    }
    return "test" if "test" in names else min(names, default=None)


def _read_part(folder: Path, name: str, source: str, target: str) -> Pairs:
    files = [_file(folder, f"{name}.{language}") for language in (source, target)]
    if files[0] is None or files[1] is None:
        missing = " and ".join(
            f"{name}.{language}"
            for language, file in zip((source, target), files, strict=True)
            if file is None
        )
        raise DataError(f"{folder}: no {missing} (nor with .gz); add it or correct languages")
    return read_files(files[0], files[1])


def _with_held_out(
    path: Path, train: Pairs, dev: Pairs | None, test: Pairs | None
) -> tuple[Pairs, Pairs, Pairs]:
    """Fill missing parts from the training pairs."""
    found = {"dev": dev, "test": test}
    chosen = held_out(len(train), [name for name, part in found.items() if part is None], str(path))
    parts = {name: train.subset(indices) for name, indices in chosen.items()}
    return parts["train"], dev or parts["dev"], test or parts["test"]
