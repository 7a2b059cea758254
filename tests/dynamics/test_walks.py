"""Walks in a square: against scalar walks, drawn legs, closed forms and the stationary law."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collapipe_env.dynamics.walks import (
    NUMBERS_TO_START,
    PauseGo,
    pause_and_go,
    start_pausing_and_going,
)
from collapipe_env.physics.motion import MOST_LEGS, NUMBERS_PER_LEG, walked

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
    walk, rng = started(LAW, 250_000)
    expected = 120.0 / (120.0 + 0.521405 * 40.0 * math.log(3.0))
    assert LAW.pausing_share == pytest.approx(expected, rel=1e-5)
    for seconds in (0.0, 10.0, 35.0, 400.0):
        walk = moved(LAW, walk, rng, seconds)
        pausing = walk["speed"] == 0.0
        assert pausing.mean() == pytest.approx(expected, abs=0.003)
        for axis in "xy":
            fifths = np.bincount((walk[axis][pausing] / 8.0).astype(int).clip(0, 4), minlength=5)
            np.testing.assert_allclose(fifths / pausing.sum(), 0.2, rtol=0.02)
        assert walk["pause"][pausing].mean() == pytest.approx(120.0, rel=0.02)
        # Walkers bunch in the middle: the fifths at the edges have fewer than theirs.
        assert (np.abs(walk["x"][~pausing] - 20.0) > 12.0).mean() < 0.35


def test_two_moves_are_one():
    walk, rng = started(LAW, 100_000)
    law_of = []
    for parts in ((20.0,), (12.0, 8.0)):
        later = walk
        for seconds in parts:
            later = moved(LAW, later, rng, seconds)
        way = np.hypot(later["x"] - walk["x"], later["y"] - walk["y"])
        law_of.append([way.mean(), (way**2).mean(), (way == 0.0).mean(), (later["speed"] == 0.0).mean()])
    np.testing.assert_allclose(law_of[0], law_of[1], rtol=0.02)
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
