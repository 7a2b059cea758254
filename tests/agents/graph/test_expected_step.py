"""Training for surprises: plans depend on what is known alone, and pay the cost over what may be true."""

from dataclasses import replace
from typing import Any

import graph_net_support as support
import numpy as np
import pytest
import torch
from scipy.optimize import brentq

from collapipe_env.agents.dssra.option_table import option_table, options_with
from collapipe_env.agents.dssra.parallel_rounds import as_record
from collapipe_env.agents.dssra.round_input import round_input
from collapipe_env.agents.learned.graph.graph_costs import expected_costs
from collapipe_env.agents.learned.graph.graph_parameters import GraphParameters
from collapipe_env.agents.learned.graph.graph_scheduler import GraphScheduler, departed
from collapipe_env.agents.learned.graph.step import learn_and_play
from collapipe_env.agents.learned.graph.systems import Group
from collapipe_env.agents.learned.hyperparameters import usual
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.costs import round_costs

LATE = {"dynamics.processes.channel_knowledge": {"modes": ["delayed", "noisy"]}}
CHANNEL = support.SMALL.with_overrides(LATE)
MOVING = support.BOARDS.with_overrides(LATE)
WILD = load_scenario("small-wild")
PARTS = ("blocks", "micro_batches", "bandwidth", "device_power", "cu_power")


def sampled(state, draws, seed):
    """True states (E D, ...) with other gains for every draw."""
    rows, rng = np.repeat(np.arange(len(state.present)), draws), np.random.default_rng([seed, 5])
    state = state[rows]
    pairs = rng.gamma(2.0, 0.5, state.d2d_gain.shape)
    return replace(
        state,
        uplink_gain=state.uplink_gain * rng.gamma(2.0, 0.5, state.uplink_gain.shape),
        d2d_gain=state.d2d_gain * (pairs + pairs.swapaxes(-1, -2)) / 2.0,
    )


def learn(net, group, **weights):
    p = usual(
        GraphParameters,
        samples=2,
        fading_draws=3,
        **{"counts_weight": 0.0, "micro_batches_weight": 0.0} | weights,
    )
    return learn_and_play(net, group, p, 0.0, np.random.default_rng(0))


def value_of(scenario, truths, plan, draws):
    """Delays of the clusters (E D, N), and their drifts (E D, N), through the simulator."""
    many = plan[np.repeat(np.arange(len(plan.blocks)), draws)]
    costs = round_costs(system_parameters(scenario), truths, many)
    after = np.maximum(truths.backlog + costs.energy_ratio - 1.0, 0.0)
    return costs.cluster_delay, 0.5 * (after**2).sum(axis=-1)


def more_band(plan):
    """The plan with 1.05 times its shares, so that the uplink's part of delays shows."""
    return replace(plan, bandwidth=1.05 * plan.bandwidth)


def solved(n, later, own, share, uplink):
    """Common delay after which the shares of clusters of delays ``a + u / b`` have the same sum again."""
    if later == 0.0:
        return 0.0
    u, fixed = share * uplink, -uplink
    u[n], fixed[n] = share[n] * own, later - own
    low = fixed.max()
    return brentq(lambda x: (u / (x - fixed)).sum() - share.sum(), low + 1e-9, max(later, 0.0) + 1e-9)


@pytest.mark.parametrize("exact", [False, True], ids=["hidden", "exact"])
@pytest.mark.parametrize("scenario", [CHANNEL, MOVING, WILD], ids=lambda s: s.name)
def test_costs_of_other_plans_are_those_of_the_simulator_with_the_others_held(scenario, exact):
    p, draws = system_parameters(scenario), 4
    group = Group(scenario, 3, life=10, seed=1)
    nets = [support.scheduler(scenario, seed) for seed in (1, 2)]
    group.play(nets[0].allocate(group.known))
    state = group.truth
    backlog = np.random.default_rng(3).exponential(1.0, state.backlog.shape)
    state = replace(state, backlog=backlog)
    truths = sampled(state, draws, 1)
    plan, other = (net.allocate(state) for net in nets)
    share = np.ascontiguousarray(plan.bandwidth)
    segments = np.stack((plan.blocks, other.blocks, plan.blocks), axis=2)
    own = options_with(option_table(p, 0), plan.micro_batches)
    option = np.stack((own, own, np.zeros_like(own)), axis=2)
    known, inputs = (round_input(p, of, exact_drift=True) for of in (state, truths))
    cost, rng = np.empty(option.shape), np.random.default_rng(8)
    record: Any = as_record(p.numbers)
    power = np.ascontiguousarray(plan.node_power)
    part = rng.dirichlet(np.ones(p.clusters), 3)
    strikes = (len(truths.present), 2, *truths.present.shape[1:])  # two draws of failures for each of gains
    longer = np.where(rng.random(strikes) < 0.3, rng.random(strikes), 0.0)
    each = longer.reshape(-1, *truths.present.shape[1:])
    expected_costs(known, inputs, record, power, share, part, segments, option, each, exact, cost)

    rows = np.repeat(np.arange(3), draws)
    many = plan[rows]
    held, seen = round_costs(p, truths, many), round_costs(p, state[rows], many)
    own = held.cluster_delay[:, None] * (1.0 + np.where(many.blocks[:, None] > 0, longer, 0.0).max(axis=-1))
    quicker = round_costs(p, state[rows], more_band(many), interference_w=seen.interference).cluster_delay
    of_plan = (seen.cluster_delay - quicker) / (1.0 - 1.0 / 1.05)
    least = 0.5 * (np.maximum(truths.live_backlog - 1.0, 0.0) ** 2).sum(axis=-1)
    for c in range(3):
        # The simulator's moments of other blocks have other interference, which the comparison holds.
        moved = c == 1 and group.decider.moves(state)
        changed = replace(
            many, blocks=segments[rows, :, c], micro_batches=known.options[0, option[rows, :, c], 0]
        )
        costs = round_costs(p, truths, changed, interference_w=held.interference)
        at_known = round_costs(p, state[rows], changed, interference_w=seen.interference).cluster_delay
        later = at_known - seen.cluster_delay
        quicker = round_costs(
            p, state[rows], more_band(changed), interference_w=seen.interference
        ).cluster_delay
        uplink = (at_known - quicker) / (1.0 - 1.0 / 1.05)
        failing = 1.0 + np.where(changed.blocks[:, None] > 0, longer, 0.0).max(axis=-1)
        ends = (costs.cluster_delay - later)[:, None] * failing
        after = np.maximum(truths.live_backlog + costs.energy_ratio - 1.0, 0.0)
        drift = 0.5 * (after**2).sum(axis=-1) - least
        for n in range(p.clusters):
            others = np.delete(own, n, axis=2).max(axis=2)
            everybody = [
                part[rows[r], n] * later[r, n]
                if exact
                else solved(n, later[r, n], uplink[r, n], many.bandwidth[r], of_plan[r])
                for r in range(len(rows))
            ]
            latest = np.maximum(ends[..., n], others).mean(axis=1) + everybody
            value = p.tradeoff_v * latest + drift[:, n]
            np.testing.assert_allclose(
                cost[:, n, c], value.reshape(3, draws).mean(axis=1), rtol=2e-3 if moved else 1e-12
            )


@pytest.mark.parametrize(
    ("part", "scenario", "draws", "step", "rel"),
    [
        ("chain_head", "alone", 3, 0.02, 0.02),
        ("node_head", "alone", 3, 0.02, 0.02),
        ("share_head", "hidden", 3, 0.02, 0.02),
        ("chain_head", "known", 1, 0.05, 0.05),
    ],
)
def test_gradient_is_that_of_the_expected_objective_of_the_plan_that_is_played(
    part, scenario, draws, step, rel
):
    """Central differences of the objective through the simulator, for the plan as it is played.

    Where gains are hidden, the best shares at the known gains move with the powers, but the gradient holds
    them: powers are those of one cluster, so that only the residual can move shares. Where gains are known,
    shares are optimised anew on both sides.
    """
    scenario = {"alone": ALONE, "hidden": CHANNEL, "known": support.SMALL}[scenario]
    shares = float(scenario is not support.SMALL)
    state = support.played_state(scenario, 2, 1)
    truths = sampled(state, draws, 2) if shares else state
    net = support.random_net(2, spread=0.2, shares=shares)
    group = support.group_of(scenario, state, truths, surprises=True)
    learn(net, group).total.backward()
    head = getattr(net, part)
    way = torch.from_numpy(np.random.default_rng(3).standard_normal(head.weight.shape[1])).float()
    way = 0.3 * way / way.norm()
    found = float((way * head.weight.grad[0]).sum())
    values, scale = [], support.sizes(scenario, truths, group.played[0], draws)
    for side in (-step, step):
        moved = support.random_net(2, spread=0.2, shares=shares)
        with torch.no_grad():
            getattr(moved, part).weight[0] += side * way
        other = support.group_of(scenario, state, truths, surprises=True)
        learn(moved, other)
        (plan,) = other.played
        np.testing.assert_array_equal(plan.blocks, group.played[0].blocks)
        np.testing.assert_array_equal(plan.micro_batches, group.played[0].micro_batches)
        delay, drift = value_of(scenario, truths, plan, draws)
        value = scenario.budgets.tradeoff_v * delay.max(axis=-1) + drift.sum(axis=-1)
        values.append((value.reshape(2, draws).mean(axis=1) / scale).sum() / plan.bandwidth.size)
    slope = (values[1] - values[0]) / (2.0 * step)
    assert abs(slope) > 5e-5
    assert found == pytest.approx(slope, rel=rel)


ALONE = support.ALONE.with_overrides(LATE)


@pytest.mark.parametrize("scenario", [CHANNEL, MOVING, WILD], ids=lambda s: s.name)
def test_plans_follow_from_what_is_known_and_are_those_of_the_scheduler(scenario):
    """The truths of other environments change what is learned, and not what is played."""
    group = Group(scenario, 4, life=10, seed=2)
    known, net = group.known, support.random_net(4)
    losses, played = [], []
    for seed, order in ((1, [0, 1, 2, 3]), (2, [2, 3, 1, 0])):
        truths = sampled(group.truth, 2, seed)
        gains = group.truth[np.repeat(order, 2)]
        truths = replace(truths, uplink_gain=gains.uplink_gain, d2d_gain=gains.d2d_gain)
        own = support.group_of(scenario, known, truths, surprises=True)
        losses.append(float(learn(net, own, counts_weight=5.0).total.detach()))
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


def test_where_gains_are_known_the_share_head_is_not_read():
    state = support.played_state(support.SMALL, 3, 1)
    plans = [
        GraphScheduler(support.SMALL, support.random_net(1, shares=scale)).allocate(state)
        for scale in (0.0, 1.0)
    ]
    for part in PARTS:
        np.testing.assert_array_equal(*(getattr(plan, part) for plan in plans))


@pytest.mark.parametrize(
    "name", ["small", "small-migration", "small-churn", "small-stale", "small-trace-like"]
)
def test_gains_are_exact_where_the_known_ones_are_those_of_the_round(name):
    group = Group(load_scenario(name), 2, life=10, seed=3)
    same = [
        np.array_equal(getattr(group.known, of), getattr(group.truth, of))
        for of in ("uplink_gain", "d2d_gain")
    ]
    assert group.exact == all(same)


def test_possible_truths_differ_from_the_truth_in_fading_of_the_right_spread_alone():
    scenario = CHANNEL.with_overrides({"radio.diversity": 4})
    group, draws = Group(scenario, 2, life=10, seed=3), 4000
    truths, truth = group.possible_truths(draws, np.random.default_rng(1)), group.env.truth
    np.testing.assert_array_equal(truths.speed, truth.speed[np.repeat([0, 1], draws)])
    fading = group.env._mdp.world.system.carried["fading"]["gain"][:, : scenario.clusters]
    path = truth.uplink_gain / fading
    ratio = truths.uplink_gain.reshape(2, draws, -1) / path[:, None]
    np.testing.assert_allclose(ratio.mean(axis=1), 1.0, atol=5.0 * 0.5 / np.sqrt(draws))
    np.testing.assert_allclose(ratio.var(axis=1), 1.0 / 4.0, rtol=0.15)
    np.testing.assert_array_equal(truths.d2d_gain, truths.d2d_gain.swapaxes(-1, -2))


@pytest.mark.parametrize(
    "changes",
    [
        {"dynamics.processes.channel_knowledge": {"modes": ["noisy"]}},
        {"radio.fading_correlation": 0.9},
    ],
)
def test_fading_of_which_something_is_known_is_not_drawn_anew(changes):
    group = Group(CHANNEL.with_overrides(changes), 2, life=10, seed=3)
    np.testing.assert_array_equal(
        group.possible_truths(8, np.random.default_rng(1)).d2d_gain, group.truth.d2d_gain
    )


def test_failures_come_with_their_estimated_probabilities_and_costs_of_replayed_rounds():
    scenario = load_scenario("medium-churn")
    group, draws = Group(scenario, 3, life=20, seed=4), 3000
    net = support.scheduler(scenario, 1)
    for _ in range(3):
        plan = net.allocate(group.known)
        group.play(plan)
    plan, state, rng = net.allocate(group.known), group.known, np.random.default_rng(2)
    found = group.possible_failures(plan, draws, rng).reshape(3, draws, *state.present.shape[1:])
    risk = np.where(state.present, state.processes["presence"]["risk"], 0.0)
    assert risk.max() > 0.03
    struck = found > 0.0
    costly = struck.sum() / (risk.sum() * draws)  # some failures come too late to matter
    assert 0.2 < costly <= 1.01
    np.testing.assert_allclose(struck.mean(axis=1), risk * costly, atol=5.0 * 0.5 / np.sqrt(draws))
    assert not struck.any(axis=1)[~state.present].any()
    # A cluster that loses a device loses at most the round and a slower repetition of it.
    assert 0.2 < np.median(found[struck]) < 1.5
