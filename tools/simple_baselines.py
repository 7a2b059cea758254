"""Baselines that a trained model has to beat, computed without any of the learner's code."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from collapipe_env.scenario import Scenario

Labelled = tuple[Sequence[str], Sequence[str]]
"""Texts and labels, or sources and targets."""
Tagged = tuple[Sequence[Sequence[str]], Sequence[Sequence[str]]]
"""Words and tags of sentences."""


@dataclass(frozen=True)
class Baseline:
    """Scores of something simple on the test part.

    Attributes:
        name: What it does.
        scores: The task's metrics by name.
    """

    name: str
    scores: Mapping[str, float]


def baselines_of(scenario: Scenario, train_lines: int | None) -> tuple[Baseline, Baseline | None]:
    """A trivial and, where there is one, a better baseline of a scenario's data.

    Only the reading of the files is shared with the learner.

    Args:
        scenario: Task and data; the scores are of the part that it evaluates.
        train_lines: Pairs of parallel text to learn from, the first ones; None for all.
    """
    learning = scenario.learning
    held_out = 1 if learning.evaluation_split == "dev" else 2
    if scenario.workload.task == "classification":
        from collapipe_env.tasks.classification import EMBEDDED as REVIEWS
        from collapipe_env.tasks.labelled_texts import load_splits

        path = REVIEWS if learning.dataset == "embedded" else Path(learning.dataset)
        texts = load_splits(path, learning.text_column, learning.label_column)
        parts = [(part.texts, part.labels) for part in (texts[0], texts[held_out])]
        return majority_class(*parts), naive_bayes(*parts)
    if scenario.workload.task == "ner":
        from collapipe_env.tasks.ner import load_entities

        corpus = load_entities(learning.dataset)
        part = (corpus.train, corpus.dev, corpus.test)[held_out]
        return nothing_tagged(), memorised_tags(
            (corpus.train.words, corpus.train.tags), (part.words, part.tags)
        )
    from collapipe_env.tasks.parallel_text import load_parallel
    from collapipe_env.tasks.translation import EMBEDDED as MESSAGES

    path = MESSAGES if learning.dataset == "embedded" else Path(learning.dataset)
    pairs = load_parallel(path, learning.languages)
    train = (pairs[0].sources[:train_lines], pairs[0].targets[:train_lines])
    test = (pairs[held_out].sources, pairs[held_out].targets)
    return copied_source(test), nearest_target(train, test)


def class_scores(said: Sequence[str], right: Sequence[str]) -> dict[str, float]:
    """Accuracy and Matthews correlation for any number of classes (Gorodkin, 2004); 0 where undefined."""
    names = sorted({*said, *right})
    counts = Counter(zip(said, right, strict=True))
    table = np.array([[counts[a, b] for b in names] for a in names], dtype=np.float64)
    n, hits, by_said, by_right = table.sum(), np.trace(table), table.sum(axis=1), table.sum(axis=0)
    spread = np.sqrt((n**2 - by_said @ by_said) * (n**2 - by_right @ by_right))
    return {
        "accuracy": float(hits / n),
        "mcc": float((hits * n - by_said @ by_right) / spread) if spread else 0.0,
    }


def majority_class(train: Labelled, test: Labelled) -> Baseline:
    """Always say the most frequent class of the training part."""
    most = Counter(train[1]).most_common(1)[0][0]
    return Baseline("majority class", class_scores([most] * len(test[1]), test[1]))


def naive_bayes(train: Labelled, test: Labelled) -> Baseline | None:
    """Multinomial naive Bayes on words, scikit-learn's with its defaults; None where that is missing."""
    try:
        from sklearn.feature_extraction.text import CountVectorizer
        from sklearn.naive_bayes import MultinomialNB
    except ImportError:
        print("no reference for classification: pip install scikit-learn for naive Bayes")
        return None
    words = CountVectorizer()
    model = MultinomialNB().fit(words.fit_transform(train[0]), train[1])
    return Baseline("naive Bayes", class_scores(model.predict(words.transform(test[0])).tolist(), test[1]))


def nothing_tagged() -> Baseline:
    """Tag every word O: no entity is found."""
    return Baseline("all O", {"entity_f1": 0.0})


def memorised_tags(train: Tagged, test: Tagged) -> Baseline:
    """Tag every word as it was tagged most often in training, and new words O."""
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for words, tags in zip(*train, strict=True):
        for word, tag in zip(words, tags, strict=True):
            seen[word][tag] += 1
    best = {word: counts.most_common(1)[0][0] for word, counts in seen.items()}
    said = [[best.get(word, "O") for word in words] for words in test[0]]
    return Baseline("memorised tags", {"entity_f1": entity_f1(said, test[1])})


def entity_f1(said: Sequence[Sequence[str]], right: Sequence[Sequence[str]]) -> float:
    """F1 of entities: type, first and last word must be right. An I- that continues nothing begins one."""

    def entities(sentences: Sequence[Sequence[str]]) -> set[tuple[int, int, int, str]]:
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

    ours, theirs = entities(said), entities(right)
    return 2.0 * len(ours & theirs) / (len(ours) + len(theirs)) if ours or theirs else 0.0


def copied_source(test: Labelled) -> Baseline:
    """Leave the sentence as it is."""
    return Baseline("copied source", translation_scores(test[0], test[1]))


def nearest_target(train: Labelled, test: Labelled) -> Baseline:
    """Take the translation of the training sentence with the nearest set of words (cosine)."""
    from scipy.sparse import csr_array

    numbers: dict[str, int] = {}
    for text in train[0]:
        for word in text.lower().split():
            numbers.setdefault(word, len(numbers))

    def rows(texts: Sequence[str]) -> Any:
        places = [sorted({numbers[w] for w in text.lower().split() if w in numbers}) for text in texts]
        lengths = [max(len(place), 1) for place in places]
        values = np.repeat(1.0 / np.sqrt(lengths), [len(place) for place in places])
        starts = np.concatenate(([0], np.cumsum([len(place) for place in places])))
        indices = np.array([index for place in places for index in place], dtype=np.int64)
        return csr_array((values, indices, starts), shape=(len(texts), len(numbers)))

    memory = rows(train[0]).T.tocsr()
    found = [(block @ memory).toarray().argmax(axis=1) for block in _blocks(rows(test[0]), 200)]
    return Baseline(
        "nearest sentence", translation_scores([train[1][i] for i in np.concatenate(found)], test[1])
    )


def _blocks(matrix: Any, size: int) -> list[Any]:
    return [matrix[start : start + size] for start in range(0, matrix.shape[0], size)]


def translation_scores(said: Sequence[str], right: Sequence[str]) -> dict[str, float]:
    """BLEU and chrF of sacrebleu, in [0, 1]."""
    from sacrebleu import corpus_bleu, corpus_chrf

    return {
        "bleu": corpus_bleu(said, [list(right)], force=True).score / 100.0,
        "chrf": corpus_chrf(said, [list(right)]).score / 100.0,
    }
