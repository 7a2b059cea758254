"""Environments with graph observations: they play what flat ones play, through every interface."""

import json

import gymnasium as gym
import numpy as np
import pytest
from env_support import make_actions
from graph_support import VARIANTS, assert_graphs_equal, shortened
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import FlattenObservation, TimeLimit
from gymnasium.wrappers.vector import FlattenObservation as FlattenObservations
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.graph_observation import GraphObservations
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.envs.wrappers import MultiDiscreteActions
from collapipe_env.ground.errors import ScenarioError

ENVS = 3
ID = "CollaPipeSurrogate-Small-v0"


def single(name="small", rounds=3, **kwargs) -> CollaPipeEnv:
    return CollaPipeEnv(shortened(name, rounds), "surrogate", **{"observation": "graph", **kwargs})


def native(name="small", rounds=3, mode=AutoresetMode.NEXT_STEP, **kwargs) -> CollaPipeVectorEnv:
    options = {"observation": "graph", **kwargs}
    return CollaPipeVectorEnv(ENVS, shortened(name, rounds), "surrogate", autoreset_mode=mode, **options)


def row_of(observation, row):
    return {name: array[row] for name, array in observation.items()}


def observed(env):
    """Graph of the state that schedulers see."""
    return GraphObservations(env.scenario).build(env.state)


@pytest.mark.parametrize("name", ["Small", "Medium", "Boards", "Phones"])
def test_gymnasiums_checker(name):
    check_env(gym.make(f"CollaPipeSurrogate-{name}-v0", observation="graph").unwrapped)


@pytest.mark.parametrize("name", VARIANTS)
def test_it_plays_what_the_flat_environment_plays(name):
    graph, flat = single(name), single(name, observation="flat")
    assert graph.action_space == flat.action_space
    found, expected = graph.reset(seed=5), flat.reset(seed=5)
    assert found[1] == expected[1]
    for action in make_actions(graph, 3, seed=2):
        assert_graphs_equal(found[0], row_of(observed(graph), 0))
        assert graph.observation_space.contains(found[0])
        found, expected = graph.step(action), flat.step(action)
        assert found[1:] == expected[1:]
        np.testing.assert_array_equal(graph.state.backlog, flat.state.backlog)
    assert graph.summary() == flat.summary()


def test_states_fit_either_observation(tmp_path):
    one, two = single("moving", 6), single("moving", 6, observation="flat")
    one.reset(seed=1)
    actions = make_actions(one, 5)
    for action in actions[:2]:
        one.step(action)
    one.save_state(tmp_path / "state.safetensors")
    two.load_state(tmp_path / "state.safetensors")
    for action in actions[2:]:
        found, expected = two.step(action), one.step(action)
        assert found[1:] == expected[1:]
        assert_graphs_equal(row_of(observed(two), 0), expected[0])


def test_wrappers_of_gymnasium_take_it():
    env, flat = single(rounds=9), FlattenObservation(single(rounds=9))
    env.reset(seed=0)
    observation, _ = flat.reset(seed=0)
    assert flat.observation_space.contains(observation)
    action = env.action_space.sample()
    np.testing.assert_array_equal(
        flat.step(action)[0], gym.spaces.flatten(env.observation_space, env.step(action)[0])
    )
    limited = TimeLimit(MultiDiscreteActions(single(rounds=9)), 2)
    limited.reset(seed=0)
    ends = [limited.step(limited.action_space.sample()) for _ in range(2)]
    assert [end[3] for end in ends] == [False, True]
    assert limited.observation_space.contains(ends[0][0])
    vector = FlattenObservations(RecordEpisodeStatistics(native(rounds=2)))
    observations, _ = vector.reset(seed=0)
    assert observations.shape == (ENVS, *flat.observation_space.shape)
    np.testing.assert_array_equal(observations[0], observation)
    for actions in make_actions(vector.unwrapped, 2, lead=(ENVS,)):
        info = vector.step(actions)[-1]
    assert info["episode"]["l"].tolist() == [2] * ENVS


def test_ids_and_their_specifications():
    env = gym.make(ID, observation="graph")
    assert json.loads(env.spec.to_json())["kwargs"]["observation"] == "graph"
    again = gym.make(EnvSpec.from_json(env.spec.to_json()))
    assert again.observation_space == env.observation_space
    assert_graphs_equal(again.reset(seed=3)[0], env.reset(seed=3)[0])
    vector = gym.make_vec(ID, num_envs=2, observation="graph")
    assert type(vector) is CollaPipeVectorEnv
    assert vector.observation_layout["device"].shape == vector.single_observation_space["device"].shape
    sync = gym.make_vec(ID, num_envs=2, vectorization_mode="sync", observation="graph")
    assert_graphs_equal(vector.reset(seed=0)[0], dict(sync.reset(seed=0)[0]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gym.make(ID, observation="grahp"), "observation = 'grahp' .*did you mean 'graph'"),
        (lambda: gym.make_vec(ID, 2, observation="dict"), "observation = 'dict' .*valid names: flat, graph"),
        (lambda: gym.make_vec(ID, 2, backend="torch", observation=None), "observation = None is not known"),
        (lambda: gym.make(ID, observations="graph"), "'observations' = 'graph': did you mean 'observation'"),
        (lambda: gym.make_vec(ID, 2, observations="graph"), "did you mean 'observation'"),
        (lambda: gym.make_vec(ID, 2, backend="torch", observations="flat"), "did you mean 'observation'"),
    ],
)
def test_other_kinds_and_misspelt_arguments_are_refused(make, message):
    with pytest.raises(ScenarioError, match=message):
        make()
