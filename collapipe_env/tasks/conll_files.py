"""CoNLL files: one word and its tag a line, blank lines between sentences.

Tabs separate a line's columns if it holds one, otherwise spaces do. Files may hold:

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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collapipe_env.ground.arrays import IntArray
from collapipe_env.ground.errors import DataError, fits_a_line
from collapipe_env.ground.typed_paths import why_unusable
from collapipe_env.tasks.data_parts import PARTS, choose_named, held_out, move_unknown, part_of
from collapipe_env.tasks.table_files import read_text

ENDINGS = (".conll", ".txt", ".bio", ".iob", ".iob2", ".bmes", ".bioes", ".tsv")
"""Endings of column files, beside names of parts (``eng.train``); each may be followed by ``.gz``."""

CONLL_NAMES = {"testa": "dev", "testb": "test"}
"""Part that each name of the CoNLL shared tasks stands for."""

TAG_FORM = re.compile(r"O|[BIESLUMW][-_]\S+")
"""Tags of the schemes in :mod:`collapipe_env.tasks.tagging_schemes`."""

LEAST_TO_CUT = 10
"""Least sentences of a single file, so that no part of it is empty."""

_DOCUMENT = "-DOCSTART-"
_COMMENT = ("# ", "#\t")


@dataclass(frozen=True)
class TaggedSentences:
    """Sentences of one file.

    Attributes:
        path: The file.
        words: Words of every sentence, at least one.
        tags: Tags of every sentence, one a word.
        lines: Line of every sentence's first word, from 1; the other words are on the lines that follow.
    """

    path: Path
    words: tuple[tuple[str, ...], ...]
    tags: tuple[tuple[str, ...], ...]
    lines: tuple[int, ...]

    def __len__(self) -> int:
        """Number of sentences."""
        return len(self.words)

    def subset(self, indices: Iterable[int]) -> TaggedSentences:
        """Return the sentences at ``indices``, in that order."""
        chosen = list(indices)
        return TaggedSentences(
            self.path,
            tuple(self.words[i] for i in chosen),
            tuple(self.tags[i] for i in chosen),
            tuple(self.lines[i] for i in chosen),
        )

    def place(self, sentence: int, word: int) -> str:
        """Return file and line of a word, for errors."""
        return f"{self.path}:{self.lines[sentence] + word}"


def load_column_splits(
    path: Path, token_column: int | None = None, tag_column: int | None = None
) -> tuple[TaggedSentences, TaggedSentences, TaggedSentences]:
    """Read the three parts of a data set.

    A single file is cut in file order: the first 80 % of its sentences (rounded down) are for training, those
    up to 90 % are the dev part, the rest is the test part. A folder has one file for each part, identified by
    its name (see :func:`~collapipe_env.tasks.data_parts.choose_named`; ``testa`` and ``testb`` are dev and
    test), which may end in it (``eng.train``). A dev or test part without a file is a fixed random tenth of
    the training sentences. Sentences with a type of entity that would otherwise be missing in training always
    go there.

    Args:
        path: A file or a folder.
        token_column: 0-based index of the words' column; None for the first.
        tag_column: 0-based index of the tags' column; None for the last.

    Returns:
        Training, dev and test sentences.

    Raises:
        DataError: Naming the file and, where there is one, the line.
    """
    if not path.is_dir():
        if not path.exists():
            raise DataError(f"{path}: {why_unusable(path)}; check the path")
        whole = read_column_file(path, token_column, tag_column)
        count = len(whole)
        if count < LEAST_TO_CUT:
            raise DataError(
                f"{path}: {count} sentences are too few to cut in training, dev and test parts; give at "
                f"least {LEAST_TO_CUT}, or a folder with a file for each"
            )
        in_order = np.split(np.arange(count), [8 * count // 10, 9 * count // 10])
        parts = cut_sentences(whole, dict(zip(PARTS, in_order, strict=True)), str(path))
        return parts["train"], parts["dev"], parts["test"]
    files = _files(path)
    if "train" not in files:
        raise DataError(
            f"{path}: no file for the training part; add train{ENDINGS[0]} (or another of "
            f"{', '.join(ENDINGS)}, with or without .gz)"
        )
    parts = {part: read_column_file(file, token_column, tag_column) for part, file in files.items()}
    return complete_sentences(parts, str(parts["train"].path))


def complete_sentences(
    parts: Mapping[str, TaggedSentences], source: str
) -> tuple[TaggedSentences, TaggedSentences, TaggedSentences]:
    """Return training, dev and test sentences; missing parts are taken from the training part.

    Args:
        parts: The parts that exist, the training part among them.
        source: Name of the data set, for errors.

    Raises:
        DataError: If there are too few sentences.
    """
    missing = [part for part in PARTS if part not in parts]
    chosen = held_out(len(parts["train"]), missing, source)
    whole = {**parts, **cut_sentences(parts["train"], chosen, source)}
    return whole["train"], whole["dev"], whole["test"]


def cut_sentences(
    whole: TaggedSentences, parts: Mapping[str, IntArray], source: str
) -> dict[str, TaggedSentences]:
    """Cut sentences into parts; one with the only entity of a type always goes to training.

    Args:
        parts: Indices for each part.
        source: Name of the data set, for errors.

    Raises:
        DataError: If that leaves a part empty.
    """
    kinds = [frozenset(tag[2:] for tag in tags) - {""} for tags in whole.tags]
    found = move_unknown(parts, kinds)
    for part, indices in found.items():
        if not len(indices):
            raise DataError(
                f"{source}: every sentence for the {part} part has a type of entity that no other sentence "
                "has, and training needs them; add sentences, or give a folder with a file for each part"
            )
    return {part: whole.subset(indices.tolist()) for part, indices in found.items()}


def read_column_file(
    path: Path, token_column: int | None = None, tag_column: int | None = None
) -> TaggedSentences:
    """Read one file.

    Args:
        path: A file with one of the :data:`ENDINGS`, possibly followed by ``.gz``.
        token_column: 0-based index of the words' column; None for the first.
        tag_column: 0-based index of the tags' column; None for the last.

    Returns:
        Its sentences in file order, at least one.

    Raises:
        DataError: If it cannot be read or is malformed; names the line.
    """
    if not _stem(path):
        raise DataError(
            f"{path}: unknown ending; use one of {', '.join(ENDINGS)}, .train, .testa or .testb, with or "
            "without .gz"
        )
    words: list[tuple[str, ...]] = []
    tags: list[tuple[str, ...]] = []
    lines: list[int] = []
    sentence: list[tuple[str, str]] = []
    columns = first_line = word_index = tag_index = 0

    def close(after: int) -> None:
        """End the sentence whose last word is on the line before ``after``."""
        if sentence:
            words.append(tuple(word for word, _ in sentence))
            tags.append(tuple(tag for _, tag in sentence))
            lines.append(after - len(sentence))
            sentence.clear()

    # Spaces and tabs alone: str.strip would also remove a word that is a no-break space.
    contents = [line.rstrip(" \t") for line in _text(path).split("\n")]
    plain = (content for content in contents if not content.lstrip(" \t").startswith((_DOCUMENT, *_COMMENT)))
    width = len(_cells(next(filter(None, plain), "")))
    number = 0
    for number, content in enumerate(contents, 1):
        if not content or content.lstrip(" \t").startswith(_DOCUMENT):
            close(number)
            continue
        cells = _cells(content)
        if not sentence and content.startswith(_COMMENT):
            last = cells[-1 if tag_column is None else min(tag_column, len(cells) - 1)]
            if len(cells) != (width or len(cells)) or not TAG_FORM.fullmatch(last):
                continue
        if len(cells) < 2:
            raise DataError(
                f"{path}:{number}: one column only ({content!r}); a line needs a word, a tab or space, and a "
                "tag"
            )
        if not columns:
            columns, first_line = len(cells), number
            word_index = _column(path, "text_column", token_column, 0, columns)
            tag_index = _column(path, "label_column", tag_column, columns - 1, columns)
            if word_index == tag_index:
                raise DataError(
                    f"{path}: column {word_index} is requested both as word and as tag; set text_column and "
                    "label_column to two columns"
                )
        if len(cells) != columns:
            raise DataError(
                f"{path}:{number}: {len(cells)} columns where line {first_line} has {columns}; check the "
                "separators, and separate by tabs if a word holds a space"
            )
        tag = cells[tag_index]
        if not TAG_FORM.fullmatch(tag) or not fits_a_line(tag):
            raise DataError(
                f"{path}:{number}: tag {tag!r} is neither O nor like B-person or I_person (prefixes B, I, E, "
                "S, L, U, M, W); correct it, or set label_column to the tags' column"
            )
        sentence.append((cells[word_index], tag))
    close(number + 1)
    if not words:
        raise DataError(f"{path}: empty file; it needs one word and its tag a line")
    return TaggedSentences(path, tuple(words), tuple(tags), tuple(lines))


def _cells(line: str) -> list[str]:
    """Return the columns of a line without trailing blanks; an empty first column is an empty word."""
    if "\t" in line:
        return [cell.strip(" ") for cell in line.split("\t")]
    cells = [cell for cell in line.split(" ") if cell]
    if len(cells) == 1 and line[0] == " ":
        return ["", *cells]
    return cells


def _column(path: Path, field: str, asked: int | None, default: int, columns: int) -> int:
    if asked is None:
        return default
    if not 0 <= asked < columns:
        raise DataError(f"{path}: {field} {asked} is out of range; the file has columns 0 to {columns - 1}")
    return asked


def _text(path: Path) -> str:
    """Return the file's text with line feeds as its only line ends."""
    # Only these end a line: str.splitlines would also cut at form feeds and Unicode separators in a word.
    return read_text(path).replace("\r\n", "\n").replace("\r", "\n")


def _files(folder: Path) -> dict[str, Path]:
    """Return the column file of each part that has one."""
    names: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        stem = _stem(file)
        if stem and file.is_file():
            if stem in names and part_of(stem):
                raise DataError(f"{folder}: both {names[stem].name} and {file.name}; keep one of them")
            names[stem] = file
    return {part: names[stem] for part, stem in choose_named(list(names), str(folder)).items()}


def _stem(file: Path) -> str:
    """Return the name of a column file without ending, in the package's words; empty for another file."""
    name = file.name.lower().removesuffix(".gz")
    for theirs, ours in CONLL_NAMES.items():
        name = name.replace(theirs, ours)
    stem, ending = os.path.splitext(name)
    return stem if ending in ENDINGS else name if part_of(ending) else ""
