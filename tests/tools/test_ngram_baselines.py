"""Counted language models against NLTK's, and against what a distribution must be."""

import importlib
import math

import numpy as np
import pytest

from collapipe_env.models.architecture import Architecture
from collapipe_env.tasks import TaskSpec, get_task

baselines = importlib.import_module("ngram_baselines")

RNG = np.random.default_rng(0)
VOCABULARY = 9
TRAIN = [2, *RNG.choice(np.arange(2, 9), 400, p=[0.3, 0.2, 0.2, 0.1, 0.1, 0.05, 0.05]).tolist()]
ASKED = [2, *RNG.choice(np.arange(2, 9), 60).tolist()]


def require_nltks(train, asked, order, discount, vocabulary):
    """Compare every probability with NLTK's."""
    lm = pytest.importorskip("nltk.lm")
    words = [str(token) for token in train]
    model = lm.KneserNeyInterpolated(order, discount=discount)
    grams = [tuple(words[i : i + n]) for n in range(1, order + 1) for i in range(len(words) - n + 1)]
    model.fit([grams], vocabulary_text=words)
    own = baselines.KneserNey(train, order, discount, vocabulary, floor=0.0)
    for i in range(order - 1, len(asked)):
        context = tuple(asked[i - order + 1 : i])
        expected = model.score(str(asked[i]), [str(token) for token in context])
        assert own.probability(asked[i], context) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("discount", [0.1, 0.75])
def test_kneser_ney_is_nltks(order, discount):
    require_nltks(TRAIN, ASKED, order, discount, VOCABULARY)


def test_kneser_ney_is_nltks_on_text():
    sizes = Architecture(1, 8, 8, 1, 64, 1000, causal=True)
    data = get_task("language-modelling").load(TaskSpec(sizes, 1000))
    train, asked = baselines.stream_of(data.train)[:4_000], baselines.stream_of(data.test)[:100]
    require_nltks(train, asked, 3, 0.8, 1000)


def test_probabilities_sum_to_one():
    model = baselines.KneserNey(TRAIN, 3, 0.75, VOCABULARY)
    for context in [(2, 3), (8, 8), (0, 1), (0, 2)]:
        total = sum(model.probability(token, context) for token in range(VOCABULARY))
        assert total == pytest.approx(1.0)
        assert model.probability(1, context) > 0.0  # never seen


def test_nats_are_the_sum_over_the_stream():
    model = baselines.KneserNey(TRAIN, 3, 0.75, VOCABULARY)
    padded = [2, *ASKED]
    expected = -sum(
        math.log(model.probability(padded[i], (padded[i - 2], padded[i - 1]))) for i in range(2, len(padded))
    )
    assert model.nats(ASKED) == pytest.approx(expected)
    unigram = baselines.unigram_nats(TRAIN, ASKED, VOCABULARY)
    assert unigram == pytest.approx(
        -sum(math.log((TRAIN[1:].count(token) + 1) / (400 + VOCABULARY)) for token in ASKED[1:])
    )


def test_figures_of_the_embedded_text(monkeypatch):
    stream_of = baselines.stream_of
    monkeypatch.setattr(baselines, "stream_of", lambda split: stream_of(split)[:3000])
    monkeypatch.setattr(baselines, "DISCOUNTS", (0.01, 0.7))
    found = baselines.perplexities("embedded", 400, "dev")
    assert 1.0 < found["trigram perplexity"] < found["unigram perplexity"] < 400
    assert found["discount"] == 0.7
