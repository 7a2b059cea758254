"""Costs that the graph net learns from, and stays by, against the simulator's with the rest held."""

from dataclasses import replace
from typing import Any

import graph_net_support as support
import numpy as np
import pytest
from oracles.changed_plans import HeldPrices, common_delay

from collapipe_env.agents.dssra import DSSRA, price_plan
from collapipe_env.agents.dssra.option_table import option_table, options_with
from collapipe_env.agents.dssra.parallel_rounds import as_record
from collapipe_env.agents.dssra.round_input import round_input
from collapipe_env.agents.learned.graph.graph_costs import cheaper_to_stay, compare_counts, expected_costs
from collapipe_env.agents.learned.graph.systems import Group
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import action_codec, system_parameters
from collapipe_env.simulator.costs import round_costs

SCENARIOS = {
    "small": support.SMALL,
    "medium": support.MEDIUM,
    "unequal": support.UNEQUAL,
    # Shares are nearly even whatever the clusters need, so the faster one has time to spare.
    "slack": support.SMALL.with_overrides({"budgets.bandwidth_floor": 0.49}),
    "listening": support.SMALL.with_overrides({"radio.idle_w": 0.3, "radio.edge_receive_w": 0.6}),
    "moving": load_scenario({"base": "boards", "cluster": {"clusters": 1}}),
}


def record(p) -> Any:
    """Numbers of a system for compiled loops."""
    return as_record(p.numbers)


@pytest.mark.parametrize("name", SCENARIOS)
def test_costs_are_those_of_the_simulator_with_prices_held(name):
    scenario, rng = SCENARIOS[name], np.random.default_rng(4)
    codec, p, spared = action_codec(scenario), system_parameters(scenario), 0
    for seed in range(3):
        state = support.played_state(scenario, 3, seed, mean=[0.3, 2.0, 6.0][seed])
        plan, *others = (support.random_plan(codec, state, rng) for _ in range(5))
        samples = np.stack([plan.blocks, *(other.blocks for other in others)], axis=2)
        E, N, S, _ = samples.shape
        share, worth = np.full((E, N), 1.0 / N), np.empty((E, N))
        sample_cost, choice_cost = np.empty((E, N, S)), np.empty((E, N, len(p.micro_batch_choices)))
        option = options_with(option_table(p, 0), plan.micro_batches)
        inputs, power = round_input(p, state, option, exact_drift=True), plan.node_power
        compare_counts(
            inputs, record(p), plan.blocks, power, option, samples, share, worth, sample_cost, choice_cost
        )  # fmt: skip
        plan = replace(plan, bandwidth=share)
        held = HeldPrices(scenario, state, plan, worth)
        np.testing.assert_allclose(
            worth.sum(axis=-1), held.second(), rtol=1e-3 if p.radio_power.idle_w else 1e-6
        )
        for s in range(S):
            wanted = held.cost(replace(plan, blocks=samples[:, :, s]))
            np.testing.assert_allclose(sample_cost[..., s], wanted, rtol=2e-3, atol=2e-3)
        for c, M in enumerate(p.micro_batch_choices):
            wanted = held.cost(replace(plan, micro_batches=np.full_like(plan.micro_batches, M)))
            np.testing.assert_allclose(choice_cost[..., c], wanted, rtol=2e-3, atol=2e-3)
        spared += (worth == 0.0).sum()
    assert spared > 0 or name != "slack"


def more_band(plan):
    """The plan with 1.05 times its shares, so that the uplink's part of delays shows."""
    return replace(plan, bandwidth=1.05 * plan.bandwidth)


@pytest.mark.parametrize("exact", [False, True], ids=["hidden", "exact"])
@pytest.mark.parametrize(
    "scenario", [support.LATE, support.MOVING_LATE, load_scenario("small-wild")], ids=lambda s: s.name
)
def test_expected_costs_are_those_of_the_simulator_with_the_others_held(scenario, exact):
    scenario, draws = support.loud(scenario), 4
    p = system_parameters(scenario)
    group = Group(scenario, 3, life=10, seed=1)
    nets = [support.scheduler(scenario, seed) for seed in (1, 2)]
    group.play(nets[0].allocate(group.known))
    state = group.truth
    backlog = np.random.default_rng(3).exponential(1.0, state.backlog.shape)
    state = replace(state, backlog=backlog)
    truths = support.sampled(state, draws, 1)
    plan, other = (net.allocate(state) for net in nets)
    share = np.ascontiguousarray(plan.bandwidth)
    segments = np.stack((plan.blocks, other.blocks, plan.blocks), axis=2)
    own = options_with(option_table(p, 0), plan.micro_batches)
    option = np.stack((own, own, np.zeros_like(own)), axis=2)
    known, inputs = (round_input(p, of, exact_drift=True) for of in (state, truths))
    cost, rng = np.empty(option.shape), np.random.default_rng(8)
    power = np.ascontiguousarray(plan.node_power)
    part = rng.dirichlet(np.ones(p.clusters), 3)
    strikes = (len(truths.present), 2, *truths.present.shape[1:])  # two draws of failures for each of gains
    longer = np.where(rng.random(strikes) < 0.3, rng.random(strikes), 0.0)
    each = longer.reshape(-1, *truths.present.shape[1:])
    expected_costs(known, inputs, record(p), power, share, part, segments, option, each, exact, cost)

    rows = np.repeat(np.arange(3), draws)
    many, at_known = plan[rows], state[rows]
    held, seen = round_costs(p, truths, many), round_costs(p, at_known, many)

    def delays(of):
        """Delays at the known gains (E D, N), and the uplink's part of them."""
        slow = round_costs(p, at_known, of, interference_w=seen.interference).cluster_delay
        quick = round_costs(p, at_known, more_band(of), interference_w=seen.interference).cluster_delay
        return slow, (slow - quick) / (1.0 - 1.0 / 1.05)

    def failing(of):
        return 1.0 + np.where(of.blocks[:, None] > 0, longer, 0.0).max(axis=-1)

    def drift(energy):
        return 0.5 * (np.maximum(truths.live_backlog + energy - 1.0, 0.0) ** 2).sum(axis=-1)

    ends_held, (_, of_plan) = held.cluster_delay[:, None] * failing(many), delays(many)
    for c in range(3):
        # The simulator's moments of other blocks have other interference, which the comparison holds.
        moved = c == 1 and group.decider.moves(state)
        micro_batches = known.options[0, option[rows, :, c], 0]
        changed = replace(many, blocks=segments[rows, :, c], micro_batches=micro_batches)
        costs = round_costs(p, truths, changed, interference_w=held.interference)
        slow, uplink = delays(changed)
        later = slow - seen.cluster_delay
        ends = (costs.cluster_delay - later)[:, None] * failing(changed)
        more = drift(costs.energy_ratio) - drift(0.0)
        for n in range(p.clusters):
            others = np.delete(ends_held, n, axis=2).max(axis=2)
            everybody = [
                part[rows[r], n] * later[r, n]
                if exact
                else common_delay(n, later[r, n], uplink[r, n], many.bandwidth[r], of_plan[r])
                for r in range(len(rows))
            ]
            latest = np.maximum(ends[..., n], others).mean(axis=1) + everybody
            value = (p.tradeoff_v * latest + more[:, n]).reshape(3, draws).mean(axis=1)
            np.testing.assert_allclose(cost[:, n, c], value, rtol=2e-3 if moved else 1e-12)


HALF = support.BOARDS.with_overrides({"dynamics.processes.migration.moment_bits": 16})
"""Moments in half precision: some random plans are worth the move."""


def test_old_segments_are_kept_only_where_they_are_whole_and_fit():
    """Per cluster: they sum to L, and no device holds more than it can."""
    state, rng = support.played_state(HALF, 24, 1), np.random.default_rng(3)
    L, N = HALF.workload.blocks, HALF.clusters
    cap = np.where(rng.random(state.memory_cap.shape) < 0.3, 3, state.memory_cap)
    cap[..., 0] = L  # there is room
    migration = dict(state.processes["migration"])
    old = migration["blocks"] = migration["blocks"].copy()
    old[rng.random((24, N)) < 0.2] = 0  # nothing was held
    state = replace(state, memory_cap=cap, processes={**state.processes, "migration": migration})
    found = support.scheduler(HALF, 0).allocate(state).blocks
    possible = (old.sum(axis=-1) == L) & (old <= cap).all(axis=-1)
    stays = (found == old).all(axis=-1)
    assert stays.any()
    assert not possible.all()
    assert not stays[~possible].any()
    assert (found.sum(axis=-1) == L).all()
    assert (found <= cap).all()


@pytest.mark.parametrize("seed", range(3))
def test_what_is_kept_costs_no_more_than_what_was_planned(seed):
    """Exact objectives with exact shares, on random powers and micro-batches of both plans."""
    state, rng = support.played_state(HALF, 6, seed, mean=1.0), np.random.default_rng(seed)
    codec, objective, p = action_codec(HALF), DSSRA(HALF).objective, system_parameters(HALF)
    inputs = round_input(p, state, exact_drift=True)
    new = support.random_plan(codec, state, rng)
    old = replace(support.random_plan(codec, state, rng), blocks=state.processes["migration"]["blocks"])
    old = replace(old, cu_power=new.cu_power)

    def arrays(plan):
        option = options_with(inputs.options[0], plan.micro_batches)
        return plan.blocks.copy(), plan.node_power.copy(), option

    def value(stays):
        """Objective where these clusters stay, with the best shares."""
        mixed = replace(
            new,
            blocks=np.where(stays[..., None], old.blocks, new.blocks),
            device_power=np.where(stays[..., None], old.device_power, new.device_power),
            micro_batches=np.where(stays, old.micro_batches, new.micro_batches),
        )
        return objective(state, replace(mixed, bandwidth=price_plan(HALF, state, mixed).shares))

    stays = np.empty(new.bandwidth.shape, np.bool_)
    cheaper_to_stay(*arrays(new), *arrays(old), inputs, record(p), stays)
    best, found, some = value(np.zeros_like(stays)), value(stays), stays.any(axis=-1)
    assert some.any()
    assert (found[some] < best[some]).all()
    # It finds most of what the best of all 16 choices of who stays would spare.
    every = [np.broadcast_to(np.array(choice, bool), stays.shape) for choice in np.ndindex(2, 2, 2, 2)]
    least = np.min([value(choice) for choice in every], axis=0)
    assert (found >= least * (1.0 - 1e-6)).all()
    assert (best - found).sum() > 0.7 * (best - least).sum()
