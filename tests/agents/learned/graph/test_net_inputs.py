"""Inputs of the graph net: relative to the system itself, and blind to what is not there."""

import itertools
import math
from dataclasses import replace

import graph_net_support as support
import numpy as np
import pytest

from collapipe_env.agents.learned.graph.net_inputs import (
    CU_INPUTS,
    DEVICE_INPUTS,
    HOP_SHIFT,
    OWN_CU_INPUTS,
    net_inputs,
)
from collapipe_env.agents.learned.graph.plan_inputs import plan_inputs
from collapipe_env.envs.graph_observation import GraphObserver
from collapipe_env.physics import radio
from collapipe_env.simulator.build import action_codec, system_parameters
from collapipe_env.simulator.costs import round_costs

LOG2 = math.log(2.0)
SHANNON = {
    "radio.link_errors": "none",
    "radio.rate_attenuation": 1.0,
    "radio.snr_floor_db": None,
    "radio.packet_diversity": None,
}
"""Rates of the plain form ``W log2(1 + SNR)``, up to a ceiling."""


def test_ideal_time_is_that_of_all_devices_at_work_all_the_time():
    """The first input of a device and of a control unit, from the speeds themselves."""
    scenario = support.UNEQUAL
    state, p = support.played_state(scenario, 2), system_parameters(scenario)
    inputs = net_inputs(support.observed(scenario, state))
    flops = 3.0 * p.costs.block_forward_flops * p.costs.batch_size  # a backward pass is two forward passes
    together = (state.speed * state.present).sum(axis=-1)
    ideal = np.log(p.costs.blocks * flops / together)
    scale = ideal.mean(axis=-1, keepdims=True)
    np.testing.assert_allclose(inputs.cu[..., 0], ideal - scale, atol=1e-9)
    with np.errstate(divide="ignore"):
        block = np.where(state.present, np.log(flops / state.speed) - scale[..., None], 0.0)
    np.testing.assert_allclose(inputs.device[..., 1], block, atol=1e-9)
    np.testing.assert_allclose(inputs.mean_blocks, p.costs.blocks / state.present.sum(axis=-1))
    # V of the ideal time: the context's only price.
    level = math.log(p.tradeoff_v) + scale
    np.testing.assert_allclose(
        inputs.cu[..., OWN_CU_INPUTS], np.broadcast_to((level - 2.0) / 1.5, ideal.shape)
    )


def test_energy_is_dear_by_the_queues_price_over_a_seconds_worth():
    """``z e`` of a block over ``V / N`` times its time, for devices; of a second of sending, for CUs."""
    scenario = support.MEDIUM
    state, p = support.played_state(scenario, 2), system_parameters(scenario)
    inputs = net_inputs(support.observed(scenario, state))
    worth = p.tradeoff_v / p.clusters
    load = state.compute_power / state.budget[..., 1:]  # of a second
    np.testing.assert_allclose(np.expm1(inputs.device[..., 7]), state.backlog[..., 1:] * load / worth)
    sender = (
        math.sqrt(p.power_min_w * p.power_max_w) / p.radio_power.efficiency + p.radio_power.edge_circuit_w
    )
    np.testing.assert_allclose(
        np.expm1(inputs.cu[..., 7]), state.backlog[..., 0] * sender / state.budget[..., 0] / worth
    )


@pytest.mark.parametrize("name", ["small", "medium"])
def test_a_system_twice_as_slow_at_half_the_price_of_time_looks_the_same(name):
    fast = support.SCENARIOS[name]
    extra, radio = fast.overheads, fast.radio
    times = ("block_s", "update_s", "message_s", "latency_s", "edge_message_s", "edge_latency_s", "server_s")
    slow = fast.with_overrides(
        {
            **{f"overheads.{field}": 2.0 * getattr(extra, field) for field in times},
            **{
                f"radio.{field}": 0.5 * getattr(radio, field)
                for field in ("d2d_total_hz", "uplink_bandwidth_hz", "downlink_bandwidth_hz")
            },
            "radio.noise_dbm_per_hz": radio.noise_dbm_per_hz + 10.0 * math.log10(2.0),
            "cluster.server_flops": 0.5 * fast.cluster.server_flops,
            "devices.profiles.0.flops_per_cycle": 0.5 * fast.devices.profiles[0].flops_per_cycle,
            "budgets.device_energy_j": 2.0 * fast.budgets.device_energy_j,
            "budgets.cu_energy_j": 2.0 * fast.budgets.cu_energy_j,
        }
    )
    states = [support.played_state(scenario, 3) for scenario in (fast, slow)]
    plan = support.random_plan(action_codec(fast), states[0], np.random.default_rng(0))
    first, second = (
        round_costs(system_parameters(scenario), state, plan)
        for scenario, state in zip((fast, slow), states, strict=True)
    )
    np.testing.assert_allclose(second.delay, 2.0 * first.delay, rtol=1e-9)  # it is such a system
    np.testing.assert_allclose(second.energy_ratio, first.energy_ratio, rtol=1e-9)

    first, second = (
        net_inputs(support.observed(scenario, state))
        for scenario, state in zip((fast, slow), states, strict=True)
    )
    server, messages = 9, slice(OWN_CU_INPUTS + 1, OWN_CU_INPUTS + 6)
    relative = np.ones(CU_INPUTS, bool)
    relative[server] = relative[messages] = False
    np.testing.assert_allclose(second.cu[..., relative], first.cu[..., relative], atol=1e-9)
    launch, update = 2, 3
    relative = [i for i in range(DEVICE_INPUTS) if i not in (launch, update)]
    np.testing.assert_allclose(second.device[..., relative], first.device[..., relative], atol=1e-9)
    # Times that may be zero have 0.1 ms added before their logarithm; the server's are hardly longer.
    np.testing.assert_allclose(second.device, first.device, atol=0.02)
    less = first.cu[..., server] - second.cu[..., server]
    assert ((less >= 0.0) & (less <= 0.25 * LOG2)).all()
    np.testing.assert_allclose(second.hop, first.hop, atol=1e-9)
    # So it is with messages: all that is left of twice the time is half of the 0.1 ms.
    H = fast.workload.local_steps
    passes = 3.0  # a backward pass is two forward passes
    lasts = [extra.message_s, extra.latency_s, extra.edge_message_s, extra.edge_latency_s]
    lasts = H * np.array([*lasts, passes * extra.server_s])
    less = np.broadcast_to(np.log((lasts + 1e-4) / (lasts + 5e-5)), (3, fast.clusters, 5))
    np.testing.assert_allclose(2.0 * (first.cu - second.cu)[..., messages], less, atol=1e-9)


def test_absent_devices_are_zero_and_their_state_is_not_read():
    scenario = support.UNEQUAL
    state = support.played_state(scenario, 2)
    gone = ~state.present
    assert gone.any()
    other = {}
    for name in ("speed", "clock", "compute_power", "memory_cap"):
        array = getattr(state, name).copy()
        array[gone] = 7 * array.max()
        other[name] = array
    backlog, gain = state.backlog.copy(), state.d2d_gain.copy()
    backlog[..., 1:][gone] = 9.0
    nodes = np.concatenate((np.zeros_like(gone[..., :1]), gone), axis=-1)
    gain[nodes[..., :, None] | nodes[..., None, :]] = 1.0
    changed = replace(state, backlog=backlog, d2d_gain=gain, **other)
    observer = GraphObserver(system_parameters(scenario))
    for build in (observer.build, observer.build_generic):
        first, second = net_inputs(build(state)), net_inputs(build(changed))
        for before, after in zip(first, second, strict=True):
            np.testing.assert_array_equal(after, before)
        assert (first.device[gone] == 0.0).all()
        assert (first.hop[nodes] == 0.0).all()


@pytest.mark.parametrize("ceiling", [None, 6.7, 13.3])
@pytest.mark.parametrize("name", ["small", "medium", "boards"])
def test_hops_are_seen_under_the_interference_of_all_others_at_the_reference_power(name, ceiling):
    rich = {"budgets.device_energy_j": 500.0, "budgets.cu_energy_j": 500.0}
    # The net guesses the effect of interference by Shannon's rate up to a ceiling.
    scenario = support.SCENARIOS[name].with_overrides({**SHANNON, "radio.rate_ceiling": ceiling, **rich})
    state, p = support.played_state(scenario, 3, 1), system_parameters(scenario)
    inputs, costs = net_inputs(support.observed(scenario, state)), p.costs
    watts = math.sqrt(p.power_min_w * p.power_max_w)
    heard = radio.interference(state.cross_gain, np.full(state.uplink_gain.shape, watts))
    noise = p.noise_density * p.d2d_bandwidth_hz
    assert (heard > 0.05 * noise).any()
    sinr = watts * state.d2d_gain / (noise + heard)[..., None, None]
    usable = sinr if ceiling is None else np.minimum(sinr, 2.0**ceiling - 1.0)
    bits = costs.local_steps * costs.batch_size * (costs.activation_bits + costs.gradient_bits)
    with np.errstate(divide="ignore"):
        seconds = bits / (p.sharing.duty * p.d2d_bandwidth_hz * np.log2(1.0 + usable))
    speed = (state.speed * state.present).sum(axis=-1)
    ideal = costs.blocks * 3.0 * costs.block_forward_flops * costs.batch_size * costs.local_steps / speed
    scale = np.log(ideal).mean(axis=-1)[:, None, None, None]
    others = ~np.eye(sinr.shape[-1], dtype=bool)
    seen = np.exp(inputs.hop[..., 0] + scale - HOP_SHIFT)
    np.testing.assert_allclose(seen[..., others], seconds[..., others], rtol=1e-9)
    level = 0.25 * np.log(sinr[..., others]) - 1.5
    np.testing.assert_allclose(inputs.hop[..., others, 1], level, rtol=1e-9, atol=1e-12)
    assert (inputs.hop[..., ~others, :] == 0.0).all()
    capped = (usable < sinr)[..., others]
    assert capped.any() == (ceiling is not None)
    assert not capped.all() or ceiling == 6.7


def test_dead_links_are_finite():
    medium = support.MEDIUM.with_overrides(SHANNON)
    state = support.played_state(medium, 2, 1)
    dead, loud = state.d2d_gain.copy(), state.cross_gain.copy()
    dead[0, 2] = 1e-300
    loud[1] = 1e60 * (loud[1] > 0.0)
    state = replace(state, d2d_gain=dead, cross_gain=loud)
    observer = GraphObserver(system_parameters(medium))
    for build in (observer.build, observer.build_generic):
        inputs = net_inputs(build(state))
        for array in inputs:
            assert np.isfinite(array).all()
        others = ~np.eye(6, dtype=bool)
        assert inputs.hop[0, 2][others][:, 0].min() > inputs.hop[0, 1][others][:, 0].max() + 50.0


@pytest.mark.parametrize("name", ["medium", "unequal", "alone"])
def test_second_inputs_are_those_of_a_walk_along_each_chain(name):
    """From node to node, with the times of stages and hops one by one."""
    scenario = support.SCENARIOS[name]
    state = support.played_state(scenario, 2, 3)
    plan = support.random_plan(action_codec(scenario), state, np.random.default_rng(1))
    inputs = net_inputs(support.observed(scenario, state))
    found = plan_inputs(inputs, plan.blocks)
    node, chain = np.zeros_like(found.node), np.zeros_like(found.chain)
    for e, n in np.ndindex(*plan.blocks.shape[:2]):
        counts, hop = plan.blocks[e, n], inputs.hop[e, n]
        walk = [0, *(1 + np.flatnonzero(counts)), 0]
        hops = np.exp([hop[a, b, 0] - HOP_SHIFT for a, b in itertools.pairwise(walk)])
        stage = counts * np.exp(inputs.device[e, n, :, 1])
        every, longest = np.concatenate((stage, hops)), max(stage.max(), hops.max())
        pipeline = math.log((every.sum() + 15.0 * longest) / 16.0)
        stages = [math.log(stage.max()), math.log(stage.sum()), math.log(len(walk) - 2)]
        chained = [math.log(hops.max()), math.log(hops.sum())]
        chain[e, n] = *stages, *chained, hop[0, walk[1], 0], hop[0, walk[-2], 0], hop[0, walk[1], 1], pipeline
        for k in range(len(counts)):
            ahead = min((i for i in walk if i > k + 1), default=0)
            behind = max(i for i in walk if i < k + 1)
            ends = [hop[k + 1, i, part] for part in (0, 1) for i in (ahead, behind)]
            own = [counts[k] / inputs.mean_blocks[e, n], math.log(stage[k] + 0.01), *ends]
            node[e, n, k] = *own, *stages, stage[k] / stage.max(), *chained, pipeline
    mean = chain[..., -1].mean(axis=-1, keepdims=True)
    chain[..., -1] -= mean
    node[..., -1] -= mean[..., None]
    np.testing.assert_allclose(found.chain, chain, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.node, node, rtol=1e-9, atol=1e-9)
