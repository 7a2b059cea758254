"""Sentence classification: masked mean pooling and one linear layer on the server."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from collapipe_env.ground.arrays import IntArray
from collapipe_env.ground.errors import DataError, ScenarioError
from collapipe_env.ground.typed_paths import given_path
from collapipe_env.models.hf_tokenizer import checkpoint_tokenizer, special_ids
from collapipe_env.models.tokenization import PADDING, encode, train_tokenizer
from collapipe_env.scenario.task_registry import SHIPPED_TRAITS
from collapipe_env.tasks.base import Split, TaskData, TaskSpec
from collapipe_env.tasks.file_stamps import KEPT, Stamp, stamp_of
from collapipe_env.tasks.hub import PREFIX as HUB_PREFIX
from collapipe_env.tasks.hub import hub_labelled_texts
from collapipe_env.tasks.labelled_texts import LabelledTexts, load_splits

EMBEDDED = Path(__file__).resolve().parent.parent / "data" / "reviews"
"""Folder of the review sentences that the package ships."""


class PooledLinear(nn.Module):
    """Mean of the real tokens' encoder outputs, then a linear layer; 2 d V_out forward FLOPs per sample."""

    def __init__(self, width: int, outputs: int, generator: Generator) -> None:
        super().__init__()
        # Zero weights would give the encoder a zero gradient in the first step; with small ones the loss
        # starts near log(classes).
        self.weight = nn.Parameter(torch.randn(outputs, width, generator=generator) * 0.5 / width**0.5)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, hidden: Tensor, mask: Tensor, targets: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Return class scores.

        Args:
            hidden: Encoder outputs, shape (samples, q, d).
            mask: True at real tokens, shape (samples, q); at least one per sample.
            targets: Not read.

        Returns:
            Logits, shape (samples, V_out).
        """
        real = mask.unsqueeze(-1)
        pooled = (hidden * real).sum(dim=1) / real.sum(dim=1)
        return functional.linear(pooled, self.weight, self.bias)


class Classification:
    """Sentences of one class each; cross-entropy, accuracy and Matthews correlation."""

    name = "classification"
    metrics = ("accuracy", "mcc")
    traits = SHIPPED_TRAITS["classification"]

    def load(self, spec: TaskSpec) -> TaskData:
        """Return the labelled sentences as token rows; see :class:`~collapipe_env.tasks.base.Task`.

        The tokeniser is the checkpoint's if there is one, otherwise it is learned from the training part.
        Strata are the classes.

        Raises:
            DataError: If the data cannot be read or does not fit ``outputs``.
            CheckpointError: If the checkpoint's tokeniser cannot be read.
        """
        return _load(spec, stamp_of(spec.dataset, spec.checkpoint))

    def classes(self, spec: TaskSpec) -> tuple[str, ...]:
        """Return the labels of the training part, sorted as numbers if all are integers, else as text."""
        return _classes(_texts(spec, stamp_of(spec.dataset))[0].labels)

    def constant_answer(self, spec: TaskSpec, part: Literal["dev", "test"]) -> float:
        """Return the accuracy of naming the most frequent class of the training part every time, in [0, 1].

        Raises:
            DataError: If the data cannot be read.
        """
        train, dev, test = _texts(spec, stamp_of(spec.dataset))
        labels = np.array((dev if part == "dev" else test).labels)
        most_frequent = Counter(train.labels).most_common(1)[0][0]
        return float(np.mean(labels == most_frequent))

    def build_head(self, spec: TaskSpec, generator: Generator) -> nn.Module:
        """Return the pooled linear head."""
        _refuse_decoder(spec)
        return PooledLinear(spec.architecture.width, spec.outputs, generator)

    def units(self, targets: Tensor) -> Tensor:
        """Return ones: every sample has one prediction."""
        return torch.ones(len(targets), dtype=torch.float32, device=targets.device)

    def loss(self, outputs: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """Return the mean cross-entropy in nats."""
        return functional.cross_entropy(outputs, targets, label_smoothing=smoothing)

    def predict(self, head: nn.Module, hidden: Tensor, mask: Tensor, spec: TaskSpec) -> Tensor:  # noqa: ARG002
        """Return the most likely class of each sample."""
        scores: Tensor = head(hidden, mask)
        return scores.argmax(dim=-1)

    def score(self, predictions: IntArray, split: Split, data: TaskData) -> Mapping[str, float]:
        """Return the accuracy and the Matthews correlation."""
        correlation = matthews_correlation(split.targets, predictions, len(data.classes))
        return {"accuracy": float(np.mean(predictions == split.targets)), "mcc": correlation}


def matthews_correlation(truth: IntArray, predictions: IntArray, classes: int) -> float:
    """Return the correlation of true and predicted classes, in [-1, 1]; 0 for chance.

    Gorodkin's R_K for any number of classes (Computational Biology and Chemistry 28, 2004, 367-374), for two
    of them Matthews' coefficient. Unlike the accuracy, it does not reward a constant answer.

    Args:
        truth: True classes, shape (samples,).
        predictions: Predicted classes, shape (samples,).
        classes: Number of classes K; all are in 0 to K - 1.

    Returns:
        The correlation; 0 where all true or all predicted classes are the same.
    """
    true_counts = np.bincount(truth, minlength=classes).astype(np.float64)
    said_counts = np.bincount(predictions, minlength=classes).astype(np.float64)
    samples = float(len(truth))
    true_variance = samples**2 - true_counts @ true_counts
    said_variance = samples**2 - said_counts @ said_counts
    if true_variance * said_variance == 0.0:
        return 0.0
    covariance = np.sum(truth == predictions) * samples - true_counts @ said_counts
    return float(covariance / np.sqrt(true_variance * said_variance))


def _refuse_decoder(spec: TaskSpec) -> None:
    if spec.decoder_blocks:
        raise ScenarioError(
            f"decoder_blocks is {spec.decoder_blocks}, but classification has a linear head on the server "
            "and no decoder; set decoder_blocks: 0"
        )


def _texts(spec: TaskSpec, stamp: Stamp) -> tuple[LabelledTexts, LabelledTexts, LabelledTexts]:
    return _read(spec.dataset, spec.text_column, spec.label_column, stamp)


@functools.lru_cache(maxsize=KEPT)
def _read(
    dataset: str,
    text: str | int | None,
    label: str | int | None,
    stamp: Stamp,  # noqa: ARG001
) -> tuple[LabelledTexts, LabelledTexts, LabelledTexts]:
    """Return training, dev and test texts."""
    if dataset.startswith(HUB_PREFIX):
        return hub_labelled_texts(dataset, text, label)
    return load_splits(EMBEDDED if dataset == "embedded" else given_path(dataset), text, label)


@functools.lru_cache(maxsize=KEPT)
def _load(spec: TaskSpec, stamp: Stamp) -> TaskData:  # noqa: ARG001
    _refuse_decoder(spec)
    parts = _texts(spec, stamp_of(spec.dataset))
    classes = _classes(parts[0].labels)
    if len(classes) != spec.outputs:
        named = ", ".join(classes[:5]) + (", ..." if len(classes) > 5 else "")
        raise DataError(
            f"{spec.dataset}: {len(classes)} classes ({named}) where the workload has outputs "
            f"{spec.outputs}; set outputs: {len(classes)}"
        )
    numbers = {name: i for i, name in enumerate(classes)}
    length = spec.architecture.sequence_length
    if spec.checkpoint is None:
        tokenizer = train_tokenizer(parts[0].texts, spec.architecture.vocabulary)
    else:
        tokenizer = checkpoint_tokenizer(spec.checkpoint, length)

    def split(part: LabelledTexts) -> Split:
        targets = np.array([numbers[label] for label in part.labels], dtype=np.int64)
        return Split(_shared(encode(tokenizer, part.texts, length)), _shared(targets))

    train, dev, test = (split(part) for part in parts)
    lengths = _shared((train.tokens != PADDING).sum(axis=-1))
    hidden = special_ids(tokenizer).hidden
    return TaskData(train, dev, test, train.targets, lengths, classes, hidden=hidden)


def _shared(array: IntArray) -> IntArray:
    """Return the array, read-only: every learner of the process gets the same one."""
    array.flags.writeable = False
    return array


def _classes(labels: Sequence[str]) -> tuple[str, ...]:
    """Return the distinct labels, in numerical order if all are integers, else in alphabetical order."""
    distinct = sorted(set(labels))
    try:
        return tuple(sorted(distinct, key=int))
    except ValueError:  # one is not an integer
        return tuple(distinct)
