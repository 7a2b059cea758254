"""The round as a whole: against scalar Python, over batches, and on every array library."""

from dataclasses import replace

import array_api_strict
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from physics_support import PRICES, RELAYED, make_case, scalar_round
from record_support import leaves

from collapipe_env.learners.idle import IdleLearner
from collapipe_env.physics.allocation import ASYNC, GPIPE, ONE_F_ONE_B, ZERO_BUBBLE
from collapipe_env.rendering.round_view import cluster_round_timeline
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.decision_names import COLLAPIPE
from collapipe_env.simulator.build import action_codec, system_parameters
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.general_costs import general_round_costs
from collapipe_env.simulator.learner import Arrivals, LearningReport
from collapipe_env.simulator.record import RoundRecord
from collapipe_env.simulator.world import World

SEEDS = st.integers(0, 2**32 - 1)
MODES = ("drop", "arq", "none")


@pytest.mark.parametrize("prices", PRICES.values(), ids=PRICES)
@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=25, deadline=None)
@given(
    seed=SEEDS,
    steps=st.integers(1, 3),
    clusters=st.integers(1, 4),
    devices=st.integers(1, 5),
    most=st.sampled_from([1, 2, 16]),
)
def test_equals_a_scalar_round(mode, prices, seed, steps, clusters, devices, most):
    sizes = {"clusters": clusters, "devices": devices, "steps": steps, "max_transmissions": most}
    p, s, a = make_case(seed, lead=(1,), **sizes, link_errors=mode, **prices)
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
@given(
    seed=SEEDS,
    clusters=st.integers(1, 4),
    devices=st.integers(1, 6),
    rows=st.integers(1, 4),
    scheduled=st.booleans(),
    half=st.booleans(),
    head=st.sampled_from(["copies", "common"]),
)
def test_the_compiled_loop_equals_the_general_form(
    mode, prices, seed, clusters, devices, rows, scheduled, half, head
):
    sizes = {"clusters": clusters, "devices": devices, "steps": 2, "absent": 0.3}
    p, s, a = make_case(seed, lead=(rows,), **sizes, link_errors=mode, **prices)
    if scheduled:
        p = replace(p, half_duplex=half, head=head)
        rng, M = np.random.default_rng(seed), a.micro_batches
        kinds = rng.choice([GPIPE, ONE_F_ONE_B, ZERO_BUBBLE, ASYNC], M.shape)
        caps = rng.integers(1, M[..., None] + 1, a.blocks.shape)
        a = replace(a, schedule=kinds, caps=caps, chunks=np.ones_like(M))
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


@pytest.mark.parametrize("gain", ["d2d_gain", "uplink_gain"])
def test_a_round_over_dead_links_never_ends(gain):
    p, s, a = make_case(1, lead=(1,), clusters=2, devices=2)
    s = replace(s, **{gain: 0.0 * getattr(s, gain)})
    with np.errstate(all="ignore"):
        looped, general = round_costs(p, s, a), general_round_costs(p, s, a)
    assert np.isinf(looped.cluster_delay).all()
    assert np.isinf(looped.delay).all()
    assert np.isinf(general.delay).all()


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
        smoothed_loss=np.zeros(2),
    )
    for row, cluster in np.ndindex(costs.cluster_delay.shape):
        timeline = cluster_round_timeline(record, row, cluster, drawn_steps=None)
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
        # The last arrival is no event.
        events = [event for event in timeline.events if event.end_s <= first.end_s + expected * (1 + 1e-9)]
        last = max(event.end_s for event in events) - first.end_s
        assert last + costs.elements.hop_latency == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("opened", "changes"),
    [
        (("schedule",), {}),
        (("schedule", "recompute", "clock_cap"), {"radio.d2d_duplex": "half"}),
        (("schedule", "local_steps"), {"workload.head": "common", "workload.local_steps": 4}),
        (("schedule", "participation"), {"workload.distribution": "relay"}),
    ],
    ids=lambda x: "-".join(x),
)
@pytest.mark.parametrize("fixed", [False, True])
def test_scheduled_plans_and_fixed_interference_cost_the_same_in_the_loop(opened, changes, fixed):
    scenario = load_scenario("medium").with_overrides({"decisions": [*COLLAPIPE, *opened], **changes})
    p, world = system_parameters(scenario), World(scenario, IdleLearner(6), 6)
    world.reset([np.random.default_rng(row) for row in range(6)])
    codec, s = action_codec(scenario), world.state
    actions = np.random.default_rng(3).uniform(-1.0, 1.0, (6, codec.action_size))
    a = codec.decode(actions, s.memory_cap, s.memory_bytes)
    assert len(np.unique(a.schedule)) == 3
    felt = np.linspace(1e-13, 1e-10, 6 * p.clusters).reshape(6, -1) if fixed else None
    found, expected = round_costs(p, s, a, felt), general_round_costs(p, s, a, felt)
    one, two = dict(leaves(found)), dict(leaves(expected))
    assert one.keys() == two.keys()
    for name, value in one.items():
        np.testing.assert_allclose(value, two[name], rtol=1e-12, atol=1e-300, err_msg=name)
