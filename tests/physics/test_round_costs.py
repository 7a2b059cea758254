"""The round as a whole: against scalar Python, over batches, array libraries, and by its invariants."""

import dataclasses

import array_api_strict
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from physics_support import PRICES, RELAYED, make_case, scalar_round

from collapipe_env.physics.queues import update_backlog
from collapipe_env.rendering.round_view import cluster_round_timeline
from collapipe_env.simulator.costs import general_round_costs, round_costs
from collapipe_env.simulator.learner import Arrivals, LearningReport
from collapipe_env.simulator.record import RoundRecord

SEEDS = st.integers(0, 2**32 - 1)
MODES = ("drop", "arq", "none")


def leaves(costs):
    """Every array of a result, by dotted name."""
    for field in dataclasses.fields(costs):
        value = getattr(costs, field.name)
        if dataclasses.is_dataclass(value):
            yield from ((f"{field.name}.{name}", leaf) for name, leaf in leaves(value))
        elif hasattr(value, "dtype"):
            yield field.name, value


@pytest.mark.parametrize("prices", PRICES.values(), ids=PRICES)
@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, steps=st.integers(1, 3), clusters=st.integers(1, 4), devices=st.integers(1, 5))
def test_equals_a_scalar_round(mode, prices, seed, steps, clusters, devices):
    sizes = {"clusters": clusters, "devices": devices}
    p, s, a = make_case(seed, lead=(1,), **sizes, steps=steps, link_errors=mode, **prices)
    costs = round_costs(p, s, a)
    expected = scalar_round(p, s[0], a[0])
    close = {"rtol": 1e-9, "atol": 0.0}
    np.testing.assert_allclose(costs.interference[0], expected["interference"], **close)
    np.testing.assert_allclose(costs.local_step[0], expected["step"], **close)
    np.testing.assert_allclose(costs.collect[0], expected["collect"], **close)
    np.testing.assert_allclose(costs.upload[0], expected["upload"], **close)
    np.testing.assert_allclose(costs.relay[0], expected["relay"], **close)
    np.testing.assert_allclose(costs.cluster_delay[0], expected["delay"], **close)
    np.testing.assert_allclose(costs.broadcast[0], expected["broadcast"], **close)
    np.testing.assert_allclose(costs.delay[0], expected["total"], **close)
    np.testing.assert_allclose(costs.energy[0], expected["energy"], **close)
    np.testing.assert_allclose(costs.survival[0], expected["survival"], rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(costs.memory[0], expected["memory"], **close)
    np.testing.assert_allclose(costs.energy_ratio, costs.energy / s.budget)


@pytest.mark.parametrize("prices", PRICES.values(), ids=PRICES)
@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, clusters=st.integers(1, 4), devices=st.integers(1, 6), rows=st.integers(1, 4))
def test_the_compiled_loop_equals_the_general_form(mode, prices, seed, clusters, devices, rows):
    sizes = {"clusters": clusters, "devices": devices, "steps": 2, "absent": 0.3}
    p, s, a = make_case(seed, lead=(rows,), **sizes, link_errors=mode, **prices)
    found, expected = dict(leaves(round_costs(p, s, a))), dict(leaves(general_round_costs(p, s, a)))
    assert found.keys() == expected.keys()
    for name, value in found.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-12, atol=1e-300, err_msg=name)
    np.testing.assert_array_equal(
        round_costs(p, s, a).graph.successor, general_round_costs(p, s, a).graph.successor
    )


def test_plans_that_do_not_fit_the_loop_take_the_general_form():
    p, s, a = make_case(3, lead=(2,))
    whole = round_costs(p, s, a)
    for other in (a.map(lambda x: np.asarray(x, dtype=np.float64)), a.map(lambda x: x[:1])):
        some = round_costs(p, s, other)
        np.testing.assert_allclose(some.delay[0], whole.delay[0], rtol=1e-12)
        assert some.delay.shape == (2,)


def test_modes_differ_as_they_should():
    found = {mode: round_costs(*make_case(1, link_errors=mode)) for mode in MODES}
    np.testing.assert_array_equal(found["drop"].delay, found["none"].delay)
    assert (found["arq"].delay > found["none"].delay).all()
    assert (found["arq"].energy[..., 0] > found["none"].energy[..., 0]).all()
    assert (found["drop"].survival < 1.0).all()
    assert (found["arq"].survival > found["drop"].survival).all()
    assert (found["none"].survival == 1.0).all()


def test_one_transmission_is_drop_and_more_cost_at_most_as_many_times():
    p, s, a = make_case(1, link_errors="drop")
    once, drop = (
        round_costs(dataclasses.replace(p, link_errors="arq", max_transmissions=1), s, a),
        round_costs(p, s, a),
    )
    ideal = round_costs(dataclasses.replace(p, link_errors="none"), s, a)
    for name in ("delay", "energy", "survival"):
        np.testing.assert_array_equal(getattr(once, name), getattr(drop, name))
    for most in (2, 16):
        # A threshold so high that hardly anything arrives.
        lost = dataclasses.replace(p, link_errors="arq", max_transmissions=most, waterfall_threshold=1e12)
        found = round_costs(lost, s, a)
        assert (found.delay > ideal.delay).all()
        assert (found.delay <= most * ideal.delay * (1.0 + 1e-12)).all()
        assert (found.energy <= most * ideal.energy * (1.0 + 1e-12)).all()
        assert (found.survival < 1e-30).all()


@pytest.mark.parametrize("prices", PRICES.values(), ids=PRICES)
@pytest.mark.parametrize("groups", [False, True])
def test_a_row_of_a_batch_is_the_row_alone(groups, prices):
    p, s, a = make_case(5, lead=(2, 3), groups=groups, absent=0.3, steps=2, **prices)
    batch = dict(leaves(round_costs(p, s, a)))
    for place in np.ndindex(2, 3):
        for name, value in leaves(round_costs(p, s[place], a[place])):
            np.testing.assert_allclose(batch[name][place], value, rtol=1e-13, err_msg=name)


def test_one_state_serves_many_candidates():
    p, s, _ = make_case(5, lead=())
    _, _, many = make_case(5, lead=(7,))
    batch = round_costs(p, s, many)
    for i in range(7):
        np.testing.assert_allclose(batch.energy[i], round_costs(p, s, many[i]).energy, rtol=1e-13)


@pytest.mark.parametrize("prices", PRICES.values(), ids=PRICES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("library", ["strict", "torch"])
def test_runs_on_other_array_libraries(library, groups, mode, prices):
    convert = {"strict": array_api_strict.asarray, "torch": torch.asarray}[library]
    p, s, a = make_case(3, groups=groups, absent=0.2, link_errors=mode, steps=2, **prices)
    expected = dict(leaves(round_costs(p, s, a)))
    found = dict(leaves(round_costs(p, s.map(convert), a.map(convert))))
    assert set(found) == set(expected)
    for name, value in found.items():
        assert type(value) is type(convert(np.zeros(1))), name
        np.testing.assert_allclose(np.asarray(value), expected[name], rtol=1e-12, err_msg=name)


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, groups=st.booleans(), mode=st.sampled_from(MODES), steps=st.integers(1, 3))
def test_timeline_ends_with_the_round(seed, groups, mode, steps):
    p, s, a = make_case(seed, groups=groups, absent=0.3, link_errors=mode, steps=steps, **RELAYED)
    costs = round_costs(p, s, a)
    record = RoundRecord(
        state=s,
        allocation=a,
        costs=costs,
        arrivals=Arrivals.of(np.ones((2, 3, steps, 16), dtype=bool), a.micro_batches),
        backlog=s.backlog,
        backlog_sum=np.zeros(2),
        energy_excess=np.zeros(2),
        learning=LearningReport(np.zeros(2), np.zeros(2), np.zeros(2)),
    )
    for row, cluster in np.ndindex(costs.cluster_delay.shape):
        timeline = cluster_round_timeline(costs, record, row, cluster, steps, drawn_steps=None)
        ends = {phase.label: phase.end_s for phase in timeline.phases}
        assert ends["upload"] == pytest.approx(costs.cluster_delay[row, cluster], rel=1e-9)
        assert timeline.end_s == pytest.approx(costs.delay[row], rel=1e-9)
        first = timeline.phases[0]
        assert (first.label, first.end_s) == ("relay", pytest.approx(costs.relay[row, cluster]))
        waits = [
            phase for phase in timeline.phases if phase.label == "wait" and phase.end_s <= ends["upload"]
        ]
        waited = sum(phase.end_s - phase.start_s for phase in waits)
        assert waited == pytest.approx(steps * costs.barrier[row, cluster], rel=1e-9, abs=1e-9)
        lengths = [phase.end_s - phase.start_s for phase in timeline.phases if phase.label == "step"]
        expected = (costs.local_step - costs.allreduce - costs.update)[row, cluster]
        assert lengths == pytest.approx([expected] * steps, rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, groups=st.booleans(), mode=st.sampled_from(MODES))
def test_energy_and_memory_are_those_of_the_working_devices(seed, groups, mode):
    p, s, a = make_case(seed, groups=groups, absent=0.3, link_errors=mode)
    costs = round_costs(p, s, a)
    working = (a.device_blocks > 0) & ((a.sample_share if groups else np.ones(s.present.shape)) > 0)
    assert not (working & ~s.present).any()
    assert (costs.energy[..., 1:][~working] == 0.0).all()
    assert (costs.energy[..., 1:][working] > 0.0).all()
    assert (costs.energy[..., 0] > 0.0).all()
    assert (costs.memory[~working] == 0.0).all()
    share = a.sample_share if groups else 1.0
    c = p.costs
    per_block = c.block_state_bytes + c.batch_size * share * c.stored_activation_bytes
    np.testing.assert_allclose(costs.memory, a.device_blocks * per_block)
    assert (costs.memory <= s.memory_bytes * (1 + 1e-12)).all()
    assert ((costs.survival >= 0.0) & (costs.survival <= 1.0)).all()
    # What the devices compute together does not depend on who computes it.
    flops = (a.device_blocks * share).sum(axis=-1)
    np.testing.assert_allclose(flops, c.blocks)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, groups=st.booleans(), node=st.integers(0, 4), factor=st.floats(1.01, 10.0))
def test_power_buys_time_at_fixed_interference(seed, groups, node, factor):
    p, s, a = make_case(seed, groups=groups)
    before = round_costs(p, s, a)
    cu, devices = a.cu_power.copy(), a.device_power.copy()
    if node == 0:
        cu *= factor
    else:
        devices[..., node - 1] *= factor
    louder = dataclasses.replace(a, cu_power=cu, device_power=devices)
    after = round_costs(p, s, louder, before.interference)
    assert (after.cluster_delay <= before.cluster_delay * (1 + 1e-12)).all()
    assert (after.survival >= before.survival * (1 - 1e-12)).all()
    others = round_costs(p, s, louder)
    assert (others.interference >= before.interference * (1 - 1e-12)).all()


@given(
    st.lists(st.floats(0.0, 50.0), min_size=1, max_size=30),
    st.floats(0.0, 10.0),
)
def test_queue_follows_its_recursion(ratios, start):
    z = np.full((1, 1, 1), start)
    scalar, total = start, 0.0
    for e in ratios:
        after = update_backlog(z, np.full((1, 1, 1), e))
        scalar = max(scalar + e - 1.0, 0.0)
        assert after[0, 0, 0] == scalar >= 0.0
        assert (z[0, 0, 0] + e - 1.0) <= after[0, 0, 0]
        z, total = after, total + e
    # What makes the long-term budget hold: the excess never outgrows the queue.
    assert total - len(ratios) <= z[0, 0, 0] - start + 1e-9
