"""PettingZoo's view: its own checks, and the single environment's trajectory told apart by hand."""

import builtins
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from env_support import VARIANTS, make_actions, shortened
from gymnasium.wrappers import RescaleAction

from collapipe_env.envs.cluster_columns import cluster_columns
from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.views.cost_apart import CostApart
from collapipe_env.envs.wrappers import MagnifiedBacklog
from collapipe_env.ground.errors import (
    AllocationError,
    CollaPipeError,
    MissingPackageError,
    NotResetError,
    ScenarioError,
)
from collapipe_env.scenario.decision_names import COLLAPIPE, OPENED

pettingzoo = pytest.importorskip("pettingzoo", reason="PettingZoo is not installed")
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it imports games of its own in their old way
    from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test
    from pettingzoo.utils.conversions import parallel_to_aec

from collapipe_env.envs.views.cluster_agents import ClusterAgents, parallel_env  # noqa: E402

OTHERS = {
    "everything opened": {
        "base": "small",
        "decisions": [*COLLAPIPE, *OPENED],
        "workload": {"local_steps_choices": [1, 2]},
        "budgets": {"device_energy_j": 20},
    },
    "wild": {"base": "small-wild"},
    "alone": {"base": "small", "cluster": {"clusters": 1, "devices": 4}},
}
SCENARIOS = {name: shortened(name, 5) for name in VARIANTS} | {
    name: {**other, "dynamics": {"rounds": 5}} for name, other in OTHERS.items()
}


def own_reward(before, costs, after):
    return -costs.delay


def make_agents(scenario="small", credit="round", **kwargs):
    return ClusterAgents(CollaPipeEnv(scenario=scenario, learner="surrogate", **kwargs), credit)


@pytest.mark.parametrize("name", ["small", "opened", "wild", "alone"])
def test_pettingzoos_own_checks(name, capsys):
    agents = make_agents(SCENARIOS[name])
    parallel_api_test(agents, num_cycles=8)
    parallel_seed_test(lambda: make_agents(SCENARIOS[name]), num_cycles=8)
    api_test(parallel_to_aec(agents), num_cycles=12)
    assert capsys.readouterr().out.count("Passed") == 2


@pytest.mark.parametrize("name", SCENARIOS)
def test_joint_actions_play_the_single_environments_trajectory(name):
    agents, env = make_agents(SCENARIOS[name]), CollaPipeEnv(scenario=SCENARIOS[name], learner="surrogate")
    N, layout = env.scenario.clusters, env.observation_layout
    names = [f"cluster_{n}" for n in range(N)]
    for seed in (3, None):  # a second episode of the same generator
        observation, info = env.reset(seed=seed)
        seen, infos = agents.reset(seed=seed)
        assert agents.agents == names == list(seen)
        assert infos == dict.fromkeys(names, info)
        ended = False
        actions = make_actions(env, env.rounds, seed=5)
        for action in actions:
            assert agents.agents == names
            observation, reward, terminated, truncated, info = env.step(action)
            parts = np.split(action, N)
            seen, rewards, ends, cuts, infos = agents.step(dict(zip(names, parts, strict=True)))
            assert np.array_equal(agents.state(), observation)
            assert rewards == dict.fromkeys(names, reward)
            assert ends == dict.fromkeys(names, terminated)
            assert cuts == dict.fromkeys(names, truncated)
            assert infos == dict.fromkeys(names, info)
            whole = layout.unpack(observation)
            for n, agent in enumerate(names):
                own = agents.observation_layout.unpack(seen[agent])
                assert list(own) == list(whole)
                for feature, values in own.items():
                    shown = whole[feature]
                    assert np.array_equal(values, shown[n] if shown.shape[:1] == (N,) else shown), feature
                assert agents.observation_space(agent).contains(seen[agent])
            ended = terminated or truncated
            if ended:
                break
        assert ended
        assert agents.agents == []
        assert agents.step({}) == ({}, {}, {}, {}, {})


def test_every_column_is_seen_and_only_the_systems_by_all():
    layout = CollaPipeEnv(scenario="medium", learner="surrogate").observation_layout
    columns = cluster_columns(layout, 4)
    counts = np.bincount(columns.ravel(), minlength=layout.size)
    common = [layout[name].slice.start for name in ("round", "loss")]
    assert counts[common].tolist() == [4, 4]
    assert (np.delete(counts, common) == 1).all()


def test_physical_units_of_one_agents_observation():
    scenario = {"base": "small", "cluster": {"devices": [3, 2]}, "budgets": {"device_energy_j": 20}}
    agents = make_agents(scenario)
    seen, _ = agents.reset(seed=1)
    whole = agents.env.unwrapped.observation_layout.physical(agents.state())
    for n, agent in enumerate(agents.agents):
        own = agents.observation_layout.physical(seen[agent])
        for name in ("device_speed", "uplink_gain", "cu_backlog"):
            np.testing.assert_array_equal(own[name], whole[name][n])
        assert own["loss"] == whole["loss"]
    assert np.isnan(own["device_speed"]).tolist() == [False, False, True]


def test_difference_rewards_are_those_of_the_clusters():
    agents = make_agents({"base": "small", "budgets": {"device_energy_j": 6}}, "clusters")
    seen, _ = agents.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(2):
        actions = {name: rng.uniform(-1, 1, agents.action_space(name).shape) for name in seen}
        _, rewards, *_ = agents.step(actions)
        expected = agents.env.unwrapped._mdp.reward.by_cluster(agents.env.last_round)[0]
        assert list(rewards.values()) == pytest.approx(expected.tolist())
        assert expected[0] != expected[1]


def test_spaces_are_the_agents_own_and_seeded_by_themselves():
    agents = make_agents()
    first, second = agents.possible_agents
    for space in (agents.observation_space, agents.action_space):
        assert space(first) is space(first)
        assert space(first) == space(second)
        assert space(first) is not space(second)


def test_pictures_and_names(tmp_path):
    agents = parallel_env("CollaPipeSurrogate-Small-v0", render_mode="rgb_array")
    agents.reset(seed=0)
    assert agents.render().ndim == 3
    assert str(agents) == "collapipe_clusters_v0"
    assert agents.unwrapped is agents
    assert isinstance(agents, pettingzoo.ParallelEnv)
    agents.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda actions: {"cluster_0": actions["cluster_0"]}, "the action of cluster_1 is missing"),
        (lambda actions: {**actions, "cluster_7": 0}, "no agent 'cluster_7': did you mean 'cluster_"),
        (lambda actions: {**actions, "cluster_0": np.zeros(3)}, r"cluster_0 has shape \(3,\), expected"),
        (lambda actions: {**actions, "cluster_0": np.full(9, "x")}, "the action of cluster_0"),
        (lambda actions: {**actions, "cluster_1": np.full(9, np.nan)}, "action"),
        (lambda _: None, "of type NoneType were given, expected"),
        (lambda _: np.zeros(18), "of type ndarray were given, expected"),
    ],
)
def test_bad_actions_leave_everything_as_it_was(change, message):
    agents, twin = make_agents(), make_agents()
    for one in (agents, twin):
        one.reset(seed=0)
    actions = {name: np.zeros(9, dtype=np.float32) for name in agents.agents}
    with pytest.raises(AllocationError, match=message):
        agents.step(change(actions))
    assert agents.step(actions)[1] == twin.step(actions)[1]


def test_steps_wait_for_a_reset():
    agents = make_agents({"base": "small", "dynamics": {"rounds": 1}})
    actions = {name: agents.action_space(name).sample() for name in agents.possible_agents}
    for _ in range(2):
        with pytest.raises(NotResetError, match="call reset"):
            agents.step(actions)
        agents.reset(seed=0)
        agents.step(actions)


def test_other_environments_are_refused():
    with pytest.raises(ScenarioError, match="not CartPoleEnv"):
        ClusterAgents(gym.make("CartPole-v1"))
    with pytest.raises(ScenarioError, match="leave out observation='graph'"):
        make_agents(observation="graph")
    with pytest.raises(ScenarioError, match="did you mean 'clusters'"):
        make_agents(credit="cluster")
    with pytest.raises(ScenarioError, match="cannot be split by cluster"):
        make_agents(credit="clusters", reward=own_reward)
    with pytest.raises(ScenarioError, match="rewards are vectors: use an id without MO"):
        ClusterAgents(gym.make("CollaPipeMOSurrogate-v0", scenario="small"))
    env = CollaPipeEnv(scenario="small", learner="surrogate")
    with pytest.raises(ScenarioError, match=r"leave CostApart out; the cost is in every agent's info"):
        ClusterAgents(CostApart(env))
    for wrapped in (MagnifiedBacklog(env), RescaleAction(env, np.float32(0), np.float32(1))):
        with pytest.raises(ScenarioError, match="a wrapper has changed"):
            ClusterAgents(wrapped)


def test_without_pettingzoo_the_error_says_how_to_get_it(monkeypatch):
    real = builtins.__import__

    def missing(name, *args, **kwargs):
        if name.startswith("pettingzoo"):
            raise ModuleNotFoundError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    monkeypatch.delitem(sys.modules, "collapipe_env.envs.views.cluster_agents")
    with pytest.raises(MissingPackageError, match=r"pip install 'collapipe-env\[pettingzoo\]'") as caught:
        __import__("collapipe_env.envs.views.cluster_agents")
    assert isinstance(caught.value, CollaPipeError)
    assert isinstance(caught.value, ImportError)
