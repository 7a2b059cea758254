"""Asteroid's two planner algorithms against brute force."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.asteroid_latency import best_latencies, busy, latency

from collapipe_env.baselines.planning.asteroid_planner import (
    PlannerDevices,
    PlannerLinks,
    best_plans,
    lengthened,
    split_samples,
)
from collapipe_env.physics.schedules import timeline


def folded(steps, endings, micro_batches, delays):
    """The same, a step at a time from the last one."""
    total = 0.0
    for step in reversed(list(zip(steps, endings, delays, strict=True))):
        total = lengthened(total, *step[:2], micro_batches, step[2])
    return total


@given(
    st.integers(1, 7),
    st.lists(
        st.tuples(st.floats(0.05, 5.0), st.integers(0, 7), st.just(0.0) | st.floats(0.0, 9.0)),
        min_size=1,
        max_size=4,
    ),
)
def test_no_deal_of_the_samples_is_done_earlier(samples: int, devices) -> None:
    sample_s, limit, launch_s = (np.array(values) for values in zip(*devices, strict=True))
    dealt = split_samples(samples, sample_s, launch_s, limit)
    deals = [d for d in itertools.product(*(range(c + 1) for c in limit)) if sum(d) == samples]
    if not deals:
        assert (dealt == 0).all()
        return
    assert tuple(dealt) in deals
    least = min(max(busy(d, sample_s, launch_s)) for d in deals)
    assert max(busy(dealt, sample_s, launch_s)) == least


def test_the_slowest_device_hands_over_as_often_as_it_pays() -> None:
    """Larger groups, several hand-overs: the least time in which the devices together manage all samples."""
    sample_s = np.array([3, 11, 1, 7, 7, 10, 4, 10]) / 8.0
    limit = np.array([4, 13, 16, 1, 6, 11, 2, 9])
    for samples in range(1, 33):
        times = sorted({y * t for t, most in zip(sample_s, limit, strict=True) for y in range(most + 1)})
        least = next(T for T in times if np.minimum(limit, T // sample_s).sum() >= samples)
        dealt = split_samples(samples, sample_s, np.zeros(8), limit)
        assert dealt.sum() == samples
        assert (dealt <= limit).all()
        assert max(dealt * sample_s) == least


@given(
    st.lists(
        st.tuples(st.floats(0.0, 5.0), st.floats(0.0, 3.0), st.floats(0.0, 2.0)), min_size=1, max_size=7
    ),
    st.integers(1, 9),
)
def test_latency_grows_a_step_at_a_time(chain, micro_batches: int) -> None:
    steps, endings, delays = zip(*chain, strict=True)
    expected = latency(steps, endings, micro_batches, delays)
    assert folded(steps, endings, micro_batches, delays) == pytest.approx(expected, rel=1e-12)


def test_four_equal_stages_last_33_and_not_24() -> None:
    """With ties, a dominant step picked by first index would give 24 for M = 8, F = 1, B = 2."""
    steps = [1.0 + 2.0] * 4
    assert folded(steps, [0.0] * 4, 8, [0.0] * 4) == 33.0
    elements = [timeline.Element("compute", str(s), 1.0, 2.0, s + 1) for s in range(4)]
    assert max(event.end_s for event in timeline.gpipe_timeline(elements, 8)) == 33.0


def instance(devices, blocks, seed):
    """Random devices, links and memories."""
    rng = np.random.default_rng(seed)
    samples = 4
    room = rng.integers(0, 8 * samples, devices)
    stored = np.minimum(2 * np.arange(devices) + 3, 6)[:, None, None]
    held = np.maximum(np.arange(blocks + 1), 1)[:, None]
    limit = np.minimum(2 * room // (held * stored), samples)
    hop_s = rng.exponential(1.0, (devices + 1, devices + 1))
    ring_s = rng.exponential(1.0, (devices, devices))
    sample_s, tail_s = rng.exponential(0.3, devices), float(rng.exponential(3.0))
    costly = float(rng.choice([0.0, 0.5]))  # half of the systems have overheads
    launch_s, update_s = costly * rng.exponential(1.0, (2, devices))
    forward_s, backward_s = costly * rng.exponential(0.5, (2, devices + 1, devices + 1))
    return (
        blocks,
        samples,
        3,
        PlannerDevices(sample_s, launch_s, update_s, limit),
        PlannerLinks(hop_s, forward_s, backward_s, ring_s, costly * float(rng.exponential(1.0))),
        tail_s,
    )


@settings(max_examples=50)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 10**6))
def test_programme_finds_the_best_plan_of_every_depth(devices: int, blocks: int, seed: int) -> None:
    problem = instance(devices, blocks, seed)
    found, lengths, stage, dealt = best_plans(*problem)
    assert found == pytest.approx(best_latencies(*problem, split_samples), rel=1e-12)
    samples, limit = problem[1], problem[3].limit
    for p in np.flatnonzero(np.isfinite(found)):
        assert lengths[p].sum() == blocks
        assert (lengths[p] > 0).sum() == p + 1
        for s in range(p + 1):
            assert dealt[p, stage[p] == s].sum() == samples
            assert (dealt[p] <= limit[p - s, lengths[p, s]])[stage[p] == s].all()
        assert (np.diff(stage[p][stage[p] >= 0]) >= 0).all()
        assert ((stage[p] >= 0) == (dealt[p] > 0)).all()
