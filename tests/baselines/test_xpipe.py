"""XPipe: its partition against brute force, its round against 1F1B and the steady period, version gaps."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from baseline_support import PRICED, UNEVEN, Recorder, first_state, loud_costs
from oracles.planned_chains import simulated

from collapipe_env.baselines.planning.chain_problem import chain_problems
from collapipe_env.baselines.planning.draft_pricing import balanced_split, lower_bound
from collapipe_env.baselines.planning.plan_search import EXHAUSTIVE, device_sets, quickest
from collapipe_env.baselines.planning.scheduled_plan import ScheduledPlan
from collapipe_env.baselines.xpipe import XPipe, in_flight_caps
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import ASYNC, with_schedule
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs


def small(local_steps, **radio):
    """The small scenario with more mini-batches in a round; channels are the same for all of them."""
    budgets = {"device_energy_j": 1000, "cu_energy_j": 1000}
    workload = {"local_steps": local_steps}
    return load_scenario({"base": "small", "workload": workload, "budgets": budgets, "radio": radio})


@pytest.mark.parametrize("link_aware", [False, True])
@pytest.mark.parametrize("duplex", ["full", "half"])
def test_leaving_sets_out_by_their_bound_loses_nothing(duplex: str, link_aware: bool) -> None:
    scenario = load_scenario(
        {
            "base": "medium",
            "workload": {"local_steps": 2},
            "radio": {"d2d_duplex": duplex},
            "budgets": {"device_energy_j": 1000, "cu_energy_j": 1000},
        }
    )
    parameters = system_parameters(scenario)
    for problem in chain_problems(parameters, first_state(scenario, 2, seed=4)).values():
        sets = device_sets(problem, range(5))
        assert sorted(sets) == sorted(c for r in range(1, 6) for c in itertools.combinations(range(5), r))
        drafts = [
            ScheduledPlan(devices, (), "async", in_flight_caps(len(devices), link_aware, 99), 4)
            for devices in sets
        ]
        plans = []
        for draft in drafts:
            held = balanced_split(problem, draft.arrays(), 99)
            if held.sum() > 0:
                plans.append(draft._replace(held=tuple(held.tolist())))
                # The simulation's time, not the recurrence's.
                assert lower_bound(problem, plans[-1].arrays()) <= simulated(problem, plans[-1]) * (1 + 1e-12)
        (found,) = quickest(problem, drafts)
        times = [plan.seconds(problem) for plan in plans]
        assert found.seconds == min(times)
        assert found.plan == plans[int(np.argmin(times))]


def test_caps_count_the_server_and_on_demand_the_links() -> None:
    assert in_flight_caps(3, False, 99) == (4, 3, 2)
    assert in_flight_caps(3, True, 99) == (8, 6, 4)
    assert in_flight_caps(3, True, 5) == (5, 5, 4)
    plan = XPipe(small(4)).allocate(first_state(small(4), 1))
    assert (plan.schedule == ASYNC).all()
    for caps, blocks in zip(plan.caps[0], plan.blocks[0], strict=True):
        assert caps[blocks > 0].tolist() == list(range((blocks > 0).sum() + 1, 1, -1))


@pytest.mark.parametrize(
    "scenario", [small(3, d2d_duplex="half"), UNEVEN, PRICED], ids=["half duplex", "uneven", "priced"]
)
def test_link_aware_plans_are_no_slower(scenario) -> None:
    state, parameters = first_state(scenario, 3, seed=2), system_parameters(scenario)
    plain, aware = (
        loud_costs(parameters, state, XPipe(scenario, link_aware=link_aware).allocate(state)).cluster_delay
        for link_aware in (False, True)
    )
    assert (aware <= plain * (1 + 1e-9)).all()


def test_a_round_of_one_mini_batch_lasts_as_long_as_under_1f1b() -> None:
    state, parameters = first_state(small(1), 2), system_parameters(small(1))
    plan = XPipe(small(1)).allocate(state)
    ours, plain = (round_costs(parameters, state, p) for p in (plan, with_schedule(plan, "1f1b", plan.caps)))
    assert np.array_equal(ours.cluster_delay, plain.cluster_delay)


def steady_period(stages, there, back, latency, caps, duplex):
    """Time per micro-batch at which 1F1B settles, a lower bound of the true one [s].

    The slowest stage, the slowest link, and the round trip from each stage over all later stages and links,
    which as many micro-batches share as may be in flight there.
    """
    both = [f + b for f, b in zip(there, back, strict=True)]
    trips = [sum(stages[s:]) + sum(both[s:]) + 2.0 * sum(latency[s:]) for s in range(len(stages))]
    links = both if duplex == "half" else [*there, *back]
    return max(*stages, *links, *(trip / cap for trip, cap in zip(trips, caps, strict=True)))


@pytest.mark.parametrize("duplex", ["full", "half"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_without_flushes_a_mini_batch_takes_ever_less_down_to_the_steady_period(
    seed: int, duplex: str
) -> None:
    # Links that take little of a round: the formula leaves out waits for them.
    quick = {"d2d_duplex": duplex, "d2d_total_hz": 400e6}
    scenario = small(4, **quick)
    state = first_state(scenario, 2, seed=seed)
    allocation = XPipe(scenario).allocate(state)
    steps = {}
    for H in (1, 4, 32, 64):
        parameters = system_parameters(small(H, **quick))
        costs = round_costs(parameters, state, allocation)
        plain = round_costs(parameters, state, with_schedule(allocation, "1f1b", allocation.caps))
        assert (costs.local_step <= plain.local_step * (1 + 1e-12)).all()
        steps[H] = costs.local_step
    assert (steps[4] < 0.97 * steps[1]).all()
    e = costs.elements
    for at in np.ndindex(2, 2):
        slots = np.flatnonzero(allocation.blocks[at])
        hops = np.array([0, *(slots + 1)])
        # Stages of no length: the CU in front, and the CU and the base station that relay behind. Uplink and
        # downlink are links of their own, lest they share one under half duplex.
        work = e.compute_forward[at][slots] + e.compute_backward[at][slots]
        stages = (0.0, *work, 0.0, 0.0, float(e.server_forward[at] + e.server_backward[at]))
        there = (*e.hop_forward[at][hops], float(e.uplink[at]), 0.0)
        # Gradients come from the next node: those into the last device from the CU.
        back = (*e.hop_backward[at][hops[1:]], e.hop_backward[at][0], 0.0, float(e.downlink[at]))
        latency = (*(e.hop_latency for _ in hops), e.edge_latency, 0.0)
        unlimited = 10**6
        caps = (unlimited, *allocation.caps[at][slots], unlimited, unlimited, 1)
        period = steady_period(stages, there, back, latency, caps, duplex)
        further = 64 * steps[64][at] - 32 * steps[32][at]
        assert steps[64][at] >= 4 * period * (1 - 1e-12)
        # The formula knows nothing of waiting for the other direction: 6 to 9 % in this layout.
        slack = 1.1 if duplex == "full" else 1.25
        assert 32 * 4 * period * (1 - 1e-12) <= further <= 32 * 4 * period * slack
        assert steps[64][at] == pytest.approx(further / 32, rel=0.05)


def test_memory_holds_a_second_copy_and_what_is_in_flight() -> None:
    state, scheduler = first_state(small(2), 1), XPipe(small(2), micro_batches=16)
    plan, costs = scheduler.allocate(state), scheduler.parameters.costs
    samples = np.minimum(plan.caps, 2 * 16) * costs.batch_size / 16
    block = costs.block_state_bytes + costs.block_copy_bytes + samples * costs.stored_activation_bytes
    assert np.allclose(round_costs(scheduler.parameters, state, plan).memory, plan.blocks * block)


def test_caps_are_lowered_only_where_no_partition_fits_with_them() -> None:
    scenario = small(4)
    state = first_state(scenario, 1)
    scheduler = XPipe(scenario)
    costs = scheduler.parameters.costs
    memory = state.memory_bytes.copy()
    # Two blocks each, with two micro-batches in flight and not with three.
    block = costs.block_state_bytes + costs.block_copy_bytes
    memory[0, 0] = 2 * (block + 2.5 * costs.batch_size / 4 * costs.stored_activation_bytes)
    allocation = scheduler.allocate(replace(state, memory_bytes=memory))
    check_allocation(scheduler.parameters, replace(state, memory_bytes=memory), allocation)
    assert allocation.blocks[0, 0].tolist() == [2, 2, 2]
    assert allocation.caps[0, 0].tolist() == [2, 2, 2]
    untouched = scheduler.allocate(state)
    assert np.array_equal(allocation.caps[0, 1], untouched.caps[0, 1])
    memory[0, 0] = 2 * (block + 0.9 * costs.batch_size / 4 * costs.stored_activation_bytes)
    with pytest.raises(AllocationError, match="XPipe: environment 0, cluster 0: its 3 devices cannot hold"):
        scheduler.allocate(replace(state, memory_bytes=memory))
    present = state.present.copy()
    present[0, 0] = False
    with pytest.raises(AllocationError, match="its 0 devices cannot hold"):
        scheduler.allocate(replace(state, present=present))


def test_many_devices_are_not_tried_in_all_sets_and_the_roomiest_are_among_them() -> None:
    count = EXHAUSTIVE + 4
    scenario = small(1).with_overrides({"cluster.devices": count, "workload.blocks": count})
    state, scheduler = first_state(scenario, 1), XPipe(scenario)
    costs, problem = scheduler.parameters.costs, chain_problems(scheduler.parameters, state)[0, 0]
    assert len(device_sets(problem, range(count))) == 2**EXHAUSTIVE - 1 + 2 * count
    # One block on every device and no more: nothing but all of them will do, with one in flight.
    block = costs.block_state_bytes + costs.block_copy_bytes
    block += 1.5 * costs.batch_size / 4 * costs.stored_activation_bytes
    plan = scheduler.allocate(replace(state, memory_bytes=np.full_like(state.memory_bytes, block)))
    assert (plan.blocks == 1).all()
    assert (plan.caps == 1).all()


@pytest.mark.parametrize(("micro_batches", "local_steps"), [(1, 4), (2, 4), (4, 1)])
def test_learner_is_told_the_version_gaps(micro_batches: int, local_steps: int) -> None:
    # Memory for as many in flight as the partition wants.
    learner = Recorder(1)
    scenario = small(local_steps).with_overrides({"devices.profiles.0.memory_bytes": [4e9]})
    env = CollaPipeVectorEnv(num_envs=1, scenario=scenario, learner=learner)
    env.reset(seed=1)
    allocation = XPipe(scenario, micro_batches=micro_batches).allocate(env.state)
    env.step_allocation(allocation)
    (outcome,) = learner.outcomes
    for n in range(2):
        held = allocation.blocks[0, n] > 0
        S = held.sum()
        expected = [int(np.ceil((S - s) / micro_batches)) for s in range(S)]
        assert outcome.staleness[0, n][held].tolist() == expected
        assert (outcome.staleness[0, n][~held] == 0).all()
