"""Scores, seeds and anchors of the leaderboard, against sums by hand."""

import dataclasses
import hashlib
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collapipe_env import suite
from collapipe_env.envs import suite as suite_module
from collapipe_env.evaluation.leaderboard.scoring import (
    cell_score,
    counted,
    episode_scores,
    overall_score,
    shared_ranks,
)
from collapipe_env.evaluation.leaderboard.season import (
    CELLS,
    Anchors,
    chosen_cells,
    measured_anchors,
    present_season,
)
from collapipe_env.evaluation.resampling import Estimate
from collapipe_env.evaluation.suite_plays import made_from
from collapipe_env.ground.errors import ScenarioError

SEASON = present_season()
sizes = st.lists(st.floats(1.0, 50.0), min_size=1, max_size=12)


def trimmed(values) -> float:
    """Interquartile mean by hand."""
    kept = sorted(values)[len(values) // 4 : len(values) - len(values) // 4]
    return sum(kept) / len(kept)


@settings(max_examples=15)
@given(sizes, st.data())
def test_anchors_are_exactly_0_and_100(size, data) -> None:
    even = [-one for one in size]
    bar = [one * data.draw(st.floats(0.3, 0.989)) for one in even]
    for own, expected in ((even, 0.0), (bar, 100.0)):
        score = cell_score(episode_scores(own, even, bar))
        assert score.mean == expected
        assert len(even) == 1 or (score.low, score.high) == (expected, expected)


@settings(max_examples=25)
@given(st.lists(st.tuples(*[st.floats(-50.0, -1e-3)] * 3), min_size=1, max_size=12), st.randoms())
def test_scores_are_those_by_hand_in_any_order(rows, random) -> None:
    by_hand = [
        100.0 * math.log(e / r) / math.log(e / b) for r, e, b in rows if b - e >= 0.01 * abs(e) and b > e
    ]
    rows = [row for row in rows if row[1] != row[2]]
    shuffled = random.sample(rows, len(rows))
    scores = [episode_scores(*np.reshape(some, (-1, 3)).T) for some in (rows, shuffled)]
    assert scores[0].shape == (1, len(by_hand))
    np.testing.assert_allclose(scores[0][0], by_hand, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(np.sort(scores[0]), np.sort(scores[1]))
    first, second = map(cell_score, scores)
    if by_hand:
        assert first.mean == pytest.approx(trimmed(by_hand), rel=1e-9, abs=1e-9)
        assert first.mean == pytest.approx(second.mean, rel=1e-12, abs=1e-9)
    else:
        assert math.isnan(first.mean)


def test_an_episode_where_the_anchors_hardly_differ_counts_for_nobody() -> None:
    even, bar = [-10.0, -10.0, -10.0, -10.0], [-5.0, -9.91, -9.8, -12.0]
    assert counted(even, bar).tolist() == [True, False, True, False]
    # In logarithms as far from one anchor as from the other.
    half = [-math.sqrt(50.0), -1e6, -math.sqrt(98.0), -1e6]
    assert episode_scores(half, even, bar)[0] == pytest.approx([50.0, 50.0])


def test_runs_of_a_learned_scheduler_are_rows() -> None:
    scores = episode_scores([[-8.0, -6.4], [-10.0, -8.0]], [-10.0, -10.0], [-8.0, -8.0])
    np.testing.assert_allclose(scores, [[100.0, 200.0], [0.0, 100.0]], atol=1e-9)
    assert cell_score(scores).mean == pytest.approx(100.0)


def test_the_overall_score_averages_cells_once() -> None:
    """Cells of different numbers of episodes weigh alike; episodes are not pooled."""
    cells = [np.array([[0.0] * 8]), np.array([[100.0, 100.0]]), np.array([[20.0, 30.0, 40.0, 90.0]])]
    total = overall_score(cells)
    assert total.mean == pytest.approx((0.0 + 100.0 + 35.0) / 3.0)
    assert total.low < total.mean < total.high
    assert math.isnan(overall_score([*cells, np.empty((1, 0))]).mean)
    assert math.isnan(overall_score([]).mean)


def test_ranks_are_shared_within_intervals() -> None:
    scores = [Estimate(90, 80, 95), Estimate(100.0, 94, 101), None, Estimate(50, 40, 79), Estimate(math.nan)]
    assert shared_ranks(scores) == [1, 1, None, 3, None]
    assert shared_ranks([Estimate(3.0), Estimate(4.0), Estimate(4.0)]) == [3, 1, 1]


def test_cells_are_the_ids_of_the_suite_without_real_training() -> None:
    assert [cell.id for cell in CELLS.values()] == [e.id for e in suite() if "Surrogate" in e.id]
    assert SEASON.seeds(CELLS["large-wild"]) == tuple(range(1_300_000_000, 1_300_000_005))
    found = chosen_cells(("large-wild", "CollaPipeSurrogate-Small-v0"))
    assert found == (CELLS["small"], CELLS["large-wild"])
    with pytest.raises(ScenarioError, match="did you mean 'large-wild'"):
        chosen_cells(("large-wld",))
    for name in ("small-target", "CollaPipe-Small-Target-v0"):
        with pytest.raises(ScenarioError, match=f"'{name}' really trains"):
            chosen_cells((name,))


def test_anchors_are_what_the_suite_measured_in_the_same_scenario(monkeypatch) -> None:
    cell = CELLS["large-wild"]
    found = {cell.id: {"made_from": made_from(cell), "returns": {"pipeline": [-2.0], "dssra-plus": [-1.0]}}}
    monkeypatch.setattr(suite_module, "_measured", lambda: found)
    assert measured_anchors(cell) == Anchors((-2.0,), (-1.0,))
    found[cell.id]["agents"] = {"zoo:graph-wild": "0" * 16}  # another net takes nothing from the anchors
    assert measured_anchors(cell) == Anchors((-2.0,), (-1.0,))
    assert measured_anchors(CELLS["small"]) is None
    found[cell.id]["made_from"] = "0" * 16
    with pytest.raises(ScenarioError, match=r"CollaPipeSurrogate-Large-Wild-v0 .* measured from 000000"):
        measured_anchors(cell)


def test_all_cells_have_anchors() -> None:
    for cell in CELLS.values():
        anchors = measured_anchors(cell)
        assert anchors is not None
        assert len(anchors.zero) == len(anchors.hundred) == cell.episodes


def test_hidden_seeds_follow_from_a_published_salt_alone() -> None:
    salt = "keep it"
    hiding = dataclasses.replace(SEASON, salt_sha256=hashlib.sha256(salt.encode()).hexdigest())
    seeds = [seed for cell in CELLS.values() for seed in hiding.seeds(cell, salt)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**62 for seed in seeds)
    assert hiding.seeds(CELLS["small"]) == SEASON.seeds(CELLS["small"])
    for wrong, one in (("another", hiding), (salt, SEASON)):
        with pytest.raises(ScenarioError, match="is not that of season 1"):
            one.seeds(CELLS["small"], wrong)
