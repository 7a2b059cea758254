"""Queues at a sequential server, and local steps that wait for each other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.schedules import served_in_turn
from round_support import make_case

from collapipe_env.physics.schedules.split import paced_steps, sequential_server_times


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1), clusters=st.integers(1, 5), steps=st.integers(1, 4), ties=st.booleans()
)
def test_sequential_server_is_an_event_simulation(seed, clusters, steps, ties):
    rng, shape = np.random.default_rng(seed), (3, clusters)
    # Small whole numbers make ties, which then hold exactly.
    times = rng.integers(1, 5, shape).astype(float) if ties else rng.uniform(0.01, 10.0, shape)
    found = sequential_server_times(*times, steps, np.ones(clusters, dtype=bool))
    assert found.tolist() == pytest.approx(served_in_turn(*times.tolist(), steps), rel=1e-12)


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_nobody_waits_less_than_no_time(steps):
    """However sums round: a negative wait is no phase of a round."""
    _, _, plan = make_case(3, lead=(400,), clusters=3)
    times = np.random.default_rng(steps).uniform(0.1, 30.0, (400, 3))
    paced = paced_steps(plan, times, np.full((400, 3), float(steps)))
    assert (paced >= times).all()
    np.testing.assert_allclose(paced, times if steps == 1 else times.max(axis=-1, keepdims=True) + 0 * times)
