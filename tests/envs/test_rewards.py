"""Rewards by name: of rounds against an oracle, of clusters by difference, and users' own among them."""

import environments_support as support
import gymnasium as gym
import numpy as np
import pytest
import torch
from environments_support import ROWS, make_actions
from oracles.queues import Accounts, cluster_rewards
from participation_support import PLAYED, SCENARIOS, TIGHT, period_of, plans

from collapipe_env.envs.rewards import REWARDS, marginal_delay, node_present, register_reward, target_reached
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters

pytestmark = pytest.mark.filterwarnings("ignore::collapipe_env.feasibility.EnergyBudgetWarning")

FORMS = ("lyapunov", "drift_plus_penalty", "delay")


@pytest.mark.parametrize("name", SCENARIOS)
def test_queues_rewards_costs_and_summaries_follow_their_definitions(name):
    opened = name.startswith("absent")
    envs = {form: support.single(SCENARIOS[name], reward=form) for form in FORMS}
    env, close = envs["lyapunov"], {"rel": 1e-9, "abs": 1e-9}
    for one in envs.values():
        one.reset(seed=1)
    accounts = Accounts(env.scenario, env.reference_delay, period_of(env.scenario))
    decisions = list(plans(env)) if opened else make_actions(env, 12)
    returned, seconds, most = 0.0, [], 0.0
    for t, decision in enumerate(decisions):
        steps = {form: (one.step_allocation if opened else one.step)(decision) for form, one in envs.items()}
        costs, plays = env.last_round.costs, PLAYED[t][0] if opened else [1] * env.scenario.clusters
        T, info = float(costs.delay[0]), steps["lyapunov"][4]
        rewards, numbers = accounts.play(costs.energy[0], T, plays)
        assert {form: step[1] for form, step in steps.items()} == pytest.approx(rewards, **close)
        assert {"allowance": costs.allowance[0], **info} | numbers == pytest.approx(
            {"allowance": costs.allowance[0], **info}, **close
        )
        np.testing.assert_allclose(env.last_round.backlog[0], accounts.z, rtol=1e-9, atol=1e-9)
        assert pytest.approx(costs.cluster_delay[0].max() + costs.broadcast[0]) == T == info["delay"]
        if opened:
            for absence in (env.last_round.absence, env.state.absence):
                np.testing.assert_allclose(absence[0], accounts.y, rtol=1e-12)
            np.testing.assert_array_equal(costs.cluster_delay[0] > 0.0, np.array(plays) == 1)
            counted = (np.arange(16) < np.array(PLAYED[t][1])[:, None]) & (np.array(plays) == 1)[:, None]
            assert not env.last_round.arrivals.counts[0][~counted].any()
            most = max(most, accounts.y.max())
        returned, seconds = returned + rewards["lyapunov"], [*seconds, T]
    # What was to be tested has happened.
    assert accounts.z.sum() > 0.0
    assert accounts.emptied or opened or name != "second"
    assert (accounts.frozen > 0) == opened
    assert most > 0.6 or not opened
    summary = env.summary()
    expected = {
        "rounds": len(seconds), "total_delay": sum(seconds), "mean_delay": np.mean(seconds),
        "return": returned, "energy_ratio_max": accounts.worst_ratio(), "final_backlog": accounts.z.sum(),
    }  # fmt: skip
    assert {key: summary[key] for key in expected} == pytest.approx(expected, **close)
    env.reset(seed=2)
    assert env.summary()["energy_ratio_max"] == env.summary()["total_delay"] == env.summary()["rounds"] == 0


def test_lyapunov_rewards_telescope():
    env = support.single("medium", 30)
    env.reset(seed=0)
    steps = [env.step(action) for action in make_actions(env, 30)]
    V, final = system_parameters(env.scenario).tradeoff_v, 0.5 * (env.last_round.backlog**2).sum()
    total = V * sum(step[4]["delay"] for step in steps) + final
    assert final > 0.0
    assert env.summary()["return"] == pytest.approx(-total / (V * env.reference_delay), rel=1e-12)


def test_physics_do_not_depend_on_what_budgets_are_for():
    envs = [support.single(scenario, reward="delay") for scenario in (TIGHT, SCENARIOS["second"])]
    actions = make_actions(envs[0], 4)
    rewards = []
    for env in envs:
        env.reset(seed=3)
        rewards.append([env.step(action)[1] for action in actions])
    assert rewards[0] == rewards[1]
    per_round, per_second = (env.last_round for env in envs)
    for name in ("delay", "energy", "energy_ratio", "memory"):
        np.testing.assert_array_equal(getattr(per_round.costs, name), getattr(per_second.costs, name))
    assert not np.array_equal(per_round.backlog, per_second.backlog)


def test_rewards_refuse_scenarios_that_they_cannot_serve():
    with pytest.raises(ScenarioError, match="target_loss"):
        support.single(reward="time_to_target")
    with pytest.raises(ScenarioError, match="tradeoff"):
        support.single({"base": "small", "budgets": {"tradeoff": 0}})


# By cluster


@pytest.mark.parametrize("clusters", [1, 2, 5])
def test_marginal_delay_is_the_maximum_less_that_of_the_others(clusters):
    # Whole seconds, so that some rows have two slowest clusters.
    delays = np.random.default_rng(clusters).integers(1, 5, (200, clusters)).astype(float)
    expected = []
    for row in delays.tolist():
        rest = [max((d for m, d in enumerate(row) if m != n), default=0.0) for n in range(clusters)]
        expected.append([max(d, other) - other for d, other in zip(row, rest, strict=True)])
    assert np.array_equal(marginal_delay(delays), expected)
    assert np.array_equal(marginal_delay(torch.as_tensor(delays)).numpy(), expected)
    assert clusters == 1 or (np.count_nonzero(expected, axis=-1) == 0).any()


@pytest.mark.parametrize("per", ["round", "second"])
@pytest.mark.parametrize("reward", FORMS)
def test_cluster_rewards_of_a_round(reward, per):
    scenario = {**TIGHT, "budgets": {**TIGHT["budgets"], "per": per}, "dynamics": {"rounds": 3}}
    env = support.adapted(scenario, num_envs=4, reward=reward)
    with pytest.raises(ScenarioError, match="no round was played yet"):
        env.cluster_rewards()
    env.seed(3)
    env.reset()
    ended = given = 0
    period, inner = period_of(load_scenario(scenario)), env.env
    for actions in make_actions(env, 5):
        _, rewards, dones, _ = env.step(actions)
        record, T_ref = inner.last_round, inner.reference_delay
        expected, relieved = cluster_rewards(reward, record, inner.scenario, T_ref, period)
        found, given, ended = env.cluster_rewards(), given + relieved, ended + dones.sum()
        assert found.dtype == np.float32
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)
        if per == "second" and reward != "delay":
            continue
        # All but what the slower ones add to each other's delay: with it the round's own reward is the sum.
        rest = env.last_info["delay"] - marginal_delay(record.costs.cluster_delay).sum(axis=-1)
        assert rewards == pytest.approx(found.sum(axis=-1) - rest / T_ref, rel=1e-4)
    # Also in the step in which episodes end, and the state is that of the next one already.
    assert ended == 4
    assert (given > 0) == (per == "second" and reward != "delay")


@pytest.mark.parametrize("form", FORMS[:2])
def test_clusters_are_paid_for_their_own_absence(form):
    env = support.adapted(SCENARIOS["absent"], num_envs=1, reward=form)
    env.reset()
    inner, cap, capped = env.env, env.env.scenario.budgets.backlog_cap, 0
    for plan in plans(inner):
        env.step_allocation(plan)
        record = inner.last_round
        expected, _ = cluster_rewards(form, record, inner.scenario, inner.reference_delay, None)
        assert env.cluster_rewards() == pytest.approx(expected, rel=1e-5)
        capped += (record.state.absence > cap).sum()
    assert capped > 0


def test_rewards_that_cannot_be_told_apart_are_refused():
    env = support.adapted("small", reward=lambda _b, costs, _a: -costs.delay)
    env.reset()
    env.step(make_actions(env, 1)[0])
    assert not env.rewards_clusters
    with pytest.raises(ScenarioError, match="cannot be split by cluster"):
        env.cluster_rewards()
    assert not support.adapted("relayed").rewards_clusters  # clusters wait for each other
    assert support.adapted("small").rewards_clusters


# Names and parts


@pytest.fixture
def registered(monkeypatch):
    """Nothing stays registered."""
    monkeypatch.setattr(REWARDS, "_added", {})


def loss_per_second(before, costs, after):
    """Decrease of the loss in a second [nat/s]."""
    return (before.loss - after.loss) / costs.delay


@pytest.mark.usefixtures("registered")
def test_a_registered_reward_is_a_name_and_a_class_makes_one_of_the_scenario():
    assert register_reward("loss_per_second", loss_per_second) is loss_per_second

    @register_reward("per_round")
    class PerRound:
        """Minus the delay over the rounds of an episode."""

        def __init__(self, scenario):
            self.rounds = scenario.dynamics.rounds

        def __call__(self, before, costs, after):  # noqa: ARG002
            return -costs.delay / self.rounds

    assert {"loss_per_second", "per_round"} < set(REWARDS)
    envs = [support.vector(reward=reward) for reward in ("loss_per_second", loss_per_second, "per_round")]
    for env in envs:
        env.reset(seed=5)
    for action in make_actions(envs[0], 3):
        by_name, by_hand, by_class = (env.step(action) for env in envs)
        np.testing.assert_array_equal(by_name[1], by_hand[1])
        np.testing.assert_allclose(by_class[1], -by_class[4]["delay"] / 4, rtol=1e-12)
    env = gym.make("CollaPipeSurrogate-v0", scenario="small", reward="loss_per_second")
    env.reset(seed=0)
    assert env.step(env.action_space.sample())[1] != 0.0


def test_names_of_rewards_that_are_refused():
    message = r"reward 'lyapunof' is not known: did you mean 'lyapunov'\?.*register_reward, on the command"
    with pytest.raises(ScenarioError, match=message):
        support.single(reward="lyapunof")
    with pytest.raises(ScenarioError, match="reward name 'delay' is taken by the package"):
        register_reward("delay", loss_per_second)
    with pytest.raises(ScenarioError, match=r"reward 'five': 5 cannot be called: register .* that is reward"):
        register_reward("five", 5)
    assert REWARDS.shipped() == ("lyapunov", "drift_plus_penalty", "delay", "time_to_target")


def test_nodes_and_targets_of_a_state():
    env = support.vector("uneven")
    env.reset(seed=0)
    present = node_present(env.state)
    assert present[..., 0].all()
    assert present[..., 1:].sum(axis=-1).tolist() == [[5, 3, 4, 5]] * ROWS
    tensors = env.state.map(torch.from_numpy)
    assert torch.equal(node_present(tensors), torch.from_numpy(present))
    losses = env.state.loss
    for target, expected in (
        (None, [False] * ROWS),
        (losses[1], losses <= losses[1]),
        (-1.0, [False] * ROWS),
    ):
        for state in (env.state, tensors):
            assert target_reached(state, target).tolist() == list(expected)
        assert target_reached(env.state, target).dtype == np.bool_
