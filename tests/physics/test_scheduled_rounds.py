"""Schedules in the costs of a round: time, memory, airtime and failures."""

from dataclasses import replace

import numpy as np
import pytest
from physics_support import make_case
from unpriced_support import unpriced

from collapipe_env.ground.errors import AllocationError
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.physics.allocation import (
    ASYNC,
    GPIPE,
    INTERLEAVED,
    ONE_F_ONE_B,
    SCHEDULES,
    ZERO_BUBBLE,
    Allocation,
    stack_allocations,
    with_schedule,
)
from collapipe_env.physics.schedules.storage import stored_micro_batches
from collapipe_env.physics.segments import pipeline_blocks, version_gaps
from collapipe_env.rendering.round_view import cluster_round_timeline
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.codec import ActionCodec
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.world import World


def scheduled(allocation, kind, room=1):
    """Caps that fall along the pipe, by stage slot."""
    K = allocation.blocks.shape[-1]
    return with_schedule(allocation, SCHEDULES[kind], np.arange(K, 0, -1) + room)


def interleaved_case(seed, v, **options):
    """Three stages of 2 v blocks and as many micro-batches as interleaving takes."""
    parameters, state, allocation = make_case(seed, devices=4, blocks=6 * v, **options)
    blocks = np.zeros_like(allocation.blocks)
    blocks[..., [0, 1, 3]] = 2 * v
    choices = (3, 6, 12)
    parameters = replace(
        parameters, micro_batch_choices=choices, costs=replace(parameters.costs, batch_size=12)
    )
    M = np.random.default_rng(seed).choice(choices, allocation.micro_batches.shape)
    plan = replace(allocation, blocks=blocks, micro_batches=M)
    caps = np.array([2 * 2 + (v - 1) * 3 + 1, 2 + (v - 1) * 3 + 1, 0, (v - 1) * 3 + 1])
    return parameters, state, plan, with_schedule(plan, "interleaved", caps, v)


@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("kind", [GPIPE, ONE_F_ONE_B, ZERO_BUBBLE, ASYNC], ids=lambda k: SCHEDULES[k])
def test_only_time_and_memory_change(kind, groups):
    parameters, state, plain = make_case(3, groups=groups, steps=2)
    before = round_costs(parameters, state, plain)
    plan = scheduled(plain, kind)
    after = round_costs(parameters, state, plan)
    for name in ("energy", "collect", "upload", "broadcast", "survival", "interference", "allreduce"):
        assert np.allclose(getattr(after, name), getattr(before, name), rtol=1e-12, atol=0.0), name
    if kind == GPIPE:
        assert np.allclose(after.delay, before.delay, rtol=1e-12, atol=0.0)
        assert np.allclose(after.memory, before.memory, rtol=1e-12)
    else:
        assert not np.allclose(after.cluster_delay, before.cluster_delay, rtol=1e-6)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("kind", [ONE_F_ONE_B, ZERO_BUBBLE, ASYNC], ids=lambda k: SCHEDULES[k])
@pytest.mark.parametrize("priced", [False, True])
def test_the_timeline_ends_with_the_round(priced, kind, groups, seed):
    scenario = load_scenario(
        {"base": "small", "workload": {"local_steps": 2}, "budgets": {"device_energy_j": 40}}
    )
    if not priced:
        scenario = unpriced(scenario)
    simulator = World(scenario, IdleLearner(1), 1)
    simulator.reset([np.random.default_rng(seed)])
    plan = scheduled(even_split(simulator.parameters, simulator.state), kind)
    if groups:
        plan = replace(
            plan,
            blocks=np.array([[[4, 2, 0], [2, 4, 0]]]),
            stage=np.array([[[0, 1, 0], [0, 1, 1]]]),
            sample_share=np.array([[[0.25, 1.0, 0.75], [1.0, 0.5, 0.5]]]),
        )
    record = simulator.step(plan)
    for n in range(scenario.clusters):
        timeline = cluster_round_timeline(record, 0, n, drawn_steps=None)
        assert timeline.end_s == pytest.approx(float(record.costs.delay[0]), rel=1e-9)
        steps = 2 * float((record.costs.local_step - record.costs.allreduce)[0, n])
        late = {"hop": 0.003, "uplink": 0.015} if priced else {}
        last = max(e.end_s + late.get(timeline.elements[e.element].kind, 0.0) for e in timeline.events)
        expected = steps + (0.0 if kind == ASYNC else float(record.costs.allreduce[0, n]))
        # After the last pass comes the update: 5 ms for a million parameters at 1 GHz, of all blocks of a
        # device's group. If nobody waits for updates and all-reduces, all of them come last.
        millions = (4 * (256 * 256 + 256) + 2 * 256 * 1024 + 1024 + 256 + 4 * 256) / 1e6
        clocks = simulator.state.clock[0, n] / 1e9
        held = np.array([[4, 2, 4], [2, 4, 4]])[n] if groups else plan.blocks[0, n]
        update = (held * millions * 0.005 / clocks).max() if priced else 0.0
        expected -= update * (2 if kind == ASYNC else 1)
        assert last == pytest.approx(expected, rel=1e-9)
        directions = {e.direction for e in timeline.events}
        assert ("weight" in directions) == (kind == ZERO_BUBBLE)


def test_devices_of_a_group_hold_their_share():
    parameters, state, plan = make_case(8, groups=True)
    plan = scheduled(plan, ONE_F_ONE_B)
    c = parameters.costs
    stored = stored_micro_batches(plan, c.local_steps)
    found = round_costs(parameters, state, plan).memory
    for at in np.argwhere(plan.stage >= 0):
        e, n, k = at
        slot = plan.stage[e, n, k]
        held = plan.blocks[e, n, slot]
        samples = stored[e, n, slot] * c.batch_size / plan.micro_batches[e, n] * plan.sample_share[e, n, k]
        wanted = held * (c.block_state_bytes + samples * c.stored_activation_bytes)
        assert found[e, n, k] == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("v", [2, 3])
@pytest.mark.parametrize("mode", ["drop", "arq"])
def test_interleaving_multiplies_the_traffic_between_devices(v, mode):
    parameters, state, plain, plan = interleaved_case(11, v, link_errors=mode)
    check_allocation(parameters, state, plan)
    base, found = round_costs(parameters, state, plain), round_costs(parameters, state, plan)
    passes = (parameters.costs.local_steps * plan.micro_batches)[..., None]
    # The CU sends and receives a micro-batch once, however many chunks there are.
    assert np.allclose(found.energy[..., 0], base.energy[..., 0], rtol=1e-12)
    # By hand: devices 0, 1 and 3 are the stages; the last one's forward hop goes to the CU once and to the
    # first device v - 1 times, the others' v times to the next; backward likewise.
    e = found.elements
    p = plan.device_power
    extra = np.zeros_like(p)
    extra[..., 0] = (v - 1) * (e.hop_forward[..., 1] + e.wrap_backward)
    extra[..., 1] = (v - 1) * (e.hop_forward[..., 2] + e.hop_backward[..., 2])
    extra[..., 3] = (v - 1) * (e.wrap_forward + e.hop_backward[..., 4])
    assert np.allclose(
        found.energy[..., 1:] - base.energy[..., 1:], passes * p * extra, rtol=1e-6, atol=1e-12
    )
    if mode == "drop":
        links = [(1, 2), (2, 4)]
        noise = parameters.noise_density * parameters.d2d_bandwidth_hz + found.interference
        power = plan.node_power

        def exponent(i, j):
            one = parameters.waterfall_threshold * noise / state.d2d_gain[..., i, j]
            return one / power[..., i] + one / power[..., j]

        more = (v - 1) * (sum(exponent(i, j) for i, j in links) + exponent(4, 1))
        assert np.allclose(np.log(base.survival) - np.log(found.survival), more, rtol=1e-9)
    assert (found.memory[..., [0, 1, 3]] <= base.memory[..., [0, 1, 3]] * (1 + 1e-9)).all()


def test_chunks_are_the_segments_that_are_trained():
    _, _, _, plan = interleaved_case(2, 2)
    plan = replace(plan, blocks=np.where(plan.blocks > 0, np.array([5, 4, 0, 3]), 0))
    assert pipeline_blocks(plan)[0, 0].tolist() == [3, 2, 0, 2, 2, 2, 0, 1]
    plain = scheduled(plan, ONE_F_ONE_B)
    assert pipeline_blocks(plain) is plain.blocks


def test_version_gaps_are_those_of_the_order():
    """Count, in the 1F1B order itself, the updates missing at a mini-batch's first forward."""
    _, _, plain = make_case(4, lead=(1,), clusters=1, devices=4)
    plan = replace(plain, blocks=np.array([[[2, 0, 3, 1]]]), micro_batches=np.array([[4]]))
    for caps in ([9, 1, 5, 2], [3, 1, 4, 1], [6, 1, 6, 6]):
        found = version_gaps(with_schedule(plan, "async", np.array(caps)))[0, 0]
        least = 10**9
        for slot, cap in enumerate(caps):
            if plan.blocks[0, 0, slot] == 0:
                assert found[slot] == 0
                continue
            least = min(least, cap)
            g, M = 20, 4  # a mini-batch in the steady phase
            backwards_before = g * M - least + 1
            assert found[slot] == g - backwards_before // M
    assert version_gaps(with_schedule(plan, "1f1b", np.array([9, 1, 5, 2]))) is None


def test_half_duplex_counts_only_where_both_directions_meet():
    parameters, state, plain = make_case(21, d2d_bandwidth_hz=2e5)
    plain = replace(plain, micro_batches=np.full_like(plain.micro_batches, 16))
    half = replace(parameters, half_duplex=True)
    for kind in (GPIPE, ONE_F_ONE_B):
        plan = scheduled(plain, kind)
        full_delay = round_costs(parameters, state, plan).cluster_delay
        half_delay = round_costs(half, state, plan).cluster_delay
        if kind == GPIPE:
            assert np.array_equal(full_delay, half_delay)
        else:
            assert not np.array_equal(full_delay, half_delay)


def test_async_runs_the_round_without_a_flush():
    parameters, state, plain = make_case(9, steps=4)
    flushed = round_costs(parameters, state, scheduled(plain, ONE_F_ONE_B)).local_step
    streamed = round_costs(parameters, state, scheduled(plain, ASYNC)).local_step
    assert (streamed <= flushed * (1 + 1e-9)).all()
    assert (streamed < flushed * 0.99).any()
    single, state, plain = make_case(9, steps=1)
    pair = [round_costs(single, state, scheduled(plain, kind)).local_step for kind in (ONE_F_ONE_B, ASYNC)]
    assert np.allclose(*pair, rtol=1e-12)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schedule": 7}, r"schedule .* is 7, expected one of 0 \(gpipe\)"),
        ({"caps": 0}, "caps .* is 0, expected room for at least 1 micro-batch"),
        ({"chunks": 2}, "chunks .* is 2, expected 1, or more under 'interleaved'"),
        ({"schedule": INTERLEAVED, "chunks": 5}, "chunks .* is 5, expected at most as many"),
        ({"schedule": INTERLEAVED, "micro_batches": 4}, "micro_batches .* is 4, expected a multiple"),
        ({"schedule": INTERLEAVED, "chunks": 2, "caps": 2}, "caps .* do not wait for each other"),
    ],
)
def test_impossible_schedules_are_refused(changes, words):
    parameters, state, plain = make_case(6, lead=(1,), clusters=1, devices=3)
    plan = replace(plain, blocks=np.full((1, 1, 3), 2), micro_batches=np.full((1, 1), 4))
    parameters = replace(parameters, micro_batch_choices=(1, 3, 4, 12))
    plan = scheduled(replace(plan, micro_batches=np.full((1, 1), 12)), ONE_F_ONE_B)
    check_allocation(parameters, state, plan)
    changed = {k: np.full_like(getattr(plan, k), v) for k, v in changes.items()}
    with pytest.raises(AllocationError, match=words):
        check_allocation(parameters, state, replace(plan, **changed))


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("caps", np.inf, "caps .* is inf, expected a whole number"),
        ("caps", 1.5, "caps .* is 1.5, expected a whole number"),
        ("caps", 4.0, "caps has type float64, expected integers"),
        ("chunks", np.nan, "chunks .* is nan, expected a whole number"),
        ("schedule", 0.5, "schedule .* is 0.5, expected a whole number"),
        ("stage", np.nan, "stage .* is nan, expected a whole number"),
        ("stage", 0.0, "stage has type float64, expected integers"),
        ("sample_share", np.nan, "sample_share .* is nan, expected a number from 0 to 1"),
        ("sample_share", np.inf, "sample_share .* is inf, expected a number from 0 to 1"),
        ("server_blocks", 0.5, "server_blocks .* is 0.5, expected a whole number"),
        ("server_mode", np.nan, "server_mode .* is nan, expected a whole number"),
    ],
)
def test_numbers_that_compiled_code_could_not_bear_are_refused(field, value, words):
    parameters, state, plan = make_case(8, groups=True)
    plan = replace(scheduled(plan, ONE_F_ONE_B), **plan.server._asdict())
    plan = replace(plan, stage=plan.stage.copy(), sample_share=plan.sample_share.copy())
    plan.stage[0, 0, -1], plan.sample_share[0, 0, -1] = -1, 0.0  # an idle device, whose share nobody reads
    changed = getattr(plan, field).astype(np.float64)
    changed[(0,) * changed.ndim if field not in ("sample_share", "stage") else (0, 0, -1)] = value
    with pytest.raises(AllocationError, match=words):
        check_allocation(parameters, state, replace(plan, **{field: changed}))


def test_memory_that_one_schedule_needs_and_another_does_not():
    parameters, state, plain = make_case(6, lead=(1,), clusters=1, devices=3)
    plan = replace(plain, blocks=np.full((1, 1, 3), 2), micro_batches=np.full((1, 1), 16))
    needed = round_costs(parameters, state, scheduled(plan, ONE_F_ONE_B, room=0)).memory
    state = replace(state, memory_bytes=needed)
    check_allocation(parameters, state, scheduled(plan, ONE_F_ONE_B, room=0))
    with pytest.raises(AllocationError, match="or a lower cap"):
        check_allocation(parameters, state, scheduled(plan, ONE_F_ONE_B, room=1))
    with pytest.raises(AllocationError, match=r"give it fewer blocks$"):
        check_allocation(parameters, state, plan)


def test_fields_that_go_together():
    _, _, plain = make_case(1)
    with pytest.raises(AllocationError, match=r"schedule, caps, chunks go together.*not schedule alone"):
        replace(plain, schedule=np.ones(plain.micro_batches.shape))
    with pytest.raises(AllocationError, match="server_blocks, server_mode go together"):
        replace(plain, server_blocks=np.ones(plain.micro_batches.shape))


def test_plans_with_and_without_extensions_stack():
    parameters, state, plain = make_case(2, lead=())
    plans = [
        plain,
        scheduled(plain, ONE_F_ONE_B),
        replace(plain, server_blocks=np.zeros(3, dtype=np.int64), server_mode=np.array(0)),
    ]
    stacked = stack_allocations(plans)
    assert isinstance(stacked, Allocation)
    delays = round_costs(parameters, state.map(lambda a: a[None]), stacked).delay
    for delay, plan in zip(delays, plans, strict=True):
        assert delay == pytest.approx(float(round_costs(parameters, state, plan).delay), rel=1e-12)


def test_the_box_refuses_schedules():
    parameters, _, plain = make_case(2)
    codec = ActionCodec(parameters, 4)
    with pytest.raises(AllocationError, match="cannot express schedule where"):
        codec.encode(scheduled(plain, ONE_F_ONE_B))
