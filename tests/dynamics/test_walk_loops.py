"""Compiled loops of walks, shadowing and presence: against tensors, and by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from collapipe_env.dynamics.mobility import staying
from collapipe_env.ground.arrays import cos_sin_of_turns
from collapipe_env.ground.backends import NUMPY
from collapipe_env.ground.compiled import compiled
from collapipe_env.ground.records import mapped
from collapipe_env.kernels.queues import queue_round
from collapipe_env.physics.motion import correlated
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.process_registry import active_processes
from collapipe_env.simulator.system import laid_out

SIDE = 40.0


def mobility(area, clusters, shadow_db):
    fields = {"area": area, "roaming": 1.6, "pause_s": 15.0}
    scenario = load_scenario(
        {
            "base": "small",
            "workload": {"blocks": 2},
            "cluster": {"clusters": len(clusters), "devices": list(clusters), "layout": "per_episode"},
            "budgets": {"device_energy_j": 20},
            "radio": {"d2d_shadowing_db": shadow_db},
            "dynamics": {"processes": {"mobility": fields}},
        }
    )
    return next(p for p in active_processes(scenario) if p.name == "mobility")


def begun(process, seed, rows):
    """The system of some layouts, and what the process carries in it after a first walk."""
    words = np.random.SeedSequence(seed).generate_state(rows, np.uint64)
    system = laid_out(process.scenario, words, NUMPY)

    def numbers(t):
        return NUMPY.uniform(words, np.full(rows, t), process.numbers)

    carried = process.begin(system, numbers(0))
    return system, process.advance(carried, None, None, numbers(1), np.full(rows, 40.0)), numbers(2)


def as_tensors(values):
    return {name: torch.from_numpy(array.copy()) for name, array in values.items()}


@settings(max_examples=60, deadline=None)
@given(
    area=st.sampled_from(["open", "closed"]),
    clusters=st.sampled_from([(3, 2), (1,), (2, 2, 1), (4,)]),
    shadow_db=st.sampled_from([0.0, 4.0]),
    seconds=st.lists(st.one_of(st.just(0.0), st.floats(1e-3, 2e3)), min_size=1, max_size=4),
    seed=st.integers(0, 2**32),
)
def test_loops_move_walks_and_gains_as_tensors_do(area, clusters, shadow_db, seconds, seed):
    process = mobility(area, clusters, shadow_db)
    system, carried, u = begun(process, seed, len(seconds))
    delta_s = np.array(seconds)
    there = as_tensors(carried)
    ours = process.advance(carried, None, None, u.copy(), delta_s)
    theirs = process.advance(there, None, None, torch.from_numpy(u), torch.from_numpy(delta_s))
    assert set(ours) == set(theirs)
    for name, values in ours.items():
        # A way is a difference of places: what rounding is to them counts more for a short one.
        slack = 1e-9 if name == "shadowing_db" else 1e-12 * SIDE
        np.testing.assert_allclose(values, theirs[name].numpy(), rtol=1e-12, atol=slack, err_msg=name)
    tensors = mapped(system, lambda array: torch.from_numpy(array.copy()))
    same = as_tensors(ours)
    here, there = process.apply(system, ours), process.apply(tensors, same)
    np.testing.assert_allclose(here.link_gain, there.link_gain.numpy(), rtol=1e-12)
    np.testing.assert_array_equal(here.present, there.present.numpy())


@given(st.floats(0.0, 50.0))
def test_weights_keep_the_variance(lag):
    gone = -np.expm1(-np.array(lag))
    kept, fresh = (correlated(*numbers) for numbers in ((1.0, gone, 0.0), (0.0, gone, 1.0)))
    assert kept == pytest.approx(math.exp(-lag), rel=1e-12, abs=1e-15)
    assert kept**2 + fresh**2 == pytest.approx(1.0, rel=1e-14)
    assert correlated(2.0, gone, 3.0) == pytest.approx(2 * kept + 3 * fresh)


@compiled
def turned(t: float) -> tuple[float, float]:
    """Cosine and sine of turns, in compiled code."""
    return cos_sin_of_turns(t)


@given(st.floats(-4.0, 4.0))
def test_cosines_and_sines_of_turns_in_loops(t):
    # In extended precision, where the processor has it; whole turns go without rounding.
    angle = np.longdouble(t - round(t)) * 8.0 * np.arctan(np.longdouble(1.0))
    cosine, sine = turned(t)
    assert abs(cosine - np.cos(angle)) < 1e-15
    assert abs(sine - np.sin(angle)) < 1e-15
    np.testing.assert_allclose(cos_sin_of_turns(np.array(t)), (cosine, sine), atol=8e-15)


def test_turns_of_quarters_are_exact():
    found = [turned(quarter / 4.0) for quarter in range(-3, 5)]
    assert found == [(0, 1), (-1, 0), (0, -1), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 0)]


@settings(deadline=None)
@given(st.integers(1, 5), st.integers(0, 12), st.integers(0, 2**32))
def test_who_stays_so_that_the_encoder_fits(devices, blocks, seed):
    """Against one device after the other, with ties."""
    rng = np.random.default_rng(seed)
    present, caps = rng.random((4, 2, devices)) < 0.8, rng.integers(0, 6, (4, 2, devices))
    left = present & (rng.random(present.shape) < 0.5)
    order = rng.integers(0, 4, present.shape).astype(np.float64)
    found = staying(present, left, order, caps, blocks)
    for row, n in np.ndindex(4, 2):
        there, held = set(np.flatnonzero(left[row, n])), caps[row, n][left[row, n]].sum()
        going = np.flatnonzero(present[row, n] & ~left[row, n])
        for k in sorted(going, key=lambda k, o=order[row, n]: (o[k], k)):
            if held < blocks:
                there.add(k)
            held += caps[row, n, k]
        assert set(np.flatnonzero(found[row, n])) == there


def test_queues_of_who_is_away_stand_still_in_loops_and_tensors():
    rng = np.random.default_rng(1)
    backlog, ratio = rng.exponential(size=(2, 6, 3, 5))
    granted, present = rng.uniform(0.5, 1.5, 6), rng.random((6, 3, 4)) < 0.7
    taking = rng.random((6, 3)) < 0.7
    # With a period of 1 s the delay is the allowance.
    found = queue_round(backlog, ratio, granted, 1.0, taking, present)
    arrays = map(torch.from_numpy, (backlog, ratio, granted, taking, present))
    tensors = (lambda z, e, delay, *who: queue_round(z, e, delay, 1.0, *who))(*arrays)
    for ours, theirs in zip(found, tensors, strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-13)
    np.testing.assert_array_equal(found[0][..., 1:][~present], backlog[..., 1:][~present])
    moved = np.maximum(backlog + ratio - granted[:, None, None], 0.0)
    moved = np.where(taking[..., None], moved, backlog)
    np.testing.assert_allclose(found[0][..., 1:][present], moved[..., 1:][present], rtol=1e-13)
    np.testing.assert_allclose(found[2], found[0].sum(axis=(1, 2)), rtol=1e-13)
