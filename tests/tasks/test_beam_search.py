"""Searches against exhaustive enumeration, and against each other."""

import itertools
import math

import numpy as np
import pytest
import torch

from collapipe_env.models.tokenization import BEGIN, END
from collapipe_env.tasks.beam_search import NEVER_WRITTEN, beam_search


class Oracle:
    """A stepper whose scores are drawn for each source and each prefix; it notes what it is asked for."""

    def __init__(self, sources, vocabulary, sharpness=1.0, end=0.0):
        self.vocabulary, self.sharpness, self.end = vocabulary, sharpness, end
        self.rows = [(source, ()) for source in range(sources)]
        self.steps = []

    def scores(self, source, prefix):
        rng = np.random.default_rng([source, *prefix])
        scores = self.sharpness * rng.standard_normal(self.vocabulary)
        scores[END] += self.end
        return torch.from_numpy(scores)

    def step(self, tokens):
        self.rows = [(s, (*p, t)) for (s, p), t in zip(self.rows, tokens.tolist(), strict=True)]
        self.steps.append(len(self.rows))
        return torch.stack([self.scores(s, p) for s, p in self.rows])

    def select(self, rows):
        self.rows = [self.rows[i] for i in rows.tolist()]


def begin(sources):
    return torch.full((sources,), BEGIN)


def all_sequences(vocabulary, length):
    """Every sequence that ends at its first end token, or has the full length and none."""
    text = [i for i in range(vocabulary) if i not in {*NEVER_WRITTEN, END}]
    for n in range(length):
        yield from ((*words, END) for words in itertools.product(text, repeat=n))
    yield from itertools.product(text, repeat=length)


def value(oracle, source, sequence, exponent):
    total = 0.0
    for i, token in enumerate(sequence):
        total += float(oracle.scores(source, (BEGIN, *sequence[:i])).log_softmax(-1)[token])
    return total / ((5 + len(sequence)) / 6) ** exponent


def row_of(sequence, length):
    return [*sequence, *[0] * (length - len(sequence))]


@pytest.mark.parametrize("exponent", [0.0, 0.6, 3.0])
@pytest.mark.parametrize("end", [-2.0, 0.0])
def test_a_beam_of_all_sequences_finds_the_best_of_all(exponent, end, monkeypatch):
    monkeypatch.setattr("collapipe_env.tasks.beam_search.LENGTH_EXPONENT", exponent)
    vocabulary, length, sources = 7, 4, 6
    sequences = list(all_sequences(vocabulary, length))
    found = beam_search(Oracle(sources, vocabulary, end=end), begin(sources), len(sequences), length)
    oracle = Oracle(sources, vocabulary, end=end)
    best = [max(sequences, key=lambda s: value(oracle, n, s, exponent)) for n in range(sources)]
    assert found.tolist() == [row_of(sequence, length) for sequence in best]
    # The case tells something: greedy search misses the best, and the lengths differ.
    missed = beam_search(Oracle(sources, vocabulary, end=end), begin(sources), 1, length)
    assert missed.tolist() != found.tolist()


class Tempting(Oracle):
    """To end at once has probability 0.5; another token has 0.45, and then all is certain for five tokens."""

    def __init__(self):
        super().__init__(1, 6)

    def scores(self, source, prefix):  # noqa: ARG002
        likely = {1: {END: 0.5, 4: 0.45}, 6: {END: 1.0}}.get(len(prefix), {5: 1.0})
        return torch.tensor([likely.get(i, 1e-9) for i in range(6)], dtype=torch.float64).log()


def test_a_search_stops_when_as_many_as_its_beams_have_finished(monkeypatch):
    # By hand: log(0.5) / (6 / 6)^0.6 = -0.693, log(0.45) / (11 / 6)^0.6 = -0.555.
    assert beam_search(Tempting(), begin(1), 1, 8).tolist() == [row_of([END], 8)]
    assert beam_search(Tempting(), begin(1), 2, 8).tolist() == [row_of([4, 5, 5, 5, 5, END], 8)]
    monkeypatch.setattr("collapipe_env.tasks.beam_search.LENGTH_EXPONENT", 0.0)
    assert beam_search(Tempting(), begin(1), 2, 8).tolist() == [row_of([END], 8)]


def test_one_beam_takes_the_likeliest_token_that_may_be_written():
    oracle = Oracle(30, 9)
    for source, row in enumerate(beam_search(Oracle(30, 9), begin(30), 1, 5).tolist()):
        prefix = (BEGIN,)
        for token in row:
            if prefix[-1] == END:
                assert token == 0
                prefix = (*prefix, END)
                continue
            scores = oracle.scores(source, prefix)
            scores[list(NEVER_WRITTEN)] = -math.inf
            assert token == scores.argmax()
            prefix = (*prefix, token)


@pytest.mark.parametrize("beams", [2, 3, 5])
def test_wider_beams_score_no_worse_on_average(beams):
    sources, vocabulary, length = 60, 12, 6
    oracle = Oracle(sources, vocabulary, 2.0)

    def mean(rows):
        sequences = [[t for t in row if t] for row in rows.tolist()]
        return np.mean([value(oracle, n, s, 0.6) for n, s in enumerate(sequences)])

    narrow = beam_search(Oracle(sources, vocabulary, 2.0), begin(sources), 1, length)
    wide = beam_search(Oracle(sources, vocabulary, 2.0), begin(sources), beams, length)
    assert mean(wide) > mean(narrow)


@pytest.mark.parametrize("beams", [1, 3])
def test_a_batch_is_searched_like_each_source_alone(beams):
    class Alone(Oracle):
        def __init__(self, source):
            super().__init__(1, 9)
            self.rows = [(source, ())]

    together = beam_search(Oracle(25, 9), begin(25), beams, 6)
    for source in range(25):
        assert beam_search(Alone(source), begin(1), beams, 6).tolist() == together[[source]].tolist()


def test_finished_sources_are_computed_no_further():
    for beams in (1, 2):
        oracle = Oracle(50, 9, end=1.0)
        beam_search(oracle, begin(50), beams, 8)
        assert oracle.steps[0] == 50 * beams
        assert oracle.steps[-1] < 10 * beams
