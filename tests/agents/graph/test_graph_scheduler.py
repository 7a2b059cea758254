"""Compiled decisions of the graph net: those of the PyTorch net, allowed, and the same in any batch."""

from dataclasses import replace
from functools import lru_cache

import graph_net_support as support
import numpy as np
import pytest
import torch
from unpriced_support import unpriced

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.agents.learned.graph.graph_scheduler import GraphScheduler, packed_weights
from collapipe_env.agents.learned.graph.net import GraphNet, NetShape
from collapipe_env.dynamics.migration import change_of_plan, phase_times
from collapipe_env.ground.errors import AllocationError
from collapipe_env.ground.records import declarations
from collapipe_env.physics.allocation import Allocation, own_arrays
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.check import check_allocation


def scheduler(scenario, seed, **options):
    net = support.random_net(seed)
    return GraphScheduler(scenario, support.packed(net), net.shape.heads, **options)


@lru_cache
def splits(devices, blocks):
    """All ways to give blocks to devices (P, K)."""
    if devices == 1:
        return np.array([[blocks]])
    return np.array(
        [[own, *rest] for own in range(blocks + 1) for rest in splits(devices - 1, blocks - own).tolist()]
    )


def most_likely(logits, cap, blocks):
    """Most likely counts of one cluster (K,), by enumeration."""
    every = splits(len(cap), blocks)
    possible = every[(every <= cap).all(axis=1)]
    scores = np.take_along_axis(logits, possible.T, axis=1).sum(axis=0)
    return possible[scores.argmax()]


@pytest.mark.parametrize("name", support.SCENARIOS)
@pytest.mark.parametrize("seed", range(3))
def test_decisions_are_those_of_the_pytorch_net(name, seed):
    scenario = support.SCENARIOS[name]
    state, p = (
        support.played_state(scenario, 3, seed, mean=[0.2, 2.0, 15.0][seed]),
        system_parameters(scenario),
    )
    found = scheduler(scenario, seed, exact_shares=False).allocate(state)
    with torch.no_grad():
        answer = support.answer(support.random_net(seed), scenario, state)
    cap = np.where(state.present, state.memory_cap, 0)
    for row, n in np.ndindex(*cap.shape[:2]):
        wanted = most_likely(answer.logits[row, n].numpy(), cap[row, n], scenario.workload.blocks)
        np.testing.assert_array_equal(found.blocks[row, n], wanted)
    choices = np.array(p.micro_batch_choices)
    nearest = np.abs(np.log2(choices) - answer.log2_micro_batches.numpy()[..., None]).argmin(axis=-1)
    np.testing.assert_array_equal(found.micro_batches, choices[nearest])
    low, high = np.log(p.power_min_w), np.log(p.power_max_w)
    power = np.exp(low + (high - low) * answer.power.numpy())
    np.testing.assert_allclose(found.cu_power, power[..., 0], rtol=1e-5)
    used = found.blocks > 0
    np.testing.assert_allclose(found.device_power[used], power[..., 1:][used], rtol=1e-5)
    np.testing.assert_allclose(found.bandwidth, support.own_shares(scenario, state, found), rtol=1e-5)


@pytest.mark.parametrize("heads", [1, 3])
def test_nets_of_other_sizes_decide_alike(heads):
    with torch.random.fork_rng():
        torch.manual_seed(heads)
        net = GraphNet(NetShape(width=12, layers=3, heads=heads, hidden=7, edge_hidden=5))
    scenario = support.UNEQUAL
    state, p = support.played_state(scenario, 3, 1), system_parameters(scenario)
    found = GraphScheduler(scenario, packed_weights(net.state_dict(), 3), heads, exact_shares=False)
    plan = found.allocate(state)
    with torch.no_grad():
        answer = support.answer(net, scenario, state)
    watts = p.power_min_w * (p.power_max_w / p.power_min_w) ** answer.power.numpy()
    np.testing.assert_allclose(plan.cu_power, watts[..., 0], rtol=1e-5)
    np.testing.assert_allclose(plan.device_power[plan.blocks > 0], watts[..., 1:][plan.blocks > 0], rtol=1e-5)


def test_idle_devices_send_at_least_power_unless_moments_of_theirs_move():
    scenario = support.BOARDS
    p, senders = system_parameters(scenario), 0
    for seed in range(6):
        state = support.played_state(scenario, 3, seed)
        found = scheduler(scenario, seed, exact_shares=False).allocate(state)
        change = change_of_plan(p, state, found)
        sends = phase_times(p, state, found, change).sent[..., 1:] > 0.0
        idle = found.blocks == 0
        np.testing.assert_array_equal(found.device_power[idle & ~sends], p.power_min_w)
        with torch.no_grad():
            wanted = support.answer(support.random_net(seed), scenario, state).power.numpy()[..., 1:]
        watts = p.power_min_w * (p.power_max_w / p.power_min_w) ** wanted
        np.testing.assert_allclose(found.device_power[idle & sends], watts[idle & sends], rtol=1e-5)
        senders += (idle & sends).sum()
    assert senders > 0


def test_micro_batches_are_as_many_as_possible_where_they_cost_nothing():
    scenario = unpriced("small")
    state = support.played_state(scenario, 2)
    found = scheduler(scenario, 0).allocate(state)
    assert (found.micro_batches == max(system_parameters(scenario).micro_batch_choices)).all()


@pytest.mark.parametrize("name", support.SCENARIOS)
@pytest.mark.parametrize("exact", [False, True])
def test_a_row_of_a_batch_is_decided_as_if_it_were_alone(name, exact):
    scenario = support.SCENARIOS[name]
    state = support.played_state(scenario, 5, 4)
    own = scheduler(scenario, 4, exact_shares=exact)
    together = own.allocate(state)
    check_allocation(own.parameters, state, own_arrays(together))
    for row in range(5):
        alone = own.allocate(state[row : row + 1])
        for name in declarations(Allocation):
            value = getattr(together, name)
            if value is not None:
                np.testing.assert_array_equal(getattr(alone, name)[0], value[row])


@pytest.mark.parametrize("name", support.SCENARIOS)
def test_exact_shares_are_never_worse_than_the_nets_own_or_others(name):
    scenario, rng = support.SCENARIOS[name], np.random.default_rng(1)
    objective = DSSRA(scenario).objective  # through round_costs, with L(t+1) - L(t)
    floor, gains = scenario.budgets.bandwidth_floor, []
    for seed in range(4):
        state = support.played_state(scenario, 3, seed, mean=1.0)
        own = scheduler(scenario, seed, exact_shares=False).allocate(state)
        exact = scheduler(scenario, seed).allocate(state)
        value = objective(state, exact)
        slack = 1e-9 * np.abs(value)
        if name != "boards":  # there clusters may keep the segments of the round before
            for part in ("blocks", "micro_batches", "device_power", "cu_power"):
                np.testing.assert_array_equal(getattr(own, part), getattr(exact, part))
        gains.append(objective(state, own) - value)
        assert (gains[-1] >= -slack).all()
        for spread in (0.01, 0.1, 1.0):
            for _ in range(10):
                drawn = exact.bandwidth * np.exp(spread * rng.standard_normal(exact.bandwidth.shape))
                drawn = floor + (1.0 - floor * drawn.shape[-1]) * drawn / drawn.sum(axis=-1, keepdims=True)
                other = objective(state, replace(exact, bandwidth=drawn))
                assert (other >= value * (1.0 - 2e-3)).all()
    if scenario.clusters > 1:
        assert np.max(gains) > 0.0
    else:
        np.testing.assert_allclose(exact.bandwidth, 1.0)


@pytest.mark.parametrize("name", ["small", "boards"])
def test_a_price_of_time_of_ones_own_is_that_of_a_scenario_with_it(name):
    scenario = support.SCENARIOS[name]
    state = support.played_state(scenario, 3, 2)
    other = scenario.with_overrides({"budgets.tradeoff_v": 0.3})
    first = scheduler(scenario, 2, tradeoff_v=0.3).allocate(state)
    second = scheduler(other, 2).allocate(state)
    np.testing.assert_array_equal(first.blocks, second.blocks)
    np.testing.assert_array_equal(first.bandwidth, second.bandwidth)
    np.testing.assert_array_equal(first.cu_power, second.cu_power)
    assert (first.cu_power != scheduler(scenario, 2).allocate(state).cu_power).any()


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_other_prices_of_time_are_refused(value):
    with pytest.raises(AllocationError, match=r"tradeoff_v: expected a finite number above 0, got"):
        scheduler(support.SMALL, 0, tradeoff_v=value)


def test_a_cluster_that_cannot_hold_the_encoder_is_named():
    state = support.played_state(support.SMALL, 2)
    cap = state.memory_cap.copy()
    cap[1, 0] = [2, 1, 2]
    with pytest.raises(
        AllocationError, match="environment 1, cluster 0: its devices can hold only 5 blocks, but the"
    ):
        scheduler(support.SMALL, 0).allocate(replace(state, memory_cap=cap))
