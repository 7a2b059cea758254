"""PipeEdge: the dynamic programme against brute force."""

import itertools

import numpy as np
import pytest
from baseline_support import PRICED, SMALL, UNEVEN, decide, first_state, full_power_rates, plans
from hypothesis import given
from hypothesis import strategies as st

from collapipe_env.baselines.pipeedge import PipeEdge
from collapipe_env.baselines.planning.block_partition import optimal_blocks, quickest_of_fastest


def elements(plan, block_s, hop_s):
    """Times of the stages and hops of a plan, in the order of the chain."""
    chain = [0, *(k + 1 for k, d in enumerate(plan) if d > 0), 0]
    hops = [hop_s[i, j] for i, j in itertools.pairwise(chain)]
    return hops + [d * t for d, t in zip(plan, block_s, strict=True) if d > 0]


def brute_force(total, caps, block_s, hop_s):
    """Least slowest element, and the least sum among the plans that reach it."""
    scored = [elements(plan, block_s, hop_s) for plan in plans(total, caps)]
    slowest = min(max(e) for e in scored)
    return slowest, min(sum(e) for e in scored if max(e) <= slowest * (1 + 1e-12))


@given(st.integers(1, 5), st.integers(1, 7), st.integers(0, 10**6))
def test_programme_is_exact(devices: int, total: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cap = rng.integers(0, 5, devices)
    cap[-1] += max(0, total - cap.sum())
    block_s = rng.exponential(1.0, devices)
    hop_s = rng.exponential(1.5, (devices + 1, devices + 1))
    slowest, least = brute_force(total, cap, block_s, hop_s)
    found, plan = optimal_blocks(total, cap, block_s, hop_s, True, np.inf)
    assert found == pytest.approx(slowest, rel=1e-12)
    assert max(elements(plan, block_s, hop_s)) == pytest.approx(slowest, rel=1e-12)
    plan = quickest_of_fastest(total, cap, block_s, hop_s)
    assert tuple(plan) in plans(total, cap)
    assert max(elements(plan, block_s, hop_s)) == pytest.approx(slowest, rel=1e-12)
    assert sum(elements(plan, block_s, hop_s)) == pytest.approx(least, rel=1e-12)


def test_what_cannot_be_held_has_no_plan() -> None:
    cap, block_s, hop_s = np.array([2, 1]), np.ones(2), np.ones((3, 3))
    assert optimal_blocks(4, cap, block_s, hop_s, True, np.inf)[0] == np.inf
    for slowest in (False, True):
        seconds, plan = optimal_blocks(3, cap, block_s, hop_s, slowest, 0.5)
        assert seconds == np.inf
        assert plan.tolist() == [0, 0]


@pytest.mark.parametrize("scenario", [SMALL, UNEVEN, PRICED], ids=["small", "uneven", "priced"])
def test_decision_is_the_best_for_times_computed_here(scenario) -> None:
    state = first_state(scenario, 2, seed=4)
    scheduler = PipeEdge(scenario)
    costs, extra = scheduler.parameters.costs, scheduler.parameters.overheads
    rates, repeats = full_power_rates(scheduler.parameters, state)
    packet_s = repeats / np.where(rates > 0, rates, np.inf)
    both_ways = costs.activation_bits * packet_s + costs.gradient_bits * np.swapaxes(packet_s, -1, -2)
    block_s = 3.0 * costs.block_forward_flops / state.speed
    b = costs.batch_size / scheduler.micro_batches  # times are those of a sample: overheads of 1 / b
    both_ways = both_ways + extra.header_bits / b * (packet_s + np.swapaxes(packet_s, -1, -2))
    both_ways = both_ways + 2.0 * extra.message_s / b
    block_s = block_s + 3.0 * extra.block_cycles / b / state.clock
    allocation = decide(scheduler, state)
    for place in np.ndindex(2, scenario.clusters):
        caps = np.where(state.present, state.memory_cap, 0)[place]
        slowest, least = brute_force(costs.blocks, caps, block_s[place], both_ways[place])
        found = elements(allocation.blocks[place], block_s[place], both_ways[place])
        assert max(found) == pytest.approx(slowest, rel=1e-9)
        assert sum(found) == pytest.approx(least, rel=1e-9)
