"""A step of the graph net's training: gradients against finite differences and enumeration."""

import itertools

import graph_net_support as support
import numpy as np
import pytest
import torch

from collapipe_env.agents.dssra import DSSRA, price_plan
from collapipe_env.agents.dssra.option_table import option_table, options_with
from collapipe_env.agents.dssra.round_input import round_input
from collapipe_env.agents.learned.graph.graph_costs import compare_counts
from collapipe_env.agents.learned.graph.graph_parameters import GraphParameters
from collapipe_env.agents.learned.graph.graph_scheduler import GraphScheduler
from collapipe_env.agents.learned.graph.step import learn_and_play
from collapipe_env.agents.learned.graph.systems import Group
from collapipe_env.agents.learned.hyperparameters import usual
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.costs import round_costs


def learn(net, group, samples=2, entropy=0.0, counts=0.0, micro_batches=0.0):
    p = usual(GraphParameters, samples=samples, counts_weight=counts, micro_batches_weight=micro_batches)
    return learn_and_play(net, group, p, entropy, np.random.default_rng(0))


@pytest.mark.parametrize("name", ["small", "medium", "unequal"])
@pytest.mark.parametrize("part", ["cu", "device"])
def test_gradient_of_the_powers_is_that_of_the_objective_with_its_best_shares(name, part):
    """Shares are settled anew on both sides of the difference, but held in the gradient.

    The head's number moves by 0.02, a power by at most 2 %: differences of third order are some 1e-4, single
    precision of the net 1e-5 of the change.
    """
    scenario = support.SCENARIOS[name]
    # CUs without queues: their energy is not worth band, so that shares are those of the earliest deadline.
    state = support.played_state(scenario, 2, 1, mean=2.0)
    state.backlog[..., 0] = 0.0
    net = support.random_net(2, spread=0.2)
    group = support.group_of(scenario, state)
    learn(net, group).total.backward()
    row = 0  # of the heads: the power
    head = net.chain_head if part == "cu" else net.node_head
    way = torch.from_numpy(np.random.default_rng(3).standard_normal(head.weight.shape[1])).float()
    way = 0.3 * way / way.norm()
    found = float(head.bias.grad[row] + (way * head.weight.grad[row]).sum())
    objective, values, step = DSSRA(scenario).objective, [], 0.02
    scale = support.sizes(scenario, state, group.played[0])
    for side in (-step, step):
        moved = support.random_net(2, spread=0.2)
        other = moved.chain_head if part == "cu" else moved.node_head
        with torch.no_grad():
            other.bias[row] += side
            other.weight[row] += side * way
        plan = GraphScheduler(scenario, moved).allocate(state)
        np.testing.assert_array_equal(plan.blocks, group.played[0].blocks)
        values.append((objective(state, plan) / scale).sum() / np.prod(plan.cu_power.shape))
    slope = (values[1] - values[0]) / (2.0 * step)
    assert abs(slope) > 5e-5
    assert found == pytest.approx(slope, rel=0.02)


def every_plan(cap, blocks):
    plans = itertools.product(*(range(c + 1) for c in cap))
    return np.array([plan for plan in plans if sum(plan) == blocks])


def costs_of_counts(group, net, plans):
    """Relative costs of all counts of one cluster, by a comparison of all of them (P,)."""
    scenario_plan = group.played[0]
    state, p = group.known[:1], group.parameters
    share, worth = np.ones((1, 1)), np.empty((1, 1))
    power = scenario_plan.node_power[:1]
    option = options_with(option_table(p, 0), scenario_plan.micro_batches[:1])
    cost, other = np.empty((1, 1, len(plans))), np.empty((1, 1, len(group.decider.choices)))
    inputs = round_input(p, state, option, exact_drift=True)
    compare_counts(
        inputs, group.decider.record, scenario_plan.blocks[:1], np.ascontiguousarray(power), option,
        plans[None, None].copy(), share, worth, cost, other,
    )  # fmt: skip
    return cost[0, 0], other[0, 0]


@pytest.mark.parametrize(("samples", "entropy"), [(2, 0.0), (4, 0.0), (4, 0.3)])
def test_samples_give_the_exact_gradient_of_the_expected_cost_in_the_mean(samples, entropy):
    """One cluster, all of whose counts can be listed; thousands of copies of it draw for themselves."""
    scenario, rows = support.ALONE, 3000
    state = support.played_state(scenario, 1, 3, mean=1.0)
    net = support.random_net(1, spread=0.1)
    group = support.group_of(scenario, state[np.zeros(rows, int)])
    learn(net, group, samples, entropy, counts=1.0).total.backward()
    found = net.count_head.bias.grad.double().numpy()

    state = group.known[:1]
    cap = np.where(state.present, state.memory_cap, 0)[0, 0]
    plans = every_plan(cap, scenario.workload.blocks)
    cost, _ = costs_of_counts(group, net, plans)
    relative = (cost - cost.min()) / support.sizes(scenario, state, group.played[0][:1])
    assert relative.max() < 2.0  # none is cut off
    twin = support.random_net(1, spread=0.1).double()
    answer = support.answer(twin, scenario, state)
    logits = answer.logits[0, 0]
    scores = torch.stack([logits[range(len(cap)), plan].sum() for plan in torch.from_numpy(plans)])
    chances = scores.log_softmax(dim=0)
    expected = (chances.exp() * (torch.from_numpy(relative) + entropy * chances)).sum()
    # The spread of a single sample's part, to know how far a mean may be off.
    parts = []
    for value in scores:
        (gradient,) = torch.autograd.grad(value, twin.count_head.bias, retain_graph=True)
        parts.append(gradient.numpy())
    chance = chances.detach().exp().numpy()
    signal = relative + entropy * chances.detach().numpy()
    signal = signal - chance @ signal
    parts = (np.array(parts) - chance @ np.array(parts)) * signal[:, None]
    spread = np.sqrt(chance @ parts**2)
    expected.backward()
    exact = twin.count_head.bias.grad.numpy()
    assert np.abs(exact).max() > 18 * spread.max() / np.sqrt(rows * samples)
    # Two samples' baseline is as rough as a sample: twice the variance.
    assert (np.abs(found - exact) <= 5.0 * 1.5 * spread / np.sqrt(rows * samples) + 1e-6).all()


def test_micro_batches_learn_from_the_expected_regret_of_all_numbers():
    scenario = support.ALONE
    group = support.group_of(scenario, support.played_state(scenario, 1, 4, mean=1.0))
    net = support.random_net(5, spread=0.1)
    losses = learn(net, group, micro_batches=1.0)
    losses.total.backward()
    plans = every_plan([6, 6, 6], 6)[:1]
    _, cost = costs_of_counts(group, net, plans)
    size = support.sizes(scenario, group.known, group.played[0])
    regret = np.minimum((cost - cost.min()) / size, 3.0)
    twin = support.random_net(5, spread=0.1).double()
    answer = support.answer(twin, scenario, group.known)
    apart = torch.from_numpy(np.log2(group.decider.choices)) - answer.log2_micro_batches[..., None]
    logits = -answer.sharpness[..., None] * apart**2
    expected = (logits.softmax(dim=-1) * torch.from_numpy(regret)).sum()
    expected.backward()
    for row in (1, 2):  # of the head: the number and the sharpness
        wanted = float(twin.chain_head.bias.grad[row])
        assert abs(wanted) > 1e-6
        assert float(net.chain_head.bias.grad[row]) == pytest.approx(wanted, rel=1e-3, abs=1e-6)
    assert losses.micro_batches == pytest.approx(regret[int(logits.argmax())], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("name", support.SCENARIOS)
def test_the_most_likely_plan_is_played_with_its_best_shares(name):
    scenario = support.SCENARIOS[name]
    state, net = support.played_state(scenario, 3, 6), support.random_net(6)
    group = support.group_of(scenario, state)
    losses = learn(net, group, samples=3, entropy=0.01, counts=5.0, micro_batches=3.0)
    (played,) = group.played
    wanted = GraphScheduler(scenario, net).allocate(state)
    np.testing.assert_allclose(wanted.bandwidth, price_plan(scenario, state, wanted).shares, rtol=1e-5)
    np.testing.assert_array_equal(played.blocks, wanted.blocks)
    np.testing.assert_array_equal(played.micro_batches, wanted.micro_batches)
    np.testing.assert_allclose(played.cu_power, wanted.cu_power, rtol=1e-4)
    used = played.blocks > 0
    np.testing.assert_allclose(played.device_power[used], wanted.device_power[used], rtol=1e-4)
    objective = DSSRA(scenario).objective
    np.testing.assert_allclose(objective(state, played), objective(state, wanted), rtol=1e-3)

    costs = round_costs(system_parameters(scenario), state, played)
    after = np.maximum(state.backlog + costs.energy_ratio - 1.0, 0.0)
    slowest = costs.cluster_delay.max(axis=-1)
    value = scenario.budgets.tradeoff_v * slowest + 0.5 * (after**2).sum(axis=(-2, -1))
    value = (value / support.sizes(scenario, state, played)).mean() / scenario.clusters
    assert losses.objective == pytest.approx(value, rel=1e-2)
    assert torch.isfinite(losses.total)


def test_entropy_is_that_of_the_counts():
    scenario = support.ALONE
    state = support.played_state(scenario, 1, 3)
    group = support.group_of(scenario, state[np.zeros(500, int)])
    net = support.random_net(1, spread=0.1)
    found = learn(net, group, samples=20).entropy
    state = group.known[:1]
    plans = every_plan(np.where(state.present, state.memory_cap, 0)[0, 0], 6)
    with torch.no_grad():
        logits = support.answer(net, scenario, state).logits[0, 0].numpy()
    scores = np.take_along_axis(logits, plans.T, axis=1).sum(axis=0)
    chance = np.exp(scores) / np.exp(scores).sum()
    assert found == pytest.approx(-(chance * np.log(chance)).sum(), abs=0.04)


def test_clusters_that_cannot_hold_the_encoder_sit_out_and_their_environments_teach_nothing(monkeypatch):
    monkeypatch.setattr(Group, "surprises", False)
    scenario, net = load_scenario("small-churn"), support.random_net(6)
    group = Group(scenario, 24, life=10, seed=0)
    whole = group.whole
    assert 0 < whole.sum() < len(whole)
    able, alone = group.able, support.group_of(scenario, group.truth[np.flatnonzero(whole)])
    losses, wanted = learn(net, group), learn(net, alone)
    assert group.age == 1
    np.testing.assert_array_equal(group.env.last_round.allocation.participates != 0, able)
    assert float(losses.total.detach()) == pytest.approx(float(wanted.total.detach()), rel=1e-6)
