"""The surrogate: its dynamics in closed form, what it depends on, its fit and the shipped constants."""

import json
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest

from collapipe_env.errors import ScenarioError
from collapipe_env.learners.base import RoundOutcome
from collapipe_env.learners.fit_surrogate import Run, fit, predicted_losses, root_mean_square_error
from collapipe_env.learners.surrogate import (
    SurrogateConstants,
    SurrogateLearner,
    SurrogateOutcome,
    load_fits,
)
from collapipe_env.scenario import load_scenario

CONSTANTS = SurrogateConstants(
    initial_loss=0.7,
    floor_loss=0.3,
    rate=0.05,
    warmup=1.0,
    variance=2.0,
    drift=0.5,
    heterogeneity=0.01,
    error=0.2,
)


def outcome(samples=48.0, error=0.1, clusters=4, local_steps=1):
    return SurrogateOutcome(clusters, local_steps, np.array([samples]), np.array([error]))


def run_of(constants, rounds, **kwargs):
    outcomes = [outcome(**kwargs)] * rounds
    run = Run(
        0.9, kwargs.get("clusters", 4), kwargs.get("local_steps", 1), 0, outcomes, np.array([]), np.array([])
    )
    losses = predicted_losses(constants, run)
    return replace(run, losses=losses, evaluated=np.ones(rounds + 1, dtype=bool))


@pytest.mark.parametrize("local_steps", [1, 3])
def test_constant_outcomes_decay_geometrically_to_the_floor(local_steps):
    run = run_of(CONSTANTS, 40, local_steps=local_steps)
    floor = 0.3 + 2.0 / (4 * 48.0) + local_steps**2 * 0.5 * (1 / 48.0 + 0.01) + 0.2 * 0.1
    expected = floor + (0.7 - floor) * 0.95 ** (local_steps * np.arange(41))
    np.testing.assert_allclose(run.losses, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "worse",
    [{"samples": 16.0}, {"error": 0.4}, {"clusters": 1}],
    ids=["fewer samples", "errors", "fewer clusters"],
)
def test_final_loss_depends_on_what_the_paper_names(worse):
    assert run_of(CONSTANTS, 60, **worse).losses[-1] > run_of(CONSTANTS, 60).losses[-1]


def test_nothing_is_learnt_where_nothing_arrives():
    before = np.array([0.6])
    assert CONSTANTS.next_loss(before, np.zeros(1), outcome(samples=0.0)) == before


def test_outcome_counts_only_the_micro_batches_that_exist():
    survived = np.zeros((1, 2, 3, 8), dtype=bool)
    survived[0, 0, :, :2] = True  # both of the first cluster's two micro-batches, in all three steps
    survived[0, 1, 0, :] = True  # all four of the second's in one step; the slots beyond do not count
    reduced = SurrogateOutcome.of(
        RoundOutcome(
            blocks=np.array([[[1], [1]]]),
            micro_batches=np.array([[2, 4]]),
            survived=survived,
            success=np.array([[0.9, 0.5]]),
        ),
        batch_size=64,
    )
    assert (reduced.clusters, reduced.local_steps) == (2, 3)
    np.testing.assert_allclose(reduced.surviving_samples, [(64.0 + 64.0 / 3.0) / 2.0])
    np.testing.assert_allclose(reduced.error_probability, [0.3])


def test_reset_restarts_only_the_masked_rows():
    scenario = load_scenario("small")
    learner = SurrogateLearner.from_scenario(scenario, 2)
    rngs = [np.random.default_rng(i) for i in range(2)]
    first = learner.reset(rngs)
    many = RoundOutcome(
        blocks=np.full((2, 2, 3), 2),
        micro_batches=np.full((2, 2), 4),
        survived=np.ones((2, 2, 1, 64), dtype=bool),
        success=np.ones((2, 2)),
    )
    trained = learner.train_round(many)
    assert (trained.loss < first.loss).all()
    again = learner.reset(rngs, np.array([True, False]))
    assert again.loss[0] == first.loss[0]
    assert again.loss[1] == trained.loss[1]
    assert learner.train_round(many).loss[0] == trained.loss[0]


def test_split_training_and_staleness_are_ignored():
    scenario = load_scenario("small")
    plain = RoundOutcome(
        blocks=np.full((1, 2, 3), 2),
        micro_batches=np.full((1, 2), 4),
        survived=np.ones((1, 2, 2, 4), dtype=bool),
        success=np.full((1, 2), 0.9),
    )
    extended = replace(
        plain,
        blocks=np.tile([1, 0, 1, 1, 1], (1, 2, 1)),  # virtual stages, two blocks on the server
        server_blocks=np.full((1, 2), 2),
        server_mode=np.array([1]),
        staleness=np.ones((1, 2, 5), dtype=int),
    )
    losses = []
    for outcome_ in (plain, extended):
        learner = SurrogateLearner.from_scenario(scenario, 1)
        learner.reset([np.random.default_rng(0)])
        losses.append(learner.train_round(outcome_).loss)
    np.testing.assert_array_equal(*losses)


def test_fit_recovers_curves_of_known_constants():
    truth = replace(CONSTANTS, warmup=12.0)
    runs = [
        run_of(truth, 80, samples=samples, error=error, clusters=clusters, local_steps=steps)
        for samples, error, clusters, steps in (
            (64, 0.0, 4, 1),
            (16, 0.5, 4, 1),
            (64, 0.0, 1, 1),
            (32, 0.3, 4, 2),
        )
    ]
    held_out = run_of(truth, 80, samples=40, error=0.2, clusters=2)
    assert root_mean_square_error(fit(runs), [held_out]) < 0.003


def test_shipped_fit_states_its_error_and_its_command():
    content = json.loads((resources.files("collapipe_env") / "data" / "surrogate_fits.json").read_text())
    assert set(content["fits"]) == set(load_fits())
    for entry in content["fits"].values():
        assert 0.0 < entry["rmse_held_out_nat"] < 0.1
        assert "fit_surrogate" in entry["command"]


def test_task_without_a_fit_is_refused_by_name():
    scenario = load_scenario("small").with_overrides({"workload.task": "ner", "workload.outputs": 9})
    with pytest.raises(ScenarioError, match=r"workload\.task = 'ner' has no surrogate fit"):
        SurrogateLearner.from_scenario(scenario, 1)
