"""Safety-Gymnasium's view: six values, the cost that the environment reports."""

import gymnasium as gym
import numpy as np
import pytest
from environments_support import make_actions

from collapipe_env.envs.views.cost_apart import CostApart, VectorCostApart
from collapipe_env.ground.errors import ScenarioError

ID = "CollaPipeSurrogate-Small-v0"
TIGHT = {"base": "small", "dynamics": {"rounds": 4}, "budgets": {"device_energy_j": 5.5}}


def test_the_cost_is_the_energy_above_the_budgets():
    env, twin = CostApart(gym.make(ID, scenario=TIGHT, reward="delay")), gym.make(ID, scenario=TIGHT)
    seen, info = env.reset(seed=0)
    assert np.array_equal(seen, twin.reset(seed=0)[0])
    for action in make_actions(twin, 4):
        seen, reward, cost, terminated, truncated, info = env.step(action)
        other, _, *ends, other_info = twin.step(action)
        assert np.array_equal(seen, other)
        assert ([terminated, truncated], info) == (ends, other_info)
        assert reward == -info["delay"] / twin.unwrapped.reference_delay
        ratio = twin.unwrapped.last_round.costs.energy_ratio[0]
        assert cost == pytest.approx(np.maximum(ratio - 1.0, 0.0).sum()) == info["cost"]
        assert type(cost) is float
        assert cost > 0.0
    assert truncated
    assert gym.make(env.spec).spec == env.spec


def test_other_environments_are_refused():
    with pytest.raises(ScenarioError, match="not CartPoleEnv"):
        CostApart(gym.make("CartPole-v1"))
    with pytest.raises(ScenarioError, match="VectorCostApart wraps a CollaPipeVectorEnv"):
        VectorCostApart(gym.make_vec("CartPole-v1", num_envs=2))
