"""Walks in a square: against scalar walks, drawn legs, closed forms, the stationary law and tensors."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from process_support import numbers, process_of, seeds

from collapipe_env.dynamics.walks import NUMBERS_TO_START, PauseGo, pause_and_go, start_pausing_and_going
from collapipe_env.ground.arrays import cos_sin_of_turns
from collapipe_env.ground.backends import NUMPY
from collapipe_env.ground.compiled import compiled
from collapipe_env.ground.records import mapped
from collapipe_env.physics.motion import MOST_LEGS, NUMBERS_PER_LEG, correlated, walked
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.system import laid_out

LAW = PauseGo(side=40.0, pause_s=120.0, slowest=0.5, fastest=1.5)


def started(law, count, seed=0):
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(0.0, law.side, (2, 1, 1, count))
    return start_pausing_and_going(law, x, y, rng.uniform(size=(1, 1, count, NUMBERS_TO_START))), rng


def moved(law, walk, rng, seconds):
    return after(law, walk, rng.uniform(size=(*walk["x"].shape, MOST_LEGS, NUMBERS_PER_LEG)), seconds)


def after(law, walk, u, seconds):
    rows, *devices = walk["x"].shape
    return pause_and_go(law, walk, np.ones(devices), np.full(rows, float(seconds)), u.reshape(rows, -1))


def scalar_walk(law, x, y, to_x, to_y, speed, pause, u, left):
    """One device, event by event."""
    leg = 0
    while True:
        if speed > 0.0:
            way = math.dist((x, y), (to_x, to_y))
            if way / speed >= left:
                part = left * speed / way if way else 0.0
                return x + part * (to_x - x), y + part * (to_y - y), to_x, to_y, speed, 0.0
            x, y, left = to_x, to_y, left - way / speed
            if leg == MOST_LEGS:
                return x, y, to_x, to_y, speed, 0.0
            speed, pause = 0.0, law.pause_s * math.log(1.0 / u[leg][0])
        if pause >= left:
            return x, y, to_x, to_y, 0.0, pause - left
        left -= pause
        to_x, to_y = law.side * u[leg][1], law.side * u[leg][2]
        speed, pause = law.slowest + (law.fastest - law.slowest) * u[leg][3], 0.0
        leg += 1


@pytest.mark.parametrize("law", [LAW, PauseGo(5.0, 2.0, 1.0, 1.0)])
@pytest.mark.parametrize("seconds", [0.0, 0.3, 10.0, 60.0])
def test_a_batch_walks_as_one_device_after_the_other(law, seconds):
    walk, rng = started(law, 400)
    u = rng.uniform(size=(1, 1, 400, MOST_LEGS, NUMBERS_PER_LEG))
    found = after(law, walk, u, seconds)
    names = ("x", "y", "target_x", "target_y", "speed", "pause")
    for k in range(400):
        expected = scalar_walk(law, *(float(walk[name][0, 0, k]) for name in names), u[0, 0, k], seconds)
        np.testing.assert_allclose([found[name][0, 0, k] for name in names], expected, rtol=1e-9, atol=1e-9)


def test_a_device_begins_at_most_eight_legs_in_a_round():
    hasty = PauseGo(4.0, 0.1, 5.0, 5.0)
    walk, rng = started(hasty, 50)
    u = rng.uniform(size=(1, 1, 50, MOST_LEGS, NUMBERS_PER_LEG))
    found = after(hasty, walk, u, 1e5)
    np.testing.assert_allclose(found["x"], 4.0 * u[..., -1, 1], rtol=1e-12)
    np.testing.assert_allclose(found["y"], 4.0 * u[..., -1, 2], rtol=1e-12)
    # It goes on in the next round: with a pause, as nothing is left of the leg.
    later = moved(hasty, found, rng, 1e-9)
    assert (later["speed"] == 0.0).all()
    assert (later["pause"] > 0.0).all()
    # In a round of five minutes of the default law hardly anyone would begin more.
    mean_pause_and_leg = 120.0 + 0.5214 * 40.0 * math.log(3.0)
    legs = np.random.default_rng(0).poisson(300.0 / mean_pause_and_leg, 100_000)
    assert (legs > MOST_LEGS).mean() < 0.001


def test_start_is_the_law_of_legs_at_a_random_time():
    """Against drawn legs, of which each counts with its length and is looked at in a random place."""
    count = 200_000
    eager = LAW._replace(pause_s=1e-9)
    walk, rng = started(eager, count)
    assert (walk["speed"] > 0.0).mean() > 0.999
    ends = rng.uniform(0.0, 40.0, (2, 2, count))
    length = np.hypot(*(ends[0] - ends[1]))
    place = ends[0] + rng.uniform(size=count) * (ends[1] - ends[0])

    def shapes(x, y, to_x, to_y):
        left = np.hypot(to_x - x, to_y - y)
        centre = np.hypot(x - 20.0, y - 20.0)
        ahead = (to_x - x) * (20.0 - x) + (to_y - y) * (20.0 - y)
        along = np.abs(to_x - x) > 3.0 * np.abs(to_y - y)
        quarters = [(x < 10.0), (x < 4.0) & (y < 4.0), (to_x > 36.0) & (to_y < 4.0), (x > to_x), along]
        return [x, y, to_x, x * x, x * y, to_x * x, left, left**2, centre, ahead, *quarters]

    found = [np.mean(values) for values in shapes(*(walk[n] for n in ("x", "y", "target_x", "target_y")))]
    for values, mean in zip(shapes(*place, *ends[1]), found, strict=True):
        expected = np.average(values, weights=length)
        spread = np.sqrt(np.average((values - expected) ** 2, weights=length) / count)
        assert abs(mean - expected) < 7.0 * spread
    # Slow legs last longer: the density of speeds is 1 / (v log 3) on [0.5, 1.5].
    for speed in (0.6, 0.9, 1.3):
        share = math.log(speed / 0.5) / math.log(3.0)
        assert (walk["speed"] < speed).mean() == pytest.approx(share, abs=0.005)


def test_walks_stay_in_the_stationary_law():
    walk, rng = started(LAW, 100_000)
    expected = 120.0 / (120.0 + 0.521405 * 40.0 * math.log(3.0))
    assert LAW.pausing_share == pytest.approx(expected, rel=1e-5)
    for seconds in (0.0, 10.0, 35.0, 400.0):
        walk = moved(LAW, walk, rng, seconds)
        pausing = walk["speed"] == 0.0
        assert pausing.mean() == pytest.approx(expected, abs=0.005)
        for axis in "xy":
            fifths = np.bincount((walk[axis][pausing] / 8.0).astype(int).clip(0, 4), minlength=5)
            np.testing.assert_allclose(fifths / pausing.sum(), 0.2, rtol=0.03)
        assert walk["pause"][pausing].mean() == pytest.approx(120.0, rel=0.02)
        # Walkers bunch in the middle: the fifths at the edges have fewer than theirs.
        assert (np.abs(walk["x"][~pausing] - 20.0) > 12.0).mean() < 0.35


def test_two_moves_are_one():
    walk, rng = started(LAW, 60_000)
    law_of = []
    for parts in ((20.0,), (12.0, 8.0)):
        later = walk
        for seconds in parts:
            later = moved(LAW, later, rng, seconds)
        way = np.hypot(later["x"] - walk["x"], later["y"] - walk["y"])
        law_of.append([way.mean(), (way**2).mean(), (way == 0.0).mean(), (later["speed"] == 0.0).mean()])
    np.testing.assert_allclose(law_of[0], law_of[1], rtol=0.03)
    # Without an event the paths are the same.
    once, twice = moved(LAW, walk, rng, 3.0), moved(LAW, moved(LAW, walk, rng, 1.0), rng, 2.0)
    left = np.hypot(walk["target_x"] - walk["x"], walk["target_y"] - walk["y"])
    quiet = np.where(walk["speed"] > 0.0, left > 3.0 * walk["speed"], walk["pause"] > 3.0)
    assert 0.8 < quiet.mean() < 1.0
    for name in ("x", "y", "pause", "speed"):
        np.testing.assert_allclose(once[name][quiet], twice[name][quiet], rtol=1e-12, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(
    side=st.floats(0.5, 1e4),
    pause=st.floats(0.1, 1e4),
    slowest=st.floats(0.01, 100.0),
    faster=st.floats(1.0, 50.0),
    seconds=st.lists(st.floats(0.0, 1e5), min_size=1, max_size=4),
    seed=st.integers(0, 2**32 - 1),
)
def test_devices_stay_in_the_square(side, pause, slowest, faster, seconds, seed):
    go = PauseGo(side, pause, slowest, slowest * faster)
    walk, rng = started(go, 20, seed)
    for each in seconds:
        walk = moved(go, walk, rng, each)
        for values in (walk["x"], walk["y"], walk["target_x"]):
            assert ((values >= 0.0) & (values <= side)).all()
        assert ((walk["speed"] == 0.0) | (walk["pause"] == 0.0)).all()
        assert (walk["pause"] >= 0.0).all()


def test_a_device_at_its_target_walks_on_after_any_time() -> None:
    """Rounds of ages, as of a link that hardly ever delivers, are no overflow."""
    here, target = np.array([3.0, 3.0]), np.array([3.0, 4.0])
    x, _, left, arrives = walked(here, here, target, here, np.ones(2), np.full(2, 1e12))
    np.testing.assert_array_equal(x, target)
    np.testing.assert_array_equal(left, [1e12, 1e12 - 1.0])
    assert arrives.all()


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
    return process_of(scenario, "mobility")


def begun(process, seed, rows):
    """The system of some layouts, and what the process carries in it after a first walk."""
    words = seeds(rows, seed)
    system = laid_out(process.scenario, words, NUMPY)
    first, second, third = (numbers(process, words, t) for t in range(3))
    carried = process.begin(system, first)
    return system, process.advance(carried, None, None, second, np.full(rows, 40.0)), third


def as_tensors(values):
    return {name: torch.from_numpy(array.copy()) for name, array in values.items()}


@settings(max_examples=25, deadline=None)
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
        slack = 1e-9 if name == "shadowing_db" else 1e-12 * LAW.side
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
