"""What a round costs: every form of the price against the scalar round, for plans of every kind."""

from dataclasses import replace

import array_api_strict
import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from oracles.round import scalar_round
from record_support import leaves
from round_support import FORMATS, KINDS, PRICES, RELAYED, make_case, plans_of

from collapipe_env.learners.idle import IdleLearner
from collapipe_env.physics.allocation import ASYNC, ZERO_BUBBLE, with_schedule
from collapipe_env.rendering.round_view import cluster_round_timeline
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.decision_names import COLLAPIPE
from collapipe_env.simulator.build import action_codec, system_parameters
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.general_costs import general_round_costs
from collapipe_env.simulator.learner import Arrivals, LearningReport
from collapipe_env.simulator.record import RoundRecord
from collapipe_env.simulator.world import World


def assert_close(found, expected):
    """All arrays of two rounds are equal but for rounding, which may make a wait of none."""
    found, expected = dict(leaves(found)), dict(leaves(expected))
    assert found.keys() == expected.keys()
    for name, value in found.items():
        wait = 1e-12 if name == ".barrier" else 1e-300
        np.testing.assert_allclose(np.asarray(value), expected[name], rtol=1e-12, atol=wait, err_msg=name)


@pytest.fixture(scope="module", autouse=True)
def _loaded():
    """Compiled code, read from its cache."""
    round_costs(*plans_of("scheduled", 1, True))


@pytest.mark.parametrize("opens", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12, deadline=None, phases=[Phase.generate])  # a seed says all: nothing to shrink
@given(
    seed=st.integers(0, 2**32 - 1),
    prices=st.sampled_from(list(PRICES)),
    errors=st.sampled_from(["drop", "arq", "none"]),
    sizes=st.fixed_dictionaries(
        {
            "clusters": st.integers(1, 4),
            "devices": st.integers(1, 5),
            "steps": st.integers(1, 3),
            "max_transmissions": st.sampled_from([1, 2, 16]),
            "absent": st.sampled_from([0.0, 0.3]),
            "wire": st.sampled_from(FORMATS),
            "half_duplex": st.booleans(),
        }
    ),
)
def test_every_round_is_the_scalar_one_in_both_forms(kind, opens, seed, prices, errors, sizes):
    p, s, a = plans_of(kind, seed, opens, link_errors=errors, **sizes, **PRICES[prices])
    general, found = general_round_costs(p, s, a), round_costs(p, s, a)
    if kind in ("plain", "scheduled"):  # a compiled loop of its own
        assert_close(found, general)
    np.testing.assert_array_equal(found.energy_ratio, found.energy / s.budget)
    row = seed % 2
    for name, expected in scalar_round(p, s[row], a[row], general.local_step[row]).items():
        small = {"barrier": 1e-9 * general.local_step[row].max(), "survival": 1e-30}
        value = getattr(general, name)[row]
        np.testing.assert_allclose(value, expected, rtol=1e-9, atol=small.get(name, 1e-300), err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_batch_and_candidates_of_a_state_are_priced_alone(kind):
    p, s, a = plans_of(kind, 5, True, lead=(2, 3), absent=0.3, **RELAYED)
    batch = dict(leaves(round_costs(p, s, a)))
    for place in np.ndindex(2, 3):
        for name, value in leaves(round_costs(p, s[place], a[place])):
            np.testing.assert_allclose(batch[name][place], value, rtol=1e-12, atol=1e-12, err_msg=name)
    many = round_costs(p, s[0, 0], a[0])
    for i in range(3):
        np.testing.assert_allclose(many.energy[i], round_costs(p, s[0, 0], a[0, i]).energy, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("convert", [array_api_strict.asarray, torch.asarray], ids=["strict", "torch"])
def test_prices_run_on_other_array_libraries(convert, kind):
    if convert is array_api_strict.asarray and kind in ("scheduled", "scheduled groups", "interleaved"):
        return  # schedules are simulated in NumPy, to which this library's arrays cannot be converted
    modes = ("drop", "arq", "none", "arq", "drop")
    for number, (prices, errors) in enumerate(zip(PRICES.values(), modes, strict=True)):
        p, s, a = plans_of(kind, 3, number > 1, absent=0.2, link_errors=errors, steps=2, **prices)
        found = round_costs(p, s.map(convert), a.map(convert))
        assert {type(value) for _, value in leaves(found)} == {type(convert(np.zeros(1)))}
        assert_close(found, round_costs(p, s, a))


def test_plans_that_do_not_fit_the_loop_take_the_general_form():
    p, s, a = make_case(3, lead=(2,))
    whole = round_costs(p, s, a)
    for other in (a.map(lambda x: np.asarray(x, dtype=np.float64)), a.map(lambda x: x[:1])):
        some = round_costs(p, s, other)
        np.testing.assert_allclose(some.delay[0], whole.delay[0], rtol=1e-12)
        assert some.delay.shape == (2,)


def test_half_duplex_is_felt_where_both_directions_meet():
    p, s, a = make_case(21, d2d_bandwidth_hz=2e5)
    M = np.full_like(a.micro_batches, 16)
    for name, felt in (("gpipe", False), ("1f1b", True)):
        plan = with_schedule(replace(a, micro_batches=M), name, np.array([5, 4, 3, 2]))
        both = [round_costs(replace(p, half_duplex=half), s, plan).cluster_delay for half in (False, True)]
        assert np.array_equal(*both) != felt


@pytest.mark.parametrize("gain", ["d2d_gain", "uplink_gain"])
def test_a_round_over_dead_links_never_ends(gain):
    p, s, a = make_case(1, lead=(1,), clusters=2, devices=2)
    s = replace(s, **{gain: 0.0 * getattr(s, gain)})
    with np.errstate(all="ignore"):
        looped, general = round_costs(p, s, a), general_round_costs(p, s, a)
    assert np.isinf(looped.cluster_delay).all()
    assert np.isinf(looped.delay).all()
    assert np.isinf(general.delay).all()


@pytest.mark.parametrize(
    ("decisions", "changes"),
    [
        (("schedule",), {}),
        (("schedule", "recompute", "clock_cap"), {"radio.d2d_duplex": "half"}),
        (("schedule", "participation"), {"workload.distribution": "relay"}),
    ],
    ids=lambda x: "-".join(x),
)
def test_fixed_interference_costs_the_same_in_the_loop(decisions, changes):
    scenario = load_scenario("medium").with_overrides({"decisions": [*COLLAPIPE, *decisions], **changes})
    p, world = system_parameters(scenario), World(scenario, IdleLearner(6), 6)
    world.reset([np.random.default_rng(row) for row in range(6)])
    codec, s = action_codec(scenario), world.state
    actions = np.random.default_rng(3).uniform(-1.0, 1.0, (6, codec.action_size))
    a = codec.decode(actions, s.memory_cap, s.memory_bytes)
    assert len(np.unique(a.schedule)) == 3
    felt = np.linspace(1e-13, 1e-10, 6 * p.clusters).reshape(6, -1)
    assert_close(round_costs(p, s, a, felt), general_round_costs(p, s, a, felt))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_the_drawn_timeline_is_the_round(seed, kind):
    p, s, a = plans_of(kind, seed, False, absent=0.3, steps=1 + seed, **RELAYED)
    costs, late = round_costs(p, s, a), p.overheads
    delayed = {"hop": late.latency_s, "uplink": late.edge_latency_s}
    nothing = np.zeros(2)
    record = RoundRecord(
        state=s,
        allocation=a,
        costs=costs,
        arrivals=Arrivals.of(np.ones((2, 3, 1 + seed, 16), dtype=bool), a.micro_batches),
        backlog=s.backlog,
        backlog_sum=nothing,
        energy_excess=nothing,
        learning=LearningReport(nothing, nothing, nothing),
        smoothed_loss=nothing,
    )
    for at in np.ndindex(costs.cluster_delay.shape):
        streams = a.schedule is not None and a.schedule[at] == ASYNC
        steps = 1 + seed
        timeline = cluster_round_timeline(record, *at, drawn_steps=None)
        lengths, ends = {}, {}
        for phase in timeline.phases:
            lengths.setdefault(phase.label, []).append(phase.end_s - phase.start_s)
            ends.setdefault(phase.label, phase.end_s)
        assert timeline.end_s == pytest.approx(costs.delay[at[0]], rel=1e-9)
        assert ends["upload"] == pytest.approx(costs.cluster_delay[at], rel=1e-9)
        assert ends["relay"] == pytest.approx(costs.relay[at])
        bare = (costs.local_step - costs.allreduce - costs.update)[at]
        expected = [steps * bare] if streams else [bare] * steps
        if kind != "sequential":
            assert lengths["step"] == pytest.approx(expected, rel=1e-9)
            # Events end when the first local step does, but for the latency of the last arrival.
            first = [e for e in timeline.events if e.end_s <= ends["step"] * (1.0 + 1e-12)]
            last = max(e.end_s + delayed.get(timeline.elements[e.element].kind, 0.0) for e in first)
            assert last == pytest.approx(ends["step"], rel=1e-9)
            fills = a.schedule is not None and a.schedule[at] == ZERO_BUBBLE
            assert ("weight" in {e.direction for e in timeline.events}) == fills
        waited = sum(lengths.get("wait", [])) - (costs.cluster_delay.max(axis=-1)[at[0]] - ends["upload"])
        assert waited == pytest.approx(steps * costs.barrier[at], rel=1e-9, abs=1e-9)
