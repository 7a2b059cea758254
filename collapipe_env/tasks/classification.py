"""Sentence classification: masked mean pooling and one linear layer on the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from torch import Generator, nn

from collapipe_env.ground.arrays import IntArray
from collapipe_env.models.tokenization import encode
from collapipe_env.scenario.task_registry import SHIPPED_TRAITS
from collapipe_env.tasks.base import Split, TaskData, TaskSpec
from collapipe_env.tasks.data_parts import Parts, Samples
from collapipe_env.tasks.heads import ChoosingTask, PooledLinear
from collapipe_env.tasks.labelled_texts import load_splits
from collapipe_env.tasks.preparation import (
    once,
    prepared,
    read_once,
    refuse_decoder,
    require_outputs,
    tokenizer_of,
)


class Classification(ChoosingTask):
    """Sentences of one class each; cross-entropy, accuracy and Matthews correlation."""

    name = "classification"
    metrics = ("accuracy", "mcc")
    traits = SHIPPED_TRAITS["classification"]

    def load(self, spec: TaskSpec) -> TaskData:
        """Return the labelled sentences as token rows; see :class:`~collapipe_env.tasks.base.Task`.

        The tokeniser is the checkpoint's if there is one, otherwise it is learned from the training part.
        Strata are the classes.
        """
        return once(_load, spec)

    def classes(self, spec: TaskSpec) -> tuple[str, ...]:
        """Return the labels of the training part, sorted as numbers if all are integers, else as text."""
        return _classes(_texts(spec)[0].answers)

    def constant_answer(self, spec: TaskSpec, part: Literal["dev", "test"]) -> float:
        """Return the accuracy of always naming the most frequent class of the training part, in [0, 1]."""
        train, dev, test = _texts(spec)
        labels = np.array((dev if part == "dev" else test).answers)
        most_frequent = Counter(train.answers).most_common(1)[0][0]
        return float(np.mean(labels == most_frequent))

    def build_head(self, spec: TaskSpec, generator: Generator) -> nn.Module:
        """Return the pooled linear head."""
        refuse_decoder(spec, self.name)
        return PooledLinear(spec.architecture.width, spec.outputs, generator)

    def score(self, predictions: IntArray, split: Split, data: TaskData) -> Mapping[str, float]:
        """Return the accuracy and the Matthews correlation."""
        correlation = matthews_correlation(split.targets, predictions, len(data.classes))
        return {"accuracy": float(np.mean(predictions == split.targets)), "mcc": correlation}


def matthews_correlation(truth: IntArray, predictions: IntArray, classes: int) -> float:
    """Return the correlation of true and predicted classes, in [-1, 1]; 0 for chance.

    Gorodkin's R_K for any number of classes (Computational Biology and Chemistry 28, 2004, 367-374), for two
    of them Matthews' coefficient. Unlike the accuracy, it does not reward a constant answer.

    It is 0 where all true or all predicted classes, both of shape (samples,), are the same.

    Args:
        classes: Number of classes K; all are in 0 to K - 1.
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


def _texts(spec: TaskSpec) -> Parts:
    return read_once(load_splits, spec.dataset, "reviews", spec.text_column, spec.label_column)


def _load(spec: TaskSpec) -> TaskData:
    refuse_decoder(spec, "classification")
    parts = _texts(spec)
    classes = _classes(parts[0].answers)
    require_outputs(spec, classes, "classes")
    numbers = {name: i for i, name in enumerate(classes)}
    tokenizer = tokenizer_of(spec, parts[0].inputs)

    def split(part: Samples) -> Split:
        targets = np.array([numbers[label] for label in part.answers], dtype=np.int64)
        return Split(encode(tokenizer, part.inputs, spec.architecture.sequence_length), targets)

    data = prepared(parts, split, tokenizer, classes=classes)
    return replace(data, strata=data.train.targets)


def _classes(labels: Sequence[str]) -> tuple[str, ...]:
    """Return the distinct labels, in numerical order if all are integers, else in alphabetical order."""
    distinct = sorted(set(labels))
    try:
        return tuple(sorted(distinct, key=int))
    except ValueError:  # one is not an integer
        return tuple(distinct)
