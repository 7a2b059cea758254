"""TITANIC: the integer programme against brute force, and the times it is fed with."""

import numpy as np
import pytest
from baseline_support import PRICED, SMALL, UNEVEN, decide, first_state, full_power_rates, plans
from hypothesis import given
from hypothesis import strategies as st

from collapipe_env.baselines.planning.chain_problem import chain_problems
from collapipe_env.baselines.titanic import Titanic, select_clients


def cost(plan, block_s, client_s):
    return sum(z * t + c for z, t, c in zip(plan, block_s, client_s, strict=True) if z > 0)


@given(st.integers(1, 4), st.integers(1, 7), st.integers(0, 10**6))
def test_selection_is_optimal(clients: int, total: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cap = rng.integers(0, 5, clients)
    cap[0] += max(0, total - cap.sum())
    block_s, client_s = rng.exponential(1.0, clients), rng.exponential(2.0, clients)
    found = select_clients(total, cap, block_s, client_s)
    assert tuple(found) in plans(total, cap)
    least = min(cost(plan, block_s, client_s) for plan in plans(total, cap))
    assert cost(found, block_s, client_s) == pytest.approx(least, rel=1e-12)


@pytest.mark.parametrize("scenario", [SMALL, UNEVEN, PRICED], ids=["small", "uneven", "priced"])
def test_decision_is_the_best_for_times_computed_here(scenario) -> None:
    state = first_state(scenario, 2, seed=3)
    scheduler = Titanic(scenario, client_price_s=0.1)
    costs, extra = scheduler.parameters.costs, scheduler.parameters.overheads
    rates, repeats = full_power_rates(scheduler.parameters, state)
    B = costs.batch_size
    block_s = 3.0 * B * costs.block_forward_flops / state.speed
    packet_s = repeats / np.where(rates > 0, rates, np.inf)
    client_s = B * (costs.activation_bits * packet_s[..., 0, 1:] + costs.gradient_bits * packet_s[..., 1:, 0])
    # One micro-batch: each pass is launched once, each message sent once.
    block_s = block_s + 3.0 * extra.block_cycles / state.clock
    client_s = client_s + extra.header_bits * (packet_s[..., 0, 1:] + packet_s[..., 1:, 0])
    client_s = client_s + 2.0 * (extra.message_s + extra.latency_s)
    for at, problem in chain_problems(scheduler.parameters, state).items():
        there = state.present[at]
        for mine, theirs in zip((block_s, client_s), scheduler.client_times(problem), strict=True):
            assert np.allclose(mine[at][there], theirs[there], rtol=1e-9)
    allocation = decide(scheduler, state)
    assert (allocation.micro_batches == 1).all()
    for place in np.ndindex(2, scenario.clusters):
        price = client_s[place] + 0.1
        caps = np.where(state.present, state.memory_cap, 0)[place]
        least = min(cost(p, block_s[place], price) for p in plans(costs.blocks, caps))
        assert cost(allocation.blocks[place], block_s[place], price) == pytest.approx(least, rel=1e-9)


def test_a_high_price_leaves_the_fewest_clients() -> None:
    state = first_state(SMALL, 1)
    used = (decide(Titanic(SMALL, client_price_s=1e3), state).blocks > 0).sum(axis=-1)
    caps = np.sort(state.memory_cap, axis=-1)[..., ::-1].cumsum(axis=-1)
    assert (used == 1 + (caps < SMALL.blocks).sum(axis=-1)).all()
