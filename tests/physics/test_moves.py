"""Migration: who sends whose moments, how long it takes and what it draws, against plain scalar Python."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.moves import migration_phase, owners
from round_support import PRICED, make_allocation, make_case, make_state

from collapipe_env.dynamics.migration import MigrationSpec, PreviousPlan, migration_terms
from collapipe_env.ground.records import mapped
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.moves import (
    LOST,
    STAY,
    TRAVEL,
    Migration,
    block_holders,
    handover,
    moving_times,
)
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.costs import round_costs

SEEDS = st.integers(0, 2**32 - 1)
BITS = 5e6


def plan_of(blocks, **extra):
    """A plan of one round whose powers do not matter."""
    blocks = np.array(blocks)
    one = np.ones(blocks.shape[:-1])
    return Allocation(blocks, one.astype(int), one, np.ones(blocks.shape), one, **extra)


def with_previous(state, previous, L):
    """The state after a round with another plan."""
    holders = block_holders(previous, L)
    return replace(state, processes={"migration": {"blocks": previous.device_blocks, "holders": holders}})


def test_a_block_of_medium_takes_half_a_second_at_100_mbit_a_second():
    scenario = load_scenario({"base": "medium", "dynamics": {"processes": {"migration": {}}}})
    migration = system_parameters(scenario).migration
    assert migration == Migration(2.0 * 32 * 789_760, True, False)
    # 8 bytes of each parameter: 50.54 Mbit.
    before, after = (block_holders(plan_of([blocks]), 2) for blocks in ((2, 0), (1, 1)))
    change = handover(before, np.ones((1, 2), bool), after, True)
    times = moving_times(change, np.full((1, 3, 3), migration.block_bits / 100e6), False)
    assert times.duration[0] == pytest.approx(0.505, abs=5e-4)
    halved = load_scenario({"base": "medium", "dynamics": {"processes": {"migration": {"moment_bits": 16}}}})
    assert system_parameters(halved).migration.block_bits == migration.block_bits / 2


@settings(max_examples=40, deadline=None)
@given(
    seed=SEEDS,
    priced=st.booleans(),
    through_cu=st.booleans(),
    errors=st.sampled_from(["drop", "arq", "none"]),
    absent=st.sampled_from([0.0, 0.3]),
)
def test_the_phase_is_that_of_scalar_python(seed, priced, through_cu, errors, absent):
    p, s, a = make_case(seed, link_errors=errors, absent=absent, **(PRICED if priced else {}))
    rng = np.random.default_rng(seed + 1)
    # The plan before may have used devices that are gone now.
    before = make_allocation(rng, make_state(rng, (2,), 3, 4, p), p)
    free = round_costs(p, s, a)
    p = replace(p, migration=Migration(BITS, True, through_cu))
    costs = round_costs(p, with_previous(s, before, 6), a)
    for e in range(2):
        duration, energy = migration_phase(p, s[e], a[e], before[e])
        np.testing.assert_allclose(costs.terms.once["migration"][e], duration, rtol=1e-12, atol=0)
        np.testing.assert_allclose(costs.cluster_delay[e], free.cluster_delay[e] + duration, rtol=1e-12)
        np.testing.assert_allclose(costs.busy_energy[e], free.busy_energy[e] + energy, rtol=1e-12)
    on = np.concatenate((np.ones((2, 3, 1)), s.present), axis=-1)
    idle = p.radio_power.idle_w * on * costs.delay[:, None, None]
    np.testing.assert_allclose(costs.energy, costs.busy_energy + idle, rtol=1e-12)
    np.testing.assert_allclose(costs.delay, costs.cluster_delay.max(axis=-1) + free.broadcast, rtol=1e-12)
    np.testing.assert_array_equal(costs.energy_ratio, costs.energy / s.budget)
    old, new = (np.array([[owners(row) for row in plan.blocks[e]] for e in range(2)]) for plan in (before, a))
    gone = ~np.take_along_axis(s.present, old, axis=-1)
    fates = np.where(old == new, STAY, np.where(gone, LOST, TRAVEL))
    np.testing.assert_array_equal(costs.terms.notes["moments"], fates)


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, groups=st.booleans(), through_cu=st.booleans())
def test_an_unchanged_plan_costs_nothing_to_the_bit(seed, groups, through_cu):
    p, s, a = make_case(seed, groups=groups, **PRICED)
    free = round_costs(p, s, a)
    costs = round_costs(replace(p, migration=Migration(BITS, True, through_cu)), with_previous(s, a, 6), a)
    assert (costs.terms.once["migration"] == 0.0).all()
    assert (costs.terms.notes["moments"] == STAY).all()
    for name in ("delay", "cluster_delay", "energy", "energy_ratio"):
        np.testing.assert_array_equal(getattr(costs, name), getattr(free, name))


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS)
def test_reset_costs_nothing_and_loses_what_would_move(seed):
    p, s, a = make_case(seed, groups=True)
    rng = np.random.default_rng(seed + 1)
    moved = with_previous(s, make_allocation(rng, s, p, groups=True), 6)
    paid = round_costs(replace(p, migration=Migration(BITS, True, False)), moved, a)
    costs = round_costs(replace(p, migration=Migration(BITS, False, False)), moved, a)
    np.testing.assert_array_equal(costs.delay, round_costs(p, s, a).delay)
    np.testing.assert_array_equal(costs.terms.notes["moments"] == LOST, paid.terms.notes["moments"] == TRAVEL)
    # A sender's bits are at least those of its blocks at its best rate and least power.
    best = p.d2d_bandwidth_hz * np.log2(
        1.0 + p.power_max_w * s.d2d_gain.max() / (p.noise_density * p.d2d_bandwidth_hz)
    )
    least = p.power_min_w * BITS / best * (paid.terms.notes["moments"] == TRAVEL).sum()
    assert (paid.energy - costs.energy).sum() >= least * (1.0 - 1e-9)


def test_groups_send_from_their_lead_to_each_new_member():
    def groups(stage, blocks):
        stage = np.array([[stage]])
        share = np.where(stage >= 0, 1.0, 0.0)
        return plan_of([[blocks]], stage=stage, sample_share=share)

    before = groups([0, 0, 1, -1], [2, 4, 0, 0])
    after = groups([0, 1, 1, 1], [2, 4, 0, 0])
    change = handover(block_holders(before, 6), np.ones((1, 1, 4), bool), block_holders(after, 6), True)
    # Blocks 2 to 5: device 2 stays, devices 1 and 3 join.
    expected = np.zeros((4, 4))
    expected[2, 1] = expected[2, 3] = 4
    np.testing.assert_array_equal(change.moved[0, 0], expected)
    # Over the CU each block goes up once and down to both.
    up_down = moving_times(change, np.ones((1, 1, 5, 5)), True)
    np.testing.assert_array_equal(up_down.sent[0, 0], [8, 0, 0, 4, 0])
    assert up_down.duration[0, 0] == 8.0


def test_chunks_and_the_server_hold_what_they_run():
    chunked = plan_of(
        [[[4, 3]]],
        schedule=np.array([[2]]),
        caps=np.array([[[9, 9]]]),
        chunks=np.array([[2]]),
    )
    # Chunk by chunk, one segment of each stage: blocks // 2 and one of the rest first.
    held = block_holders(chunked, 7)[0, 0]
    np.testing.assert_array_equal(held[:, 1], [1, 1, 0, 0, 1, 1, 0])
    np.testing.assert_array_equal(held[:, 2], [0, 0, 1, 1, 0, 0, 1])
    split = plan_of([[[1, 2]]], server_blocks=np.array([[2]]), server_mode=np.array([0]))
    whole = plan_of([[[1, 4]]])
    to_server, back = (
        handover(block_holders(a, 5), np.ones((1, 1, 2), bool), block_holders(b, 5), True)
        for a, b in ((whole, split), (split, whole))
    )
    for change in (to_server, back):
        assert change.moved.sum() == 0.0
        np.testing.assert_array_equal(change.moments[0, 0], [STAY, STAY, STAY, LOST, LOST])


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, rules=st.tuples(st.booleans(), st.booleans()), short=st.booleans())
def test_loops_price_and_hold_what_tensors_do(seed, rules, short):
    """Also where groups and the server held blocks, devices have gone, clusters begin, and some sit out."""
    p, s, a = make_case(seed, lead=(6,), absent=0.3, **PRICED)
    p, rng = replace(p, migration=Migration(BITS, *rules)), np.random.default_rng(seed + 1)
    holders = block_holders(make_allocation(rng, s, p, groups=True), 6)
    holders |= rng.random(holders.shape) < 0.1
    holders[:2] = False
    carried = {"blocks": holders[..., 1:].sum(axis=-2), "holders": holders}
    s = replace(s, processes={"migration": carried})
    plays = rng.random((6, 3)) < 0.6
    a = replace(a, participates=plays.astype(np.int64) if short else None)
    tensors, state = (mapped(record, torch.from_numpy) for record in (a, s))
    costs = round_costs(replace(p, migration=None), s, a)
    ours = migration_terms(costs, p, s, a)
    theirs = migration_terms(mapped(costs, torch.from_numpy), p, state, tensors)
    np.testing.assert_array_equal(ours.notes["moments"], theirs.notes["moments"].numpy())
    duration = theirs.once["migration"].numpy()
    np.testing.assert_allclose(ours.once["migration"], duration, rtol=1e-12)
    sat_out = ~a.plays[..., None]
    joules = np.where(sat_out, 0.0, np.broadcast_to(np.asarray(theirs.energy), ours.energy.shape))
    np.testing.assert_allclose(ours.energy, joules, rtol=1e-12)
    process = PreviousPlan(load_scenario("medium-migration"), MigrationSpec())
    process.scenario = process.scenario.with_overrides({"workload.blocks": 6})
    kept = process.advance(carried, None, costs, None, None)
    others = process.advance(state.processes["migration"], None, mapped(costs, torch.from_numpy), None, None)
    for name, values in kept.items():
        np.testing.assert_array_equal(values, others[name].numpy())
