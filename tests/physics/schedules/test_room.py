"""Room under schedules: exactly what the memory of plans says fits, found by counting up."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from collapipe_env.physics.allocation import GPIPE, ONE_F_ONE_B, ZERO_BUBBLE
from collapipe_env.physics.schedules.room import blocks_that_fit, micro_batches_that_fit, storage_terms
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import workload_costs

COSTS = {on: workload_costs(load_scenario("medium"), recompute=on) for on in (False, True)}


def needed(costs, kind, blocks, count, M):
    """Memory of a device written out for each schedule [byte]."""
    b, alpha, omega = costs.batch_size / M, costs.stored_activation_bytes, costs.working_bytes
    if kind == GPIPE:
        return blocks * (costs.block_state_bytes + costs.batch_size * alpha) + b * omega
    if kind == ONE_F_ONE_B:
        return blocks * (costs.block_state_bytes + count * b * alpha) + b * omega
    return blocks * (costs.block_state_bytes + count * b * (alpha + omega))


@settings(max_examples=80, deadline=None)
@given(
    kind=st.sampled_from([GPIPE, ONE_F_ONE_B, ZERO_BUBBLE]),
    again=st.booleans(),
    M=st.sampled_from([1, 2, 4, 8, 16, 32, 64]),
    memory=st.floats(1e6, 3e9),
)
def test_the_most_that_fits(kind, again, M, memory):
    costs = replace(COSTS[again], blocks=40)
    offered, batches = np.array([[memory]]), np.array([M])
    terms = storage_terms(
        costs,
        np.array([kind]),
        batches,
        costs.stored_activation_bytes,
        costs.working_bytes,
        offered,
    )
    blocks = int(blocks_that_fit(costs, terms, offered)[0, 0])
    expected = 0
    while expected < 40 and needed(costs, kind, expected + 1, 1, M) <= memory:
        expected += 1
    assert blocks == expected
    if kind == GPIPE:
        return
    for held in {1, max(blocks // 2, 1), max(blocks, 1)}:
        count = 1
        while count < M and needed(costs, kind, held, count + 1, M) <= memory:
            count += 1
        found = micro_batches_that_fit(costs, terms, offered, np.array([[held]]), batches[:, None])
        assert found[0, 0] == count
