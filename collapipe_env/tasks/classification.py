"""Sentence classification: masked mean pooling and one linear layer on the server."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from collapipe_env.errors import DataError, ScenarioError
from collapipe_env.tasks.base import IntArray, Split, TaskData, TaskSpec
from collapipe_env.tasks.text_files import LabelledTexts, load_splits
from collapipe_env.tasks.tokenization import PADDING, encode, train_tokenizer

EMBEDDED = Path(__file__).resolve().parent.parent / "data" / "reviews"
"""Folder of the review sentences that the package ships."""


class PooledLinear(nn.Module):
    """Mean of the real tokens' encoder outputs, then a linear layer; 2 d V_out forward FLOPs per sample."""

    def __init__(self, width: int, outputs: int, generator: Generator) -> None:
        super().__init__()
        # Zero weights would hand the encoder a zero gradient in the first step; small ones start at
        # log(classes).
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
    """Sentences of one class each; cross-entropy and accuracy."""

    name = "classification"
    metrics = ("accuracy",)

    def load(self, spec: TaskSpec) -> TaskData:
        """Return the labelled sentences as token rows; see :class:`~collapipe_env.tasks.base.Task`."""
        return _load(spec)

    def build_head(self, spec: TaskSpec, generator: Generator) -> nn.Module:
        """Return the pooled linear head."""
        _refuse_decoder(spec)
        return PooledLinear(spec.architecture.width, spec.outputs, generator)

    def units(self, targets: Tensor) -> Tensor:
        """Return ones: every sample asks for one class."""
        return torch.ones(len(targets), device=targets.device)

    def loss(self, outputs: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """Return the mean cross-entropy in nats."""
        return functional.cross_entropy(outputs, targets, label_smoothing=smoothing)

    def predict(self, head: nn.Module, hidden: Tensor, mask: Tensor, spec: TaskSpec) -> Tensor:  # noqa: ARG002
        """Return the most likely class of each sample."""
        scores: Tensor = head(hidden, mask)
        return scores.argmax(dim=-1)

    def score(self, predictions: IntArray, split: Split, data: TaskData) -> Mapping[str, float]:  # noqa: ARG002
        """Return the accuracy."""
        return {"accuracy": float(np.mean(predictions == split.targets))}

    def default_learning(self) -> Mapping[str, object]:
        """Return what the scenarios are made for."""
        return {"workload.outputs": 2, "workload.decoder_blocks": 0}


def _refuse_decoder(spec: TaskSpec) -> None:
    if spec.decoder_blocks:
        raise ScenarioError(
            f"decoder_blocks is {spec.decoder_blocks}, but classification has a linear head on the server "
            "and no "
            "decoder; set decoder_blocks: 0"
        )


@functools.cache
def _load(spec: TaskSpec) -> TaskData:
    _refuse_decoder(spec)
    folder = EMBEDDED if spec.dataset == "embedded" else Path(spec.dataset).expanduser()
    train, held_out = load_splits(folder, spec.text_column, spec.label_column)
    classes = _classes(train.labels)
    if len(classes) != spec.outputs:
        named = ", ".join(classes[:5]) + (", ..." if len(classes) > 5 else "")
        raise DataError(
            f"{folder}: {len(classes)} classes ({named}) where the workload has outputs {spec.outputs}; "
            f"set outputs: {len(classes)}"
        )
    numbers = {name: i for i, name in enumerate(classes)}
    for label, place in zip(held_out.labels, held_out.places, strict=True):
        if label not in numbers:
            raise DataError(
                f"{place}: label {label!r} never occurs in training; add it there or drop the line"
            )
    tokenizer = train_tokenizer(train.texts, spec.architecture.vocabulary)

    def split(part: LabelledTexts) -> Split:
        targets = np.array([numbers[label] for label in part.labels], dtype=np.int64)
        arrays = encode(tokenizer, part.texts, spec.architecture.sequence_length), targets
        for array in arrays:
            array.flags.writeable = False  # shared by every learner of the process
        return Split(*arrays)

    training, test = split(train), split(held_out)
    lengths = (training.tokens != PADDING).sum(axis=-1)
    return TaskData(training, test, test, training.targets, lengths, classes)


def _classes(labels: Sequence[str]) -> tuple[str, ...]:
    """Return the distinct labels, in numerical order if all are integers, else in alphabetical order."""
    distinct = sorted(set(labels))
    if all(label.lstrip("+-").isdigit() for label in distinct):
        distinct.sort(key=int)
    return tuple(distinct)
