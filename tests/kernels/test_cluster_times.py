"""Times of a cluster against the costs that the simulator charges for plans of one device or two."""

import itertools

import numpy as np
import pytest
from round_support import PRICES, make_case

import collapipe_env.kernels.formulas  # noqa: F401 - registers the formulas for compiled code
from collapipe_env.ground.compiled import called_from_python
from collapipe_env.kernels import cluster_times as times_of
from collapipe_env.kernels.cluster_chain import system_of
from collapipe_env.physics.allocation import Allocation, with_schedule
from collapipe_env.simulator.general_costs import general_round_costs

cluster_times = called_from_python(times_of.cluster_times)


@pytest.mark.parametrize("links", ["drop", "arq"])
@pytest.mark.parametrize("prices", ["free", "priced"])
def test_every_time_is_the_simulators(links, prices):
    p, s, a = make_case(3, lead=(), clusters=2, devices=3, link_errors=links, **PRICES[prices])
    L, M, share, felt = p.costs.blocks, 4, np.array([0.3, 0.7]), np.array([2e-13, 5e-14])
    for n, (i, j) in itertools.product(range(2), [(0, 1), (0, 2), (1, 2), (0, None), (2, None)]):
        blocks = np.zeros((2, 3), dtype=np.int64)
        blocks[:, i] = L
        if j is not None:
            blocks[:, i], blocks[:, j] = 1, L - 1
        held, chain = blocks[n], [0, i + 1, *([j + 1] if j is not None else []), 0]
        power = np.append(a.cu_power[n], a.device_power[n])
        noise = p.noise_density * p.d2d_bandwidth_hz + felt[n]
        system = system_of(s)._replace(server_share=1.0)
        times = cluster_times(p.numbers, system, n, held, power, noise, share[n], float(M), 0, 0.0)
        plan = Allocation(blocks, np.full(2, M), share, a.device_power, a.cu_power)
        charged = general_round_costs(p, s, with_schedule(plan, "zb-h1", np.full(3, 2)), felt)
        e = charged.elements
        # By sender: the CU to i, i to j, j to the CU, and back.
        ways = list(itertools.pairwise(chain))
        there, back = [times.hop_forward[way] for way in ways], [times.hop_backward[way] for way in ways]
        np.testing.assert_allclose(np.array(there) / M, e.hop_forward[n, chain[:-1]], rtol=1e-12)
        np.testing.assert_allclose(np.array(back) / M, e.hop_backward[n, chain[1:]], rtol=1e-12)
        assert np.count_nonzero(times.hop_forward) == len(chain[:-1]) * (len(chain[:-1]) - 1)
        for name in ("forward", "backward", "weight"):
            found = held * getattr(times, f"block_{name}") / M
            np.testing.assert_allclose(found, getattr(e, f"compute_{name}")[n], rtol=1e-12)
        for name in ("uplink", "downlink", "server_forward", "server_backward", "server_weight"):
            assert getattr(times, name) / M == pytest.approx(getattr(e, name)[n], rel=1e-12)
        assert (held * times.block_collect).max() == pytest.approx(charged.collect[n], rel=1e-12)
        assert (held * times.block_update).max() == pytest.approx(charged.update[n], rel=1e-12, abs=0.0)
        assert not times.block_collect[held == 0].any()
        nodes = np.flatnonzero(held) + 1
        collect = times.block_collect[nodes - 1] / p.costs.block_payload_bits
        np.testing.assert_allclose(times.link_bit[nodes, 0], collect, rtol=1e-12)
        bits = p.costs.batch_size * p.costs.activation_bits
        if prices == "priced":
            assert (times.hop_overhead_forward[0, nodes] > PRICES["priced"]["overheads"].message_s).all()
        elif links == "drop":  # nothing is repeated
            np.testing.assert_allclose(times.hop_forward, bits * times.link_bit, rtol=1e-12)
        else:
            assert (times.hop_forward[0, nodes] > bits * times.link_bit[0, nodes]).all()
