"""Split training in the price of a round: the sequential server, SplitFed's closed form, what is refused."""

import heapq
from collections import deque
from dataclasses import replace

import array_api_strict
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from physics_support import make_case
from record_support import leaves

from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics import radio
from collapipe_env.physics.allocation import COMMON, COPIES, SEQUENTIAL, Allocation, with_schedule
from collapipe_env.physics.schedules.split import sequential_server_times
from collapipe_env.physics.workload import BACKWARD_OVER_FORWARD
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs

SEEDS = st.integers(0, 2**32 - 1)
L = 6  # blocks of the cases of physics_support


def served_in_turn(before, service, after, local_steps):
    """Event by event, in plain Python: clusters travel, queue up, are served one at a time, travel back."""
    clusters = len(before)
    events = [(before[n], n, "arrives") for n in range(clusters)]
    heapq.heapify(events)
    left, queue, busy, finished = [local_steps] * clusters, deque(), False, [0.0] * clusters
    while events:
        now, n, what = heapq.heappop(events)
        if what == "arrives":
            queue.append(n)
        else:
            busy = False
            left[n] -= 1
            if left[n]:
                heapq.heappush(events, (now + after[n] + before[n], n, "arrives"))
            else:
                finished[n] = now + after[n]
        # Everybody who arrives at this very moment queues up before the server chooses.
        if not busy and queue and not (events and events[0][0] == now and events[0][2] == "arrives"):
            first = queue.popleft()
            heapq.heappush(events, (now + service[first], first, "is served"))
            busy = True
    return finished


@settings(max_examples=200, deadline=None)
@given(
    data=st.data(),
    clusters=st.integers(1, 5),
    steps=st.integers(1, 4),
    # Small whole numbers make ties, which then hold exactly.
    seconds=st.sampled_from([st.integers(1, 4).map(float), st.floats(0.01, 10.0)]),
)
def test_sequential_server_is_an_event_simulation(data, clusters, steps, seconds) -> None:
    before, service, after = (
        data.draw(st.lists(seconds, min_size=clusters, max_size=clusters)) for _ in range(3)
    )
    plays = np.ones(clusters, dtype=bool)
    found = sequential_server_times(np.array(before), np.array(service), np.array(after), steps, plays)
    assert found.tolist() == pytest.approx(served_in_turn(before, service, after, steps), rel=1e-12)


def split_case(seed, mode, *, clusters=3, common=False, micro_batches=1, **options):
    """A random system and a plan with one device in each cluster; the server runs the other blocks."""
    p, s, a = make_case(seed, lead=(2,), clusters=clusters, absent=0.3, **options)
    rng = np.random.default_rng([seed, 1])
    cut = rng.integers(1, L + 1, a.micro_batches.shape)
    if common:
        cut[:] = cut[:, :1]
    blocks = np.zeros_like(a.blocks)
    for at in np.ndindex(cut.shape):
        blocks[at][rng.choice(np.flatnonzero(s.present[at]))] = cut[at]
    plan = replace(
        a,
        blocks=blocks,
        micro_batches=np.full_like(a.micro_batches, micro_batches),
        server_blocks=L - cut,
        server_mode=np.full(cut.shape[:-1], mode),
    )
    return p, s, plan


def number(value) -> float:
    return float(np.asarray(value).reshape(()))


def client_seconds(p, s, a, row, n):
    """What a cluster does without the server's computing, from the radio's own functions, one by one."""
    c, power = p.costs, a.device_power[row]
    holder = int(a.blocks[row, n].argmax())
    own = int(a.blocks[row, n, holder])
    pbar = [(a.cu_power[row, m] + power[m, int(a.blocks[row, m].argmax())]) / 2.0 for m in range(p.clusters)]
    disturbance = sum(s.cross_gain[row, m, n] * pbar[m] for m in range(p.clusters) if m != n)
    noise = p.noise_density * p.d2d_bandwidth_hz + disturbance
    gain = s.d2d_gain[row, n, 0, holder + 1]
    to_device = number(radio.shannon_rate(np.array(a.cu_power[row, n] * gain / noise), p.d2d_bandwidth_hz))
    to_cu = number(radio.shannon_rate(np.array(power[n, holder] * gain / noise), p.d2d_bandwidth_hz))
    beta, h = np.array(a.bandwidth[row, n]), np.array(s.uplink_gain[row, n])
    cu = np.array(a.cu_power[row, n])
    up = number(radio.uplink_rate(beta, cu, h, p.uplink_noise_w, p.uplink_bandwidth_hz))
    down = number(radio.downlink_rate(beta, p.bs_power_w, h, p.downlink_noise_w, p.downlink_bandwidth_hz))
    a_bits, g_bits = c.batch_size * c.activation_bits, c.batch_size * c.gradient_bits
    forward = c.batch_size * own * c.block_forward_flops / s.speed[row, n, holder]
    before = a_bits / to_device + forward + a_bits / to_cu + a_bits / up
    after = g_bits / down + g_bits / to_device + BACKWARD_OVER_FORWARD * forward + g_bits / to_cu
    payload = own * c.block_parameters * c.weight_bits
    collect = payload / to_cu
    upload = (payload + c.embedding_parameters * c.weight_bits) / up
    server = c.batch_size * (c.decoder_forward_flops + (L - own) * c.block_forward_flops)
    server *= 1.0 + BACKWARD_OVER_FORWARD
    return before, server, after, collect + upload


def broadcast_seconds(p, s, a, row):
    """The broadcast of the embedding and of the blocks that any cluster trains."""
    c = p.costs
    most = int(a.blocks[row].sum(axis=-1).max())
    weakest = s.uplink_gain[row].min()
    rate = radio.full_band_rate(p.bs_power_w, weakest, p.downlink_noise_w, p.downlink_bandwidth_hz)
    return (most * c.block_parameters + c.embedding_parameters) * c.weight_bits / number(rate)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, steps=st.integers(1, 3), clusters=st.integers(1, 4))
def test_v1_is_its_closed_form(seed, steps, clusters) -> None:
    p, s, a = split_case(seed, COPIES, clusters=clusters, steps=steps)
    check_allocation(p, s, a)
    costs = round_costs(p, s, a)
    for row in range(2):
        delays = []
        for n in range(clusters):
            before, work, after, update = client_seconds(p, s, a, row, n)
            step = before + work / (p.server_flops / clusters) + after
            delays.append(steps * step + update)
            assert costs.local_step[row, n] == pytest.approx(step, rel=1e-9)
        assert costs.cluster_delay[row].tolist() == pytest.approx(delays, rel=1e-9)
        assert costs.delay[row] == pytest.approx(max(delays) + broadcast_seconds(p, s, a, row), rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, steps=st.integers(1, 3), clusters=st.integers(1, 4), slow=st.booleans())
def test_v2_queues_for_the_whole_server(seed, steps, clusters, slow) -> None:
    # A slow server makes everybody wait; a fast one is free when they come.
    p, s, a = split_case(seed, SEQUENTIAL, clusters=clusters, steps=steps, common=True)
    p = replace(p, server_flops=1e9 if slow else p.server_flops)
    check_allocation(p, s, a)
    costs = round_costs(p, s, a)
    for row in range(2):
        parts = [client_seconds(p, s, a, row, n) for n in range(clusters)]
        before, work, after, update = (list(column) for column in zip(*parts, strict=True))
        times = served_in_turn(before, [w / p.server_flops for w in work], after, steps)
        delays = [t + u for t, u in zip(times, update, strict=True)]
        assert costs.cluster_delay[row].tolist() == pytest.approx(delays, rel=1e-9)
        assert costs.delay[row] == pytest.approx(max(delays) + broadcast_seconds(p, s, a, row), rel=1e-9)


@pytest.mark.parametrize("mode", [COMMON, COPIES])
@pytest.mark.parametrize("groups", [False, True])
def test_nothing_on_the_server_costs_what_the_plain_plan_costs(mode, groups) -> None:
    p, s, a = make_case(8, groups=groups, absent=0.2, steps=2)
    split = replace(
        a, server_blocks=np.zeros_like(a.micro_batches), server_mode=np.full(a.micro_batches.shape[:-1], mode)
    )
    check_allocation(p, s, split)
    plain = dict(leaves(round_costs(p, s, a)))
    for name, value in leaves(round_costs(p, s, split)):
        if not name.startswith(".allocation"):
            np.testing.assert_allclose(value, plain[name], rtol=1e-12, err_msg=name)


def test_rows_and_modes_do_not_mix() -> None:
    p, s, a = split_case(6, COPIES, common=True, steps=2)
    a = replace(a, server_mode=np.array([SEQUENTIAL, COPIES]))
    together = round_costs(p, s, a)
    for row in range(2):
        assert round_costs(p, s[row], a[row]).delay == pytest.approx(together.delay[row], rel=1e-13)
    # One state, many candidates: the leading axis of candidates changes nothing.
    many = a.map(lambda v: np.stack([v, v[::-1]]))
    many = replace(many, blocks=np.stack([a.blocks] * 2), server_blocks=np.stack([a.server_blocks] * 2))
    priced = round_costs(p, s.map(lambda v: v[None]), many)
    assert priced.delay[0] == pytest.approx(together.delay, rel=1e-13)
    for row in range(2):
        assert round_costs(p, s[row], many[1, row]).delay == pytest.approx(priced.delay[1, row], rel=1e-13)


@pytest.mark.parametrize("convert", [array_api_strict.asarray, torch.asarray], ids=["strict", "torch"])
@pytest.mark.parametrize("mode", [COPIES, SEQUENTIAL])
def test_the_price_runs_on_other_array_libraries(mode, convert) -> None:
    p, s, a = split_case(3, mode, common=True, steps=2)
    expected = dict(leaves(round_costs(p, s, a)))
    for name, value in leaves(round_costs(p, s.map(convert), a.map(convert))):
        np.testing.assert_allclose(np.asarray(value), expected[name], rtol=1e-12, err_msg=name)


def test_all_reduce_of_a_group_delays_the_next_turn_at_a_sequential_server() -> None:
    steps = 3
    p, s, a = make_case(11, lead=(1,), steps=steps)
    p = replace(p, server_flops=2e9)  # slow enough that clusters wait for each other
    blocks, stage, share = np.zeros_like(a.blocks), np.full_like(a.blocks, -1), np.zeros(a.blocks.shape)
    blocks[..., 0], stage[..., :2], share[..., :2] = 3, 0, 0.5
    ones = np.ones_like(a.micro_batches)
    a = replace(a, blocks=blocks, stage=stage, sample_share=share, micro_batches=ones)
    a = replace(a, server_blocks=np.full_like(a.micro_batches, 3), server_mode=np.array([SEQUENTIAL]))
    check_allocation(p, s, a)
    costs = round_costs(p, s, a)
    e = costs.elements
    before = e.hop_forward.sum(axis=-1) + e.compute_forward.sum(axis=-1) + e.uplink
    after = e.hop_backward.sum(axis=-1) + e.compute_backward.sum(axis=-1) + e.downlink + costs.allreduce
    times = served_in_turn(before[0], (e.server_forward + e.server_backward)[0], after[0], steps)
    assert (costs.allreduce > 0.0).all()
    assert (steps * costs.local_step[0]).tolist() == pytest.approx(times, rel=1e-12)


def changed(mode=COPIES, *, common=True, **changes) -> Allocation:
    """A sound plan of two rows and three clusters, with something wrong in it."""
    *_, a = split_case(1, mode, common=common)
    return replace(a, **changes)


def wrong_at(place, value, kind=np.int64):
    array = np.zeros((2, 3), dtype=kind)
    array[place] = value
    return array


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (
            lambda: changed(server_blocks=wrong_at((1, 2), L)),
            r"server_blocks of environment 1, cluster 2 is 6, .* 0 to L - 1 = 5: the devices hold at least",
        ),
        (lambda: changed(server_blocks=wrong_at((0, 1), -1)), r"server_blocks of environment 0, cluster 1"),
        (
            lambda: changed(server_blocks=wrong_at((0, 2), 0.5, float)),
            r"server_blocks of .*cluster 2 is 0.5, expected a whole number",
        ),
        (lambda: changed(server_blocks=wrong_at((0, 0), np.nan, float)), "server_blocks .* is nan"),
        (
            lambda: changed(server_blocks=np.zeros((2, 4), dtype=np.int64)),
            r"server_blocks has shape \(2, 4\), expected \(2, 3\)",
        ),
        (
            lambda: changed(server_mode=np.zeros((2, 3), dtype=np.int64)),
            r"server_mode has shape \(2, 3\), expected \(2,\)",
        ),
        (
            lambda: changed(server_mode=np.array([0, 2])),
            r"server_mode of environment 1 is 2, expected -1 \(common\), 0 \(copies\), 1 \(sequential\)",
        ),
        (
            lambda: changed(server_mode=np.array([0, COMMON]), server_blocks=np.full((2, 3), 1)),
            r"server_blocks of environment 1, cluster 0 is 1, expected 0 with CollaPipe's own server",
        ),
        (
            lambda: changed(SEQUENTIAL, server_blocks=wrong_at((1, 1), 1)),
            r"environment 1, cluster 1 is 1, expected the same in all clusters under a sequential server",
        ),
        (
            lambda: changed(SEQUENTIAL, micro_batches=np.full((2, 3), 2)),
            r"micro_batches of environment 0, cluster 0 is 2, expected 1 under a sequential server",
        ),
        (
            lambda: with_schedule(changed(COPIES), "async", np.ones((2, 3, 4))),
            r"schedule of environment 0, cluster 0 is 4, expected a synchronous one under split training",
        ),
        (
            lambda: with_schedule(changed(SEQUENTIAL), "1f1b", np.ones((2, 3, 4))),
            r"schedule of environment 0, cluster 0 is 1, expected 0 \(gpipe\) under a sequential server",
        ),
        (
            lambda: changed(server_blocks=wrong_at((0, 1), 1)),
            r"blocks of environment 0, cluster 0 is .* summing to L = 6, with the server's blocks",
        ),
    ],
)
def test_impossible_splits_are_refused(plan, message) -> None:
    p, s, sound = split_case(1, COPIES, common=True)
    assert (sound.server_blocks > 0).all()
    check_allocation(p, s, sound)
    with pytest.raises(AllocationError, match=message):
        check_allocation(p, s, plan())
