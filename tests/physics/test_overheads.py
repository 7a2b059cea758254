"""Overheads and latencies: what they make longer and dearer, and what they leave alone."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from physics_support import PRICED, make_case

from collapipe_env.physics.allocation import SCHEDULES, with_schedule
from collapipe_env.physics.overheads import NO_OVERHEADS
from collapipe_env.physics.schedules.timeline import Element, gpipe_timeline
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.general_costs import general_round_costs

SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, M=st.integers(1, 12), element=st.integers(0, 2))
def test_latency_adds_itself_once_a_direction_whatever_the_micro_batches(seed, M, element):
    rng = np.random.default_rng(seed)
    times = rng.exponential(1.0, (3, 2))
    plain = [Element("hop", str(i), *pair, i) for i, pair in enumerate(times)]
    late = list(plain)
    late[element] = replace(late[element], latency_s=0.7)
    ends = [max(event.end_s for event in gpipe_timeline(chain, M)) for chain in (plain, late)]
    # The last arrival is no event: what is drawn ends with the last transfer.
    assert ends[1] == pytest.approx(ends[0] + (2 * 0.7 if element > 0 else 0.7), rel=1e-12)


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, name=st.sampled_from(SCHEDULES), groups=st.booleans())
def test_every_overhead_makes_a_round_longer_and_dearer(seed, name, groups):
    p, s, a = make_case(seed, groups=groups, steps=2)
    a = with_schedule(replace(a, micro_batches=np.full_like(a.micro_batches, 4)), name, 4)
    free = round_costs(p, s, a)
    for field, value in PRICED["overheads"]._asdict().items():
        costs = round_costs(replace(p, overheads=NO_OVERHEADS._replace(**{field: value})), s, a)
        # Greedy orders of zb-h1 may profit a little from a delay, as any list schedule may.
        slack = 0.98 if name == "zb-h1" else 1.0 - 1e-12
        assert (costs.cluster_delay >= slack * free.cluster_delay).all(), field
        dearer = costs.energy > free.energy * (1.0 + 1e-12)
        on_devices = field in ("block_cycles", "update_cycles")
        if on_devices or field in ("message_s", "header_bits"):
            assert (dearer[..., 1:] == (a.device_blocks > 0)).all(), field
        assert dearer[..., 0].all() == (field in ("message_s", "header_bits", "edge_message_s")), field


@pytest.mark.parametrize("groups", [False, True])
def test_radios_draw_their_circuits_power_for_as_long_as_they_send_or_receive(groups):
    p, s, a = make_case(4, groups=groups, steps=2)
    free = general_round_costs(p, s, a)
    radio = p.radio_power._replace(efficiency=0.5)
    doubled = general_round_costs(replace(p, radio_power=radio), s, a)
    sent = doubled.energy - free.energy  # the amplifiers draw what they emit once more
    power = a.node_power
    airtime = np.where(power > 0.0, sent / power, 0.0)
    radio = p.radio_power._replace(d2d_circuit_w=2.0)
    circuits = general_round_costs(replace(p, radio_power=radio), s, a).energy - free.energy
    np.testing.assert_allclose(circuits[..., 1:], 2.0 * airtime[..., 1:], rtol=1e-9, atol=1e-9)
    radio = p.radio_power._replace(edge_circuit_w=2.0)
    edge = general_round_costs(replace(p, radio_power=radio), s, a).energy - free.energy
    np.testing.assert_array_equal(edge[..., 1:], 0.0)
    np.testing.assert_allclose(circuits[..., 0] + edge[..., 0], 2.0 * airtime[..., 0], rtol=1e-9)
    radio = p.radio_power._replace(receive_w=2.0)
    heard = general_round_costs(replace(p, radio_power=radio), s, a).energy - free.energy
    # What is sent between nodes is received; nobody pays for receiving uplinks.
    np.testing.assert_allclose(heard.sum(axis=-1), circuits.sum(axis=-1), rtol=1e-9)
