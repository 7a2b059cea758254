"""Means, intervals, targets and summaries, against independent computations."""

import dataclasses
import math

import numpy as np
import pytest
from comparison_support import episode

from collapipe_env.evaluation.episode_result import EpisodeResult
from collapipe_env.evaluation.statistics import (
    TARGET_SHARE,
    by_run,
    default_target,
    summarise_all,
    time_to_target,
)


def result(**changes: object) -> EpisodeResult:
    plain = {
        "reward": [-0.5, -1.5, -4.0],
        "reference_delay_s": 3.0,
        "backlog": [0.0, 1.0, 3.0],
        "smoothed_loss": [0.9, 0.7, 0.4],
        "metric": [0.5, 0.6, 0.7],
        "decision_s": [0.5, 0.001, 0.003],
        "memory_bytes": [1e6, 2e6, 1.5e6],
        "energy_ratio": [[0.5, 1.1], [0.9, 0.2]],
    }
    return dataclasses.replace(episode("dssra", 0, [2.0, 4.0, 6.0]), **plain | changes)


@pytest.mark.parametrize(
    ("other", "target", "reached", "seconds"),
    [
        ({"delay": [1.0, 1.0, 1.0]}, 0.7, 2, (6.0 + 2.0) / 2),  # the end of the first round below
        ({"smoothed_loss": [1.0, 1.0, 0.99]}, 0.5, 1, math.nan),  # censored, not averaged
        ({}, math.nan, 0, math.nan),
    ],
)
def test_time_to_target(other: dict[str, object], target: float, reached: int, seconds: float) -> None:
    time = time_to_target([result(), result(**other)], target)
    assert (time["reached"], time["episodes"]) == (reached, 2)
    assert time["seconds"].mean == pytest.approx(seconds, nan_ok=True)


def test_default_target_lies_on_the_way_to_the_best_final_loss() -> None:
    episodes = {
        "a": [result(), result(smoothed_loss=[0.9, 0.7, 0.6])],
        "b": [result(smoothed_loss=[0.9, 0.3, 0.9])] * 2,
    }
    assert default_target(episodes) == pytest.approx(1.0 - TARGET_SHARE * (1.0 - 0.5))


def test_no_target_where_nothing_was_learnt() -> None:
    assert math.isnan(default_target({"a": [result(smoothed_loss=[1.2, 1.3, 1.1])]}))


def test_runs_are_rows_and_episodes_columns() -> None:
    results = [result(run=run, episode=episode) for run, episode in ((0, 1), (2, 0), (2, 1), (0, 0))]
    assert by_run(results, lambda r: 10.0 * r.run + r.episode).tolist() == [[0.0, 1.0], [20.0, 21.0]]


def test_summary_by_hand() -> None:
    other = result(delay=[4.0, 4.0, 4.0], energy_ratio=[[0.8, 0.7], [0.1, 0.2]], reward=[-1.0, -1.0, -1.0])
    (summary,) = summarise_all({"dssra": [result(), other]}, 0.4, None, 500)
    assert summary.return_per_round.mean == pytest.approx(-1.5)
    assert summary.priced_delay.mean == summary.measure.mean == pytest.approx(3.0 * 1.5)
    assert summary.delay_mean.mean == pytest.approx(4.0)
    assert summary.delay_p95.mean == pytest.approx((np.percentile([2, 4, 6], 95) + 4.0) / 2)
    assert summary.energy_excess.mean == pytest.approx((0.1 - 0.2) / 2)
    assert summary.final_backlog.mean == 3.0
    assert summary.final_loss.mean == pytest.approx(0.4)
    assert summary.metric.mean == pytest.approx(0.7)
    assert summary.decision_s.mean == pytest.approx(0.003)
    assert summary.peak_memory_bytes.mean == 2e6
    assert summary.time_to_target["seconds"].mean == pytest.approx(12.0)
