"""Pairs of sentences from local files; every error names the file and, where there is one, the line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from collapipe_env.ground.errors import DataError, nearest_name, shown
from collapipe_env.ground.typed_paths import why_unusable
from collapipe_env.tasks.data_parts import held_out
from collapipe_env.tasks.labelled_texts import LABEL_NAMES, NAME_WORDS, TEXT_NAMES
from collapipe_env.tasks.table_files import Table, read_table, read_tables, read_text, table_ending, tables_in

DEV_NAMES = ("dev", "val", "valid", "validation", "devel", "development")
"""Names of the development part, in order of preference."""
TABLE_ENDINGS = (".tsv", ".csv", ".jsonl", ".ndjson")
"""Endings of a file that holds both languages; each may be followed by ``.gz``."""
LANGUAGE_NAMES = """
    ar ara arabic; bg bul bulgarian; bn ben bengali; ca cat catalan; cs ces cze czech; da dan danish;
    de deu ger german deutsch; el ell gre greek; en eng english englisch; es spa esp spanish español;
    et est estonian; fa fas persian; fi fin finnish; fr fra fre french français; is isl icelandic;
    he heb hebrew; hi hin hindi; hr hrv croatian; hu hun hungarian; it ita italian; ja jpn japanese;
    ko kor korean; lt lit lithuanian; lv lav latvian; mk mkd macedonian; nl nld dut dutch;
    no nor nob nno norwegian; pl pol polish; pt por portuguese; ro ron rum romanian; ru rus russian;
    sk slk slo slovak; sl slv slovenian; sr srp serbian; sv swe swedish; ta tam tamil; th tha thai;
    tr tur turkish; uk ukr ukrainian; ur urd urdu; vi vie vietnamese; zh zho chi chinese;
    source src; target tgt trg
"""
"""ISO 639 codes and names of common languages, shortest code first, and names of the two sides."""

_SIDES = ("source", "target")
_LANGUAGES = {name: names[0] for names in map(str.split, LANGUAGE_NAMES.split(";")) for name in names}


@dataclass(frozen=True)
class Pairs:
    """Sentences and their translations, none empty.

    Attributes:
        sources: Sentences.
        targets: As many translations.
        languages: Source and target language, as far as files or columns name them.
    """

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    languages: tuple[str, str] | None = field(default=None, compare=False)

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.sources)

    def subset(self, indices: np.ndarray) -> Pairs:
        """Return the pairs at ``indices``, in that order."""
        return Pairs(
            tuple(self.sources[i] for i in indices), tuple(self.targets[i] for i in indices), self.languages
        )


def language_of(name: str) -> str:
    """Return the language that the ending of a file or the name of a column stands for.

    It is the part that names a language, wherever it stands between dots, underscores, hyphens and spaces:
    ``en`` for ``en``, ``eng``, ``English``, ``tok.en``, ``en.tok``, ``tags.en-de.en``, ``en_US``, ``text_en``
    and ``EN.txt``. Of several it is the first one after the last possible dot. If none does, it is the first
    word after the last dot, in lower case.

    Args:
        name: The ending or the name.
    """
    plain = name.strip(" \"'#").lower().removesuffix(".txt")
    words = [word for section in plain.split(".")[::-1] for word in re.split(r"[\s_-]+", section)]
    known = [_LANGUAGES[word] for word in words if word in _LANGUAGES]
    return next((word for word in known if word not in _SIDES), (known or words)[0])


def direction(names: Sequence[str], asked: tuple[str, str] | None, source: str, kind: str) -> tuple[str, str]:
    """Return the names of the source and of the target side.

    English is the source if it is one of two languages; otherwise they are in alphabetical order.

    Args:
        names: Endings of files or names of columns. Of more than two, the two that name languages count,
            otherwise source and target.
        asked: Source and target as requested, each one of the names or a language that one of them stands
            for.
        source: Name of the data set, for errors.
        kind: The kind of the names, for errors.

    Raises:
        DataError: If a requested one is missing, or nothing is requested and there are not two for different
            languages.
    """
    if asked is not None:
        chosen: list[str] = []
        for one in asked:
            found = [name for name in names if name == one] or [
                name for name in names if language_of(name) == language_of(one)
            ]
            if len(found) != 1:
                raise DataError(
                    f"{source}: {'several' if found else 'no'} {kind} for {one!r} (languages); "
                    f"{nearest_name(one, list(names))}"
                )
            chosen += found
        return chosen[0], chosen[1]
    known = [name for name in names if language_of(name) in _LANGUAGES]
    sides = [name for name in known if language_of(name) in _SIDES]
    spoken = [name for name in known if name not in sides]
    two = next((found for found in (spoken, sides) if len(found) == 2), list(names))
    if len(two) != 2:
        raise DataError(
            f"{source}: {len(names)} {kind} ({', '.join(names)}) where two are expected; set languages to "
            "the source and the target"
        )
    if language_of(two[0]) == language_of(two[1]):
        raise DataError(
            f"{source}: the {kind} {two[0]} and {two[1]} do not say which languages they are; set languages "
            "to the source and the target"
        )
    first, second = sorted(two, key=lambda name: (language_of(name) != "en", language_of(name), name))
    return first, second


def load_parallel(path: Path, languages: tuple[str, str] | None = None) -> tuple[Pairs, Pairs, Pairs]:
    """Read the training, development and test pairs of a folder or of a table.

    A folder holds two files for each part, with one sentence a line, whose endings are the languages (see
    :func:`language_of`): ``train.en`` and ``train.de``; ``dev`` (or ``val``, ``valid``, ``devel`` and their
    long forms); and ``test``, otherwise the first name that begins with ``test``. Without these, it holds a
    table for each part (``train.tsv``, ``dev.csv``, ``test.jsonl``; see
    :func:`collapipe_env.tasks.data_parts.choose_named`), or a single table. The columns of a table are named
    by languages, ``source`` and ``target``, or ``src`` and ``tgt``; without such a header they are the
    sentence and its translation. All files may be gzipped (``.gz``). A missing part is taken from the
    training pairs by a fixed permutation.

    Args:
        path: The folder or the file.
        languages: Source and target, as the endings of files or the names of columns have them. None takes
            the only two; see :func:`direction`.

    Returns:
        Training, development and test pairs, at least one each.

    Raises:
        DataError: If something is missing or malformed.
    """
    if path.is_dir():
        files = {} if _line_files(path) else tables_in(path, TABLE_ENDINGS)
        if files:
            return pairs_of_tables(read_tables(files, path), str(path), languages)
        source, target = _sides(path, languages)
        parts = {"train": _read_part(path, "train", source, target)}
        dev_name = next((name for name in DEV_NAMES if _has_part(path, name, source, target)), None)
        for part, name in (("dev", dev_name), ("test", _test_name(path, source, target))):
            if name is not None:
                parts[part] = _read_part(path, name, source, target)
        return _with_held_out(str(path), parts)
    if path.is_file():
        if table_ending(path) not in TABLE_ENDINGS:
            raise DataError(
                f"{path}: a single file of pairs must end in {', '.join(TABLE_ENDINGS)}, with or without "
                ".gz; name it so, or give a folder with train.LANGUAGE files"
            )
        return pairs_of_tables({"train": read_table(path)}, str(path), languages)
    raise DataError(
        f"{path}: {why_unusable(path)}; give a folder with train.LANGUAGE files or a table of pairs "
        "(train.tsv), or the table"
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
    if not pairs:
        raise DataError(f"{source}: no pair of sentences in it; it needs one a line")
    sources, targets = zip(*pairs, strict=True)
    return Pairs(sources, targets)


def pairs_of_tables(
    tables: Mapping[str, Table], source: str, languages: tuple[str, str] | None = None
) -> tuple[Pairs, Pairs, Pairs]:
    """Return the pairs of a data set's tables; see :func:`load_parallel`.

    Args:
        tables: Table of the training part (``"train"``) and possibly of ``"dev"`` and ``"test"``. One without
            header has the training table's columns.
        source: Name of the data set, for errors.
        languages: Names of the source and the target column, or their languages; None detects them.

    Raises:
        DataError: If a table has no such columns, or an empty sentence or translation, or a held-out one has
            other languages than training.
    """
    train, columns = _pairs_of(tables["train"], languages, None)
    parts = {"train": train}
    for part, table in tables.items():
        if part == "train":
            continue
        parts[part] = found = _pairs_of(table, languages, columns)[0]
        ours, theirs = (" -> ".join(pairs.languages or _SIDES) for pairs in (train, found))
        if ours != theirs:
            raise DataError(
                f"{table.source}: its columns say {theirs}, but those of {tables['train'].source} say "
                f"{ours}; give all files the same header"
            )
    return _with_held_out(source, parts)


@dataclass(frozen=True)
class _Columns:
    """Indices of the columns of a table that are read, their languages, and the number of all its columns."""

    source: int = 0
    target: int = 1
    count: int = 2
    languages: tuple[str, str] | None = None


def _pairs_of(
    table: Table, languages: tuple[str, str] | None, like: _Columns | None
) -> tuple[Pairs, _Columns]:
    """Return the pairs of a table, which without header has the columns ``like`` another, and its columns."""
    header, rows, places = table.header, table.rows, table.places
    for name in table.left_out:
        if name in languages if languages else name.lower() in _LANGUAGES:
            raise table.unread(name, "languages")
    if header is None and languages is None and _may_be_header(rows):
        raise DataError(
            f"{places[0]}: {shown(rows[0])} may be the names of the columns or a pair; if they are names, "
            "set languages to those of the source and of the target, otherwise add a first line that names "
            "the columns source and target (texts with labels are for the task classification)"
        )
    if header is None and _is_header(rows[0], languages):
        header, rows, places = [cell.strip() for cell in rows[0]], rows[1:], places[1:]
    columns = like or _Columns()
    if header is not None:
        one, other = direction(header, languages, table.source, "languages or columns of text")
        columns = _Columns(header.index(one), header.index(other), len(header), _named(one, other))
    elif languages is not None and like is None:
        raise DataError(
            f"{places[0]}: no columns named {languages[0]} and {languages[1]} (languages); add a first line "
            "with these names, or leave languages empty"
        )
    elif len(rows[0]) != columns.count:
        raise DataError(
            f"{places[0]}: {len(rows[0])} columns where {columns.count} are expected; write sentence, tab, "
            "translation, or add a header line source<tab>target"
        )
    sides = [[row[i].strip() for row in rows] for i in (columns.source, columns.target)]
    for name, side in zip(columns.languages or ("sentence", "translation"), sides, strict=True):
        if "" in side:
            raise DataError(
                f"{places[side.index('')]}: the text in {name!r} is empty; fill it in, or leave out this pair"
            )
    if not rows:
        raise DataError(f"{table.source}: no pair of sentences in it; it needs one a line")
    return Pairs(tuple(sides[0]), tuple(sides[1]), columns.languages), columns


def _named(source: str, target: str) -> tuple[str, str]:
    """Return the languages of two sides, or their names if they are not told apart by languages."""
    one, other = language_of(source), language_of(target)
    return (one, other) if one != other else (source, target)


def _is_header(cells: Sequence[str], languages: tuple[str, str] | None) -> bool:
    """Whether a first line names two languages, which no pair of sentences does, or those requested."""
    if languages is not None:
        names = {language_of(cell) for cell in cells if len(cell.split()) <= NAME_WORDS}
        return {language_of(one) for one in languages} <= names or {*languages} <= {*map(str.strip, cells)}
    return len({language_of(cell) for cell in cells if len(cell.split()) == 1} & _LANGUAGES.keys()) > 1


def _may_be_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether a first line that does not name two languages looks like names, unlike most other lines."""
    first = [cell.strip(" \"'#") for cell in rows[0]]
    if _is_header(first, None) or not all(1 <= len(cell.split()) <= NAME_WORDS for cell in first):
        return False
    # A capital "No" or "Es" begins a sentence; codes are "no" or "NO".
    codes = [bool(re.fullmatch("[a-z]{2,3}|[A-Z]{2,3}", cell)) for cell in first]
    usual = any(cell.lower() in TEXT_NAMES | LABEL_NAMES for cell in first)
    languages = any(
        language_of(cell) in _LANGUAGES and (code or len(cell) > 3)
        for cell, code in zip(first, codes, strict=True)
    )
    alike = sum(all(len(cell.split()) <= NAME_WORDS for cell in row) for row in rows[1:])
    return (usual or languages or all(codes)) and 2 * alike < len(rows) - 1


def _lines(path: Path) -> list[str]:
    """Return the lines of a plain or gzipped UTF-8 file without blank ones at the end."""
    # Not splitlines, which would also cut at form feeds and Unicode separators within a sentence.
    lines = read_text(path).replace("\r\n", "\n").split("\n")
    while lines and not lines[-1].strip():
        del lines[-1]
    return [line.strip() for line in lines]


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
    names = [name for name in _names(folder) if name.startswith("train.")]
    return [name.removeprefix("train.") for name in names if table_ending(Path(name)) not in TABLE_ENDINGS]


def _sides(folder: Path, languages: tuple[str, str] | None) -> tuple[str, str]:
    """Return the endings of the two training files."""
    endings = _line_files(folder)
    if len(endings) < 2:
        found = f"{len(endings)} files train.LANGUAGE" + (f" ({', '.join(endings)})" if endings else "")
        raise DataError(
            f"{folder}: {found} where two are expected; add train.en and train.de, or a train.tsv of pairs"
        )
    return direction(endings, languages, str(folder), "files train.LANGUAGE")


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
    return replace(read_files(files[0], files[1]), languages=_named(source, target))


def _with_held_out(source: str, parts: Mapping[str, Pairs]) -> tuple[Pairs, Pairs, Pairs]:
    """Fill missing parts from the training pairs."""
    missing = [part for part in ("dev", "test") if part not in parts]
    chosen = held_out(len(parts["train"]), missing, source)
    found = {**parts, **{part: parts["train"].subset(indices) for part, indices in chosen.items()}}
    return found["train"], found["dev"], found["test"]
