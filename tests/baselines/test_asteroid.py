"""Asteroid: what it tells its planner, and which of the planner's plans it runs."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from baseline_support import PRICED, SMALL, UNEVEN, first_state
from oracles.asteroid_latency import latency
from oracles.planned_chains import full_power_rates

from collapipe_env.baselines.asteroid import Asteroid, sample_limits, warm_ups
from collapipe_env.baselines.planning.chain_problem import chain_problems
from collapipe_env.physics.allocation import ONE_F_ONE_B, with_schedule
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs


@pytest.mark.parametrize("scenario", [SMALL, UNEVEN, PRICED], ids=["small", "uneven", "priced"])
def test_planned_latency_of_groups_is_that_of_the_systems_links_and_speeds(scenario) -> None:
    state = first_state(scenario, 2, seed=3)
    scheduler = Asteroid(scenario)
    planned, plans = scheduler.candidates(state)
    rates, repeats = full_power_rates(scheduler.parameters, state)
    chain = round_costs(scheduler.parameters, state.map(lambda a: a[None]), plans).elements
    costs, extra = scheduler.parameters.costs, scheduler.parameters.overheads
    duty = scheduler.parameters.sharing.duty
    for p, e, n in zip(*np.nonzero(np.isfinite(planned)), strict=True):
        M = plans.micro_batches[p, e, n]
        b, stage, share = costs.batch_size / M, plans.stage[p, e, n], plans.sample_share[p, e, n]
        rate, repeat = rates[e, n], repeats[e, n]
        groups = [[0], *([k + 1 for k in np.flatnonzero(stage == s)] for s in range(p + 1)), [0]]
        steps, endings, delays = [], [], []

        def message(i, j, rate=rate, repeat=repeat):
            return (extra.message_s + extra.header_bits * repeat[i, j] / rate[i, j]) / duty

        for s, (here, there) in enumerate(itertools.pairwise(groups)):
            links = [
                b * costs.activation_bits * repeat[i, j] / rate[i, j]
                + b * costs.gradient_bits * repeat[j, i] / rate[j, i]
                for i in here
                for j in there
            ]
            ahead = max(sum(message(i, j) for j in there) for i in here)
            home = max(sum(message(j, i) for i in here) for j in there)
            steps, endings = [*steps, max(links) / duty + ahead + home], [*endings, 0.0]
            delays.append(2.0 * extra.latency_s)
            if there != [0]:
                d, g = plans.blocks[p, e, n, s], len(there)
                work = [
                    3.0 * b * share[k - 1] * d * costs.block_forward_flops / state.speed[e, n, k - 1]
                    + 3.0 * d * extra.block_cycles / state.clock[e, n, k - 1]
                    for k in there
                ]
                slowest = min([rate[i, j] for i, j in itertools.permutations(there, 2)], default=np.inf)
                update = max(d * extra.update_cycles / state.clock[e, n, k - 1] for k in there)
                steps.append(max(work))
                endings.append(2.0 * (g - 1) / g * d * costs.block_gradient_bits / slowest + update)
                delays.append(0.0)
        steps.append(chain.uplink[p, e, n] + chain.downlink[p, e, n])
        steps.append(chain.server_forward[p, e, n] + chain.server_backward[p, e, n])
        delays += [2.0 * extra.edge_latency_s, 0.0]
        expected = latency(steps, [*endings, 0.0, 0.0], M, delays)
        assert planned[p, e, n] == pytest.approx(expected, rel=1e-9)


def test_chosen_plan_is_the_candidate_with_the_least_charged_delay() -> None:
    state, scheduler = first_state(PRICED, 3, seed=3), Asteroid(PRICED)
    planned, plans = scheduler.candidates(state)
    allocation = scheduler.act(None, state)
    assert (
        allocation.blocks != np.take_along_axis(plans.blocks, planned.argmin(axis=0)[None, ..., None], 0)
    ).any()
    assert (allocation.schedule == ONE_F_ONE_B).all()
    assert ((allocation.stage >= 0) == (allocation.sample_share > 0.0)).all()
    whole = allocation.sample_share * PRICED.workload.batch_size / allocation.micro_batches[..., None]
    assert np.allclose(whole, np.round(whole), atol=1e-9)
    chosen = round_costs(scheduler.parameters, state, allocation).cluster_delay
    for p in range(PRICED.max_devices):
        delay = round_costs(scheduler.parameters, state, plans[p]).cluster_delay
        assert (chosen <= delay * (1 + 1e-12))[np.isfinite(planned[p])].all()


def test_devices_follow_by_memory() -> None:
    state = first_state(SMALL, 1)
    memory = state.memory_bytes.copy()
    memory[0, 1] = np.array([1.0, 3.0, 2.0]) * memory.max()
    scheduler = Asteroid(SMALL)
    _, plans = scheduler.candidates(replace(state, memory_bytes=memory))
    assert plans.stage[2, 0, 1].tolist() == [2, 0, 1]


def test_a_stage_has_as_many_in_flight_as_stages_and_links_behind_it_there_and_back() -> None:
    """``2 (P - p) - 1`` with the server as the last of the P stages."""
    assert warm_ups(3, 99).tolist() == [3, 5, 7]
    assert warm_ups(3, 5).tolist() == [3, 5, 5]
    state = first_state(UNEVEN, 2, seed=1)
    planned, plans = Asteroid(UNEVEN).candidates(state)
    for p, e, n in zip(*np.nonzero(np.isfinite(planned)), strict=True):
        assert plans.caps[p, e, n, : p + 1].tolist() == [2 * (p + 2 - s) - 1 for s in range(p + 1)]


def test_memory_holds_what_is_in_flight_and_not_the_mini_batch() -> None:
    scenario = load_scenario("medium")
    state, scheduler = first_state(scenario, 2), Asteroid(scenario, micro_batches=16)
    plan, p, costs = scheduler.act(None, state), scheduler.parameters, scheduler.parameters.costs
    charged = round_costs(p, state, plan).memory
    for e, n, k in zip(*np.nonzero(plan.stage >= 0), strict=True):
        slot = plan.stage[e, n, k]
        samples = min(plan.caps[e, n, slot], 16) * plan.sample_share[e, n, k] * costs.batch_size / 16
        needed = costs.block_state_bytes + samples * costs.stored_activation_bytes
        assert charged[e, n, k] == pytest.approx(plan.blocks[e, n, slot] * needed)
    assert (charged < round_costs(p, state, with_schedule(plan, "gpipe", 0)).memory).any()


def test_limits_are_the_most_samples_that_fit() -> None:
    state = first_state(SMALL, 1)
    problem = chain_problems(Asteroid(SMALL).parameters, state)[0, 0]
    limits = sample_limits(problem, np.array([3, 5, 7]), 4)
    assert limits.shape == (3, SMALL.blocks + 1, 3)
    for q, d, k in np.ndindex(limits.shape):
        if d == 0:
            continue
        fits = [
            d * (problem.numbers.block_state_bytes + min(2 * q + 3, 4) * y * problem.numbers.activation_bytes)
            <= problem.memory_bytes[k]
            for y in range(1, 17)
        ]
        assert limits[q, d, k] == sum(fits)


def test_fewer_are_in_flight_only_where_no_plan_fits_otherwise() -> None:
    state = first_state(SMALL, 2)
    scheduler = Asteroid(SMALL, micro_batches=16)
    costs = scheduler.parameters.costs
    memory = state.memory_bytes.copy()
    # Two blocks on each device, or fewer samples of more blocks: there is room for two micro-batches.
    memory[1, 0] = 2.0 * (costs.block_state_bytes + 2.1 * 4 * costs.stored_activation_bytes)
    tight = replace(state, memory_bytes=memory)
    allocation = scheduler.act(None, tight)
    check_allocation(scheduler.parameters, tight, allocation)
    stages = (allocation.blocks > 0).sum(axis=-1)
    assert allocation.caps[1, 0, : stages[1, 0]].tolist() == [2] * stages[1, 0]
    assert allocation.caps[1, 1, stages[1, 1] - 1] == 3
    assert np.array_equal(allocation.caps[0], scheduler.act(None, state).caps[0])
    problem = chain_problems(scheduler.parameters, tight)[1, 0]
    order = np.arange(3)
    assert not np.isfinite(scheduler._plans(problem, order, warm_ups(3, 3))[0]).any()


def test_stages_of_one_device_keep_replicas_where_the_scenario_says_so():
    presence = {"on_mean_s": 1e9, "replication": "next_stage"}
    # With a radio for each neighbour, all-reduces are dear: not all stages are shared.
    changes = {"dynamics.processes.presence": presence, "radio.d2d_radios": 2, "radio.d2d_total_hz": 1e6}
    generous = {"budgets.device_energy_j": 500.0, "budgets.cu_energy_j": 500.0}
    scenario = load_scenario("medium").with_overrides(changes | generous)
    scheduler, state = Asteroid(scenario), first_state(scenario, 3)
    plan = scheduler.allocate(state)
    check_allocation(scheduler.parameters, state, plan)
    hosts = round_costs(scheduler.parameters, state, plan).terms.notes["replica_hosts"]
    holders = (plan.stage[..., :, None] == plan.stage[..., None, :]) & (plan.device_blocks > 0)[..., None, :]
    alone = (plan.device_blocks > 0) & (holders.sum(axis=-1) == 1)
    assert alone.any()
    assert (hosts.any(axis=-1) == alone).all()
