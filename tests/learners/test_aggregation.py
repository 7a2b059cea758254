"""Server optimisers against a transcription of the papers, number by number, and inside a training run."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from learner_support import B, N, single_outcome, small_learner

from collapipe_env.scenario.learning import LearningSpec
from collapipe_env.training.aggregation import Aggregation

KINDS = ["fedavg", "fedavgm", "fedadam", "fedyogi"]
RATE, BETA1, BETA2, TAU = 0.3, 0.8, 0.95, 0.02


class Paper:
    """One coordinate, in the letters of Reddi et al., Algorithm 2 (and Hsu et al. for FedAvgM)."""

    def __init__(self, kind):
        self.kind, self.x, self.m, self.v = kind, 0.0, 0.0, TAU**2

    def round(self, delta):
        if self.kind == "fedavg":
            self.x = self.x + RATE * delta
            return
        if self.kind == "fedavgm":
            self.m = BETA1 * self.m + delta
            self.x = self.x + RATE * self.m
            return
        self.m = BETA1 * self.m + (1 - BETA1) * delta
        if self.kind == "fedadam":
            self.v = BETA2 * self.v + (1 - BETA2) * delta**2
        else:
            sign = (self.v > delta**2) - (self.v < delta**2)
            self.v = self.v - (1 - BETA2) * delta**2 * sign
        self.x = self.x + RATE * self.m / (math.sqrt(self.v) + TAU)


def options(kind):
    return {
        "aggregation": kind, "aggregation_rate": RATE, "aggregation_momentum": BETA1,
        "aggregation_second_momentum": BETA2, "aggregation_floor": TAU,
    }  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30, deadline=None)
@given(rounds=st.lists(st.lists(st.floats(-1, 1), min_size=3, max_size=3), min_size=1, max_size=12))
def test_rules_are_the_papers(kind, rounds):
    x = torch.zeros(3, dtype=torch.float64)
    rule, coordinates = Aggregation(LearningSpec(**options(kind)), x), [Paper(kind) for _ in range(3)]
    for delta in rounds:
        x = x + rule.step(torch.tensor(delta, dtype=torch.float64))
        for coordinate, d in zip(coordinates, delta, strict=True):
            coordinate.round(d)
        np.testing.assert_allclose(x.numpy(), [c.x for c in coordinates], rtol=1e-10, atol=1e-14)


def move(learner, alive):
    """Train a round and return how the common model has moved."""
    run = learner._runs[0]
    before = run._parameters[0].clone()
    learner.train_round(single_outcome([(2, 2, 0)] * N, alive))
    assert all(torch.equal(row, run._parameters[0]) for row in run._parameters)
    return run._parameters[0] - before


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("kind", KINDS)
def test_a_round_feeds_the_rule_with_the_weighted_mean_over_those_that_took_part(kind):
    """One cluster fails altogether; in one local step, clusters do not hear of each other."""
    everybody = np.ones((N, 1, B), dtype=bool)
    moved = []
    for n in range(N):
        only = np.zeros_like(everybody)
        only[n] = True
        moved.append(move(small_learner(1), only))
    learner = small_learner(1, **options(kind))
    share = learner._runs[0]._data_sizes * [1, 0, 1]
    mean = sum(w * d for w, d in zip(share / share.sum(), moved, strict=True))
    rule = Aggregation(LearningSpec(**options(kind)), mean)
    alive = everybody.copy()
    alive[1] = False
    torch.testing.assert_close(move(learner, alive), rule.step(mean), rtol=0, atol=1e-10)


def test_the_rate_that_nobody_names_suits_the_rule():
    update = torch.tensor([3.0, -0.5])
    for kind, rate in (("fedavg", 1.0), ("fedavgm", 1.0), ("fedadam", 0.01), ("fedyogi", 0.01)):
        unnamed, named = (
            Aggregation(LearningSpec(aggregation=kind, aggregation_rate=given), update)
            for given in (None, rate)
        )
        assert torch.equal(unnamed.step(update), named.step(update))
