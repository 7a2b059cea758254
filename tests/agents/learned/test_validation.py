"""Validations: versions are compared by their priced delays, and the first of equals is kept."""

import numpy as np
import pytest

from collapipe_env.agents.learned.training_state import TrainingState
from collapipe_env.agents.learned.validation import VALIDATION_SEED, Score, Validator
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters


def test_best_has_the_smallest_objective() -> None:
    def score(objective: float) -> Score:
        return Score(0, 0.0, objective, mean_delay=10.0, energy_ratio=1.0, backlog=0.0, objective=objective)

    assert score(12.0).better_than(None)
    assert score(11.0).better_than(score(12.0))
    assert not score(12.0).better_than(score(11.0))
    assert not score(9.0).better_than(score(9.0))


def test_a_training_has_collapsed_if_its_last_version_is_far_worse_than_its_best() -> None:
    def state(*objectives: float) -> TrainingState:
        scores = [Score(0, 0.0, one, 10.0, 1.0, 0.0, objective=one) for one in objectives]
        return TrainingState(
            history=scores, best=min(scores, key=lambda score: score.objective, default=None)
        )

    assert state(10.9, 191.0, 23.1).collapsed
    assert not state(12.0, 10.0, 11.9).collapsed
    assert not state().collapsed


def test_versions_are_compared_by_priced_delay() -> None:
    budgets = {"cu_energy_j": 3.5, "device_energy_j": 7.5}
    scenario = load_scenario({"base": "small", "dynamics": {"rounds": 5}, "budgets": budgets})
    env = CollaPipeVectorEnv(
        num_envs=2, scenario=scenario, learner="surrogate", reward="lyapunov", autoreset_mode="Disabled"
    )

    class Still:
        """Always the middle of the action box."""

        def predict(self, observation, *, deterministic=True):  # noqa: ARG002
            return np.zeros((len(observation), env.single_action_space.shape[0]), dtype=np.float32), None

    found = Validator(scenario, 2)(Still(), 0, 0.0)
    observation, _ = env.reset(seed=VALIDATION_SEED)
    total = np.zeros(2)
    for _ in range(5):
        observation, *_ = env.step(Still().predict(observation)[0])
        total += env.last_round.costs.delay
    left = 0.5 * np.square(env.state.backlog).sum(axis=(-2, -1))
    assert found.backlog > 0.0
    assert found.objective == found.priced_delay
    expected = (total + left / system_parameters(scenario).tradeoff_v).mean() / 5
    assert found.priced_delay == pytest.approx(expected, rel=1e-9)
