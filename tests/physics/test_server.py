"""The server on equal terms: its energy and memory, against closed forms and plain numbers."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from round_support import make_case, on_server

from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import COPIES, SEQUENTIAL, Allocation
from collapipe_env.physics.server import (
    ServerTerms,
    encoder_energy,
    most_server_blocks,
    server_energy,
    server_memory,
)
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import server_terms, system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs

SEEDS = st.integers(0, 2**32 - 1)


@given(seed=SEEDS, e_flop=st.floats(1e-13, 1e-9), pue=st.floats(1.0, 3.0), budget=st.floats(0.1, 1e3))
@settings(max_examples=30, deadline=None)
def test_energy_is_linear_in_the_flops(seed, e_flop, pue, budget) -> None:
    p, state, plan = make_case(seed)
    rng = np.random.default_rng(seed)
    kept = rng.integers(0, p.costs.blocks, plan.micro_batches.shape)
    terms = ServerTerms(
        joules_per_flop=e_flop, pue=pue, budget_j=budget, idle_w=30.0, amplifier_efficiency=0.3
    )
    p = replace(p, server=terms)
    costs = round_costs(p, state, on_server(plan, kept))
    c = p.costs
    for e, n in np.ndindex(kept.shape):
        flops = 0.0
        for _ in range(c.local_steps):
            for _ in range(c.batch_size):
                flops += kept[e, n] * (c.block_forward_flops + 2.0 * c.block_forward_flops)
        assert costs.terms.server_j[e, n] == pytest.approx(pue * e_flop * flops, rel=1e-9)
    np.testing.assert_allclose(costs.server_ratio, costs.terms.server_j.sum(axis=-1) / budget, rtol=1e-12)
    twice = replace(c, batch_size=2 * c.batch_size)
    double = encoder_energy(terms, twice, on_server(plan, kept))
    np.testing.assert_allclose(double, 2.0 * costs.terms.server_j, rtol=1e-12)
    # What is reported beside: the head, idling, and the base station's sender.
    whole = server_energy(
        terms, c, p.bs_power_w, costs.allocation, (costs.elements.downlink, costs.broadcast, costs.delay)
    )
    head = 3.0 * c.local_steps * c.batch_size * c.decoder_forward_flops * e_flop * pue
    np.testing.assert_allclose(whole.head, np.full(kept.shape, head), rtol=1e-12)
    np.testing.assert_allclose(whole.idle, pue * 30.0 * costs.delay, rtol=1e-12)
    sent = costs.broadcast.copy()
    for e, n in np.ndindex(kept.shape):
        passes = c.local_steps * plan.micro_batches[e, n]
        sent[e] += plan.bandwidth[e, n] * passes * costs.elements.downlink[e, n]
    np.testing.assert_allclose(whole.radio, p.bs_power_w / 0.3 * sent, rtol=1e-12)
    np.testing.assert_array_equal(whole.encoder, costs.terms.server_j)
    assert (round_costs(p, state, plan).terms.server_j == 0.0).all()


@given(seed=SEEDS, room=st.floats(0.0, 25.0), sequential=st.booleans())
@settings(max_examples=40, deadline=None)
def test_memory_is_never_exceeded(seed, room, sequential) -> None:
    p, state, plan = make_case(seed)
    c = p.costs
    each = c.block_state_bytes + c.batch_size * c.stored_activation_bytes
    terms = ServerTerms(
        memory_bytes=room * each,
        block_state_bytes=c.block_state_bytes,
        block_activation_bytes=c.batch_size * c.stored_activation_bytes,
    )
    p = replace(p, server=terms)
    kept = np.random.default_rng(seed).integers(0, c.blocks, plan.micro_batches.shape)
    kept = np.broadcast_to(kept[..., :1], kept.shape).copy() if sequential else kept
    plan = on_server(plan, kept, SEQUENTIAL if sequential else COPIES)
    most = most_server_blocks(terms, c, p.clusters)
    assert most == min(int(room * (1 + 1e-15)), p.clusters * (c.blocks - 1))
    held = kept.max(axis=-1) if sequential else kept.sum(axis=-1)
    np.testing.assert_allclose(server_memory(terms, plan), held * each, rtol=1e-12)
    if (held <= most).all():
        check_allocation(p, state, plan)
    else:
        with pytest.raises(AllocationError, match=rf"server_blocks: environment \d needs .* at most {most} "):
            check_allocation(p, state, plan)


@pytest.mark.parametrize(("name", "gigabytes"), [("medium", 4.0), ("large", 16.1), ("xlarge", 87.6)])
def test_memory_of_copies_of_all_but_one_block(name, gigabytes) -> None:
    """The figures of a calculation by hand, with 16 w + B alpha a block."""
    scenario = load_scenario({"base": name, "server": {"terms": "metered"}})
    terms = server_terms(scenario)
    blocks = scenario.clusters * (scenario.blocks - 1)
    each = terms.block_state_bytes + terms.block_activation_bytes
    assert blocks * each / 1e9 == pytest.approx(gigabytes, rel=0.02)
    fits = gigabytes < 16.0
    assert (most_server_blocks(terms, system_parameters(scenario).costs, scenario.clusters) == blocks) == fits


def test_energy_of_all_of_mediums_encoder_work() -> None:
    """966 GFLOP at 49 pJ each: 47 J, whatever the devices recompute."""
    for recompute in (False, True):
        scenario = load_scenario(
            {"base": "medium", "server": {"terms": "metered"}, "workload": {"recompute": recompute}}
        )
        p = system_parameters(scenario)
        N, K, L = scenario.clusters, scenario.max_devices, scenario.blocks
        plan = Allocation(
            np.zeros((N, K), dtype=np.int64),
            np.ones(N, dtype=np.int64),
            np.full(N, 1.0 / N),
            np.full((N, K), 0.2),
            np.full(N, 0.2),
            server_blocks=np.full(N, L),
            server_mode=np.array(COPIES),
        )
        assert float(encoder_energy(p.server, p.costs, plan).sum()) == pytest.approx(47.0, abs=0.5)
        assert p.server.block_activation_bytes == pytest.approx(79e6, rel=0.01)
