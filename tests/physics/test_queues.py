"""Budgets per second: what a round grants, queues in joules by hand, limits of both forms of the drift."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapipe_env.kernels.queues import queue_round
from collapipe_env.physics.queues import (
    allowance,
    drift_plus_penalty,
    lyapunov,
    per_node,
    update_backlog,
)

SECONDS = st.floats(0.0, 1e4)
USES = st.lists(st.tuples(SECONDS, st.floats(0.0, 50.0)), min_size=1, max_size=20)


@given(USES, st.floats(0.1, 1e3), st.floats(0.1, 100.0), st.floats(0.0, 10.0))
def test_queue_follows_its_recursion_in_joules(rounds, period, budget, start):
    power = budget / period
    joules, z = start * budget, np.full((1, 1, 1), start)
    used = granted = 0.0
    for delay, ratio in rounds:
        joules = max(joules + ratio * budget - power * delay, 0.0)
        a = allowance(np.array([delay]), period)
        z = update_backlog(z, np.full((1, 1, 1), ratio), per_node(a))
        assert z[0, 0, 0] * budget == pytest.approx(
            joules, rel=1e-9, abs=1e-9 * budget * (1.0 + delay / period)
        )
        used, granted = used + ratio * budget, granted + power * delay
    # What makes the mean power hold: energy above the granted one never outgrows the queue.
    assert used - granted <= joules - start * budget + 1e-9 * (used + granted + joules + 1.0)


@given(st.lists(st.floats(0.0, 20.0), min_size=6, max_size=6), st.floats(0.1, 1e3))
def test_rounds_of_the_reference_delay_are_rounds(values, period):
    z, e = np.reshape(values, (2, 1, 3))[:1], np.reshape(values, (2, 1, 3))[1:]
    T = np.array([period])
    for granted in (allowance(T, period), allowance(T, None)):
        assert granted.tolist() == [1.0]
        np.testing.assert_array_equal(update_backlog(z, e, per_node(granted)), update_backlog(z, e))


def test_forms_of_the_drift_node_by_node():
    rng = np.random.default_rng(0)
    z, e = rng.exponential(1.0, (5, 3, 4)), rng.exponential(1.0, (5, 3, 4))
    T, V, period = rng.uniform(1.0, 40.0, 5), 1.4, 12.0
    granted, plays = allowance(T, period), np.ones((5, 3), dtype=bool)
    for row in range(5):
        a = T[row] / period
        bound = exact = V * T[row]
        quadratic = 0.0
        for n in range(3):
            for i in range(4):
                q, use = z[row, n, i], e[row, n, i]
                bound += q * (use - a)
                exact += 0.5 * (max(q + use - a, 0.0) ** 2 - q**2)
                quadratic += 0.5 * (use - a) ** 2
        found = drift_plus_penalty(T, z, e, V, granted, plays, exact=False)[row] - z[row].sum()
        assert found == pytest.approx(bound, rel=1e-12)
        assert drift_plus_penalty(T, z, e, V, granted, plays, exact=True)[row] == pytest.approx(
            exact, rel=1e-12
        )
        # The bound is one: with the square of what is added it is never below.
        assert exact <= bound + quadratic + 1e-9


@given(st.lists(st.floats(0.0, 5.0), min_size=4, max_size=4), st.floats(0.5, 3.0))
def test_waiting_pays_until_the_queues_are_worth_no_more_than_the_time(queues, V):
    """The exact form is convex in T: its minimum is where ``sum z(t+1) = V T_ref``, or at T = 0."""
    z, period = np.reshape(queues, (1, 2, 2)), 2.0
    T = np.linspace(0.0, 12.0, 4801)
    plays, each = np.ones((1, 2), dtype=bool), np.broadcast_to(z, (len(T), 2, 2))
    value = drift_plus_penalty(T, each, 0.0 * z, V, T / period, plays, exact=True)
    best = T[np.argmin(value)]
    left = np.maximum(z - best / period, 0.0).sum()
    if z.sum() <= V * period:
        assert best == 0.0
    else:
        assert left == pytest.approx(V * period, abs=4 * 0.0025 / period)
        assert best <= z.max() * period + 0.0025


def test_compiled_queues_take_each_environment_at_its_allowance():
    rng = np.random.default_rng(1)
    z, e, a = rng.exponential(1.0, (4, 2, 3)), rng.exponential(1.0, (4, 2, 3)), rng.uniform(0.2, 2.0, 4)
    following, excess, held = queue_round(
        z, e, a, 1.0, np.ones((4, 2), dtype=bool), np.ones((4, 2, 2), dtype=bool)
    )
    for row in range(4):
        expected = np.maximum(z[row] + e[row] - a[row], 0.0)
        np.testing.assert_allclose(following[row], expected, rtol=1e-15)
        assert excess[row] == pytest.approx(np.maximum(e[row] - a[row], 0.0).sum())
        assert held[row] == pytest.approx(expected.sum())
    assert lyapunov(following)[0] == pytest.approx(0.5 * (following[0] ** 2).sum())
