"""New weights on their way to the devices, and local steps that wait for each other."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from physics_support import PRICED, make_case

from collapipe_env.physics.allocation import COMMON, COPIES, SEQUENTIAL
from collapipe_env.physics.payload import message_bits
from collapipe_env.physics.schedules.split import relay_payload
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.layout import fixed_layout
from collapipe_env.simulator.build import mean_state, reference_delay, system_parameters, workload_costs
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split

SEEDS = st.integers(0, 2**32 - 1)


def charged(parameters, **fields):
    """The same parameters with other ways of new weights or of the head."""
    return replace(parameters, **fields)


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, groups=st.booleans(), steps=st.integers(1, 3), mode=st.sampled_from(["drop", "arq"]))
def test_relay_adds_its_time_and_its_energy(seed, groups, steps, mode):
    p, s, a = make_case(seed, groups=groups, absent=0.3, steps=steps, link_errors=mode, **PRICED)
    free, relayed = round_costs(p, s, a), round_costs(charged(p, distribution="relay"), s, a)
    assert (free.relay == 0.0).all()
    assert (relayed.relay > 0.0).all()
    np.testing.assert_allclose(relayed.cluster_delay, free.cluster_delay + relayed.relay, rtol=1e-12)
    assert (relayed.delay > free.delay).all()
    np.testing.assert_array_equal(relayed.local_step, free.local_step)
    np.testing.assert_array_equal(relayed.broadcast, free.broadcast)
    # Link by link, from the interference: every member of a group gets its whole stage.
    noise = p.noise_density * p.d2d_bandwidth_hz + free.interference
    snr = np.minimum((a.cu_power / noise)[..., None] * s.d2d_gain[..., 0, 1:], p.d2d_snr_cap)
    rate = p.d2d_bandwidth_hz * np.log2(1.0 + snr)
    sent = a.device_blocks * p.costs.block_parameters * 16.0 / rate
    np.testing.assert_allclose(relayed.relay, sent.sum(axis=-1), rtol=1e-12)
    more = relayed.energy - free.energy
    radio = p.radio_power
    drawn = radio.d2d_circuit_w + a.cu_power / radio.efficiency
    tolerance = 1e-9 * free.energy
    assert (np.abs(more[..., 0] - drawn * relayed.relay) <= tolerance[..., 0]).all()
    assert (np.abs(more[..., 1:] - radio.receive_w * sent) <= tolerance[..., 1:]).all()


def test_published_split_training_waits_for_nobody():
    p, s, a = make_case(2, lead=(3,), steps=2, head="common")
    modes = np.array([COMMON, COPIES, SEQUENTIAL])
    split = replace(
        a,
        micro_batches=np.ones_like(a.micro_batches),
        server_blocks=np.zeros_like(a.micro_batches),
        server_mode=modes,
    )
    costs, alone = round_costs(p, s, split), round_costs(charged(p, head="copies"), s, split)
    assert (costs.barrier[0] > 0.0).any()
    assert (costs.barrier[1:] == 0.0).all()
    assert (costs.cluster_delay[0] > alone.cluster_delay[0]).sum() == 2
    np.testing.assert_array_equal(costs.delay[1:], alone.delay[1:])


def test_reference_delay_holds_what_is_charged():
    changes = {"workload.local_steps": 2}
    medium = load_scenario("medium").with_overrides(changes)
    before = reference_delay(medium)
    for field in ({"distribution": "relay"}, {"head": "common"}):
        scenario = medium.with_overrides({f"workload.{name}": value for name, value in field.items()})
        parameters, state = system_parameters(scenario), mean_state(scenario, fixed_layout(scenario))
        after = round_costs(parameters, state, even_split(parameters, state))
        assert reference_delay(scenario) == pytest.approx(float(after.delay))
        # The cluster of the longest local step may be the slowest anyway.
        more = reference_delay(scenario) - before
        assert more >= 0.0 if "head" in field else more > 0.0


def test_compressed_and_adapted_updates_are_sent_on_as_the_broadcast_has_them():
    w = 789_760  # parameters of a block of medium
    for fields, bits in (
        ({"update_compression": "none"}, 16 * w),
        ({"update_compression": "none", "weight_bits": 32}, 32 * w),
        ({"update_compression": "lora", "lora_rank": 4}, 16 * 4 * (8 * 256 + 2 * 1024)),
        ({"update_compression": "top-k", "top_k_share": 0.01}, message_bits(w, 4 * math.ceil(0.01 * w), 16)),
    ):
        scenario = load_scenario({"base": "medium", "workload": {"distribution": "relay", **fields}})
        assert system_parameters(scenario).numbers.relay_bits == bits


def test_densely_broadcast_blocks_count_in_the_mean():
    """Clusters keep 4 and 2 of 6 blocks; the last 2 of the second one's 4 are trained densely elsewhere."""
    _, _, a = make_case(1, lead=(), clusters=2)
    scenario = load_scenario(
        {"base": "small", "workload": {"blocks": 6, "update_compression": "top-k", "top_k_share": 0.01}}
    )
    costs = workload_costs(scenario)
    plan = replace(a, server_blocks=np.array([4, 2]), server_mode=np.array(COPIES))
    sparse, dense = costs.block_broadcast_bits(2), costs.block_broadcast_bits(0)
    assert dense > sparse
    np.testing.assert_allclose(relay_payload(costs, plan), [[sparse], [(2 * sparse + 2 * dense) / 4]])
    np.testing.assert_array_equal(relay_payload(costs, a), np.full((2, 1), sparse))
