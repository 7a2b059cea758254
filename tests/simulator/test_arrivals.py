"""Micro-batches that arrive: their law, and that luck depends on row and round alone."""

import numpy as np
import pytest
from process_support import actions_of, seeds
from scipy.stats import binom

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.kernels.arrivals import arrivals
from collapipe_env.simulator.learner import Arrivals


@pytest.mark.parametrize(
    "radio",
    [
        {"waterfall_threshold": 2.0, "link_errors": "drop"},
        {"waterfall_threshold": 4.0, "link_errors": "arq", "max_transmissions": 2},
    ],
    ids=["drop", "arq"],
)
def test_survival_has_the_probability_of_the_round(radio):
    roomy = {"device_energy_j": 100, "cu_energy_j": 100}
    scenario = {"base": "small", "radio": radio, "workload": {"local_steps": 2}, "budgets": roomy}
    env = CollaPipeVectorEnv(32, scenario, "surrogate")
    env.reset(seed=0)
    hits = expected = variance = 0.0
    seen = []
    for action in actions_of(env, 30):
        env.step(action)
        record = env.last_round
        p, M = record.costs.survival, record.allocation.micro_batches
        counted = np.arange(record.arrivals.survived.shape[-1]) < M[..., None, None]
        kept = (record.arrivals.survived & counted).sum(axis=(-2, -1))
        np.testing.assert_allclose(record.surviving_fraction(), kept / (2 * M))
        hits += kept.sum()
        expected += (p * 2 * M).sum()
        variance += (p * (1 - p) * 2 * M).sum()
        seen.append(p)
    assert 0.05 < np.mean(seen) < 0.95, "nearly certain outcomes would test nothing"
    assert abs(hits - expected) < 4.0 * np.sqrt(variance)


def draw(survival, micro_batches, most, steps, words, t=0):
    """Arrivals of rows (E, N) in a round."""
    rounds = np.full(len(words), t, dtype=np.uint64)
    counts, pick = arrivals(words, rounds, survival, micro_batches, steps)
    return Arrivals(counts, micro_batches, pick, most)


def lost(survival, micro_batches, rows=200, clusters=5, steps=4):
    counts = np.full((rows, clusters), micro_batches)
    return draw(np.full((rows, clusters), survival), counts, 8, steps, seeds(rows))


@pytest.mark.parametrize("survival", [0.02, 0.4, 0.5, 0.9, 0.999])
def test_arrivals_are_binomial_and_any_set_is_equally_likely(survival):
    M = 6
    drawn = lost(survival, M)
    counts = drawn.counts.ravel()
    law = binom(M, survival).pmf(np.arange(M + 1)) * counts.size
    found = np.bincount(counts, minlength=M + 1)
    assert (np.abs(found - law) < 5.0 * np.sqrt(law) + 1.0).all()
    np.testing.assert_array_equal(drawn.survived.sum(axis=-1), drawn.counts)
    assert not drawn.survived[..., M:].any()
    # Given the number, every micro-batch is as likely as any other, and so is every pair.
    flat = drawn.survived[..., :M].reshape(-1, M).astype(float)
    expected = flat.mean()
    assert np.abs(flat.mean(axis=0) - expected).max() < 5.0 * np.sqrt(0.25 / len(flat))
    pairs = (flat.T @ flat / len(flat))[np.triu_indices(M, 1)]
    assert np.ptp(pairs) < 10.0 * np.sqrt(0.25 / len(flat))


@pytest.mark.parametrize("survival", [0.3, 0.55, 0.98, 0.9999])
@pytest.mark.parametrize("M", [64, 2048, 65536])
def test_many_micro_batches(survival, M):
    counts = draw(np.full((40, 2), survival), np.full((40, 2), M), M, 1, seeds(40)).counts
    deviation = np.sqrt(M * survival * (1.0 - survival))
    assert abs(counts.mean() - M * survival) < 5.0 * deviation / np.sqrt(counts.size)
    assert counts.std() == pytest.approx(deviation, rel=0.35, abs=1.0)


def test_certain_outcomes():
    assert (lost(1.0, 8).counts == 8).all()
    assert (lost(0.0, 8).counts == 0).all()
    assert lost(1.0, 8).survived.all()


def test_luck_does_not_depend_on_the_allocation():
    poor, rich = lost(0.3, 8), lost(0.8, 8)
    assert (poor.survived <= rich.survived).all()
    assert poor.counts.sum() < rich.counts.sum()


def test_every_round_and_row_has_its_own_luck():
    survival, M = np.full((50, 4), 0.5), np.full((50, 4), 8)
    words = seeds(50)
    first, second = (draw(survival, M, 8, 3, words, t).counts for t in (0, 1))
    np.testing.assert_array_equal(draw(survival, M, 8, 3, words).counts, first)
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 5.0 / np.sqrt(first.size)
    alone = draw(survival[7:8], M[7:8], 8, 3, words[7:8], 1)
    np.testing.assert_array_equal(alone.counts[0], second[7])


def test_clusters_whose_round_is_lost_deliver_nothing():
    drawn = lost(0.7, 8, rows=3)
    trained = np.random.default_rng(0).random((3, 5)) < 0.5
    kept = drawn.only(trained)
    for whole in (kept, type(drawn).of(drawn.survived, drawn.micro_batches).only(trained)):
        np.testing.assert_array_equal(whole.counts, np.where(trained[..., None], drawn.counts, 0))
        expected = np.where(trained[..., None, None], drawn.survived, False)
        np.testing.assert_array_equal(whole.survived, expected)
