"""Delays from the observation are the simulator's, as far as features settle them; own shares even them."""

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
from collapipe_env.envs.graph_observation import GraphObserver
from collapipe_env.ground.compiled import called_from_python
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
    "recomputing": changed(workload__recompute=True),
    "recomputing, slow uplink": changed(workload__recompute=True, radio__uplink_bandwidth_hz=2e6),
    "llm-boards": load_scenario("llm-boards"),
    "relays": changed(workload__distribution="relay"),
}
"""Systems whose rounds features settle, but for moments and relays."""


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
        features = (graph.cu[e], graph.device[e], graph.hop[e], graph.between[e])
        need(plan.blocks[e], plan.node_power[e], M[e], *features, times, row)
    return needs, times.edge_message_s


def delays_at(needs, share, edge_message_s):
    """Delays of the clusters at shares (E, N)."""
    delays = np.empty(share.shape)
    for e, n in np.ndindex(*share.shape):
        relative = share[e, n] * share.shape[1]
        stays, inverse = parts(needs[e, n], relative, edge_message_s)
        delays[e, n] = stays + inverse / relative
    return delays


def settled(costs):
    """Parts of the simulator's delays that the features settle (E, N)."""
    moving = costs.terms.once.get("migration", 0.0)
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
            assert (costs.terms.once["migration"] > 0.0).any()
        if name == "relays":
            assert (costs.relay > 0.0).all()
    for link, slow in (("uplink", "slow uplink"), ("downlink", "slow downlink")):
        if name == slow:
            assert np.any(waits[link])
        if name == "phones":
            assert not np.all(waits[link])


@pytest.mark.parametrize("name", ["small", "medium", "large", "boards", "unequal"])
def test_delays_are_the_simulators_where_clusters_disturb_each_other(name):
    scenario = load_scenario(name) if name == "large" else support.SCENARIOS[name]
    p, compared = system_parameters(scenario), []
    for seed in range(2):
        state = support.played_state(scenario, 3, seed, mean=[0.3, 4.0][seed])
        for plan in plans_of(scenario, state, seed):
            needs, message = needs_of(scenario, state, plan)
            wanted = settled(round_costs(p, state, plan))
            np.testing.assert_allclose(delays_at(needs, plan.bandwidth, message), wanted, rtol=2e-6)
            compared.append(wanted / settled(round_costs(p, undisturbed(state), plan)) - 1.0)
    assert np.max(compared) > 1e-2  # interference does count


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
def test_own_shares_let_all_clusters_end_at_once(name):
    scenario = EXACT[name]
    state = support.played_state(scenario, 3, 3)
    unfair = []
    for i, plan in enumerate(plans_of(scenario, state)):
        needs, message = needs_of(scenario, state, plan)
        E, N = plan.bandwidth.shape
        share = np.empty((E, N))
        for e in range(E):
            own_shares(needs[e], 0.0, message, share[e])
        np.testing.assert_allclose(share.sum(axis=-1), 1.0, atol=1e-12)
        ends, even = (delays_at(needs, s, message) for s in (share, np.full((E, N), 1.0 / N)))
        # Where an edge's time becomes the longest of a chain, the delay has a kink, over which steps swing.
        apart = ends.max(axis=-1) / ends.min(axis=-1) - 1.0
        assert apart.max() < (0.05 if i else 1e-4)
        unfair.append(even.max(axis=-1) / even.min(axis=-1) - 1.0)
        for floor in (0.01, 0.5 / N):
            held = np.empty(N)
            own_shares(needs[0], floor, message, held)
            assert held.min() >= floor * (1.0 - 1e-12)
            assert held.sum() == pytest.approx(1.0, abs=1e-12)
            above = delays_at(needs[:1], held[None], message)[0, held > 1.001 * floor]
            assert above.max() / above.min() - 1.0 < 0.05
    assert np.max(unfair) > 0.1


@pytest.mark.parametrize("gain", ["uplink_gain", "d2d_gain"])
def test_dead_links_leave_shares_finite(gain):
    state = support.played_state(MEDIUM, 2, 1)
    dead = getattr(state, gain).copy()
    dead[0, 2] = 1e-300
    state = replace(state, **{gain: dead})
    p = system_parameters(MEDIUM)
    for plan in plans_of(MEDIUM, support.played_state(MEDIUM, 2, 1)):
        share = support.own_shares(MEDIUM, state, plan)
        np.testing.assert_allclose(share.sum(axis=-1), 1.0, atol=1e-12)
        assert (share >= p.bandwidth_floor).all()
        assert share[0].argmax() == 2
