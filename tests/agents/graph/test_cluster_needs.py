"""Times from which the graph net's own shares start: the simulator's, as far as features settle them."""

from dataclasses import replace

import graph_net_support as support
import numpy as np
import pytest
from unpriced_support import NO_OVERHEADS

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.agents.learned.graph.cluster_needs import (
    NEEDS,
    parts_at,
    system_times,
    write_needs,
    write_own_shares,
)
from collapipe_env.compiled import called_from_python
from collapipe_env.envs.graph_observation import GraphObserver
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import action_codec, system_parameters
from collapipe_env.simulator.costs import round_costs

need, parts, own_shares = (called_from_python(f) for f in (write_needs, parts_at, write_own_shares))

MEDIUM = support.MEDIUM


def changed(**changes):
    """`medium` with other numbers, and energy enough for them."""
    rich = {"budgets.device_energy_j": 500.0, "budgets.cu_energy_j": 500.0}
    return MEDIUM.with_overrides({**rich, **{k.replace("__", "."): v for k, v in changes.items()}})


EXACT = {
    **support.SCENARIOS,
    "phones": load_scenario("phones"),
    "local steps": changed(workload__local_steps=4),
    "no overheads": changed(overheads=NO_OVERHEADS),
    "slow uplink": changed(radio__uplink_bandwidth_hz=2e6, workload__local_steps=2),
    "slow downlink": changed(radio__downlink_bandwidth_hz=1e5),
    "slow edge": changed(overheads__edge_message_s=0.3, overheads__edge_latency_s=0.7),
    "slow server": changed(cluster__server_flops=2e10, overheads__server_s=0.05),
    "slow updates": changed(overheads__update_s=0.4, overheads__block_s=0.1),
    "relays": changed(workload__distribution="relay"),
    "devices hear": changed(workload__distribution="devices"),
}
"""Systems whose rounds features settle but for moments and relays, if clusters do not disturb each other."""


def undisturbed(state):
    return replace(state, cross_gain=np.zeros_like(state.cross_gain))


def plans_of(scenario, state, seed=0):
    """DSSRA's plan and two random ones, one of them with the shares of another."""
    codec, rng = action_codec(scenario), np.random.default_rng(seed)
    first, second = (support.random_plan(codec, state, rng) for _ in range(2))
    return [DSSRA(scenario, threads=1).allocate(state), first, replace(second, bandwidth=first.bandwidth)]


def needs_of(scenario, state, plan):
    """What every cluster needs (E, N, NEEDS), and the time of a message of the edge [s]."""
    observer = GraphObserver(system_parameters(scenario))
    graph, times = observer.build(state), system_times(observer)
    needs, M = np.empty((*plan.bandwidth.shape, NEEDS)), plan.micro_batches.astype(float)
    for e, row in enumerate(needs):
        features = (graph.cu[e], graph.device[e], graph.hop[e])
        need(plan.blocks[e], plan.node_power[e], M[e], *features, times, row)
    return needs, times.edge_message_s


def delays_at(needs, share, edge_message_s, later=0.0, longer=0.0):
    """Delays of the clusters at shares (E, N), with corrections of their logs."""
    logs = np.empty((*share.shape, 2))
    for e, n in np.ndindex(*share.shape):
        logs[e, n] = parts(needs[e, n], share[e, n] * share.shape[1], edge_message_s)
    weight = np.exp(logs[..., 1] + longer) / (share.shape[1] * share)
    return np.exp(logs[..., 0] + later) + weight


def settled(costs):
    """Parts of the simulator's delays that the features settle (E, N)."""
    moving = 0.0 if costs.migration is None else costs.migration
    return costs.cluster_delay - moving - costs.relay


@pytest.mark.parametrize("name", EXACT)
def test_delays_are_the_simulators_where_clusters_do_not_disturb_each_other(name):
    scenario = EXACT[name]
    state = undisturbed(support.played_state(scenario, 3, 1))
    waits = {"uplink": [], "downlink": []}  # of the whole pipeline for the edge
    for plan in plans_of(scenario, state):
        needs, message = needs_of(scenario, state, plan)
        costs = round_costs(system_parameters(scenario), state, plan)
        # Features are in single precision: 6e-8 of a time, and as much of its logarithm's size.
        np.testing.assert_allclose(delays_at(needs, plan.bandwidth, message), settled(costs), rtol=2e-6)
        e = costs.elements
        there = [e.hop_forward.max(-1), e.compute_forward.max(-1), e.server_forward]
        back = [e.hop_backward.max(-1), e.compute_backward.max(-1), e.server_backward]
        waits["uplink"].append(e.uplink > np.max(there, axis=0))
        waits["downlink"].append(e.downlink > np.max(back, axis=0))
        if name == "boards":
            assert (costs.migration > 0.0).any()
        if name == "relays":
            assert (costs.relay > 0.0).all()
    for link, slow in (("uplink", "slow uplink"), ("downlink", "slow downlink")):
        if name == slow:
            assert np.any(waits[link])
        if name == "phones":
            assert not np.all(waits[link])


@pytest.mark.parametrize("name", ["small", "medium", "large", "boards", "unequal"])
def test_delays_are_the_simulators_under_interference_of_one_level(name):
    """All send at one power, so that all clusters' means are alike."""
    scenario = load_scenario(name) if name == "large" else support.SCENARIOS[name]
    p = system_parameters(scenario)
    state, compared = support.played_state(scenario, 3, 2), []
    alone = undisturbed(state)
    for share in (0.2, 0.5, 0.9):
        watts = p.power_min_w ** (1.0 - share) * p.power_max_w**share
        for plan in plans_of(scenario, state):
            plan = replace(
                plan,
                cu_power=np.full_like(plan.cu_power, watts),
                device_power=np.full_like(plan.device_power, watts),
            )
            needs, message = needs_of(scenario, state, plan)
            wanted = settled(round_costs(p, state, plan))
            np.testing.assert_allclose(delays_at(needs, plan.bandwidth, message), wanted, rtol=2e-6)
            compared.append(wanted / settled(round_costs(p, alone, plan)) - 1.0)
    assert np.max(compared) > 1e-2  # interference does count


@pytest.mark.parametrize("name", ["small", "medium", "large", "boards"])
def test_delays_of_dssras_plans_are_the_simulators_but_for_who_disturbs_whom(name):
    scenario = load_scenario(name)
    off = []
    for seed in range(3):
        state = support.played_state(scenario, 3, seed, mean=[0.3, 2.0, 6.0][seed])
        plan = DSSRA(scenario, threads=1).allocate(state)
        needs, message = needs_of(scenario, state, plan)
        wanted = settled(round_costs(system_parameters(scenario), state, plan))
        off.append(delays_at(needs, plan.bandwidth, message) / wanted - 1.0)
    assert np.abs(off).max() < 0.03
    assert np.std(off) < 0.005


def test_repeated_packets_are_left_out():
    """They make rounds longer alone, and the less the more power there is."""
    scenario = MEDIUM.with_overrides({"radio.link_errors": "arq"})
    p = system_parameters(scenario)
    state, repeats = undisturbed(support.played_state(scenario, 3, 1)), []
    plan = plans_of(scenario, state)[1]
    for watts in (p.power_min_w, p.power_max_w):
        plan = replace(
            plan,
            cu_power=np.full_like(plan.cu_power, watts),
            device_power=np.full_like(plan.device_power, watts),
        )
        needs, message = needs_of(scenario, state, plan)
        wanted = settled(round_costs(p, state, plan))
        repeats.append(wanted / delays_at(needs, plan.bandwidth, message) - 1.0)
    assert np.min(repeats) > -2e-6
    assert repeats[0].max() > 1e-3
    assert repeats[1].max() < 1e-4


@pytest.mark.parametrize("name", ["small", "medium", "boards", "unequal", "slow uplink", "slow downlink"])
@pytest.mark.parametrize("spread", [0.0, 0.3])
def test_own_shares_let_all_clusters_end_at_once(name, spread):
    scenario, rng = EXACT[name], np.random.default_rng(5)
    state = support.played_state(scenario, 3, 3)
    unfair = []
    for i, plan in enumerate(plans_of(scenario, state)):
        needs, message = needs_of(scenario, state, plan)
        E, N = plan.bandwidth.shape
        later, longer = spread * rng.standard_normal((2, E, N))
        busy, weight, share = np.empty((3, E, N))
        for e in range(E):
            own_shares(needs[e], later[e], longer[e], 0.0, message, busy[e], weight[e], share[e])
        np.testing.assert_allclose(share.sum(axis=-1), 1.0, atol=1e-12)
        # Every time that shares are worked out leaves a quarter of what was amiss for DSSRA's plans, and up
        # to half of it for random ones, which are much less even to begin with.
        ends = delays_at(needs, share, message, later, longer)
        even = delays_at(needs, np.full((E, N), 1.0 / N), message, later, longer)
        apart = ends.max(axis=-1) / ends.min(axis=-1) - 1.0
        assert apart.max() < (0.05 if i or spread else 0.002)
        unfair.append(even.max(axis=-1) / even.min(axis=-1) - 1.0)
        assert (apart < 0.1 * unfair[-1] + 1e-3).all()
        for floor in (0.01, 0.5 / N):
            held = np.empty(N)
            own_shares(needs[0], later[0], longer[0], floor, message, busy[0], weight[0], held)
            assert held.min() >= floor
            assert held.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.max(unfair) > 0.1


@pytest.mark.parametrize("gain", ["uplink_gain", "d2d_gain"])
def test_dead_links_leave_shares_finite(gain):
    state = support.played_state(MEDIUM, 2, 1)
    dead = getattr(state, gain).copy()
    dead[0, 2] = 1e-300
    state = replace(state, **{gain: dead})
    p = system_parameters(MEDIUM)
    for plan in plans_of(MEDIUM, support.played_state(MEDIUM, 2, 1)):
        _, _, share = support.own_shares(MEDIUM, state, plan)
        np.testing.assert_allclose(share.sum(axis=-1), 1.0, atol=1e-12)
        assert (share >= p.bandwidth_floor).all()
        assert share[0].argmax() == 2
