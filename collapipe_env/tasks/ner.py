"""Named entity recognition: a tag for every word, from one linear layer on the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from collapipe_env.ground.arrays import IntArray
from collapipe_env.ground.errors import DataError, shortened
from collapipe_env.models.hf_tokenizer import special_ids
from collapipe_env.models.tokenization import CASED, padded
from collapipe_env.scenario.task_registry import SHIPPED_TRAITS
from collapipe_env.tasks.base import NO_TARGET, Split, TaskData, TaskSpec
from collapipe_env.tasks.conll_files import load_tagged
from collapipe_env.tasks.data_parts import Parts, Samples
from collapipe_env.tasks.heads import ChoosingTask
from collapipe_env.tasks.preparation import prepared, require_outputs, tokenizer_of
from collapipe_env.tasks.table_files import Column
from collapipe_env.tasks.tagging_schemes import OUTSIDE, spans_of, to_bio2

NOT_A_START = -1
"""Word number of a piece that continues a word, and of padding."""


def load_entities(path: Path | str, words: Column = None, tags: Column = None) -> Parts:
    """Read a data set as :func:`~collapipe_env.tasks.conll_files.load_tagged` does, with its tags in BIO2.

    Raises:
        DataError: If it is malformed, or a held-out part has a type of entity that training lacks.
    """
    parts = load_tagged(path, words, tags)
    train, dev, test = (replace(part, answers=tuple(map(to_bio2, part.answers))) for part in parts)
    known = set(classes_of(train))
    if known == {OUTSIDE}:
        raise DataError(f"{path}: no entities in the training part; there is nothing to learn from")
    for part in (dev, test):
        for place, words_of, tags_of in zip(part.places, part.inputs, part.answers, strict=True):
            for word, tag in zip(words_of, tags_of, strict=True):
                if tag not in known:
                    raise DataError(
                        f"{place}: type {tag[2:]!r} of the word {shortened(word)!r} never occurs in "
                        "training; add it there or tag these words O"
                    )
    return train, dev, test


def classes_of(train: Samples) -> tuple[str, ...]:
    """Return ``O``, then the ``B-`` and ``I-`` tag of each type of the training part, types in order."""
    kinds = sorted({span.kind for tags in train.answers for span in spans_of(tags)})
    return (OUTSIDE, *(f"{prefix}-{kind}" for kind in kinds for prefix in "BI"))


class NamedEntities(ChoosingTask):
    """Named entity recognition in the BIO2 scheme.

    A word's first piece carries its tag, the others none, as in Devlin et al. (2019, arXiv 1810.04805); the
    loss is the mean cross-entropy over tags. Metrics are computed over whole sentences: a word beyond the
    pieces that the model sees counts as predicted ``O``, so a short sequence length costs recall. An entity
    is right if its type, first word and last word are. Precision, recall and F1 count all types together
    (micro); tags that break the scheme are read as conlleval reads them.

    References are the tags of all words of a sentence. The stratum of a sentence is the number, from 1 in the
    order of names, of its most frequent entity type (the first of equally frequent ones), 0 for a sentence
    without entities.
    """

    name = "ner"
    metrics = ("entity_f1", "entity_precision", "entity_recall", "token_accuracy")
    traits = SHIPPED_TRAITS["ner"]
    embedded = "entities"
    read = staticmethod(load_entities)

    def classes(self, spec: TaskSpec) -> tuple[str, ...]:
        """Return ``O`` and the ``B-`` and ``I-`` tag of each type of entity."""
        return classes_of(self.samples(spec)[0])

    def prepare(self, spec: TaskSpec) -> TaskData:
        """Return the sentences as rows of pieces, with the number of their tags as targets."""
        parts, classes = self.samples(spec), self.classes(spec)
        require_outputs(spec, classes, "tags")
        numbers = {tag: i for i, tag in enumerate(classes)}
        tokenizer = tokenizer_of(spec, [word for sentence in parts[0].inputs for word in sentence], CASED)

        def split(part: Samples) -> Split:
            tokens, words = encode_words(tokenizer, part.inputs, spec.architecture.sequence_length)
            targets = np.full_like(tokens, NO_TARGET)
            for target, row, tags in zip(targets, words, part.answers, strict=True):
                starts = row != NOT_A_START
                target[starts] = [numbers[tags[word]] for word in row[starts]]
            return Split(tokens, targets, part.answers)

        strata = np.array([_stratum(tags, classes) for tags in parts[0].answers], dtype=np.int64)
        return prepared(parts, split, tokenizer, strata, classes=classes)

    def score(self, predictions: IntArray, split: Split, data: TaskData) -> Mapping[str, float]:
        """Return F1, precision and recall of entities, and the share of words with the right tag."""
        return entity_scores([list(tags) for tags in split.references], _words(predictions, split, data))


def entity_scores(references: list[list[str]], predictions: list[list[str]]) -> dict[str, float]:
    """Compare BIO2 tags of whole sentences.

    Returns:
        The metrics of :class:`NamedEntities`; 0 where nothing is predicted or there is nothing to find.
    """
    # Imported here, since no other task needs it.
    from nervaluate import Evaluator

    kinds = {tag[2:] for tags in [*references, *predictions] for tag in tags if tag != OUTSIDE}
    evaluator = Evaluator(references, predictions, tags=sorted(kinds), loader="list")
    strict = evaluator.evaluate()["overall"]["strict"]
    pairs = [
        right == said
        for tags, guesses in zip(references, predictions, strict=True)
        for right, said in zip(tags, guesses, strict=True)
    ]
    return {
        "entity_f1": float(strict.f1),
        "entity_precision": float(strict.precision),
        "entity_recall": float(strict.recall),
        "token_accuracy": float(np.mean(pairs)),
    }


def _words(predictions: IntArray, split: Split, data: TaskData) -> list[list[str]]:
    """Return the predicted tags of whole sentences, ``O`` for words that the model never saw."""
    tagged = split.targets[:, : predictions.shape[1]] != NO_TARGET
    return [
        (said := [data.classes[k] for k in row[where]]) + [OUTSIDE] * (len(tags) - len(said))
        for row, where, tags in zip(predictions, tagged, split.references, strict=True)
    ]


def _stratum(tags: tuple[str, ...], classes: tuple[str, ...]) -> int:
    """Return 1 + the index of a sentence's most frequent type, 0 without entities."""
    counts = Counter(span.kind for span in spans_of(tags))
    if not counts:
        return 0
    kind = min(counts, key=lambda kind: (-counts[kind], kind))
    return (classes.index(f"B-{kind}") + 1) // 2


def encode_words(
    tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], sequence_length: int
) -> tuple[IntArray, IntArray]:
    """Turn sentences into rows of pieces, cut or padded at the end.

    Every word has at least one piece: a word of which the tokeniser leaves nothing becomes an unknown token.
    A tokeniser that has the tokens ``[CLS]`` and ``[SEP]`` (BERT) gets them around each row.

    Args:
        tokenizer: Tokeniser of single words.
        sequence_length: Pieces per row, q.

    Returns:
        Token ids, 0 for padding, and the number of the word that begins at each piece, :data:`NOT_A_START`
        elsewhere; both of shape (sentences, q). Each row holds the first word's first piece. Words whose
        first piece is beyond the q pieces do not occur.

    Raises:
        DataError: If rows are too short for that.
    """
    distinct = sorted({word for sentence in sentences for word in sentence})
    encodings = tokenizer.encode_batch(distinct, add_special_tokens=False)
    special = special_ids(tokenizer)
    pieces = {w: encoding.ids or [special.unknown] for w, encoding in zip(distinct, encodings, strict=True)}
    opening, closing = ([i] if i is not None else [] for i in (special.start, special.end))
    room = sequence_length - len(closing)
    if room <= len(opening):
        raise DataError(
            f"sequence_length {sequence_length} has no room for a word between [CLS] and [SEP]; set it to 3 "
            "or more"
        )

    rows = []
    starts_of = np.full((len(sentences), sequence_length), NOT_A_START, dtype=np.int64)
    for number, sentence in zip(starts_of, sentences, strict=True):
        ids, starts = list(opening), []
        for word in sentence:
            if len(ids) >= room:
                break
            starts.append(len(ids))
            ids += pieces[word]
        rows.append(ids[:room] + closing)
        number[starts] = np.arange(len(starts))
    return padded(rows, sequence_length), starts_of
