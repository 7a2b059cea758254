"""Server optimisers against a transcription of the papers, number by number."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.plain_training import ServerRule

from collapipe_env.scenario.learning import LearningSpec
from collapipe_env.training.aggregation import Aggregation


@pytest.mark.parametrize("rate", [0.3, None])
@pytest.mark.parametrize("kind", ["fedavg", "fedavgm", "fedadam", "fedyogi"])
@settings(max_examples=20, deadline=None)
@given(rounds=st.lists(st.lists(st.floats(-1, 1), min_size=3, max_size=3), min_size=1, max_size=12))
def test_rules_are_the_papers(kind, rate, rounds):
    learning = LearningSpec(
        aggregation=kind,
        aggregation_rate=rate,
        aggregation_momentum=0.8,
        aggregation_second_momentum=0.95,
        aggregation_floor=0.02,
    )
    rule, coordinates = (
        Aggregation(learning, torch.zeros(3).double()),
        [ServerRule(learning) for _ in range(3)],
    )
    for delta in rounds:
        found = rule.step(torch.tensor(delta, dtype=torch.float64))
        expected = [coordinate.step(d) for coordinate, d in zip(coordinates, delta, strict=True)]
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-10, atol=1e-14)
