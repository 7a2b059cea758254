"""Orders and replays of scripts against the compiled ones of the simulator, and against closed forms."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from script_support import chain_script, sorted_events

from collapipe_env.execution.script_replay import replayed_step
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import SCHEDULES
from collapipe_env.physics.schedules.events import _KINDS, _element
from collapipe_env.physics.schedules.orders import fill_orders
from collapipe_env.physics.schedules.simulation import ChainTimes, simulate_chain
from collapipe_env.physics.schedules.timeline import Event


def compiled_orders(schedule, caps, micro_batches, chunks, variant):
    """Orders of all stages, and their lengths, by the compiled code."""
    orders = np.zeros((len(caps) + 1, 3 * micro_batches * chunks, 3), dtype=np.int64)
    counts = np.zeros(len(caps) + 1, dtype=np.int64)
    kind = SCHEDULES.index(schedule)
    fill_orders(kind, np.array(caps), micro_batches, chunks, variant, orders, counts)
    return orders, counts


def random_times(rng, stages, chunks, split, latency, edge_latency):
    share = np.ones((stages + 1, chunks))
    share[:stages] = rng.dirichlet(np.full(chunks, 3.0), stages)
    weight = rng.uniform(0.1, 1.0, stages + 1) if split else np.zeros(stages + 1)
    late = np.full(stages + 3, latency)
    late[stages + 2] = edge_latency
    return ChainTimes(
        forward=rng.uniform(0.1, 1.0, stages + 1),
        backward=rng.uniform(0.1, 2.0, stages + 1),
        weight=weight,
        link_forward=rng.uniform(0.05, 1.0, stages + 3),
        link_backward=rng.uniform(0.05, 1.0, stages + 3),
        latency=late,
        chunk_share=share,
    )


def simulated(times, schedule, caps, micro_batches, chunks, variant):
    """Length and events of one local step by the compiled recurrence."""
    S, M = len(caps), micro_batches
    orders, counts = compiled_orders(schedule, caps, M, chunks, variant)
    limits = np.array([*(min(cap, M) for cap in caps), M])
    gaps = schedule == "zb-h1" and bool(variant & 1)
    found = np.full((M * (3 * chunks * (S + 1) + 2 * (chunks * S + 2)), 6), -1.0)
    length = simulate_chain(times, orders, counts, limits, M, chunks, gaps, False, found)
    rows = found[found[:, 0] >= 0.0]
    return length, [
        Event(_element(int(r[0]), S), int(r[2]), _KINDS[int(r[1])], float(r[4]), float(r[5])) for r in rows
    ]


@settings(max_examples=120, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    schedule=st.sampled_from(("gpipe", "1f1b", "interleaved", "zb-h1")),
    stages=st.integers(1, 5),
    micro_batches=st.integers(1, 7),
    chunks=st.integers(2, 3),
    variant=st.integers(0, 3),
    latencies=st.sampled_from(((0.0, 0.0), (0.3, 0.0), (0.02, 1.7))),
)
def test_replays_are_the_simulators(seed, schedule, stages, micro_batches, chunks, variant, latencies):
    rng = np.random.default_rng(seed)
    caps = rng.integers(1, 2 * stages + 2, stages).tolist()
    if schedule == "interleaved":
        assume(stages > 1)
        micro_batches *= stages
    else:
        chunks = 1
    times = random_times(rng, stages, chunks, schedule == "zb-h1", *latencies)
    length, events = simulated(times, schedule, caps, micro_batches, chunks, variant)
    script = chain_script(times, schedule, caps, micro_batches, chunks, variant)
    if length == np.inf:
        with pytest.raises(AllocationError, match="wait for each other"):
            replayed_step(script)
        return
    found, replayed = replayed_step(script)
    assert found == pytest.approx(length, abs=1e-9)
    np.testing.assert_allclose(sorted_events(replayed), sorted_events(events), rtol=0.0, atol=1e-9)


def uniform(stages, forward, backward, hop=0.0):
    both = np.zeros(stages + 3)
    both[: stages + 1] = hop
    compute = np.full(stages + 1, forward), np.full(stages + 1, backward)
    return ChainTimes(*compute, np.zeros(stages + 1), both, both, 0.0 * both, np.ones((stages + 1, 1)))


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("micro_batches", [1, 3, 8])
def test_equal_stages_take_the_textbook_time(schedule, micro_batches):
    # Three stages and the server are a pipeline of four: (M + P - 1) (F + B).
    script = chain_script(uniform(3, 1.0, 2.0), schedule, [4, 3, 2], micro_batches)
    assert replayed_step(script)[0] == pytest.approx((micro_batches + 3) * 3.0)


def test_a_stage_without_room_says_so():
    times = uniform(1, 1.0, 1.0)._replace(weight=np.array([1.0, 1.0]))
    script = chain_script(times, "zb-h1", [3], 3, variant=1)
    (stage,) = script.stages
    with pytest.raises(AllocationError, match="weight_limit 1 is too low"):
        replayed_step(replace(script, stages=(replace(stage, weight_limit=1),)))
