"""Every registered id through the checkers of Gymnasium and Stable-Baselines3, warnings being errors."""

import copy
import dataclasses
import functools

import gymnasium as gym
import numpy as np
import pytest
from environments_support import TINY
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import TimeAwareObservation
from stable_baselines3.common.env_checker import check_env as sb3_check_env

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.registration import environment_ids
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import load_scenario

IDS = dict(environment_ids())
SURROGATE_IDS = [name for name in IDS if "Surrogate" in name]


@pytest.mark.parametrize(
    "name",
    [
        name if name in SURROGATE_IDS and "Xlarge" not in name else pytest.param(name, marks=pytest.mark.slow)
        for name in IDS
    ],
)
def test_checkers_of_other_libraries(name):
    env = gym.make(name)
    check_env(env.unwrapped, skip_render_check=name != "CollaPipeSurrogate-Small-v0")
    sb3_check_env(env.unwrapped)


def test_checkers_of_other_libraries_where_a_model_trains():
    env = gym.make("CollaPipe-v0", scenario=TINY)
    check_env(env.unwrapped, skip_render_check=True)
    sb3_check_env(env.unwrapped)


@pytest.mark.parametrize("name", IDS)
def test_spec_survives_json(name):
    spec = gym.spec(name)
    assert vars(EnvSpec.from_json(spec.to_json())) == vars(spec)
    assert spec.kwargs == IDS[name]
    assert spec.vector_entry_point == gym.spec(SURROGATE_IDS[0]).vector_entry_point
    assert spec.max_episode_steps == load_scenario(IDS[name]["scenario"]).dynamics.rounds


def test_spec_of_an_environment_with_its_own_scenario_survives_json():
    scenario = {"base": "small", "radio": {"diversity": 2}, "budgets": {"cu_energy_j": 5}}
    env = gym.make("CollaPipeSurrogate-v0", scenario=scenario, reward="delay")
    again = gym.make(EnvSpec.from_json(env.spec.to_json()))
    assert again.unwrapped.scenario == env.unwrapped.scenario
    assert again.unwrapped.scenario.radio.diversity == 2


def end_of_episode(env, most):
    """Number of the step that ends an episode, and what is observed after it."""
    env.reset(seed=0)
    action = np.zeros(env.action_space.shape, np.float32)
    for step in range(1, most + 1):
        observation, _, terminated, truncated, _ = env.step(action)
        if np.any(terminated) or np.any(truncated):
            return step, observation
    return None, observation


@pytest.mark.parametrize(
    ("rounds", "given", "end"),
    [
        (None, None, 100),
        (7, None, 7),
        (103, None, 103),
        (103, 5, 5),
        (7, 9, 7),
        (103, -1, 103),
        (103, 101, 101),
    ],
)
def test_one_limit_ends_the_episode_and_stands_in_the_spec(rounds, given, end):
    scenario = "small" if rounds is None else {"base": "small", "dynamics": {"rounds": rounds}}
    own = 100 if rounds is None else rounds
    make = functools.partial(gym.make, "CollaPipeSurrogate-v0", scenario=scenario, max_episode_steps=given)
    env = TimeAwareObservation(make(), flatten=False)
    assert env.spec.max_episode_steps == (own if given in (None, -1) else given)
    assert env.observation_space["time"].high == env.spec.max_episode_steps
    step, observation = end_of_episode(env, 110)
    assert step == end
    assert observation["time"] == end
    assert end_of_episode(gym.make(make().spec), 110)[0] == end
    limits = {} if given in (None, -1) else {"max_episode_steps": given}
    for mode in ("sync", "vector_entry_point"):
        rows = gym.make_vec(
            "CollaPipeSurrogate-v0", num_envs=2, vectorization_mode=mode, scenario=scenario, **limits
        )
        assert end_of_episode(rows, 110)[0] == end
    assert rows.spec.max_episode_steps == rows.unwrapped.rounds == end


def test_an_edited_copy_of_a_specification_has_its_own_limit():
    spec = gym.spec("CollaPipeSurrogate-Small-v0")
    for edited in (dataclasses.replace(spec, max_episode_steps=7), copy.deepcopy(spec)):
        edited.max_episode_steps = 7
        assert end_of_episode(gym.make(edited), 110)[0] == 7
        assert end_of_episode(gym.make_vec(edited, num_envs=2), 110)[0] == 7
    assert spec.max_episode_steps == 100


def test_going_back_in_time_is_not_counted_as_steps():
    env = gym.make("CollaPipeSurrogate-v0", scenario={"base": "small", "dynamics": {"rounds": 100}})
    env.reset(seed=0)
    begin, action = env.unwrapped.get_state(), np.zeros(env.action_space.shape, np.float32)
    ends = [env.step(action)[3] for _ in range(60)]
    env.unwrapped.set_state(begin)
    ends += [env.step(action)[3] for _ in range(100)]
    assert ends == [False] * 159 + [True]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"senario": "small"}, "senario.*did you mean 'scenario'"),
        ({"learnr": "real"}, "learnr.*did you mean 'learner'"),
        ({"learner": "surogate"}, "surogate.*did you mean 'surrogate'"),
        ({"reward": "lyapunow"}, "lyapunow.*did you mean 'lyapunov'"),
        ({"scenario": "smal"}, "smal.*did you mean 'small'"),
        ({"scenario": {"radio": {"diversty": 2}}}, "diversty.*did you mean 'diversity'"),
        ({"render_mode": "human"}, "human.*rgb_array"),
    ],
)
@pytest.mark.parametrize("kind", [CollaPipeEnv, CollaPipeVectorEnv])
def test_misspelt_arguments_are_refused(kind, kwargs, message):
    with pytest.raises(ScenarioError, match=f"(?s){message}"):
        kind(**{"learner": "surrogate", **kwargs})


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"autoreset_mode": "same"}, "same.*'SameStep'"),
        ({"max_episode_steps": 0}, "max_episode_steps = 0"),
        ({"num_env": 3}, "did you mean 'num_envs'"),
    ],
)
def test_misspelt_vector_arguments_are_refused(kwargs, message):
    with pytest.raises(ScenarioError, match=message):
        CollaPipeVectorEnv(**{"learner": "surrogate", "scenario": "small", **kwargs})


def test_unknown_reset_option_is_refused():
    env = CollaPipeEnv("small", "surrogate")
    with pytest.raises(ScenarioError, match="colour"):
        env.reset(options={"colour": 1})
