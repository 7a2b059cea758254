"""PettingZoo's view: its own checks, and the single environment's trajectory told apart by hand."""

import builtins
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from environments_support import Player, agents, assert_close, make_actions, shortened, single
from gymnasium.wrappers import RescaleAction

from collapipe_env.envs.cluster_columns import cluster_columns
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

SCENARIOS = {
    **{name: shortened(name, 5) for name in ("small", "moving", "uneven", "opened", "walking")},
    "everything": {
        "base": "small",
        "decisions": [*COLLAPIPE, *OPENED],
        "workload": {"local_steps_choices": [1, 2]},
        "budgets": {"device_energy_j": 20},
        "dynamics": {"rounds": 5},
    },
    "wild": {"base": "small-wild", "dynamics": {"rounds": 5}},
    "alone": {
        "base": "small",
        "cluster": {"clusters": 1, "devices": 4},
        "budgets": {"cu_energy_j": 6},
        "dynamics": {"rounds": 5},
    },
}


def own_reward(before, costs, after):
    return -costs.delay


@pytest.mark.parametrize("name", ["small", "opened", "wild", "alone"])
def test_pettingzoos_own_checks(name, capsys):
    parallel_api_test(agents(SCENARIOS[name]), num_cycles=8)
    parallel_seed_test(lambda: agents(SCENARIOS[name]), num_cycles=8)
    api_test(parallel_to_aec(agents(SCENARIOS[name])), num_cycles=12)
    assert capsys.readouterr().out.count("Passed") == 2


@pytest.mark.parametrize("name", SCENARIOS)
def test_joint_actions_play_the_single_environments_trajectory(name):
    player, alone = Player(agents(SCENARIOS[name])), Player(single(SCENARIOS[name]))
    many, N, whole = player.env, alone.env.scenario.clusters, alone.env.observation_layout
    names = [f"cluster_{n}" for n in range(N)]
    for seed in (3, None):  # a second episode of the same generator
        for action in (None, *make_actions(alone.env, 5, seed=5)):
            both = [one.reset(seed) if action is None else one.step(action) for one in (player, alone)]
            (mine,), (its,) = both
            np.testing.assert_array_equal(mine["observation"], its["observation"])
            for said in its.keys() - {"observation"}:
                joint = said in ("reward", "info")
                assert mine[said] == (dict.fromkeys(names, its[said]) if joint else its[said])
            shown = whole.unpack(its["observation"])
            for n, agent in enumerate(names):
                seen = mine["agents"][agent]
                assert many.observation_space(agent).contains(seen)
                parts = {key: part[n] if part.shape[:1] == (N,) else part for key, part in shown.items()}
                assert_close(many.observation_layout.unpack(seen), parts)
            assert many.agents == ([] if its.get("truncated") or its.get("terminated") else names)
        assert many.agents == []
        assert many.step({}) == ({}, {}, {}, {}, {})


def test_every_column_is_seen_and_only_the_systems_by_all():
    layout = single("medium").observation_layout
    columns = cluster_columns(layout, 4)
    counts = np.bincount(columns.ravel(), minlength=layout.size)
    common = [layout[name].slice.start for name in ("round", "loss")]
    assert counts[common].tolist() == [4, 4]
    assert (np.delete(counts, common) == 1).all()


def test_physical_units_of_one_agents_observation():
    scenario = {"base": "small", "cluster": {"devices": [3, 2]}, "budgets": {"device_energy_j": 20}}
    many = agents(scenario)
    seen, _ = many.reset(seed=1)
    whole = many.env.unwrapped.observation_layout.physical(many.state())
    for n, agent in enumerate(many.agents):
        own = many.observation_layout.physical(seen[agent])
        for name in ("device_speed", "uplink_gain", "cu_backlog"):
            np.testing.assert_array_equal(own[name], whole[name][n])
        assert own["loss"] == whole["loss"]
    assert np.isnan(own["device_speed"]).tolist() == [False, False, True]


def test_difference_rewards_are_those_of_the_clusters():
    player = Player(agents({"base": "small", "budgets": {"device_energy_j": 6}}, credit="clusters"))
    player.reset(0)
    for action in make_actions(player.env, 2):
        rewards = player.step(action)[0]["reward"]
        expected = player.inner._mdp.cluster_rewards()[0]
        assert list(rewards.values()) == pytest.approx(expected.tolist())
        assert expected[0] != expected[1]


def test_spaces_are_the_agents_own_and_seeded_by_themselves():
    many = agents()
    first, second = many.possible_agents
    for space in (many.observation_space, many.action_space):
        assert space(first) is space(first)
        assert space(first) == space(second)
        assert space(first) is not space(second)


def test_names():
    many = parallel_env("CollaPipeSurrogate-Small-v0", render_mode="rgb_array")
    assert str(many) == "collapipe_clusters_v0"
    assert many.unwrapped is many
    assert isinstance(many, pettingzoo.ParallelEnv)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda actions: {"cluster_0": actions["cluster_0"]}, "the action of cluster_1 is missing"),
        (lambda actions: {**actions, "cluster_7": 0}, "no agent 'cluster_7': did you mean 'cluster_"),
        (lambda actions: {**actions, "cluster_0": np.zeros(3)}, r"cluster_0 has shape \(3,\), expected"),
        (lambda actions: {**actions, "cluster_1": np.full(9, np.nan)}, "action"),
        (lambda _: None, "of type NoneType were given, expected"),
        (lambda _: np.zeros(18), "of type ndarray were given, expected"),
    ],
)
def test_bad_actions_leave_everything_as_it_was(change, message):
    many, twin = agents("small"), agents("small")
    for one in (many, twin):
        one.reset(seed=0)
    actions = {name: np.zeros(9, dtype=np.float32) for name in many.agents}
    with pytest.raises(AllocationError, match=message):
        many.step(change(actions))
    assert many.step(actions)[1] == twin.step(actions)[1]


def test_steps_wait_for_a_reset():
    many = agents("small", 1)
    actions = {name: many.action_space(name).sample() for name in many.possible_agents}
    for _ in range(2):
        with pytest.raises(NotResetError, match="call reset"):
            many.step(actions)
        many.reset(seed=0)
        many.step(actions)


def test_other_environments_are_refused():
    with pytest.raises(ScenarioError, match="not CartPoleEnv"):
        ClusterAgents(gym.make("CartPole-v1"))
    with pytest.raises(ScenarioError, match="leave out observation='graph'"):
        agents(observation="graph")
    with pytest.raises(ScenarioError, match="did you mean 'clusters'"):
        agents(credit="cluster")
    with pytest.raises(ScenarioError, match="cannot be split by cluster"):
        agents(credit="clusters", reward=own_reward)
    with pytest.raises(ScenarioError, match="rewards are vectors: use an id without MO"):
        ClusterAgents(gym.make("CollaPipeMOSurrogate-v0", scenario="small"))
    env = single("small")
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
