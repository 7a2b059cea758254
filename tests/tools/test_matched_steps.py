"""Constants from pairs of runs at equal numbers of local steps, overfitted runs, and ranks of times."""

from dataclasses import replace

import numpy as np
import pytest
from fit_surrogate import fit_all
from fitting import least_squares
from fitting.conditions import FITTED, FITTED_OPENED, HELD_OUT, Condition
from fitting.least_squares import (
    LEAST_EVALUATIONS,
    agreement,
    before_overfitting,
    predicted_losses,
    ranking_of_times,
)
from fitting.matched_steps import matched, twins
from fitting.real_runs import EVALUATE_EVERY, run_of
from test_fit_surrogate import ROUNDS, SMALL, TRUTH, true_run

SOME = replace(TRUTH, sitting_out=0.7)
ALL = (*FITTED, *FITTED_OPENED)


def runs_of(constants, conditions, seeds=(0,), bend=0.0, noise=0.0):
    """Runs of known constants; ``bend`` lifts late losses, which no constants of the law can follow."""
    found = []
    for seed in seeds:
        for condition in conditions:
            blank = run_of(SMALL, condition, seed, ROUNDS, [0.0] * (1 + ROUNDS // EVALUATE_EVERY))
            losses = predicted_losses(constants, blank)
            losses = losses + noise * np.random.default_rng([seed, len(found)]).standard_normal(len(losses))
            steps = np.arange(len(losses)) * EVALUATE_EVERY * condition.local_steps
            found.append(replace(blank, losses=losses + bend * np.log1p(steps / 40.0)))
    return found


@pytest.mark.parametrize("name", ["drift", "sitting_out"])
def test_a_constant_is_found_between_runs_that_differ_in_it_alone(name) -> None:
    # What no curve follows cancels, since losses are compared after equally many steps.
    found = matched(replace(SOME, **{name: 0.0}), runs_of(SOME, ALL, bend=0.003), name)
    assert found.value == pytest.approx(getattr(SOME, name), rel=0.01)
    assert found.by_seed == (found.value,)
    assert np.isnan(found.standard_error)
    assert found.name in str(found)


@pytest.mark.slow
def test_what_no_curve_follows_cancels_between_runs_of_equal_steps() -> None:
    runs = runs_of(replace(SOME, drift=0.002), ALL, bend=0.003)
    constants, found = fit_all(runs)
    assert [one.name for one in found] == ["drift", "sitting_out"]
    for one, truth in zip(found, (0.002, 0.7), strict=True):
        assert one.value == pytest.approx(truth, rel=0.2)
        assert getattr(constants, one.name) == pytest.approx(one.value, rel=1e-5)


def test_every_seed_says_how_well_it_is_known() -> None:
    found = matched(SOME, runs_of(SOME, ALL, seeds=(0, 1, 2), noise=0.01), "sitting_out")
    assert len(set(found.by_seed)) == 3
    assert found.standard_error == pytest.approx(np.std(found.by_seed, ddof=1) / np.sqrt(3))
    assert found.value == pytest.approx(0.7, abs=6.0 * found.standard_error)


def test_twins_differ_in_one_thing() -> None:
    runs = [true_run(condition) for condition in ALL]
    for first, second in twins(runs, "drift"):
        assert first.local_steps != second.local_steps
        assert replace(first, local_steps=second.local_steps, head=second.head) == second
    assert len(twins(runs, "drift")) == 11
    for first, second in twins(runs, "sitting_out"):
        assert replace(first, taking_part=second.taking_part) == second
    assert len(twins(runs, "sitting_out")) == 3
    assert matched(TRUTH, [true_run(FITTED[0])], "drift") is None


def test_what_no_run_tells_is_not_fitted(monkeypatch) -> None:
    monkeypatch.setattr(least_squares, "DESCENTS", 1)
    constants, found = fit_all([true_run(FITTED[place]) for place in (0, 7)])
    assert constants.sitting_out == 0.0
    assert [one.name for one in found] == ["drift"]  # one and two local steps


def test_runs_end_where_they_begin_to_overfit() -> None:
    fine, odd = true_run(FITTED[0]), true_run(FITTED[1])
    risen = odd.losses.copy()
    risen[12:] = odd.losses[11] + 0.2 * (odd.losses[0] - odd.losses[11])
    early = true_run(FITTED[2])
    kept = before_overfitting(
        [fine, replace(odd, losses=risen), replace(early, losses=0.5 + np.arange(len(early.losses)) / 100.0)]
    )
    assert len(kept[0].losses) == len(fine.losses)
    np.testing.assert_array_equal(kept[1].losses, risen[:12])
    assert len(kept[2].losses) == LEAST_EVALUATIONS
    little = odd.losses.copy()
    little[12:] = odd.losses[11] + 0.05 * (odd.losses[0] - odd.losses[11])
    assert len(before_overfitting([replace(odd, losses=little)])[0].losses) == len(little)
    assert agreement(TRUTH, [kept[0], replace(kept[1], losses=odd.losses[:12])]).rmse < 1e-12


def test_conditions_are_ranked_by_rounds_to_a_target() -> None:
    runs = [true_run(condition, seed=3) for condition in HELD_OUT]
    assert ranking_of_times(TRUTH, runs) == pytest.approx(1.0)
    assert np.isnan(ranking_of_times(TRUTH, runs[:2]))
    ordered = sorted(runs, key=lambda run: run.losses[-1])
    swapped = [replace(a, losses=b.losses) for a, b in zip(ordered, reversed(ordered), strict=True)]
    assert ranking_of_times(TRUTH, swapped) < -0.7
    # Quick conditions come first, whatever becomes of them after the target.
    quick, plain, lost = (true_run(c) for c in (Condition(local_steps=4), Condition(), Condition((0.15,))))
    late = np.arange(len(quick.losses)) > 15
    risen = [replace(run, losses=np.where(late, 0.75, run.losses)) for run in (quick, plain)]
    assert ranking_of_times(TRUTH, [*risen, lost]) == pytest.approx(1.0)
    # Of two that never reach it, the one that comes closer is first: here the other one than predicted.
    two, more = true_run(Condition(local_steps=2)), true_run(Condition((0.3,)))
    far = replace(more, losses=more.losses + 0.1)
    assert ranking_of_times(TRUTH, [quick, two, plain, lost, far]) == pytest.approx(0.9)
    still = [replace(run, losses=np.full_like(run.losses, 0.7)) for run in runs]
    assert np.isnan(ranking_of_times(TRUTH, still))
