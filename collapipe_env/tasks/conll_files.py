"""Tagged sentences: of CoNLL files, one word and its tag a line, and of tables with lists.

Tabs separate a line's columns if it holds one, otherwise spaces do; blank lines separate sentences. Files may
hold:

- two columns or more, by default the word in the first and the tag in the last; all lines of a file have
  equally many, since a word with a separator inside would otherwise shift the columns unnoticed
- UTF-8 with or without byte order mark, any line ends, plain or gzip-compressed
- blank lines, which may hold spaces and tabs, between sentences; ``-DOCSTART-`` lines do the same
- comments before a sentence (``# id 17``, ``# text = ...``): lines that begin with ``#`` and a blank, and
  have another number of columns than the words, or no tag; ``#`` with a tag is a word
- words that are empty (a separator and a tag), a no-break space or other invisible characters: they stay
  words, so that words and tags stay aligned
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from collapipe_env.ground.arrays import IntArray
from collapipe_env.ground.errors import DataError, fits_a_line
from collapipe_env.tasks.data_parts import PARTS, Parts, Samples, held_out, part_of, parted
from collapipe_env.tasks.data_sets import tables_at
from collapipe_env.tasks.table_files import Column, Table, column_index, read_text

ENDINGS = (".conll", ".txt", ".bio", ".iob", ".iob2", ".bmes", ".bioes", ".tsv")
"""Endings of column files, beside names of parts (``eng.train``); each may be followed by ``.gz``."""

TAG_FORM = re.compile(r"O|[BIESLUMW][-_]\S+")
"""Tags of the schemes in :mod:`collapipe_env.tasks.tagging_schemes`."""

LEAST_TO_CUT = 10
"""Least sentences of a single file, so that no part of it is empty."""

WORD_COLUMNS = ("tokens", "words")
"""Usual names of a table's column of words, in order of preference."""
TAG_COLUMNS = ("ner_tags", "tags", "entities", "labels")
"""Usual names of a table's column of tags, in order of preference."""

_DOCUMENT = "-DOCSTART-"
_COMMENT = ("# ", "#\t")


def load_tagged(path: Path | str, words: Column = None, tags: Column = None) -> Parts:
    """Read the three parts of a data set: tuples of words, and of tags as they are in the data.

    A single file is cut in file order: the first 80 % of its sentences (rounded down) are for training, those
    up to 90 % are the dev part, the rest is the test part. A folder has one file for each part, identified by
    its name (see :func:`~collapipe_env.tasks.data_parts.choose_named`; the CoNLL tasks' ``testa`` and
    ``testb`` are dev and test), which may end in it (``eng.train``). A dev or test part without a file is a
    fixed random tenth of the training sentences. Sentences with a type of entity that would otherwise be
    missing in training always go there.

    Args:
        path: A file or a folder, or the name of a data set of the Hugging Face hub.
        words: 0-based index of the words' column (None for the first), or for the hub its name (None for the
            first of :data:`WORD_COLUMNS` that exists).
        tags: 0-based index of the tags' column (None for the last), or for the hub its name (None for the
            first of :data:`TAG_COLUMNS`).

    Raises:
        DataError: Naming the file and, where there is one, the line.
    """
    read = partial(read_column_file, words=words, tags=tags)
    train = f"train{ENDINGS[0]} (or another of {', '.join(ENDINGS)}, with or without .gz)"
    tables = tables_at(path, read, _stem, train=train, sole=False)
    columns = (words, tags) if isinstance(path, str) else (None, None)
    parts = {part: sentences_of(table, *columns) for part, table in tables.items()}
    source, count = tables["train"].source, len(parts["train"])
    if isinstance(path, Path) and path.is_file():
        if count < LEAST_TO_CUT:
            raise DataError(
                f"{path}: {count} sentences are too few to cut in training, dev and test parts; give at "
                f"least {LEAST_TO_CUT}, or a folder with a file for each"
            )
        in_order = np.split(np.arange(count), [8 * count // 10, 9 * count // 10])
        chosen = dict(zip(PARTS, in_order, strict=True))
    else:
        chosen = held_out(count, [part for part in PARTS if part not in parts], source)
    return parted(parts, _with_all_kinds(parts["train"], chosen, source))


def _with_all_kinds(whole: Samples, parts: Mapping[str, IntArray], source: str) -> dict[str, list[int]]:
    """Move held-out sentences with a type of entity that no training sentence has to the training part.

    Raises:
        DataError: If that leaves a part empty.
    """
    kinds = [{tag[2:] for tag in tags} - {""} for tags in whole.answers]
    training = parts["train"].tolist()
    known = {kind for i in training for kind in kinds[i]}
    found: dict[str, list[int]] = {}
    for part, indices in parts.items():
        found[part] = []
        for i in indices.tolist():
            (found[part] if kinds[i] <= known else training).append(i)
            known |= kinds[i]
        if not found[part]:
            raise DataError(
                f"{source}: every sentence for the {part} part has a type of entity that no other sentence "
                "has, and training needs them; add sentences, or give a folder with a file for each part"
            )
    return {**found, "train": sorted(training)}


def sentences_of(table: Table, words: Column = None, tags: Column = None) -> Samples:
    """Turn columns of lists of words and of tags into sentences; those without words are left out.

    Raises:
        DataError: If columns do not fit, or a tag is neither ``O`` nor like ``B-person``.
    """
    names = table.header or []
    columns = []
    for setting, asked, usual in (("text_column", words, WORD_COLUMNS), ("label_column", tags, TAG_COLUMNS)):
        said = [names[asked]] if isinstance(asked, int) and asked < len(names) else [asked]
        wanted = [names.index(str(name)) for name in (usual if asked is None else said) if name in names]
        found = [i for i in wanted if any(isinstance(row[i], list) for row in table.rows)]
        if not found:
            raise DataError(
                f"{table.source}: no column of lists called {', '.join(usual) if asked is None else asked} "
                f"among the columns {', '.join(names)}; set {setting} to one"
            )
        columns.append(found[0])
    kept: list[tuple[tuple[str, ...], tuple[str, ...], str]] = []
    for place, row in zip(table.places, table.rows, strict=True):
        sentence, marks = (row[column] or () for column in columns)
        fits = all(isinstance(tag, str) and TAG_FORM.fullmatch(tag) for tag in marks)
        if len(sentence) != len(marks) or not fits:
            raise DataError(
                f"{place}: {len(sentence)} words and the tags {list(marks)[:5]}; every word needs one tag by "
                "its name, O or like B-person: check text_column and label_column"
            )
        if sentence:
            kept.append((tuple(word or "" for word in sentence), tuple(marks), place))
    if not kept:
        raise DataError(f"{table.source}: no sentences; choose another data set")
    return Samples(*zip(*kept, strict=True))


def read_column_file(path: Path, words: Column = None, tags: Column = None) -> Table:
    """Read one file's sentences, in file order, as lists of words and of tags; see :func:`load_tagged`.

    Raises:
        DataError: If it cannot be read or is malformed; names the line.
    """
    if not _stem(path):
        raise DataError(
            f"{path}: unknown ending; use one of {', '.join(ENDINGS)}, .train, .testa or .testb, with or "
            "without .gz"
        )
    sentences: dict[int, tuple[list[str], list[str]]] = {}
    columns = start = first = word = mark = 0
    for number, cells in _words(path, tags if isinstance(tags, int) else None):
        if not cells:
            start = 0
            continue
        if len(cells) < 2:
            raise DataError(
                f"{path}:{number}: one column only ({cells[0]!r}); a line needs a word, a tab or space, and "
                "a tag"
            )
        if not columns:
            columns, first = len(cells), number
            word = column_index(str(path), "text_column", 0 if words is None else words, (), columns)
            mark = column_index(str(path), "label_column", columns - 1 if tags is None else tags, (), columns)
            if word == mark:
                raise DataError(
                    f"{path}: column {word} is requested both as word and as tag; set text_column and "
                    "label_column to two columns"
                )
        if len(cells) != columns:
            raise DataError(
                f"{path}:{number}: {len(cells)} columns where line {first} has {columns}; check the "
                "separators, and separate by tabs if a word holds a space"
            )
        tag = cells[mark]
        if not TAG_FORM.fullmatch(tag) or not fits_a_line(tag):
            raise DataError(
                f"{path}:{number}: tag {tag!r} is neither O nor like B-person or I_person (prefixes B, I, E, "
                "S, L, U, M, W); correct it, or set label_column to the tags' column"
            )
        start = start or number
        said, marks = sentences.setdefault(start, ([], []))
        said.append(cells[word])
        marks.append(tag)
    if not sentences:
        raise DataError(f"{path}: empty file; it needs one word and its tag a line")
    places = [f"{path}:{number}" for number in sentences]
    return Table(str(path), list(sentences.values()), places, [WORD_COLUMNS[0], TAG_COLUMNS[0]])


def _words(path: Path, tags: int | None) -> Iterator[tuple[int, list[str]]]:
    """Yield number and columns of every line that is no comment; no columns between sentences."""
    # Spaces and tabs alone: str.strip would also remove a word that is a no-break space.
    lines = [line.rstrip(" \t") for line in read_text(path).split("\n")]
    plain = (line for line in lines if line and not line.lstrip(" \t").startswith((_DOCUMENT, *_COMMENT)))
    width = len(_cells(next(plain, "")))
    inside = False
    for number, line in enumerate(lines, start=1):
        cells = [] if line.lstrip(" \t").startswith(_DOCUMENT) else _cells(line)
        if cells and not inside and line.startswith(_COMMENT):
            last = cells[-1 if tags is None else min(tags, len(cells) - 1)]
            if len(cells) != (width or len(cells)) or not TAG_FORM.fullmatch(last):
                continue
        inside = bool(cells)
        yield number, cells


def _cells(line: str) -> list[str]:
    """Return the columns of a line without trailing blanks; an empty first column is an empty word."""
    if "\t" in line:
        return [cell.strip(" ") for cell in line.split("\t")]
    cells = [cell for cell in line.split(" ") if cell]
    return ["", *cells] if len(cells) == 1 and line[0] == " " else cells


def _stem(file: Path) -> str:
    """Return the name of a column file without ending, in the package's words; empty for another file."""
    name = file.name.lower().removesuffix(".gz").replace("testa", "dev").replace("testb", "test")
    stem, ending = os.path.splitext(name)
    return stem if ending in ENDINGS else name if part_of(ending) else ""
