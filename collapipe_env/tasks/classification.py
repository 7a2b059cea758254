"""Sentence classification: masked mean pooling and one linear layer on the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np

from collapipe_env.ground.arrays import IntArray
from collapipe_env.models.tokenization import encode
from collapipe_env.scenario.task_registry import SHIPPED_TRAITS
from collapipe_env.tasks.base import Split, TaskData, TaskSpec
from collapipe_env.tasks.data_parts import Samples
from collapipe_env.tasks.heads import ChoosingTask, PooledLinear
from collapipe_env.tasks.labelled_texts import load_splits
from collapipe_env.tasks.preparation import prepared, require_outputs, tokenizer_of


class Classification(ChoosingTask):
    """Sentences of one class each, their strata; cross-entropy, accuracy and Matthews correlation."""

    name = "classification"
    metrics = ("accuracy", "mcc")
    traits = SHIPPED_TRAITS["classification"]
    embedded = "reviews"
    read = staticmethod(load_splits)
    head = PooledLinear

    def classes(self, spec: TaskSpec) -> tuple[str, ...]:
        """Return the labels of the training part, sorted as numbers if all are integers, else as text."""
        labels = sorted(set(self.samples(spec)[0].answers))
        try:
            return tuple(sorted(labels, key=int))
        except ValueError:  # one is not an integer
            return tuple(labels)

    def prepare(self, spec: TaskSpec) -> TaskData:
        """Return the texts as token rows, with the number of their class as target."""
        parts, classes = self.samples(spec), self.classes(spec)
        require_outputs(spec, classes, "classes")
        numbers = {name: i for i, name in enumerate(classes)}
        tokenizer = tokenizer_of(spec, parts[0].inputs)

        def split(part: Samples) -> Split:
            targets = np.array([numbers[label] for label in part.answers], dtype=np.int64)
            return Split(encode(tokenizer, part.inputs, spec.architecture.sequence_length), targets)

        data = prepared(parts, split, tokenizer, classes=classes)
        return replace(data, strata=data.train.targets)

    def constant_answer(self, spec: TaskSpec, part: Literal["dev", "test"]) -> float:
        """Return the accuracy of always naming the most frequent class of the training part, in [0, 1]."""
        train, dev, test = self.samples(spec)
        labels = np.array((dev if part == "dev" else test).answers)
        most_frequent = Counter(train.answers).most_common(1)[0][0]
        return float(np.mean(labels == most_frequent))

    def score(self, predictions: IntArray, split: Split, data: TaskData) -> Mapping[str, float]:
        """Return the accuracy and the Matthews correlation."""
        correlation = matthews_correlation(split.targets, predictions, len(data.classes))
        return {"accuracy": float(np.mean(predictions == split.targets)), "mcc": correlation}


def matthews_correlation(truth: IntArray, predictions: IntArray, classes: int) -> float:
    """Return the correlation of true and predicted classes, in [-1, 1]; 0 for chance.

    Gorodkin's R_K for any number of classes (Computational Biology and Chemistry 28, 2004, 367-374), for two
    of them Matthews' coefficient. Unlike the accuracy, it does not reward a constant answer.

    It is 0 where all true or all predicted classes, both of shape (samples,) and from 0 on, are the same.
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
