"""Foresight of the graph net's training: returns, imagined heat, and the critic, against independent ways."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from collapipe_env.agents.learned.graph.foresight import TRACE, WINDOW, Foresight, Transition, returns
from collapipe_env.agents.learned.graph.heat_after import HeatAfter
from collapipe_env.agents.learned.graph.heat_critic import CriticInputs, critic_inputs
from collapipe_env.agents.learned.graph.training_groups import Group
from collapipe_env.allocation import Allocation
from collapipe_env.dynamics.process_registry import active_processes
from collapipe_env.errors import ScenarioError
from collapipe_env.scenario import load_scenario

THERMAL = load_scenario("small-thermal")
ALONE = load_scenario(
    {
        "base": "small-thermal",
        "cluster": {"clusters": 1},
        "radio": {"uplink_bandwidth_hz": 5e6, "bs_power_w": 5},
    }
)


def plan_of(group, seed=0, count=1):
    """Random plans (E, count, ...) with equal shares and full power."""
    state, rng, p = group.env.state, np.random.default_rng(seed), group.parameters
    E, N, K = state.present.shape
    L = p.costs.blocks
    blocks = np.stack(
        [rng.multinomial(L, np.full(K, 1.0 / K), size=(E, N)) for _ in range(count)], axis=1
    ).astype(np.int64)
    over = (blocks > state.memory_cap[:, None]).any(axis=-1, keepdims=True)
    blocks = np.where(over, L // K, blocks)
    return Allocation(
        blocks=blocks,
        micro_batches=rng.choice(group.choices, (E, count, N)).astype(np.int64),
        bandwidth=np.full((E, count, N), 1.0 / N),
        device_power=np.full((E, count, N, K), p.power_max_w),
        cu_power=np.full((E, count, N), p.power_max_w),
    )


def one(plans, index):
    """One of the plans of every environment."""
    names = ("blocks", "micro_batches", "bandwidth", "device_power", "cu_power")
    return Allocation(**{name: getattr(plans, name)[:, index] for name in names})


def heat_of(group):
    return next(p for p in active_processes(group.scenario) if p.name == "heat")


def warm_group(scenario, environments, rounds=6, seed=0):
    group = Group(scenario, environments, 400, seed)
    for t in range(rounds):
        group.env.step_allocation(one(plan_of(group, t), 0))
    return group


def test_returns_are_mixtures_of_returns_over_all_numbers_of_rounds():
    rng, W, mean, horizon = np.random.default_rng(3), 7, 25.0, 200.0
    delay, after = rng.uniform(10.0, 40.0, (W, 2)), rng.normal(size=(W, 2))
    ended = np.zeros((W, 2), bool)
    ended[4, 1] = True
    found = returns(delay, ended, after, mean, horizon)
    for e in range(2):
        for t in range(W):
            last = next((i for i in range(t, W) if ended[i, e]), W - 1)
            total, weight = 0.0, 1.0
            for n in range(t, last + 1):
                seconds, value = 0.0, 0.0
                for i in range(t, n + 1):
                    value += math.exp(-seconds / horizon) * (delay[i, e] / mean - 1.0)
                    seconds += delay[i, e]
                value += math.exp(-seconds / horizon) * after[n, e]
                part = weight if n == last else weight * (1.0 - TRACE)
                total, weight = total + part * value, weight * TRACE
            assert found[t, e] == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize("scenario", [THERMAL, ALONE], ids=["small", "alone"])
def test_the_heat_that_a_plan_leaves_is_that_of_the_environment(scenario):
    group = warm_group(scenario, 8)
    plans, weight = plan_of(group, 9, count=3), np.full((8, scenario.clusters), 1.0 / scenario.clusters)
    state = group.env.state
    after = HeatAfter(heat_of(group), group.parameters, state, plans, weight)
    group.env.step_allocation(one(plans, 0))
    played = group.env.state.processes["heat"]
    np.testing.assert_allclose(after.headroom[:, 0], played["headroom"], rtol=1e-9)
    np.testing.assert_array_equal(after.share[:, 0], played["share"])
    assert (after.headroom[:, 0] > 0.2).any()


def test_the_heat_of_another_plan_of_a_single_cluster_is_that_of_the_environment():
    """Of one cluster the round is as long as its own delay, so nothing is approximate."""
    groups = [warm_group(ALONE, 6) for _ in range(2)]
    plans = plan_of(groups[0], 5, count=2)
    after = HeatAfter(heat_of(groups[0]), groups[0].parameters, groups[0].env.state, plans, np.ones((6, 1)))
    for index, group in enumerate(groups):
        group.env.step_allocation(one(plans, index))
        played = group.env.state.processes["heat"]
        np.testing.assert_allclose(after.headroom[:, index], played["headroom"], rtol=1e-9)
    assert np.abs(after.headroom[:, 0] - after.headroom[:, 1]).max() > 1e-3


def test_charges_are_the_discounted_value_of_what_a_choice_leaves():
    group, foresight = warm_group(ALONE, 4), Foresight(900.0)
    # A value that can be read off the environment.
    foresight.critic = lambda inputs: inputs.heat[..., 0].sum(dim=-1)
    plan, V = one(plan_of(group, 1), 0), group.parameters.tradeoff_v
    samples = np.repeat(plan.blocks[:, :, None], 2, axis=2)
    worth = np.full((4, 1), V)
    of_samples, of_choices = foresight.charges(group, plan, worth, samples, group.choices)
    # The plan's own blocks cost what the plan leaves; so does its own number of micro-batches.
    own = (group.choices == plan.micro_batches[..., None]).nonzero()[2]
    np.testing.assert_allclose(of_samples[:, 0, 0], of_samples[:, 0, 1])
    np.testing.assert_allclose(of_choices[np.arange(4), 0, own], of_samples[:, 0, 0], rtol=1e-6)
    delay = group.env.step_allocation(plan)[4]["delay"]
    left = group.env.state.processes["heat"]["headroom"].sum(axis=(-2, -1))
    wanted = V * delay.mean() * np.exp(-delay / 900.0) * left
    np.testing.assert_allclose(of_samples[:, 0, 0], wanted, rtol=1e-5)


def test_nothing_is_charged_where_devices_do_not_warm_up():
    group, foresight = Group(load_scenario("small"), 3, 100, 0), Foresight(900.0)
    plan = one(plan_of(group), 0)
    samples = np.repeat(plan.blocks[:, :, None], 4, axis=2)
    of_samples, of_choices = foresight.charges(group, plan, np.ones((3, 2)), samples, group.choices)
    assert of_samples.shape == (3, 2, 4)
    assert of_choices.shape == (3, 2, len(group.choices))
    assert not of_samples.any()
    assert not of_choices.any()


@pytest.mark.slow
def test_the_critic_learns_the_value_of_a_lasting_delay():
    """Rounds as long as a constant headroom says: the value is a geometric series."""
    torch.manual_seed(0)
    rng, foresight, E, horizon = np.random.default_rng(0), Foresight(600.0), 48, 600.0
    headroom = rng.uniform(0.2, 1.2, E)
    delay = 20.0 + 20.0 * headroom
    heat = torch.zeros(E, 1, 2, 3)
    heat[..., 0] = torch.from_numpy(headroom).float()[:, None, None]
    inputs = CriticInputs(torch.ones(E, 1, 2, 3), heat, torch.ones(E, 1, 2))
    transition = Transition(inputs, inputs, delay, np.zeros(E, bool), np.ones(E, bool))
    for _ in range(40):
        foresight._learn("name", [transition] * WINDOW)
    with torch.no_grad():
        found = foresight.critic(inputs).sum(dim=-1).numpy()
    wanted = (delay / delay.mean() - 1.0) / (1.0 - np.exp(-delay / horizon))
    assert np.abs(wanted).max() > 4.0
    assert np.abs(found - wanted).max() < 0.6
    assert foresight.error < 0.5


def test_the_critic_sees_the_full_clock_of_a_device_that_is_slowed_down():
    group = warm_group(THERMAL, 4)
    state = group.env.state
    heat = dict(state.processes["heat"])
    slow = replace(
        state,
        speed=0.25 * state.speed,
        processes={"heat": {**heat, "share": 0.25 * np.ones_like(heat["share"])}},
    )
    full = replace(state, processes={"heat": {**heat, "share": np.ones_like(heat["share"])}})
    first, second = (
        critic_inputs(
            SimpleNamespace(
                env=SimpleNamespace(state=s), observer=group.observer, parameters=group.parameters
            )
        )
        for s in (slow, full)
    )
    torch.testing.assert_close(first.steady, second.steady, rtol=1e-5, atol=1e-5)
    assert (first.heat != second.heat).any()


def test_a_horizon_needs_heat_that_follows_the_delays():
    scenario = THERMAL.with_overrides({"dynamics.time_base": "reference"})
    group, foresight = Group(scenario, 2, 100, 0), Foresight(900.0)
    plan = one(plan_of(group), 0)
    samples = np.repeat(plan.blocks[:, :, None], 2, axis=2)
    with pytest.raises(ScenarioError, match="time_base = 'reference' does not suit"):
        foresight.charges(group, plan, np.ones((2, 2)), samples, group.choices)


def test_now_and_then_the_micro_batches_of_no_foresight_are_played_and_the_critic_leaves_that_out():
    torch.manual_seed(0)
    group, foresight = Group(THERMAL, 400, 400, 0), Foresight(900.0)
    plan = one(plan_of(group), 0)
    cost = np.random.default_rng(0).random((400, 2, len(group.choices)))
    assert foresight.explored(group, plan, cost) is plan  # nothing is priced
    samples = np.repeat(plan.blocks[:, :, None], 2, axis=2)
    shares = []
    for _ in range(120):
        foresight._pending = None, None, None, None
        played = foresight.explored(group, plan, cost)
        own = foresight._pending[3]
        wanted = np.where(own[:, None], plan.micro_batches, group.choices[cost.argmin(axis=-1)])
        np.testing.assert_array_equal(played.micro_batches, wanted)
        shares.append(1.0 - own.mean())
    # A chain that begins with 0.02 and ends with 0.1 a round is on in a sixth of them.
    assert np.mean(shares[40:]) == pytest.approx(1.0 / 6.0, abs=0.03)
    foresight._pending = None
    foresight.charges(group, plan, np.ones((400, 2)), samples, group.choices)
    foresight.explored(group, plan, cost)
    foresight.played(group)
    transition = foresight._windows[group][0]
    assert 0.05 < 1.0 - transition.own.mean() < 0.3
    # Rounds of others' plans teach nothing, whatever they took.
    odd = transition._replace(delay=np.where(transition.own, transition.delay, 1e3 * transition.delay))
    second = Foresight(900.0)
    second.critic.load_state_dict(foresight.critic.state_dict())
    for learner, one_round in ((foresight, transition), (second, odd)):
        learner._rng = np.random.default_rng(1)
        learner._learn("name", [one_round] * WINDOW)
    for first, other in zip(foresight.critic.parameters(), second.critic.parameters(), strict=True):
        torch.testing.assert_close(first, other)
