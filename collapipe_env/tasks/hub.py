"""Data sets of the Hugging Face hub by name, for machines that are online (extra ``hub``).

``hf:NAME`` or ``hf:NAME:CONFIG`` names a data set of the hub, or a local folder that the ``datasets`` library
wrote or can read. Versions of that library from 4.0 on, which the extra requires, run no code from the hub.
Their data is treated like that of local files: splits are found by name, and missing parts are taken from the
training part by a fixed random choice (see :mod:`collapipe_env.tasks.data_parts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from collapipe_env.ground.errors import DataError, reason, shortened
from collapipe_env.tasks.conll_files import TAG_FORM, TaggedSentences, complete_sentences
from collapipe_env.tasks.data_parts import choose_named
from collapipe_env.tasks.documents import KIND_FIELD, TEXT_FIELD, Documents, checked_text, with_held_out
from collapipe_env.tasks.labelled_texts import LabelledTexts, labelled_parts
from collapipe_env.tasks.parallel_text import Pairs, pairs_of_tables
from collapipe_env.tasks.table_files import Table, cell_text

PREFIX = "hf:"
"""Beginning of the names of the hub's data sets."""
WORD_COLUMNS = ("tokens", "words")
"""Usual names of a column of words, in order of preference."""
TAG_COLUMNS = ("ner_tags", "tags", "entities", "labels")
"""Usual names of a column of tags, in order of preference."""

Asked = str | int | None


@dataclass(frozen=True)
class HubSentences(TaggedSentences):
    """Tagged sentences that have rows instead of lines."""

    def place(self, sentence: int, word: int) -> str:
        """Return data set, row and word for errors; rows and words count from 0."""
        return f"{self.path} row {self.lines[sentence]}, word {word}"

    def subset(self, indices: Iterable[int]) -> HubSentences:
        """Return the sentences at ``indices``, in that order."""
        part = super().subset(indices)
        return HubSentences(part.path, part.words, part.tags, part.lines)


def fetch(dataset: str) -> Mapping[str, Any]:
    """Load a data set with the ``datasets`` library.

    Args:
        dataset: ``"hf:NAME"`` or ``"hf:NAME:CONFIG"``.

    Returns:
        ``datasets.Dataset`` objects by the names of their splits.

    Raises:
        DataError: If the library is absent, the name unknown or the hub out of reach.
    """
    asked = shortened(dataset)
    try:
        import datasets
    except ImportError:
        raise DataError(
            f"dataset {asked!r} needs the package datasets; pip install 'collapipe-env[hub]', or give the "
            "path of local files"
        ) from None
    if int(datasets.__version__.partition(".")[0]) < 4:
        raise DataError(
            f"dataset {asked!r} needs datasets 4.0 or newer, which runs no code of a data set, but "
            f"{datasets.__version__} is installed; pip install -U 'collapipe-env[hub]', or give the path "
            "of local files"
        )
    name, _, config = dataset.removeprefix(PREFIX).partition(":")
    if not name:
        raise DataError(f"dataset {asked!r} names no data set; write hf:NAME or hf:NAME:CONFIG")
    try:
        saved = any((Path(name) / file).is_file() for file in ("dataset_dict.json", "state.json"))
        found: Any = datasets.load_from_disk(name) if saved else datasets.load_dataset(name, config or None)
    except Exception as error:  # of the library, the network stack or a parser; there is no common class
        raise DataError(
            f"cannot load dataset {asked!r} ({type(error).__name__}: {reason(error)}); check the name "
            "(hf:NAME or hf:NAME:CONFIG) and the network, or give the path of local files"
        ) from None
    return found if isinstance(found, Mapping) else {"train": found}


def hub_labelled_texts(
    dataset: str, text: Asked = None, label: Asked = None
) -> tuple[LabelledTexts, LabelledTexts, LabelledTexts]:
    """Return the training, dev and test texts of a data set; see :func:`labelled_texts_of`."""
    return labelled_texts_of(fetch(dataset), dataset, text, label)


def hub_tagged_sentences(
    dataset: str, words: Asked = None, tags: Asked = None
) -> tuple[TaggedSentences, TaggedSentences, TaggedSentences]:
    """Return the training, dev and test sentences of a data set; see :func:`tagged_sentences_of`."""
    return tagged_sentences_of(fetch(dataset), dataset, words, tags)


def labelled_texts_of(
    splits: Mapping[str, Any], source: str, text: Asked = None, label: Asked = None
) -> tuple[LabelledTexts, LabelledTexts, LabelledTexts]:
    """Turn columns of strings, whole numbers and classes into labelled texts.

    Classes get their names. A held-out part without labels, as in public benchmarks, counts as missing.

    Args:
        splits: Splits from :func:`fetch`.
        source: Name of the data set, for errors.
        text: Text column or columns as in :func:`collapipe_env.tasks.labelled_texts.load_splits`.
        label: Label column; None takes the only column of classes, otherwise it is found as for files.

    Raises:
        DataError: If columns do not fit.
    """
    tables = {}
    for part, (name, data) in _parts(splits, source).items():
        place = f"{source} {name}"
        columns = {column: _cells(data, column) for column in data.column_names}
        usable = {column: cells for column, cells in columns.items() if cells is not None}
        if len(usable) < 2 and part == "train":
            raise DataError(f"{place}: no columns of text and label among {_listed(data)}; choose another")
        label_name = _column_name(data, label)
        if label_name is None:
            classes = [column for column in usable if _class_names(data.features[column])]
            label_name = classes[0] if len(classes) == 1 else None
        left_out = {column: (place, f"{data.features[column]}") for column in columns if column not in usable}
        tables[part] = replace(_table(place, usable), left_out=left_out)
        if part == "train":
            text, label = _column_name(data, text), label_name
    return labelled_parts(tables, source, text, label)


def pairs_of(
    splits: Mapping[str, Any], source: str, languages: tuple[str, str] | None = None
) -> tuple[Pairs, Pairs, Pairs]:
    """Turn a column of translations, or two columns of strings, into pairs of sentences.

    Args:
        splits: Splits from :func:`fetch`.
        source: Name of the data set, for errors.
        languages: Source and target: languages of the translations, or names of two columns. None takes the
            only two; see :func:`collapipe_env.tasks.parallel_text.direction`.

    Raises:
        DataError: If columns do not fit or a text is empty.
    """
    from datasets import Translation

    tables = {}
    for part, (name, data) in _parts(splits, source).items():
        columns = {column: data[column] for column, feature in data.features.items() if _is_text(feature)}
        for column, feature in data.features.items():
            if isinstance(feature, Translation | dict):
                sides = feature.languages if isinstance(feature, Translation) else feature
                rows = list(data[column])
                columns = {side: [row[side] for row in rows] for side in sides}
                break
        texts = {column: [text or "" for text in side] for column, side in columns.items()}
        tables[part] = _table(f"{source} {name}", texts)
    return pairs_of_tables(tables, source, languages)


def tagged_sentences_of(
    splits: Mapping[str, Any], source: str, words: Asked = None, tags: Asked = None
) -> tuple[TaggedSentences, TaggedSentences, TaggedSentences]:
    """Turn a column of lists of words and one of lists of tags into tagged sentences.

    Args:
        splits: Splits from :func:`fetch`.
        source: Name of the data set, for errors.
        words: Column of the words; None takes the first of :data:`WORD_COLUMNS` that exists.
        tags: Column of the tags, strings or classes; None takes the first of :data:`TAG_COLUMNS`.

    Returns:
        Training, dev and test sentences; those without words are left out. Their lines are rows, from 0.

    Raises:
        DataError: If columns do not fit, or a tag is neither ``O`` nor like ``B-person``.
    """
    parts = {}
    for part, (name, data) in _parts(splits, source).items():
        place = f"{source} {name}"
        word_column = _list_column(data, place, "text_column", words, WORD_COLUMNS)
        tag_column = _list_column(data, place, "label_column", tags, TAG_COLUMNS)
        classes = _class_names(data.features[tag_column].feature)
        if not classes and not _is_text(data.features[tag_column].feature):
            raise DataError(
                f"{place}: the tags in {tag_column!r} are numbers without names; choose another label_column "
                f"of {_listed(data)}, or a data set whose tags are named"
            )
        rows: list[tuple[int, tuple[str, ...], tuple[str, ...]]] = []
        for i, (sentence, marks) in enumerate(zip(data[word_column], data[tag_column], strict=True)):
            named = tuple(classes[m] if m is not None and m >= 0 else "" for m in marks) if classes else marks
            if len(sentence) != len(named) or not all(TAG_FORM.fullmatch(tag or "") for tag in named):
                raise DataError(
                    f"{place} row {i}: {len(sentence)} words and the tags {list(named)[:5]}; every word "
                    "needs one tag, O or like B-person: check text_column and label_column"
                )
            if sentence:
                rows.append((i, tuple(word or "" for word in sentence), tuple(named)))
        if not rows:
            raise DataError(f"{place}: no sentences; choose another data set")
        lines, texts, labels = zip(*rows, strict=True)
        parts[part] = HubSentences(Path(place), texts, labels, lines)
    return complete_sentences(parts, source)


def documents_of(
    splits: Mapping[str, Any], source: str, text: Asked = None, kind: Asked = None
) -> tuple[Documents, Documents, Documents]:
    """Turn a column of strings into documents; rows without text are left out.

    Args:
        splits: Splits from :func:`fetch`.
        source: Name of the data set, for errors.
        text: Column of the text; None takes ``text``, otherwise the only column of strings.
        kind: Column of the documents' kinds; None takes ``source`` if there is one.

    Raises:
        DataError: If columns do not fit or no row has text.
    """
    parts = {}
    for part, (name, data) in _parts(splits, source).items():
        place = f"{source} {name}"
        strings = [column for column, feature in data.features.items() if _is_text(feature)]
        asked = _column_name(data, text)
        if asked is None:
            asked = TEXT_FIELD if TEXT_FIELD in strings else strings[0] if len(strings) == 1 else None
        if asked not in strings:
            raise DataError(
                f"{place}: {len(strings)} columns of strings among {_listed(data)}, and none is "
                f"{shortened(str(TEXT_FIELD if text is None else text))!r}; set text_column to the right one"
            )
        kind_name = _column_name(data, kind)
        kinds = _cells(data, kind_name or KIND_FIELD) if (kind_name or KIND_FIELD) in data.features else None
        if kind is not None and kinds is None:
            raise DataError(
                f"{place}: {shortened(str(kind))!r} for label_column is not a column of strings, classes or "
                f"whole numbers among {_listed(data)}; choose another"
            )
        kept = [i for i, one in enumerate(data[asked]) if one and one.strip()]
        if not kept:
            raise DataError(f"{place}: no text in column {asked!r}; choose another data set or text_column")
        column = list(data[asked])
        texts = tuple(checked_text(f"{place} row {i}", column[i]) for i in kept)
        parts[part] = Documents(texts, () if kinds is None else tuple(kinds[i] for i in kept))
    return with_held_out(parts, source)


def _parts(splits: Mapping[str, Any], source: str) -> dict[str, tuple[str, Any]]:
    """Return name and content of the split for each part; a sole split is for training."""
    named = choose_named(
        list(splits), source, "save a copy with only one of them and give its folder (hf:FOLDER)"
    )
    if "train" not in named:
        if len(splits) != 1:
            raise DataError(
                f"{source}: no training part among the splits {', '.join(splits)}; choose another data set"
            )
        named = {"train": next(iter(splits))}
    return {part: (name, splits[name]) for part, name in named.items()}


def _table(place: str, columns: Mapping[str, list[str]]) -> Table:
    """Return the table of a split's columns."""
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    if not rows:
        raise DataError(f"{place}: no rows of text; choose another data set")
    return Table(place, rows, [f"{place} row {i}" for i in range(len(rows))], list(columns))


def _cells(data: Any, column: str) -> list[str] | None:
    """Return a column's cells as strings, empty where there is no value; None if it holds other things."""
    feature = data.features[column]
    names = _class_names(feature)
    if names:
        return ["" if value is None or value < 0 else names[value] for value in data[column]]
    if not (
        _is_text(feature) or str(getattr(feature, "dtype", "")).startswith(("int", "uint", "bool", "float"))
    ):
        return None
    cells = [cell for cell in map(cell_text, data[column]) if cell is not None]
    return cells if len(cells) == len(data) else None


def _class_names(feature: Any) -> list[str]:
    """Return the names of a feature's classes; empty if it has no classes."""
    from datasets import ClassLabel

    return list(feature.names) if isinstance(feature, ClassLabel) else []


def _is_text(feature: Any) -> bool:
    return getattr(feature, "dtype", None) in ("string", "large_string")


def _column_name(data: Any, asked: Asked) -> str | None:
    """Return the requested column's name, or several joined by plus signs; indices count all columns."""
    if asked is None:
        return None
    names = list(data.column_names)
    if asked in names:
        return str(asked)
    columns = [asked] if isinstance(asked, int) else asked.split("+")
    chosen = []
    for column in columns:
        index = column if isinstance(column, int) else int(column) if column.strip().isdecimal() else None
        chosen.append(names[index] if index is not None and index < len(names) else str(column))
    return "+".join(chosen)


def _list_column(data: Any, place: str, field: str, asked: Asked, usual: tuple[str, ...]) -> str:
    """Return the name of a column of lists."""
    lists = [name for name, feature in data.features.items() if hasattr(feature, "feature")]
    wanted = _column_name(data, asked)
    found = [name for name in (usual if wanted is None else (wanted,)) if name in lists]
    if not found:
        names = ", ".join(usual) if wanted is None else repr(wanted)
        raise DataError(
            f"{place}: no column of lists called {names} among {_listed(data)}; set {field} to one"
        )
    return found[0]


def _listed(data: Any) -> str:
    return "the columns " + ", ".join(data.column_names)
