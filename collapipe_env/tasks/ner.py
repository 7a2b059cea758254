"""Named entity recognition: a tag for every word, from one linear layer on the server."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from collapipe_env.ground.arrays import IntArray
from collapipe_env.ground.errors import DataError, ScenarioError
from collapipe_env.ground.typed_paths import given_path
from collapipe_env.models.hf_tokenizer import checkpoint_tokenizer, special_ids
from collapipe_env.models.tokenization import PADDING
from collapipe_env.scenario.task_registry import SHIPPED_TRAITS
from collapipe_env.tasks.base import Split, TaskData, TaskSpec
from collapipe_env.tasks.conll_files import TaggedSentences, load_column_splits
from collapipe_env.tasks.file_stamps import KEPT, Stamp, stamp_of
from collapipe_env.tasks.hub import PREFIX, hub_tagged_sentences
from collapipe_env.tasks.tagging_schemes import OUTSIDE, Scheme, spans_of, to_bio2
from collapipe_env.tasks.tagging_tokenizer import encode_words, train_cased_tokenizer

EMBEDDED = Path(__file__).resolve().parent.parent / "data" / "entities"
"""Folder of the synthetic sentences that the package ships."""

NO_TAG = -100
"""Target of positions without a tag: padding, and pieces that continue a word."""

Column = str | int | None


class TokenLinear(nn.Module):
    """A linear layer on every position; 2 q d V_out forward FLOPs per sample."""

    def __init__(self, width: int, outputs: int, generator: Generator) -> None:
        super().__init__()
        # Small weights start near log(tags) and, unlike zeros, pass a gradient on in the first step.
        self.weight = nn.Parameter(torch.randn(outputs, width, generator=generator) * 0.5 / width**0.5)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, hidden: Tensor, mask: Tensor, targets: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Return tag scores.

        Args:
            hidden: Encoder outputs, shape (samples, q, d).
            mask: Not read; positions without a tag are left out by their targets.
            targets: Not read.

        Returns:
            Logits, shape (samples, q, V_out).
        """
        return functional.linear(hidden, self.weight, self.bias)


@dataclass(frozen=True)
class EntityCorpus:
    """A data set in BIO2.

    Attributes:
        train: Training sentences.
        dev: Sentences for choosing hyper-parameters.
        test: Sentences for the reported figures.
        scheme: Tagging scheme of the files.
        repaired: Tags in the files that broke their scheme.
    """

    train: TaggedSentences
    dev: TaggedSentences
    test: TaggedSentences
    scheme: Scheme
    repaired: int

    @property
    def classes(self) -> tuple[str, ...]:
        """``O``, then the ``B-`` and ``I-`` tag of each type of the training part, types in order."""
        kinds = sorted({span.kind for tags in self.train.tags for span in spans_of(tags)})
        return (OUTSIDE, *(f"{prefix}-{kind}" for kind in kinds for prefix in "BI"))


class NamedEntities:
    """Named entity recognition in the BIO2 scheme.

    A word's first piece carries its tag, the others none, as in Devlin et al. (2019, arXiv 1810.04805); the
    loss is the mean cross-entropy over tags. Metrics are computed over whole sentences: a word beyond the
    pieces that the model sees counts as predicted ``O``, so a short sequence length costs recall. An entity
    is right if its type, first word and last word are. Precision, recall and F1 count all types together
    (micro); tags that break the scheme are read as conlleval reads them.
    """

    name = "ner"
    metrics = ("entity_f1", "entity_precision", "entity_recall", "token_accuracy")
    traits = SHIPPED_TRAITS["ner"]

    def load(self, spec: TaskSpec) -> TaskData:
        """Return the tagged sentences as rows of pieces; see :class:`~collapipe_env.tasks.base.Task`.

        References are the tags of all words of a sentence. The stratum of a sentence is the number, from 1 in
        the order of names, of its most frequent entity type (the first of equally frequent ones), 0 for a
        sentence without entities.
        """
        return _load(spec, stamp_of(spec.dataset, spec.checkpoint))

    def classes(self, spec: TaskSpec) -> tuple[str, ...]:
        """Return ``O`` and the ``B-`` and ``I-`` tag of each type of entity."""
        return _corpus(spec).classes

    def build_head(self, spec: TaskSpec, generator: Generator) -> nn.Module:
        """Return the linear head."""
        _refuse_decoder(spec)
        return TokenLinear(spec.architecture.width, spec.outputs, generator)

    def units(self, targets: Tensor) -> Tensor:
        """Return the number of tags of each sample."""
        return (targets != NO_TAG).sum(dim=-1).float()

    def loss(self, outputs: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """Return the mean cross-entropy over tags in nats.

        Args:
            outputs: Tag scores, shape (samples, n, V_out); there must be no tags after the first n pieces.
            targets: Tag numbers, shape (samples, q).
            smoothing: Label smoothing over all V_out tags.
        """
        expected = targets[:, : outputs.shape[1]]
        return functional.cross_entropy(
            outputs.flatten(end_dim=1), expected.flatten(), ignore_index=NO_TAG, label_smoothing=smoothing
        )

    def predict(self, head: nn.Module, hidden: Tensor, mask: Tensor, spec: TaskSpec) -> Tensor:  # noqa: ARG002
        """Return the most likely tag at every position, shape (samples, n) for n pieces."""
        scores: Tensor = head(hidden, mask)
        return scores.argmax(dim=-1)

    def score(self, predictions: IntArray, split: Split, data: TaskData) -> Mapping[str, float]:
        """Return F1, precision and recall of entities, and the share of words with the right tag."""
        return entity_scores([list(tags) for tags in split.references], _words(predictions, split, data))


def entity_scores(references: list[list[str]], predictions: list[list[str]]) -> dict[str, float]:
    """Compare BIO2 tags of whole sentences.

    Args:
        references: The right tags.
        predictions: The predicted tags, as many for each sentence.

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


def load_entities(dataset: str, words: Column = None, tags: Column = None) -> EntityCorpus:
    """Read a data set and translate its tags to BIO2; a process reads files again only if they changed.

    Args:
        dataset: ``"embedded"``, the path of a file or folder as in
            :mod:`collapipe_env.tasks.conll_files`, or the name of a data set of the Hugging Face hub as in
            :mod:`collapipe_env.tasks.hub`.
        words: Column of the words: an index from 0 or, for the hub, a name. None takes a file's first.
        tags: Column of their tags, given in the same way. None takes a file's last.

    Raises:
        DataError: If it is malformed, or a held-out part has a type of entity that training lacks.
    """
    return _read(dataset, words, tags, stamp_of(dataset))


@functools.lru_cache(maxsize=KEPT)
def _read(dataset: str, words: Column, tags: Column, stamp: Stamp) -> EntityCorpus:  # noqa: ARG001
    if dataset.startswith(PREFIX):
        parts = hub_tagged_sentences(dataset, words, tags)
    else:
        folder = EMBEDDED if dataset == "embedded" else given_path(dataset)
        parts = load_column_splits(folder, _index("text_column", words), _index("label_column", tags))
    found = to_bio2([marks for part in parts for marks in part.tags])
    rest = iter(found.tags)
    train, dev, test = (replace(part, tags=tuple(next(rest) for _ in part.words)) for part in parts)
    corpus = EntityCorpus(train, dev, test, found.scheme, found.repaired)
    known = set(corpus.classes)
    if known == {OUTSIDE}:
        raise DataError(f"{train.path}: no entities in the training part; there is nothing to learn from")
    for part in (dev, test):
        for sentence, marks in enumerate(part.tags):
            for word, tag in enumerate(marks):
                if tag not in known:
                    raise DataError(
                        f"{part.place(sentence, word)}: type {tag[2:]!r} never occurs in training; add it "
                        "there or tag these words O"
                    )
    return corpus


def _words(predictions: IntArray, split: Split, data: TaskData) -> list[list[str]]:
    """Return the predicted tags of whole sentences, ``O`` for words that the model never saw."""
    tagged = split.targets[:, : predictions.shape[1]] != NO_TAG
    return [
        (said := [data.classes[k] for k in row[where]]) + [OUTSIDE] * (len(tags) - len(said))
        for row, where, tags in zip(predictions, tagged, split.references, strict=True)
    ]


def _refuse_decoder(spec: TaskSpec) -> None:
    if spec.decoder_blocks:
        raise ScenarioError(
            f"decoder_blocks is {spec.decoder_blocks}, but ner has a linear head on the server and no "
            "decoder; set decoder_blocks: 0"
        )


def _index(field: str, asked: Column) -> int | None:
    if isinstance(asked, str):
        raise DataError(
            f"{field} is {asked!r}, but column files have no header; give the column's index, from 0"
        )
    return asked


def _corpus(spec: TaskSpec) -> EntityCorpus:
    return load_entities(spec.dataset, spec.text_column, spec.label_column)


@functools.lru_cache(maxsize=KEPT)
def _load(spec: TaskSpec, stamp: Stamp) -> TaskData:  # noqa: ARG001
    _refuse_decoder(spec)
    corpus = _corpus(spec)
    classes = corpus.classes
    if len(classes) != spec.outputs:
        kinds = ", ".join(tag[2:] for tag in classes[1::2])
        raise DataError(
            f"{spec.dataset}: {len(classes)} tags (O, and B- and I- of: {kinds}) where the workload has "
            f"outputs {spec.outputs}; set outputs: {len(classes)}"
        )
    numbers = {tag: i for i, tag in enumerate(classes)}
    if spec.checkpoint is None:
        tokenizer = train_cased_tokenizer(corpus.train.words, spec.architecture.vocabulary)
    else:
        tokenizer = checkpoint_tokenizer(spec.checkpoint)

    def split(part: TaggedSentences) -> Split:
        rows = encode_words(tokenizer, part.words, spec.architecture.sequence_length)
        targets = np.full_like(rows.tokens, NO_TAG)
        for target, words, tags in zip(targets, rows.words, part.tags, strict=True):
            starts = words >= 0
            target[starts] = [numbers[tags[word]] for word in words[starts]]
        rows.tokens.flags.writeable = targets.flags.writeable = False  # shared by all learners of the process
        return Split(rows.tokens, targets, part.tags)

    training = split(corpus.train)
    lengths = (training.tokens != PADDING).sum(axis=-1)
    strata = np.array([_stratum(tags, classes) for tags in corpus.train.tags], dtype=np.int64)
    strata.flags.writeable = lengths.flags.writeable = False
    hidden = special_ids(tokenizer).hidden
    return TaskData(training, split(corpus.dev), split(corpus.test), strata, lengths, classes, hidden=hidden)


def _stratum(tags: tuple[str, ...], classes: tuple[str, ...]) -> int:
    """Return 1 + the index of a sentence's most frequent type, 0 without entities."""
    counts = Counter(span.kind for span in spans_of(tags))
    if not counts:
        return 0
    kind = min(counts, key=lambda kind: (-counts[kind], kind))
    return (classes.index(f"B-{kind}") + 1) // 2
