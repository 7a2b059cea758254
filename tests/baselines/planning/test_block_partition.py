"""The programmes of partitions in index order against enumeration: PipeEdge's and TITANIC's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.partitions import client_cost, elements, fastest_bottleneck
from oracles.splits import splits

from collapipe_env.baselines.planning.block_partition import optimal_blocks, quickest_of_fastest
from collapipe_env.baselines.titanic import select_clients


@given(st.integers(1, 5), st.integers(1, 7), st.integers(0, 10**6))
def test_programmes_are_exact(devices: int, total: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cap = rng.integers(0, 5, devices)
    cap[-1] += max(0, total - cap.sum())
    block_s, client_s = rng.exponential(1.0, devices), rng.exponential(2.0, devices)
    hop_s = rng.exponential(1.5, (devices + 1, devices + 1))
    slowest, least = fastest_bottleneck(total, cap, block_s, hop_s)
    found, plan = optimal_blocks(total, cap, block_s, hop_s, True, np.inf)
    assert found == pytest.approx(slowest, rel=1e-12)
    assert max(elements(plan, block_s, hop_s)) == pytest.approx(slowest, rel=1e-12)
    plan, every = quickest_of_fastest(total, cap, block_s, hop_s), splits(total, cap)
    assert tuple(plan) in every
    assert max(elements(plan, block_s, hop_s)) == pytest.approx(slowest, rel=1e-12)
    assert sum(elements(plan, block_s, hop_s)) == pytest.approx(least, rel=1e-12)
    clients = select_clients(total, cap, block_s, client_s)
    assert tuple(clients) in every
    best = min(client_cost(each, block_s, client_s) for each in every)
    assert client_cost(clients, block_s, client_s) == pytest.approx(best, rel=1e-12)


def test_what_cannot_be_held_has_no_plan() -> None:
    cap, block_s, hop_s = np.array([2, 1]), np.ones(2), np.ones((3, 3))
    assert optimal_blocks(4, cap, block_s, hop_s, True, np.inf)[0] == np.inf
    for slowest in (False, True):
        seconds, plan = optimal_blocks(3, cap, block_s, hop_s, slowest, 0.5)
        assert seconds == np.inf
        assert plan.tolist() == [0, 0]
