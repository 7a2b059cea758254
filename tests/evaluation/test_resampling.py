"""Intervals over episodes and training runs, against SciPy, all resamples written out, and known coverage."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import bootstrap, mannwhitneyu

from collapipe_env.evaluation import resampling
from collapipe_env.evaluation.resampling import (
    Estimate,
    estimate,
    interquartile_mean,
    performance_profile,
    probability_of_improvement,
    stratified_estimate,
)

RNG = np.random.default_rng(11)


def all_resamples(matrix: np.ndarray) -> np.ndarray:
    """Every choice of runs and of episodes, (choices, R, E)."""
    R, E = matrix.shape
    runs, episodes = itertools.product(range(R), repeat=R), itertools.product(range(E), repeat=E)
    return np.array([matrix[np.ix_(r, e)] for r, e in itertools.product(runs, list(episodes))])


@pytest.mark.parametrize("statistic", [np.mean, interquartile_mean])
@pytest.mark.parametrize("episodes", [2, 7, 20])
def test_one_run_has_the_ordinary_bootstrap_over_episodes(statistic, episodes: int) -> None:
    values = RNG.normal(size=episodes)
    expected = bootstrap(
        [values],
        statistic,
        n_resamples=resampling.RESAMPLES,
        confidence_level=0.95,
        method="percentile",
        rng=np.random.default_rng(resampling.SEED),
    ).confidence_interval
    for given in (values, values[None], values.tolist()):
        found = estimate(given, statistic)
        # The same resamples: only the order of the sums may differ.
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-12)
        assert found.mean == pytest.approx(statistic(values), rel=1e-15)


@pytest.mark.parametrize("statistic", [np.mean, interquartile_mean])
@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (4, 1)])
def test_runs_and_episodes_are_drawn_by_themselves(statistic, shape: tuple[int, int]) -> None:
    matrix = RNG.normal(size=shape)
    values = statistic(all_resamples(matrix).reshape(-1, matrix.size), axis=-1)
    found = estimate(matrix, statistic)
    # The 2.5 % ends of a discrete distribution: a neighbouring value may win in 9,999 draws.
    for end, at in ((found.low, (0.01, 0.04)), (found.high, (0.96, 0.99))):
        low, high = np.quantile(values, at[0]), np.quantile(values, at[1])
        assert low - 1e-12 <= end <= high + 1e-12
    assert found.mean == pytest.approx(statistic(matrix.ravel()), rel=1e-12)


@pytest.mark.parametrize(
    ("R", "runs", "episodes", "expected", "most_alone"),
    [
        (5, 0.5, 1.0, 0.925, 0.85),
        (3, 1.0, 0.1, 0.75, 0.35),
        (5, 1.0, 0.1, 0.85, 0.35),
        (10, 1.0, 0.1, 0.92, 0.35),
    ],
)
def test_intervals_cover_as_often_as_the_text_says(
    R: int, runs: float, episodes: float, expected: float, most_alone: float, monkeypatch
) -> None:
    """Random effects of runs and of episodes: their mean over all runs and episodes there could be is 0."""
    monkeypatch.setattr(resampling, "RESAMPLES", 399)
    random, inside = np.random.default_rng(0), np.zeros(2)
    for _ in range(400):
        noise = 0.5 * random.normal(size=(R, 15))
        values = runs * random.normal(size=(R, 1)) + episodes * random.normal(size=(1, 15)) + noise
        for place, given in enumerate((values, values.mean(axis=0))):
            found = estimate(given)
            inside[place] += found.low <= 0.0 <= found.high
    both, alone = inside / 400  # over runs and episodes, and over episodes alone
    assert both == pytest.approx(expected, abs=0.04)
    assert alone < most_alone


def test_runs_are_drawn_together_for_all_strata() -> None:
    runs = np.array([[0.0], [1.0], [2.0], [3.0], [10.0]])
    one, both = estimate(runs), stratified_estimate([runs, runs])
    # Drawn apart, the runs of the two strata would even out.
    assert (both.low, both.high) == pytest.approx((one.low, one.high), rel=0.05)
    apart = stratified_estimate([runs, np.vstack([runs, runs.mean(keepdims=True)])])
    assert apart.high - apart.low < 0.9 * (one.high - one.low)


def test_many_values_are_resampled_in_parts(monkeypatch) -> None:
    matrix = RNG.normal(size=(3, 8))
    whole = estimate(matrix, interquartile_mean)
    monkeypatch.setattr(resampling, "CELLS", 1000)
    assert estimate(matrix, interquartile_mean) == whole


def test_probability_is_that_of_mann_and_whitney() -> None:
    ours, theirs = RNG.integers(0, 6, (7, 1)), RNG.integers(1, 7, (9, 1))
    U = mannwhitneyu(theirs.ravel(), ours.ravel()).statistic  # pairs in which theirs is larger, ties half
    assert probability_of_improvement(ours, theirs).mean == pytest.approx(U / (7 * 9), rel=1e-12)
    ours, theirs = RNG.integers(0, 6, (4, 5)), RNG.integers(0, 6, (3, 5))
    shares = [mannwhitneyu(theirs[:, e], ours[:, e]).statistic / 12 for e in range(5)]
    found = probability_of_improvement(ours, theirs)
    assert found.mean == pytest.approx(np.mean(shares), rel=1e-12)
    assert found.low < found.mean < found.high
    back = probability_of_improvement(theirs, ours)
    assert found.mean + back.mean == pytest.approx(1.0, rel=1e-12)


def test_probability_is_paired_episode_by_episode() -> None:
    shared = np.array([5.0, 50.0, 20.0, 8.0])
    faster = [True, True, False, True]
    ours = shared * np.where(faster, 0.99, 1.01)
    found = probability_of_improvement(ours, shared)
    assert found.mean == 0.75
    resamples = [np.mean(chosen) for chosen in itertools.product(faster, repeat=4)]
    assert (found.low, found.high) == tuple(np.percentile(resamples, [2.5, 97.5]))
    assert probability_of_improvement(shared, shared).mean == 0.5
    sure = probability_of_improvement(0.9 * shared, shared)
    assert (sure.mean, sure.low, sure.high) == (1.0, 1.0, 1.0)


def test_interval_of_a_probability_matches_all_resamples_written_out() -> None:
    ours, theirs = RNG.normal(size=(2, 3)), RNG.normal(size=3)
    won = (ours < theirs).astype(float)
    means = all_resamples(won).mean(axis=(1, 2))
    found = probability_of_improvement(ours, theirs)
    assert np.quantile(means, 0.02) <= found.low <= np.quantile(means, 0.03)
    assert np.quantile(means, 0.97) <= found.high <= np.quantile(means, 0.98)


def test_probability_says_nothing_of_nothing() -> None:
    assert math.isnan(probability_of_improvement([1.0, math.nan], [1.0, 2.0]).mean)
    single = probability_of_improvement([1.0], [2.0])
    assert single.mean == 1.0
    assert math.isnan(single.low)


def test_profile_counts_episodes_up_to_each_threshold() -> None:
    values = RNG.uniform(0.8, 1.3, (3, 6))
    thresholds = np.array([0.5, 0.9, values[1, 2], 1.1, 2.0])
    share, low, high = performance_profile([values], thresholds)
    assert share == pytest.approx([sum(v <= t for v in values.ravel()) / 18 for t in thresholds])
    assert (share[0], low[0], high[0]) == (0.0, 0.0, 0.0)
    assert (share[-1], low[-1], high[-1]) == (1.0, 1.0, 1.0)
    for place, threshold in enumerate(thresholds):  # each an ordinary mean over runs and episodes
        expected = estimate((values <= threshold).astype(float))
        assert (low[place], high[place]) == pytest.approx((expected.low, expected.high))
    assert np.isnan(performance_profile([[1.0]], thresholds)[1:]).all()


def test_profile_of_strata_draws_each_by_itself() -> None:
    samples = [RNG.uniform(0.8, 1.3, (2, 5)), [0.7, math.inf, 1.1]]
    found = performance_profile(samples, [1.0, 5.0])
    assert found[0][1] == pytest.approx(12 / 13)
    for place, threshold in enumerate((1.0, 5.0)):
        expected = stratified_estimate([np.asarray(s) <= threshold for s in samples])
        ends = [values[place] for values in found]
        assert ends == pytest.approx([expected.mean, expected.low, expected.high])


def test_an_estimate_prints_its_interval_where_it_has_one() -> None:
    assert str(Estimate(9.444807467460606, 9.406983265823563, 9.514)) == "9.445 (9.407…9.514)"
    assert str(Estimate(0.000123456)) == "0.0001235"
