"""The reward of environments that are made without one."""

import numpy as np
import pytest

from collapipe_env.envs import default_reward
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.decision_names import COLLAPIPE, OPENED

SMALL = load_scenario("small")


def environment(scenario, **options):
    env = CollaPipeVectorEnv(scenario=scenario, num_envs=2, learner="surrogate", **options)
    env.reset(seed=0)
    env.action_space.seed(0)
    return env


def opened(decision, **changes):
    return SMALL.with_overrides({"decisions": [*COLLAPIPE, decision], **changes})


@pytest.mark.parametrize("decision", OPENED)
def test_time_to_target_is_the_reward_where_rounds_differ_in_what_they_train(decision) -> None:
    env = environment(opened(decision, **{"budgets.device_energy_j": 6.0}))
    for _ in range(3):  # queues grow, which the other reward counts
        env.step(env.action_space.sample())
    _, reward, *_ = env.step(env.action_space.sample())
    by_target = decision in ("participation", "local_steps")
    delay = -env.last_round.costs.delay / env.reference_delay
    assert np.allclose(reward, delay, rtol=1e-12) == by_target
    target = env.scenario.dynamics.target_loss
    assert (target is not None) == by_target


def test_the_target_is_nine_tenths_of_the_way_down_the_fitted_curve() -> None:
    env = environment(opened("local_steps"))
    curve = default_reward.fit_for(SMALL).constants
    share = (curve.initial_loss - env.scenario.dynamics.target_loss) / (curve.initial_loss - curve.floor_loss)
    assert share == pytest.approx(0.9, rel=1e-4)


def test_one_s_own_target_and_reward_stay() -> None:
    scenario = opened("local_steps", **{"dynamics.target_loss": 1.25})
    assert environment(scenario).scenario.dynamics.target_loss == 1.25
    env = environment(opened("local_steps"), reward="delay")
    assert env.scenario.dynamics.target_loss is None
    with pytest.raises(ScenarioError, match=r"needs dynamics\.target_loss"):
        environment(SMALL, reward="time_to_target")


def test_a_task_without_a_fit_says_what_to_do(monkeypatch) -> None:
    monkeypatch.setattr(default_reward, "has_fit", lambda _: False)
    with pytest.raises(ScenarioError, match=r"set dynamics\.target_loss, or name another reward"):
        environment(opened("participation"))
    environment(opened("participation"), reward="delay")
    environment(SMALL)
