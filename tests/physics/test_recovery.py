"""Formulas of a recovery: boundaries, memory, what moves and for how long."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collapipe_env.physics.recovery import (
    BlockBits,
    RecoveryTerms,
    credited_steps,
    fit_memory,
    light_segments,
    moving_time,
    replay_messages,
    rescheduling_messages,
)

WEIGHTS, MOMENTS = 32.0 * 789_760, 64.0 * 789_760
BITS = BlockBits(0.0, WEIGHTS, MOMENTS)
"""Bits of a block of 789,760 parameters."""
LINK = 1.0 / 100e6
"""A link of 100 Mb/s [s/bit]."""


def holders(owners, devices):
    """Holders (L, K) of blocks with one owner each."""
    return np.array(owners)[:, None] == np.arange(devices)


def bits_sent(before, after, failed, *, heavy=False):
    """Bits from node to node (K+1, K+1) without replicas."""
    blocks, devices = before.shape
    messages = np.zeros((2 * blocks * (devices + 1), 4), dtype=int)
    if heavy:
        count = rescheduling_messages(before, after, failed, -1, messages)
    else:
        count = replay_messages(before, after, failed, -1, False, messages)
    bits = np.zeros((devices + 1, devices + 1))
    for source, target, _, part in messages[:count]:
        bits[source, target] += BITS.of_parts[part]
    return bits


def test_detection_takes_the_misses():
    assert RecoveryTerms("light", 0.5, 4).detection_s == 2.0
    assert RecoveryTerms("light", 0.5, 4).planning_s == 0.1
    assert RecoveryTerms("heavy", 0.25, 3).detection_s == 0.75
    assert RecoveryTerms("heavy", 0.25, 3).planning_s == 2.0


def test_three_lost_blocks_over_100_mbit():
    """Three blocks with moments take 2.27 s at once; nine up and twelve down take 15.9 s over the CU."""
    bits = np.zeros((5, 5))
    bits[1, 2] = 3 * (WEIGHTS + MOMENTS)
    light = moving_time(False, LINK * bits)
    assert light == pytest.approx(2.27, abs=0.005)
    assert 3.0 + 0.1 + light == pytest.approx(5.37, abs=0.005)
    bits = np.zeros((5, 5))
    bits[1:4, 0] = 3 * (WEIGHTS + MOMENTS)
    bits[0, 1:4] = 4 * (WEIGHTS + MOMENTS)
    heavy = moving_time(True, LINK * bits)
    assert 3.0 + 2.0 + heavy == pytest.approx(20.9, abs=0.05)


@given(st.floats(0.0, 100.0), st.floats(0.0, 50.0), st.floats(0.01, 20.0), st.integers(1, 16))
def test_credit_is_whole_steps_within_the_round(at, begun, step, steps):
    done = credited_steps(at, begun, step, steps)
    assert 0 <= done <= steps
    if 0 < done < steps:
        assert begun + done * step <= at * (1.0 + 1e-12) + 1e-9
        assert at < begun + (done + 1) * step
    assert done == 0 or at >= begun


@given(st.integers(1, 40), st.lists(st.floats(1e9, 3e10), min_size=1, max_size=7))
def test_boundaries_are_the_first_that_hold_the_share_of_the_work(blocks, speeds):
    found = light_segments(blocks, np.array(speeds))
    assert found.sum() == blocks
    assert (found >= 0).all()
    ends, total = np.cumsum(found), sum(speeds)
    for p, end in enumerate(ends[:-1]):
        goal = blocks * sum(speeds[: p + 1]) / total
        first = min(cut for cut in range(blocks + 1) if cut >= goal - 1e-6)
        last = (
            min(cut for cut in range(blocks + 1) if cut >= goal + 1e-6) if goal + 1e-6 <= blocks else blocks
        )
        assert first <= end <= last


@settings(max_examples=60)
@given(st.data())
def test_memory_is_repaired_with_as_few_blocks_moved_as_any_way(data):
    stages = data.draw(st.integers(1, 4))
    segments = np.array(data.draw(st.lists(st.integers(0, 6), min_size=stages, max_size=stages)))
    caps = np.array(data.draw(st.lists(st.integers(0, 6), min_size=stages, max_size=stages)))
    found = segments.copy()
    fits = fit_memory(found, caps)
    assert fits == (caps.sum() >= segments.sum())
    if not fits:
        np.testing.assert_array_equal(found, segments)
        return
    assert found.sum() == segments.sum()
    assert (found <= caps).all()
    ways = itertools.product(*(range(cap + 1) for cap in caps))
    least = min(np.abs(np.array(way) - segments).sum() for way in ways if sum(way) == segments.sum())
    assert np.abs(found - segments).sum() == least


def test_a_replay_moves_blocks_between_survivors_and_fetches_the_lost_ones_from_the_cu():
    before = holders([0, 0, 1, 1, 2, 2], 3)
    expected = np.zeros((4, 4))
    expected[0, 1] = expected[0, 3] = WEIGHTS
    np.testing.assert_array_equal(bits_sent(before, holders([0, 0, 0, 2, 2, 2], 3), 1), expected)
    # The first device fails: its blocks come from the CU to the second, whose second block goes on.
    bits = bits_sent(before, holders([1, 1, 1, 2, 2, 2], 3), 0)
    assert bits[0, 2] == 2 * WEIGHTS
    assert bits[2, 3] == WEIGHTS + MOMENTS
    assert bits.sum() == 3 * WEIGHTS + MOMENTS


def test_a_stage_of_several_devices_loses_nothing():
    before = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]], dtype=bool)
    bits = bits_sent(before, np.array([[0, 1, 0], [0, 0, 1], [0, 0, 1]], dtype=bool), 0)
    assert bits[2, 3] == WEIGHTS + MOMENTS
    assert bits.sum() == WEIGHTS + MOMENTS
    # Nothing to move at all: the other device of the stage has all of its blocks.
    assert bits_sent(before, before & [False, True, True], 0).sum() == 0.0


def test_planning_anew_collects_what_is_left_and_hands_out_everything():
    before, after = holders([0, 0, 1, 1, 2, 2], 3), holders([0, 0, 0, 2, 2, 2], 3)
    bits = bits_sent(before, after, 1, heavy=True)
    both = WEIGHTS + MOMENTS
    assert bits[1, 0] == 2 * both
    assert bits[3, 0] == 2 * both
    assert bits[0, 1] == 2 * both + WEIGHTS
    assert bits[0, 3] == 2 * both + WEIGHTS
    assert moving_time(True, LINK * bits) == pytest.approx((8 * both + 2 * WEIGHTS) * LINK)
