"""The event-driven pipeline agrees with the closed form and breaks no rule of a pipeline."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.schedules import gpipe

from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.schedules.timeline import (
    Element,
    ElementKind,
    chain_elements,
    cluster_timeline,
    gpipe_timeline,
)


def makespan(events):
    return max(event.end_s for event in events)


KINDS: tuple[ElementKind, ...] = ("hop", "compute", "uplink", "server")


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 12), micro_batches=st.integers(1, 16))
def test_events_obey_the_pipeline_and_end_with_the_closed_form(seed, count, micro_batches):
    rng = np.random.default_rng(seed)
    # Zeros and ties included on purpose: they are where an event queue goes wrong.
    length = np.where(rng.random((2, count)) < 0.4, rng.choice([0.0, 0.5, 1.0], (2, count)), 0.0)
    length = np.where(length > 0.0, length, rng.exponential(1.0, (2, count)) * (rng.random((2, count)) < 0.9))
    late = rng.choice([0.0, 0.7], count)
    kinds = rng.choice(KINDS, count)
    columns = zip(kinds, *length, late, strict=True)
    elements = [Element(kind, "x", there, back, 0, lag) for kind, there, back, lag in columns]
    events = gpipe_timeline(elements, micro_batches)
    by_key = {(e.element, e.micro_batch, e.direction): e for e in events}
    assert len(events) == len(by_key) == 2 * micro_batches * len(elements)
    # The last arrival is no event: what is drawn ends with the last transfer.
    expected = gpipe(*length, micro_batches) + 2.0 * late.sum() - late[0]
    assert makespan(events) == pytest.approx(expected, rel=1e-9, abs=1e-12)

    for event in events:
        element = elements[event.element]
        ahead = event.direction == "forward"
        assert event.end_s == event.start_s + (element.forward_s if ahead else element.backward_s)
        # Precedence along the pipeline.
        before = by_key.get((event.element + (-1 if ahead else 1), event.micro_batch, event.direction))
        if before is not None:
            assert event.start_s >= before.end_s + elements[before.element].latency_s - 1e-12
        # In the order 0..M-1 in each direction.
        if event.micro_batch > 0:
            assert event.start_s >= by_key[event.element, event.micro_batch - 1, event.direction].end_s
    # The flush.
    last_forward = max(e.end_s for e in events if e.direction == "forward")
    assert min(e.start_s for e in events if e.direction == "backward") >= last_forward
    # One micro-batch at a time per resource.
    resources = defaultdict(list)
    for event in events:
        duplex = elements[event.element].kind in ("hop", "uplink")
        resources[event.element, event.direction if duplex else "both"].append(event)
    for queue in resources.values():
        for earlier, later in pairwise(queue):
            assert later.start_s >= earlier.end_s


def chain(stages: int = 2) -> tuple[Element, ...]:
    return chain_elements(
        stage_nodes=[1, 3][:stages],
        stage_blocks=[4, 1][:stages],
        compute_forward_s=[1.0, 2.0][:stages],
        compute_backward_s=[2.0, 4.0][:stages],
        hop_forward_s=[0.5, 0.25, 0.125][: stages + 1],
        hop_backward_s=[0.6, 0.3, 0.2][: stages + 1],
        uplink_s=0.75,
        downlink_s=0.1,
        server_forward_s=0.05,
        server_backward_s=0.1,
    )


def test_chain_puts_a_hop_before_and_after_every_stage():
    elements = chain()
    assert [e.kind for e in elements] == ["hop", "compute", "hop", "compute", "hop", "uplink", "server"]
    assert [e.node for e in elements] == [0, 1, 1, 3, 3, 0, -1]
    assert [e.label for e in elements][:5] == ["CU→d0", "d0, 4 blocks", "d0→d2", "d2, 1 block", "d2→CU"]
    assert [e.forward_s for e in elements] == [0.5, 1.0, 0.25, 2.0, 0.125, 0.75, 0.05]
    assert [e.backward_s for e in elements] == [0.6, 2.0, 0.3, 4.0, 0.2, 0.1, 0.1]


def test_round_is_the_sum_of_its_phases():
    own_end = 3 * (8.0 + 0.5) + 1.5 + 2.5
    timeline = cluster_timeline(
        chain(),
        8.0,
        local_steps=3,
        step_ends={"all-reduce": 0.5},
        after={"collect": 1.5, "upload": 2.5},
        broadcast_s=0.25,
        broadcast_start_s=own_end + 7.0,
    )
    assert [p.label for p in timeline.phases] == ["step", "all-reduce"] * 3 + [
        "collect",
        "upload",
        "wait",
        "broadcast",
    ]
    assert timeline.phases[0].start_s == 0.0
    for earlier, later in pairwise(timeline.phases):
        assert later.start_s == earlier.end_s
    assert timeline.end_s == pytest.approx(own_end + 7.0 + 0.25, rel=1e-12)


@pytest.mark.parametrize(("drawn", "steps"), [(1, 1), (None, 3), (0, 0), (2, 2)])
def test_only_the_drawn_steps_have_events(drawn, steps):
    events = gpipe_timeline(chain(), 4)
    length = makespan(events)
    timeline = cluster_timeline(
        chain(), length, events, local_steps=3, step_ends={"all-reduce": 0.5}, drawn_steps=drawn
    )
    assert len(timeline.events) == steps * len(events)
    for k in range(steps):
        own = timeline.events[k * len(events) : (k + 1) * len(events)]
        assert min(e.start_s for e in own) == pytest.approx(k * (length + 0.5))
        assert makespan(own) == pytest.approx(timeline.phases[2 * k].end_s)


def test_the_slowest_cluster_does_not_wait():
    after = {"collect": 0.3, "upload": 0.7}
    end = cluster_timeline(chain(), 8.1, after=after).end_s
    for start in (end, math.nextafter(end, 0.0), math.nextafter(end, math.inf)):
        timeline = cluster_timeline(chain(), 8.1, after=after, broadcast_s=1.0, broadcast_start_s=start)
        assert [p.label for p in timeline.phases] == ["step", "collect", "upload", "broadcast"]


@pytest.mark.parametrize("bad", [-1.0, math.inf, math.nan])
def test_bad_times_and_counts_are_refused_by_name(bad):
    for arguments, words in (
        ({"step_s": bad}, "step is"),
        ({"after": {"upload": bad}}, "upload is"),
        ({"local_steps": 0}, "local_steps is 0"),
        ({"after": {"upload": 5.0}, "broadcast_start_s": 1.0}, "broadcast_start_s"),
    ):
        with pytest.raises(AllocationError, match=words):
            cluster_timeline(chain(), **{"step_s": 8.0, **arguments})
