"""Times of a cluster against the costs that the simulator charges for plans of one device or two."""

import itertools

import numpy as np
import pytest
from unpriced_support import NO_OVERHEADS

import collapipe_env.kernels.formulas  # noqa: F401 - registers the formulas for compiled code
from collapipe_env.ground.compiled import called_from_python
from collapipe_env.kernels import cluster_times as times_of
from collapipe_env.kernels.cluster_chain import system_of
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.layout import fixed_layout
from collapipe_env.simulator.build import mean_state, system_parameters
from collapipe_env.simulator.general_costs import general_round_costs

cluster_times = called_from_python(times_of.cluster_times)


OVERHEADS = {
    "block_s": 0.003,
    "update_s": 0.05,
    "message_s": 0.002,
    "header_bits": 3000,
    "latency_s": 0.003,
    "edge_message_s": 0.004,
    "edge_latency_s": 0.015,
    "server_s": 0.0005,
}


@pytest.mark.parametrize("links", ["drop", "arq"])
@pytest.mark.parametrize("overheads", [NO_OVERHEADS, OVERHEADS], ids=["free", "priced"])
def test_every_time_is_the_simulators(links: str, overheads: dict[str, float]) -> None:
    scenario = load_scenario(
        {
            "base": "small",
            "radio": {"link_errors": links, "waterfall_threshold": 0.5, "d2d_shadowing_db": 4.0},
            "overheads": overheads,
        }
    )
    parameters = system_parameters(scenario)
    state = mean_state(scenario, fixed_layout(scenario))
    N, K = state.present.shape
    rng = np.random.default_rng(3)
    device_power, cu_power = rng.uniform(0.05, 0.2, (N, K)), rng.uniform(0.05, 0.2, N)
    share, interference, M = np.array([0.3, 0.7]), np.array([2e-13, 5e-14]), 4
    costs = parameters.costs
    present = np.ones(K, dtype=np.int64)
    present[2] = 0
    for n, (i, j) in itertools.product(range(N), itertools.combinations(range(2), 2)):
        noise = parameters.noise_density * parameters.d2d_bandwidth_hz + interference[n]
        times = cluster_times(
            parameters.numbers,
            system_of(state)._replace(server_share=1.0),
            n,
            present,
            np.append(cu_power[n], device_power[n]),
            noise,
            share[n],
            float(M),
            0,
            0.0,
        )
        blocks = np.zeros((N, K), dtype=np.int64)
        blocks[:, i], blocks[:, j] = 1, costs.blocks - 1
        plan = Allocation(blocks, np.full(N, M), share, device_power, cu_power)
        charged = general_round_costs(parameters, state, plan, interference)
        e = charged.elements
        # By sender: the CU to i, i to j, j to the CU, and back.
        there = [times.hop_forward[0, i + 1], times.hop_forward[i + 1, j + 1], times.hop_forward[j + 1, 0]]
        back = [times.hop_backward[0, i + 1], times.hop_backward[i + 1, j + 1], times.hop_backward[j + 1, 0]]
        np.testing.assert_allclose(np.array(there) / M, e.hop_forward[n, [0, i + 1, j + 1]], rtol=1e-12)
        np.testing.assert_allclose(np.array(back) / M, e.hop_backward[n, [i + 1, j + 1, 0]], rtol=1e-12)
        held = blocks[n]
        np.testing.assert_allclose(held * times.block_forward / M, e.compute_forward[n], rtol=1e-12)
        np.testing.assert_allclose(held * times.block_backward / M, e.compute_backward[n], rtol=1e-12)
        edge = [times.uplink, times.downlink, times.server_forward, times.server_backward]
        charged_edge = [e.uplink[n], e.downlink[n], e.server_forward[n], e.server_backward[n]]
        np.testing.assert_allclose(np.array(edge) / M, charged_edge, rtol=1e-12)
        assert (held * times.block_collect).max() == pytest.approx(charged.collect[n], rel=1e-12)
        assert (held * times.block_update).max() == pytest.approx(charged.update[n], rel=1e-12, abs=0.0)
        collect = times.block_collect[:2] / costs.block_payload_bits
        np.testing.assert_allclose(times.link_bit[1:3, 0], collect, rtol=1e-12)
        if overheads is OVERHEADS:
            assert (times.hop_overhead_forward[0, 1:3] > 0.002).all()
        elif links == "drop":  # nothing is repeated
            bits = costs.batch_size * costs.activation_bits
            np.testing.assert_allclose(times.hop_forward, bits * times.link_bit, rtol=1e-12)
        else:
            assert (
                times.hop_forward[0, 1:3] > costs.batch_size * costs.activation_bits * times.link_bit[0, 1:3]
            ).all()


def test_weight_gradients_are_those_of_a_split_backward_pass() -> None:
    scenario = load_scenario({"base": "small", "overheads": OVERHEADS})
    parameters = system_parameters(scenario)
    state = mean_state(scenario, fixed_layout(scenario))
    K = state.present.shape[1]
    N = parameters.clusters
    plan = Allocation(
        np.array([[parameters.costs.blocks, *[0] * (K - 1)]] * N),
        np.full(N, 2),
        np.full(N, 0.5),
        np.full((N, K), 0.1),
        np.full(N, 0.1),
        schedule=np.full(N, 3),
        caps=np.full((N, K), 2),
        chunks=np.ones(N, dtype=np.int64),
    )
    e = general_round_costs(parameters, state, plan, np.zeros(N)).elements
    times = cluster_times(
        parameters.numbers,
        system_of(state)._replace(server_share=1.0),
        0,
        np.array([1, 0, 0]),
        np.full(K + 1, 0.1),
        1e-13,
        0.5,
        2.0,
        0,
        0.0,
    )
    assert e.compute_weight is not None
    assert e.server_weight is not None
    assert times.block_weight[0] * parameters.costs.blocks / 2 == pytest.approx(
        e.compute_weight[0, 0], rel=1e-12
    )
    assert times.server_weight / 2 == pytest.approx(e.server_weight[0], rel=1e-12)
    # Devices that take no part have no hops.
    assert not times.block_collect[1:].any()
    assert np.flatnonzero(times.hop_forward).tolist() == [1, K + 1]
