"""A step of the graph net's training: gradients against differences and enumeration, and its plan."""

from dataclasses import replace

import graph_net_support as support
import numpy as np
import pytest
import torch
from oracles.counts import every_count, log_chances

from collapipe_env.agents.dssra import DSSRA, price_plan
from collapipe_env.agents.dssra.option_table import option_table, options_with
from collapipe_env.agents.dssra.round_input import round_input
from collapipe_env.agents.learned.graph.graph_costs import compare_counts
from collapipe_env.agents.learned.graph.graph_parameters import GraphParameters
from collapipe_env.agents.learned.graph.graph_scheduler import GraphScheduler, departed
from collapipe_env.agents.learned.graph.step import learn_and_play
from collapipe_env.agents.learned.graph.systems import Group
from collapipe_env.agents.learned.hyperparameters import usual
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.costs import round_costs

ALONE_LATE = support.ALONE.with_overrides(support.LATE_GAINS)
PARTS = ("blocks", "micro_batches", "bandwidth", "device_power", "cu_power")


def learn(net, group, samples=2, entropy=0.0, counts=0.0, micro_batches=0.0):
    p = usual(
        GraphParameters,
        samples=samples,
        fading_draws=3,
        counts_weight=counts,
        micro_batches_weight=micro_batches,
    )
    return learn_and_play(net, group, p, entropy, np.random.default_rng(0))


def objectives(scenario, truths, plan, draws=1):
    """``V max_n T_n`` plus the queues after, means over as many true states of each row (E,)."""
    many = plan[np.repeat(np.arange(len(plan.blocks)), draws)]
    costs = round_costs(system_parameters(scenario), truths, many)
    after = np.maximum(truths.backlog + costs.energy_ratio - 1.0, 0.0)
    latest = system_parameters(scenario).tradeoff_v * costs.cluster_delay.max(axis=-1)
    return (latest + 0.5 * (after**2).sum(axis=(-2, -1))).reshape(-1, draws).mean(axis=1)


@pytest.mark.parametrize(
    ("scenario", "part", "draws", "step", "rel"),
    [
        *(
            (support.SCENARIOS[name], part, 0, 0.02, 0.02)
            for name in ("small", "medium", "unequal")
            for part in ("chain_head", "node_head")
        ),
        (support.SMALL, "chain_head", 1, 0.05, 0.05),
        (ALONE_LATE, "chain_head", 3, 0.02, 0.02),
        (ALONE_LATE, "node_head", 3, 0.02, 0.02),
        (support.LATE, "share_head", 3, 0.02, 0.02),
    ],
)
def test_gradient_is_that_of_the_objective_of_the_plan_that_is_played(scenario, part, draws, step, rel):
    """Central differences of the (expected, with draws) objective through the simulator.

    Where gains are known, shares are settled anew on both sides of the difference, but held in the gradient.
    Where they are hidden, the best shares at the known gains would move with the powers: powers are those of
    one cluster, so that only the residual can move shares.

    The head's number moves by 0.02, a power by at most 2 %: differences of third order are some 1e-4, single
    precision of the net 1e-5 of the change.
    """
    hidden, scenario = draws > 1, support.loud(scenario)
    state = support.played_state(scenario, 2, 1)
    if not draws:
        # CUs without queues: their energy is not worth band, so shares are those of the earliest deadline.
        state.backlog[..., 0] = 0.0
    truths, draws = support.sampled(state, draws, 2) if hidden else state, max(draws, 1)
    surprises = hidden or step == 0.05

    def played(side):
        """The plan of a net whose head is moved, and the gradient along the way."""
        net = support.random_net(2, spread=0.2, shares=float(hidden))
        head = getattr(net, part)
        way = torch.from_numpy(np.random.default_rng(3).standard_normal(head.weight.shape[1])).float()
        way = 0.3 * way / way.norm()
        with torch.no_grad():
            head.bias[0] += side
            head.weight[0] += side * way
        group = support.group_of(scenario, state, truths, surprises=surprises)
        learn(net, group).total.backward()
        return group.played[0], float(head.bias.grad[0] + (way * head.weight.grad[0]).sum())

    (plan, found), values = played(0.0), []
    for side in (-step, step):
        other, _ = played(side)
        np.testing.assert_array_equal(other.blocks, plan.blocks)
        np.testing.assert_array_equal(other.micro_batches, plan.micro_batches)
        value = objectives(scenario, truths, other, draws) / support.sizes(scenario, truths, plan, draws)
        values.append(value.sum() / plan.bandwidth.size)
    slope = (values[1] - values[0]) / (2.0 * step)
    assert abs(slope) > 4e-5
    assert found == pytest.approx(slope, rel=rel)


def costs_of_counts(group, plans):
    """Relative costs of all counts of one cluster (P,), and of the plan's numbers of micro-batches."""
    played, state, p = group.played[0], group.known[:1], group.parameters
    share, worth = np.ones((1, 1)), np.empty((1, 1))
    option = options_with(option_table(p, 0), played.micro_batches[:1])
    cost, other = np.empty((1, 1, len(plans))), np.empty((1, 1, len(group.decider.choices)))
    compare_counts(
        round_input(p, state, option, exact_drift=True), group.decider.record, played.blocks[:1],
        np.ascontiguousarray(played.node_power[:1]), option, plans[None, None].copy(), share, worth, cost,
        other,
    )  # fmt: skip
    size = support.sizes(support.ALONE, state, played[:1])
    return (cost[0, 0] - cost.min()) / size, (other[0, 0] - other.min()) / size


def copies(rows, seed):
    """A group of one cluster, all of whose counts can be listed, in as many copies, and the counts."""
    state = support.played_state(support.ALONE, 1, seed, mean=1.0)
    cap = np.where(state.present, state.memory_cap, 0)[0, 0]
    plans = every_count(cap, support.ALONE.workload.blocks)
    return support.group_of(support.ALONE, state[np.zeros(rows, int)]), plans


@pytest.mark.parametrize(("samples", "entropy"), [(2, 0.0), (4, 0.3)])
def test_samples_give_the_exact_gradient_of_the_expected_cost_in_the_mean(samples, entropy):
    """Thousands of copies of the cluster draw for themselves."""
    rows = 3000
    group, plans = copies(rows, 3)
    net = support.random_net(2, spread=0.1)
    learn(net, group, samples, entropy, counts=1.0).total.backward()
    found = net.count_head.bias.grad.double().numpy()

    relative, _ = costs_of_counts(group, plans)
    assert relative.max() < 2.0  # none is cut off
    twin = support.random_net(2, spread=0.1).double()
    logits = support.answer(twin, support.ALONE, group.known[:1]).logits[0, 0]
    scores = torch.stack([logits[range(len(plan)), plan].sum() for plan in torch.from_numpy(plans)])
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


def test_entropy_is_that_of_the_counts():
    group, plans = copies(500, 3)
    net = support.random_net(2, spread=0.1)
    found = learn(net, group, samples=20).entropy
    with torch.no_grad():
        logits = support.answer(net, support.ALONE, group.known[:1]).logits[0, 0].numpy()
    chances = log_chances(logits, plans)
    assert found == pytest.approx(-(np.exp(chances) * chances).sum(), abs=0.04)


def test_micro_batches_learn_from_the_expected_regret_of_all_numbers():
    group, plans = copies(1, 4)
    net = support.random_net(2, spread=0.1)
    losses = learn(net, group, micro_batches=1.0)
    losses.total.backward()
    regret = np.minimum(costs_of_counts(group, plans[:1])[1], 3.0)
    twin = support.random_net(2, spread=0.1).double()
    answer = support.answer(twin, support.ALONE, group.known)
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
    scenario = support.loud(support.SCENARIOS[name])
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
    value = objectives(scenario, state, played) / support.sizes(scenario, state, played)
    assert losses.objective == pytest.approx(value.mean() / scenario.clusters, rel=1e-2)
    assert torch.isfinite(losses.total)


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
    alone.whole[:] = False
    assert float(learn(net, alone, counts=5.0, micro_batches=3.0).total.detach()) == 0.0


@pytest.mark.parametrize(
    "scenario", [support.LATE, support.MOVING_LATE, load_scenario("small-wild")], ids=lambda s: s.name
)
def test_plans_follow_from_what_is_known_and_are_those_of_the_scheduler(scenario):
    """The truths of other environments change what is learned, and not what is played."""
    group = Group(scenario, 4, life=10, seed=2)
    known, net = group.known, support.random_net(4)
    losses, played = [], []
    for seed, order in ((1, [0, 1, 2, 3]), (2, [2, 3, 1, 0])):
        truths, gains = support.sampled(group.truth, 2, seed), group.truth[np.repeat(order, 2)]
        truths = replace(truths, uplink_gain=gains.uplink_gain, d2d_gain=gains.d2d_gain)
        own = support.group_of(scenario, known, truths, surprises=True)
        losses.append(float(learn(net, own, counts=5.0).total.detach()))
        played += own.played
    assert losses[0] != losses[1]
    for part in PARTS:
        np.testing.assert_array_equal(getattr(played[0], part), getattr(played[1], part))
    found = GraphScheduler(scenario, net).allocate(known)
    np.testing.assert_array_equal(found.blocks, played[0].blocks)
    np.testing.assert_array_equal(found.micro_batches, played[0].micro_batches)
    np.testing.assert_allclose(found.cu_power, played[0].cu_power, rtol=1e-4)
    np.testing.assert_allclose(found.bandwidth, played[0].bandwidth, rtol=1e-3)
    exact = GraphScheduler(scenario, support.random_net(4, shares=0.0))
    assert np.abs(exact.allocate(known).bandwidth / found.bandwidth - 1.0).max() > 0.05


def test_where_gains_are_known_the_share_head_is_not_read():
    state = support.played_state(support.SMALL, 3, 1)
    plans = [
        GraphScheduler(support.SMALL, support.random_net(1, shares=scale)).allocate(state)
        for scale in (0.0, 1.0)
    ]
    for part in PARTS:
        np.testing.assert_array_equal(*(getattr(plan, part) for plan in plans))


def test_shares_depart_by_factors_of_what_is_above_the_floor():
    rng, floor = np.random.default_rng(0), 0.04
    share = floor + (1.0 - 6 * floor) * rng.dirichlet(np.ones(6), 5)
    share[0, :2] = floor, share[0, :2].sum() - floor
    residual = rng.standard_normal(share.shape)
    found = departed(share, torch.from_numpy(residual), floor).numpy()
    factors = np.maximum(share - floor, 1e-7) * np.exp(residual)
    wanted = floor + (1.0 - 6 * floor) * factors / factors.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    np.testing.assert_allclose(found.sum(axis=-1), 1.0, rtol=1e-12)
    held = departed(share, torch.zeros(5, 6), floor).numpy()
    np.testing.assert_allclose(held, share, atol=1e-6)
