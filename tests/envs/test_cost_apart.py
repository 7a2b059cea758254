"""Safety-Gymnasium's view: six values, the cost that the environment reports, in every way of stepping."""

import gymnasium as gym
import numpy as np
import pytest
from env_support import make_actions

from collapipe_env.envs.views.cost_apart import CostApart, VectorCostApart
from collapipe_env.ground.errors import ScenarioError

ID = "CollaPipeSurrogate-Small-v0"
TIGHT = {"base": "small", "dynamics": {"rounds": 4}, "budgets": {"device_energy_j": 5.5}}


def test_six_values_of_the_single_environment():
    env, twin = CostApart(gym.make(ID, scenario=TIGHT, reward="delay")), gym.make(ID, scenario=TIGHT)
    seen, info = env.reset(seed=0)
    assert np.array_equal(seen, twin.reset(seed=0)[0])
    costs = []
    for action in make_actions(twin, 4):
        seen, reward, cost, terminated, truncated, info = env.step(action)
        other, _, *ends, other_info = twin.step(action)
        assert np.array_equal(seen, other)
        assert ([terminated, truncated], info) == (ends, other_info)
        assert reward == -info["delay"] / twin.unwrapped.reference_delay
        record = twin.unwrapped.last_round
        above = np.maximum(record.costs.energy_ratio[0] - 1.0, 0.0)[:, :]
        assert cost == pytest.approx(above.sum())
        assert type(cost) is float
        costs.append(cost)
    assert min(costs) > 0.0
    assert truncated
    assert gym.make(env.spec).spec == env.spec


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_costs_of_rows_are_those_in_their_information(mode, backend):
    options = {"scenario": TIGHT, "reward": "delay", "autoreset_mode": mode, "backend": backend}
    vector = gym.make_vec(ID, num_envs=3, **options)
    safe, twin = VectorCostApart(vector), gym.make_vec(ID, num_envs=3, **options)
    safe.reset(seed=3)
    twin.reset(seed=3)
    over = False
    for actions in make_actions(vector, 10, lead=(3,)):
        if over and mode == "Disabled":
            safe.reset(options={"reset_mask": np.full(3, True)})
            twin.reset(options={"reset_mask": np.full(3, True)})
        _, rewards, costs, terminated, truncated, _ = safe.step(actions)
        _, *expected, info = twin.step(actions)
        for one, other in zip((rewards, terminated, truncated), expected, strict=True):
            np.testing.assert_array_equal(one, other)
        ended = info.get("final_info", info)["cost"]  # rows end together
        np.testing.assert_array_equal(costs, ended)
        assert (np.asarray(costs) > 0.0).all() == (mode != "NextStep" or not over)
        over = bool(truncated[0])


def play_like_omnisafe(env, limit: float, episodes: int) -> list[float]:
    """The loop of a Lagrangian method, as OmniSafe's agents walk through Safety-Gymnasium's interface."""
    multiplier, returns = 0.0, []
    for episode in range(episodes):
        _, _ = env.reset(seed=episode)
        env.action_space.seed(episode)
        done, total, spent = False, 0.0, 0.0
        while not done:
            _, reward, cost, terminated, truncated, info = env.step(env.action_space.sample())
            assert cost == info["cost"]
            total, spent = total + reward - multiplier * cost, spent + cost
            done = terminated or truncated
        multiplier = max(multiplier + 0.1 * (spent - limit), 0.0)
        returns.append(total)
    return [multiplier, *returns]


def test_a_lagrangian_loop_raises_its_multiplier_above_the_limit_only():
    env = CostApart(gym.make(ID, scenario=TIGHT, reward="delay"))
    assert play_like_omnisafe(env, 0.0, 3)[0] > 0.0
    assert play_like_omnisafe(env, 1e9, 3)[0] == 0.0


def test_other_environments_are_refused():
    with pytest.raises(ScenarioError, match="not CartPoleEnv"):
        CostApart(gym.make("CartPole-v1"))
    with pytest.raises(ScenarioError, match="VectorCostApart wraps a CollaPipeVectorEnv"):
        VectorCostApart(gym.make_vec("CartPole-v1", num_envs=2))
