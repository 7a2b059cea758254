"""Pairs of sentences from local files; every error names the file and, where there is one, the line."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from collapipe_env.ground.errors import DataError, nearest_name, shown
from collapipe_env.tasks.data_parts import Parts, Samples, choose_named, complete
from collapipe_env.tasks.data_sets import samples_of, tables_at
from collapipe_env.tasks.labelled_texts import LABEL_NAMES, NAME_WORDS, TEXT_NAMES
from collapipe_env.tasks.table_files import ROW_ENDINGS, Table, read_text, stem_of

TABLE_ENDINGS = (".tsv", ".csv", *ROW_ENDINGS)
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


def language_of(name: str) -> str:
    """Return the language that the ending of a file or the name of a column stands for.

    It is the part that names a language, wherever it stands between dots, underscores, hyphens and spaces:
    ``en`` for ``en``, ``eng``, ``English``, ``tok.en``, ``en.tok``, ``tags.en-de.en``, ``en_US``, ``text_en``
    and ``EN.txt``. Of several it is the first one after the last possible dot. If none does, it is the first
    word after the last dot, in lower case.
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


def load_parallel(path: Path | str, languages: tuple[str, str] | None = None) -> Parts:
    """Read the training, development and test pairs of a data set.

    A folder holds two files for each part, with one sentence a line, whose endings are the languages (see
    :func:`language_of`): ``train.en`` and ``train.de``; ``dev`` (or another of its names); and ``test`` or a
    name with it, such as ``test_2016``; of several the first counts. Without these, it holds a table for each
    part (``train.tsv``, ``dev.csv``, ``test.jsonl``; see
    :func:`collapipe_env.tasks.data_parts.choose_named`), or a single table. The columns of a table are named
    by languages, ``source`` and ``target``, or ``src`` and ``tgt``; without such a header they are the
    sentence and its translation. All files may be gzipped (``.gz``). A missing part is taken from the
    training pairs by a fixed permutation.

    Args:
        path: The folder or the file, or the name of a data set of the Hugging Face hub.
        languages: Source and target, as the endings of files or the names of columns have them. None takes
            the only two; see :func:`direction`.

    Raises:
        DataError: If something is missing or malformed.
    """
    if isinstance(path, Path) and path.is_dir():
        listed = [file for file in sorted(path.iterdir()) if file.is_file() and not file.name.startswith(".")]
        files = {file.name.removesuffix(".gz"): file for file in listed}
        lines = [
            name for name in files if name.startswith("train.") and not stem_of(Path(name), TABLE_ENDINGS)
        ]
        if lines or not any(stem_of(file, TABLE_ENDINGS) for file in files.values()):
            endings = [name.removeprefix("train.") for name in lines]
            if len(endings) < 2:
                found = f"{len(endings)} files train.LANGUAGE" + (f" ({', '.join(endings)})" if lines else "")
                raise DataError(
                    f"{path}: {found} where two are expected; add train.en and train.de, or a train.tsv of "
                    "pairs"
                )
            chosen = direction(endings, languages, str(path), "files train.LANGUAGE")
            stems = {
                name.removesuffix(f".{end}") for name in files for end in chosen if name.endswith(f".{end}")
            }
            named = choose_named({stem: stem for stem in sorted(stems)}, str(path), first=True)
            tables = {part: _line_table(path, stem, chosen) for part, stem in named.items()}
            return pairs_of_tables(tables, str(path), chosen)
    tables = tables_at(path, stem=partial(stem_of, endings=TABLE_ENDINGS))
    return pairs_of_tables(tables, str(path), languages)


def _line_table(folder: Path, name: str, languages: tuple[str, str]) -> Table:
    """Return the table of a part's two files; see :func:`read_lines`."""
    files = []
    for language in languages:
        found = [folder / f"{name}.{language}{packed}" for packed in ("", ".gz")]
        found = [file for file in found if file.is_file()]
        if len(found) > 1:
            raise DataError(f"{folder}: both {found[0].name} and {found[1].name} exist; keep one")
        if not found:
            raise DataError(f"{folder}: no {name}.{language} (nor with .gz); add it or correct languages")
        files += found
    return read_lines(files[0], files[1], languages)


def read_lines(source: Path, target: Path, languages: tuple[str, str]) -> Table:
    """Read two files, maybe gzipped, whose lines pair up; blank pairs are skipped.

    Raises:
        DataError: If one cannot be read, the numbers of lines differ, or a line is blank in one file only.
    """
    # A carriage return inside a line is white space: as a line end it would shift all lines that follow.
    sides = [
        [line.strip() for line in read_text(file, "\r").rstrip().split("\n")] for file in (source, target)
    ]
    rows, places = [], []
    for number, pair in enumerate(itertools.zip_longest(*sides, fillvalue=""), start=1):
        if bool(pair[0]) != bool(pair[1]):
            blank, other = (source, target) if pair[1] else (target, source)
            raise DataError(
                f"{blank}:{number}: blank or missing, but {other.name}:{number} is not ({source.name} has "
                f"{len(sides[0])} lines, {target.name} {len(sides[1])}); fill it in or blank both"
            )
        if pair[0]:
            rows.append(pair)
            places.append(f"{source}:{number}")
    return Table(str(source), rows, places, list(languages))


def pairs_of_tables(
    tables: Mapping[str, Table], source: str, languages: tuple[str, str] | None = None
) -> Parts:
    """Return the pairs of a data set's tables; see :func:`load_parallel`.

    Args:
        tables: Table of the training part (``"train"``) and possibly of ``"dev"`` and ``"test"``. One without
            header has the training table's columns.
        languages: Names of the source and the target column, or their languages; None detects them.

    Raises:
        DataError: If a table has no such columns, or an empty sentence or translation, or a held-out one has
            other languages than training.
    """
    train, columns = _pairs_of(tables["train"], languages, None)
    held_out = {p: _pairs_of(table, languages, columns)[0] for p, table in tables.items() if p != "train"}
    return complete({"train": train, **held_out}, source)


class _Columns(NamedTuple):
    """Indices of the columns of a table that are read, their languages, and the number of all its columns."""

    source: int = 0
    target: int = 1
    width: int = 2
    languages: tuple[str, str] | None = None


def _pairs_of(
    table: Table, languages: tuple[str, str] | None, like: _Columns | None
) -> tuple[Samples, _Columns]:
    """Return the pairs of a table, which without header has the columns ``like`` another, and its columns."""
    if table.header is None and languages is None and _may_be_header(table.rows):
        raise DataError(
            f"{table.places[0]}: {shown(table.rows[0])} may be the names of the columns or a pair; if they "
            "are names, set languages to those of the source and of the target, otherwise add a first line "
            "that names the columns source and target (texts with labels are for the task classification)"
        )
    header, rows, places = table.body(table.header is None and _is_header(table.rows[0], languages))
    columns = like or _Columns()
    if header is not None:

        def usable(column: int, name: str) -> bool:
            if column in table.unread:  # it is refused where it is picked
                return name in languages if languages else name.lower() in _LANGUAGES
            return not rows or any(isinstance(row[column], str) for row in table.rows)

        usable_names = [name for i, name in enumerate(header) if usable(i, name)]
        one, other = direction(usable_names, languages, table.source, "languages or columns of text")
        columns = _Columns(header.index(one), header.index(other), len(header), _named(one, other))
    elif languages is not None and like is None:
        raise DataError(
            f"{places[0]}: no columns named {languages[0]} and {languages[1]} (languages); add a first line "
            "with these names, or leave languages empty"
        )
    elif len(rows[0]) != columns.width:
        raise DataError(
            f"{places[0]}: {len(rows[0])} columns where {columns.width} are expected; write sentence, tab, "
            "translation, or add a header line source<tab>target"
        )
    ours, theirs = (" -> ".join(one.languages or _SIDES) for one in (like or columns, columns))
    if ours != theirs:
        raise DataError(
            f"{table.source}: its columns say {theirs}, but those of the training part say {ours}; give all "
            "files the same header"
        )
    if not rows:
        raise DataError(f"{table.source}: no pair of sentences in it; it needs one a line")
    one, other = (f"text in {name!r}" for name in columns.languages or ("sentence", "translation"))
    picked = [(one, "languages", [columns.source]), (other, "languages", [columns.target])]
    return samples_of(table, rows, places, picked, columns.languages), columns


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
