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
    CellReturns,
    cell_score,
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


def cell(own, even, bar) -> CellReturns:
    return CellReturns(*(np.array(values, dtype=float) for values in (np.atleast_2d(own), even, bar)))


@settings(max_examples=15)
@given(sizes, st.data())
def test_anchors_are_exactly_0_and_100(size, data) -> None:
    even = [-one for one in size]
    bar = [one * data.draw(st.floats(0.3, 0.989)) for one in even]
    for own, expected in ((even, 0.0), (bar, 100.0)):
        score = cell_score(cell(own, even, bar))
        assert score.mean == expected
        assert len(even) == 1 or (score.low, score.high) == (expected, expected)


@settings(max_examples=25)
@given(st.lists(st.tuples(*[st.floats(-50.0, -1e-3)] * 2), min_size=1, max_size=12), st.randoms())
def test_scores_are_those_of_the_mean_return_in_any_order(drawn, random) -> None:
    rows = [(own, even, even * random.uniform(0.3, 0.95)) for own, even in drawn]
    own, even, bar = (sum(values) / len(rows) for values in zip(*rows, strict=True))
    by_hand = 100.0 * math.log(even / own) / math.log(even / bar)
    for some in (rows, random.sample(rows, len(rows))):
        assert cell_score(cell(*np.reshape(some, (-1, 3)).T)).mean == pytest.approx(
            by_hand, rel=1e-9, abs=1e-9
        )


def test_without_a_gain_of_the_bar_there_is_no_score() -> None:
    assert math.isnan(cell_score(cell([-2.0], [-1.0], [-1.0])).mean)
    one = cell_score(cell([-2.0, -2.0], [-1.0, -1.0], [-1.0, -0.5]))
    assert one.mean == pytest.approx(100.0 * math.log(0.5) / math.log(1.0 / 0.75))
    assert math.isnan(one.low)
    assert math.isnan(cell_score(cell([-2.0], [-1.0], [-1.1])).mean)


def test_a_cell_has_the_score_of_its_id() -> None:
    entry = suite()[1]
    found = entry.returns
    score = cell_score(cell(found["dssra"], found["pipeline"], found[entry.bar]))
    assert score.mean == pytest.approx(entry.score(sum(found["dssra"]) / entry.episodes), rel=1e-12)


def test_intervals_draw_the_same_episodes_of_all_three() -> None:
    """Twice the anchor's return in every episode has one score, however much the episodes differ."""
    even = -np.array([1.0, 10.0, 100.0, 1000.0])
    score = cell_score(cell(np.stack([even * 0.25, even * 0.25]), even, even * 0.5))
    assert (score.mean, score.low, score.high) == pytest.approx((200.0, 200.0, 200.0), rel=1e-12)


def test_runs_of_a_learned_scheduler_are_rows() -> None:
    one = cell([[-8.0, -6.4], [-10.0, -8.0]], [-10.0, -10.0], [-8.0, -8.0])
    assert cell_score(one).mean == pytest.approx(100.0 * math.log(10.0 / 8.1) / math.log(10.0 / 8.0))


def test_the_overall_score_averages_cells_once() -> None:
    """Cells of different numbers of episodes weigh alike; episodes are not pooled."""
    even, bar, half = -10.0, -5.0, -math.sqrt(50.0)
    cells = [
        cell([even] * 8, [even] * 8, [bar] * 8),
        cell([half] * 2, [even] * 2, [bar] * 2),
        cell([-2.5, -2.5], [even, even], [bar, bar]),
    ]
    total = overall_score(cells)
    assert total.mean == pytest.approx((0.0 + 50.0 + 200.0) / 3.0)
    assert (total.low, total.high) == pytest.approx((total.mean, total.mean))
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
