"""Baselines that a trained model has to beat, computed without any of the learner's code."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from sacrebleu import corpus_bleu, corpus_chrf
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.metrics import accuracy_score, matthews_corrcoef
from sklearn.naive_bayes import MultinomialNB
from sklearn.preprocessing import normalize

from collapipe_env.scenario import Scenario
from collapipe_env.tasks import get_task
from collapipe_env.tasks.base import task_spec

Labelled = tuple[Sequence[str], Sequence[str]]
"""Texts and labels, or sources and targets."""
Tagged = tuple[Sequence[Sequence[str]], Sequence[Sequence[str]]]
"""Words and tags of sentences."""


class Baseline(NamedTuple):
    """A simple method, and the task's metrics of it on the test part."""

    name: str
    scores: Mapping[str, float]


def baselines_of(scenario: Scenario) -> tuple[Baseline, Baseline]:
    """A trivial and a better baseline of a scenario's data, on its test part.

    Only the reading of the files is shared with the learner.
    """
    train, _, test = get_task(scenario.workload.task).samples(task_spec(scenario))
    known, asked = (train.inputs, train.answers), (test.inputs, test.answers)
    if scenario.workload.task == "classification":
        return majority_class(known, asked), naive_bayes(known, asked)
    if scenario.workload.task == "ner":  # tagging every word O finds no entity
        return Baseline("all O", {"entity_f1": 0.0}), memorised_tags(known, asked)
    return Baseline("copied source", translation_scores(*asked)), nearest_target(known, asked)


def class_scores(said: Sequence[str], right: Sequence[str]) -> dict[str, float]:
    """Accuracy and Matthews correlation for any number of classes; 0 where undefined."""
    return {"accuracy": accuracy_score(right, said), "mcc": matthews_corrcoef(right, said)}


def majority_class(train: Labelled, test: Labelled) -> Baseline:
    """Always say the most frequent class of the training part."""
    most = Counter(train[1]).most_common(1)[0][0]
    return Baseline("majority class", class_scores([most] * len(test[1]), test[1]))


def naive_bayes(train: Labelled, test: Labelled) -> Baseline:
    """Multinomial naive Bayes on words, scikit-learn's with its defaults."""
    words = CountVectorizer()
    model = MultinomialNB().fit(words.fit_transform(train[0]), train[1])
    return Baseline("naive Bayes", class_scores(model.predict(words.transform(test[0])).tolist(), test[1]))


def memorised_tags(train: Tagged, test: Tagged) -> Baseline:
    """Tag every word as it was tagged most often in training, and new words O."""
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for words, tags in zip(*train, strict=True):
        for word, tag in zip(words, tags, strict=True):
            seen[word][tag] += 1
    best = {word: counts.most_common(1)[0][0] for word, counts in seen.items()}
    said = [[best.get(word, "O") for word in words] for words in test[0]]
    return Baseline("memorised tags", {"entity_f1": entity_f1(said, test[1])})


def entities(sentences: Sequence[Sequence[str]]) -> set[tuple[int, int, int, str]]:
    """Sentence, first word, end and type of every entity. An I- that continues none begins one."""
    found = set()
    for number, tags in enumerate(sentences):
        start, kind = 0, ""
        for place, tag in enumerate([*tags, "O"]):
            if kind and tag != f"I-{kind}":
                found.add((number, start, place, kind))
                kind = ""
            if tag != "O" and not kind:
                start, kind = place, tag[2:]
    return found


def entity_f1(said: Sequence[Sequence[str]], right: Sequence[Sequence[str]]) -> float:
    """F1 of entities: type, first and last word must be right."""
    ours, theirs = entities(said), entities(right)
    return 2.0 * len(ours & theirs) / (len(ours) + len(theirs)) if ours or theirs else 0.0


def nearest_target(train: Labelled, test: Labelled) -> Baseline:
    """Take the translation of the training sentence with the nearest set of words (cosine)."""
    words = CountVectorizer(binary=True, token_pattern=r"\S+", dtype=np.float64)  # noqa: S106 - no password
    memory, asked = normalize(words.fit_transform(train[0])).T.tocsr(), words.transform(test[0])
    found = [
        train[1][place]
        for start in range(0, asked.shape[0], 200)
        for place in (asked[start : start + 200] @ memory).toarray().argmax(axis=1)
    ]
    return Baseline("nearest sentence", translation_scores(found, test[1]))


def translation_scores(said: Sequence[str], right: Sequence[str]) -> dict[str, float]:
    """BLEU and chrF of sacrebleu, in [0, 1]."""
    return {
        "bleu": corpus_bleu(said, [list(right)], force=True).score / 100.0,
        "chrf": corpus_chrf(said, [list(right)]).score / 100.0,
    }
