"""The compiled simulation of a chain: closed forms, a longest-path solution, and its own rules."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles.schedules import gpipe, interleaved, last_end, longest_path, one_f_one_b, usable_caps

from collapipe_env.physics.allocation import ASYNC, GPIPE, INTERLEAVED, ONE_F_ONE_B, ZERO_BUBBLE
from collapipe_env.physics.schedules.makespans import run_chain
from collapipe_env.physics.schedules.simulation import ChainTimes

NO_EVENTS = np.zeros((0, 6))


def plain_chain(forward, backward, links=(), gradients=None, weight=None):
    """Stages joined by single links, as in the literature: the server is simply the last stage."""
    P = len(forward)
    there, back = np.zeros(P + 2), np.zeros(P + 2)
    there[1:P] = links if len(links) else 0.0
    back[1:P] = there[1:P] if gradients is None else gradients
    return ChainTimes(
        np.array(forward, dtype=float),
        np.array(backward, dtype=float),
        np.zeros(P) if weight is None else np.array(weight, dtype=float),
        there,
        back,
        np.zeros(P + 2),
        np.ones((P, 1)),
    )


def random_chain(rng, stages, chunks=1, latency=0.0):
    """A chain with every element, the CU's relay included; some elements take no time."""
    P = stages + 1
    # Exactly 1 for a single chunk: one rounding more would decide near-ties of greedy orders otherwise.
    share = rng.dirichlet(np.full(chunks, 5.0), P) if chunks > 1 else np.ones((P, 1))
    share[-1] = 1.0
    some = [rng.exponential(1.0, n) * (rng.random(n) < 0.9) for n in (P, P, P, stages + 3, stages + 3)]
    return ChainTimes(*some, latency * rng.exponential(1.0, stages + 3), share)


def run(times, schedule, caps, micro_batches, *, chunks=1, half=False, events=None):
    """Makespan event by event; where it can also be had wave by wave, both must agree."""
    caps = np.asarray(caps, dtype=np.int64)
    if events is None:
        events = np.zeros((1, 6))  # asking for events, be it one, rules the waves out
    makespan = run_chain(times, schedule, caps, chunks, micro_batches, half, events)
    if not half and schedule != INTERLEAVED:
        waves = run_chain(times, schedule, caps, chunks, micro_batches, half, NO_EVENTS)
        assert waves == pytest.approx(makespan, rel=1e-12, abs=1e-12)
    return makespan


@pytest.mark.parametrize("P", [2, 3, 4, 5])
@pytest.mark.parametrize(("F", "B", "W"), [(1.0, 2.0, 0.0), (1.5, 1.5, 0.75), (1.0, 1.0, 1.0)])
def test_uniform_closed_forms(P, F, B, W):
    """Of stages without links, the last of which is the server."""
    for M in (P, P + 1, 3 * P):
        plain = plain_chain([F] * P, [B] * P)
        caps = [P - s for s in range(P - 1)]
        assert run(plain, ONE_F_ONE_B, caps, M) == pytest.approx((M + P - 1) * (F + B), rel=1e-12)
        # Weight gradients that are no longer than forwards and backwards fill their part of the bubble.
        split = plain_chain([F] * P, [B] * P, weight=[W] * P)
        expected = M * (F + B + W) + (P - 1) * (F + B - W)
        assert run(split, ZERO_BUBBLE, [P] * (P - 1), M) == pytest.approx(expected, rel=1e-12)
    for v in (1, 2, 3):
        times = plain_chain([F] * P + [0.0], [B] * P + [0.0])
        times = times._replace(chunk_share=np.array([[1 / v] * v] * P + [[1.0] * v]))
        caps = [2 * (P - s - 1) + (v - 1) * P + 1 for s in range(P)]
        expected = 2 * P * (F + B) + (P - 1) * (F + B) / v
        assert run(times, INTERLEAVED, caps, 2 * P, chunks=v) == pytest.approx(expected, rel=1e-12)


def test_interleaved_order_is_megatrons():
    text = [" ".join(f"{kind}{m}{'ab'[c]}" for kind, m, c in order) for order in interleaved(2, 4, 2)]
    # Stage 0 warms up with 4 chunk-forwards, stage 1 with 2.
    assert text[0] == "F0a F1a F0b F1b F2a B0b F3a B1b F2b B0a F3b B1a B2b B3b B2a B3a"
    assert text[1] == "F0a F1a F0b B0b F1b B1b F2a B0a F3a B1a F2b B2b F3b B3b B2a B3a"


@settings(max_examples=60, deadline=None)
@example(seed=21, half=True)  # who waits longer goes first
@given(seed=st.integers(0, 2**32 - 1), half=st.booleans())
def test_equals_the_event_heap_on_plain_pipelines(seed, half):
    """Another implementation of the recurrence, in plain Python, on stages and links without a CU."""
    rng = np.random.default_rng(seed)
    P, M = int(rng.integers(2, 6)), int(rng.integers(1, 14))
    forward, backward = rng.uniform(0.1, 2, P), rng.uniform(0.1, 4, P)
    there, back = rng.exponential(1.0, P - 1), rng.exponential(1.0, P - 1)
    caps = [*rng.integers(1, 8, P - 1).tolist(), 1]
    orders = [one_f_one_b(cap, M) for cap in usable_caps(caps, M)]
    wanted = last_end(orders, forward, backward, there, back, half=half)
    found = run(plain_chain(forward, backward, there, back), ONE_F_ONE_B, caps[:-1], M, half=half)
    assert found == pytest.approx(wanted, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), kind=st.sampled_from([GPIPE, ONE_F_ONE_B, ASYNC]))
def test_equals_the_longest_path_on_whole_chains(seed, kind):
    rng = np.random.default_rng(seed)
    S, M = int(rng.integers(1, 5)), int(rng.integers(1, 9))
    times = random_chain(rng, S, latency=rng.choice([0.0, 0.5]))
    caps = rng.integers(1, 7, S)
    used = np.full(S, M) if kind == GPIPE else np.minimum(np.minimum.accumulate(caps), M)
    orders = [one_f_one_b(int(cap), M) for cap in used]
    orders.append(one_f_one_b(M if kind == GPIPE else 1, M))
    assert run(times, kind, caps, M) == pytest.approx(longest_path(times, orders, M, 1), rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), v=st.integers(1, 3))
def test_interleaved_equals_the_longest_path(seed, v):
    rng = np.random.default_rng(seed)
    S = int(rng.integers(2, 5))
    M = S * int(rng.integers(1, 4))
    times = random_chain(rng, S, v, latency=rng.choice([0.0, 0.5]))
    caps = [min(2 * (S - s - 1) + (v - 1) * S + 1, M * v) for s in range(S)]
    orders = [*interleaved(S, M, v), one_f_one_b(1, M)]
    wanted = longest_path(times, orders, M, v)
    assert run(times, INTERLEAVED, caps, M, chunks=v) == pytest.approx(wanted, rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from([GPIPE, ONE_F_ONE_B, INTERLEAVED, ZERO_BUBBLE]),
    half=st.booleans(),
)
def test_events_obey_the_chain(seed, kind, half):
    rng = np.random.default_rng(seed)
    S = int(rng.integers(2, 5))
    M, v = S * int(rng.integers(1, 4)), 2 if kind == INTERLEAVED else 1
    times = random_chain(rng, S, v)
    room = int(rng.integers(0, 4))
    caps = np.array([2 * (S - s - 1) + (v - 1) * S + 1 + room for s in range(S)])
    events = np.full((M * (3 * v * (S + 1) + 2 * (v * S + 2)), 6), -1.0)
    makespan = run(times, kind, caps, M, chunks=v, half=half, events=events)
    events = events[events[:, 0] >= 0]
    assert np.isfinite(makespan)
    assert events[:, 5].max() == pytest.approx(makespan, rel=1e-12)
    kinds = 3 if kind == ZERO_BUBBLE else 2
    transfers = 2 * M * (v * S + 2)
    assert len(events) == kinds * M * (v * S + 1) + transfers
    links = S + 3
    for resource in np.unique(events[:, 0]).astype(int):
        own = events[events[:, 0] == resource]
        link = resource - S - 1
        if half and 0 <= link < links and link <= S + 1:  # both directions share the hop
            own = np.concatenate((own, events[events[:, 0] == resource + links]))
        own = own[np.argsort(own[:, 4], kind="stable")]
        assert (own[1:, 4] >= own[:-1, 5] - 1e-9).all()
    # No stage holds more micro-batches than it was given room for.
    total = M * v
    for s in range(S):
        own = events[events[:, 0] == s]  # in the order in which they began
        release = 2.0 if kind == ZERO_BUBBLE else 1.0
        held = np.cumsum((own[:, 1] == 0.0).astype(int) - (own[:, 1] == release).astype(int))
        limit = total if kind == GPIPE else min(int(caps[: s + 1].min()), total)
        if kind == ZERO_BUBBLE:
            limit = min(int(caps[s]), total)
        assert held.max() <= limit


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_half_duplex_leaves_gpipe_alone_and_never_helps_1f1b(seed):
    rng = np.random.default_rng(seed)
    S, M = int(rng.integers(1, 5)), int(rng.integers(1, 9))
    times, caps = random_chain(rng, S, latency=0.5), rng.integers(1, 7, S)
    both = [run(times, GPIPE, caps, M, half=half) for half in (False, True)]
    assert both[0] == pytest.approx(both[1], rel=1e-12)
    full, half = (run(times, ONE_F_ONE_B, caps, M, half=half) for half in (False, True))
    assert half >= full * (1 - 1e-12)


def test_gpipe_has_the_closed_form_on_whole_chains():
    rng = np.random.default_rng(3)
    for S, M in itertools.product((1, 2, 4), (1, 3, 8)):
        times = random_chain(rng, S, latency=0.5)
        used = [*range(S + 1), S + 2]  # all links but the one between chunks
        forward = [*times.forward, *times.link_forward[used]]
        expected = gpipe(forward, [*times.backward, *times.link_backward[used]], M)
        expected += 2.0 * times.latency[used].sum()  # whatever M is
        assert run(times, GPIPE, [1] * S, M) == pytest.approx(expected, rel=1e-12)


def test_orders_that_wait_for_each_other_never_end():
    times = plain_chain([1.0] * 4 + [0.0], [2.0] * 4 + [0.0])
    times = times._replace(chunk_share=np.array([[0.5, 0.5]] * 4 + [[1.0, 1.0]]))
    assert run(times, INTERLEAVED, [4, 4, 4, 4], 8, chunks=2) == np.inf
