"""What `check_allocation` refuses: one fault in a plan that it accepts otherwise, and words that name it."""

from dataclasses import replace

import numpy as np
import pytest
from round_support import make_case, on_server

from collapipe_env.feasibility.sampled_rounds import sample_rounds
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import (
    COMMON,
    COPIES,
    INTERLEAVED,
    SEQUENTIAL,
    with_schedule,
)
from collapipe_env.physics.memory import memory_caps
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.decision_names import COLLAPIPE
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.codec import ActionCodec
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split

CLOSED = load_scenario("medium")
OPEN = CLOSED.with_overrides(
    {"decisions": [*COLLAPIPE, "recompute", "participation", "local_steps", "clock_cap"]}
)
STATE = sample_rounds(CLOSED).state[:3]
L = 6  # blocks of the cases of round_support


def ordered(room=1):
    """One cluster under 1F1B, with caps that fall along the pipe."""
    p, s, a = make_case(6, lead=(1,), clusters=1, devices=3)
    a = replace(a, blocks=np.full((1, 1, 3), 2), micro_batches=np.full((1, 1), 12))
    p = replace(p, micro_batch_choices=(1, 3, 4, 12))
    return p, s, with_schedule(a, "1f1b", np.arange(3, 0, -1) + room)


def grouped():
    p, s, a = make_case(8, groups=True)
    a = replace(with_schedule(a, "1f1b", np.arange(4, 0, -1) + 1), **a.server._asdict())
    a = replace(a, stage=a.stage.copy(), sample_share=a.sample_share.copy())
    a.stage[0, 0, -1], a.sample_share[0, 0, -1] = -1, 0.0  # an idle device, whose share nobody reads
    return p, s, a


def split(mode=COPIES):
    """One to five blocks on the server, as many in all clusters."""
    p, s, a = make_case(1)
    a = replace(a, micro_batches=np.ones_like(a.micro_batches))
    return p, s, on_server(a, np.repeat([[2], [3]], 3, axis=1), mode)


def opened(scenario=OPEN):
    p = system_parameters(scenario)
    ones = np.ones((3, CLOSED.clusters), dtype=np.int64)
    said = {"recompute": ones, "participates": ones, "local_steps": 4 * ones}
    plan = replace(even_split(p, STATE), **said)
    return p, STATE, replace(plan, clock_cap=np.full_like(plan.device_power, 0.2))


def in_turn():
    """The same clusters at a sequential server, which trains none of their blocks."""
    p, state, plan = opened()
    nothing = np.zeros_like(plan.micro_batches)
    server = {"micro_batches": nothing + 1, "server_blocks": nothing, "server_mode": np.full(3, SEQUENTIAL)}
    return p, state, replace(plan, **server, local_steps=None, recompute=None)


def closed():
    """Neutral values of decisions that the scenario leaves closed."""
    _, state, plan = opened()
    ones = np.ones_like(plan.participates)
    neutral = {"recompute": -ones, "local_steps": -ones, "clock_cap": np.ones_like(plan.device_power)}
    return system_parameters(CLOSED), state, replace(plan, **neutral)


def at(place, value):
    """Another value at a place, of its own type."""

    def put(array):
        array = array.astype(np.result_type(array, type(value)))
        array[place] = value
        return array

    return put


FIRST, IDLE = (0, 0), (0, 0, -1)
FAULTS = [
    (ordered, {"schedule": 7}, r"schedule .* is 7, expected one of 0 \(gpipe\)"),
    (ordered, {"caps": 0}, "caps .* is 0, expected room for at least 1 micro-batch"),
    (ordered, {"chunks": 2}, "chunks .* is 2, expected 1, or more under 'interleaved'"),
    (ordered, {"schedule": INTERLEAVED, "chunks": 5}, "chunks .* is 5, expected at most as many"),
    (ordered, {"schedule": INTERLEAVED, "micro_batches": 4}, "micro_batches .* is 4, expected a multiple"),
    (ordered, {"schedule": INTERLEAVED, "chunks": 2, "caps": 2}, "caps .* do not wait for each other"),
    # Compiled code could not bear these.
    (grouped, {"caps": at((0, 0, 0), np.inf)}, "caps .* is inf, expected a whole number"),
    (grouped, {"caps": at((0, 0, 0), 1.5)}, "caps .* is 1.5, expected a whole number"),
    (grouped, {"caps": at((0, 0, 0), 4.0)}, "caps has type float64, expected integers"),
    (grouped, {"chunks": at(FIRST, np.nan)}, "chunks .* is nan, expected a whole number"),
    (grouped, {"schedule": at(FIRST, 0.5)}, "schedule .* is 0.5, expected a whole number"),
    (grouped, {"stage": at(IDLE, np.nan)}, "stage .* is nan, expected a whole number"),
    (grouped, {"stage": at(IDLE, 0.0)}, "stage has type float64, expected integers"),
    (grouped, {"sample_share": at(IDLE, np.nan)}, "sample_share .* is nan, expected a number from 0 to 1"),
    (grouped, {"sample_share": at(IDLE, np.inf)}, "sample_share .* is inf, expected a number from 0 to 1"),
    (grouped, {"server_blocks": at(FIRST, 0.5)}, "server_blocks .* is 0.5, expected a whole number"),
    (grouped, {"server_mode": at(0, np.nan)}, "server_mode .* is nan, expected a whole number"),
    (
        split,
        {"server_blocks": at((1, 2), L)},
        r"server_blocks of environment 1, cluster 2 is 6, .* 0 to L - 1",
    ),
    (split, {"server_blocks": at((0, 1), -1)}, r"server_blocks of environment 0, cluster 1"),
    (split, {"server_blocks": at((0, 2), 0.5)}, r"cluster 2 is 0.5, expected a whole number"),
    (split, {"server_blocks": lambda _: np.zeros((2, 4), int)}, r"\(2, 4\), expected \(2, 3\)"),
    (split, {"server_mode": lambda _: np.zeros((2, 3), int)}, r"server_mode has shape \(2, 3\)"),
    (split, {"server_mode": at(1, 2)}, r"server_mode of environment 1 is 2, expected -1 .* 0 .* 1 \(seq"),
    (split, {"server_mode": at(0, COMMON)}, r"is 2, expected 0 with CollaPipe's own server"),
    (
        split,
        {"server_blocks": at((0, 1), 1)},
        r"blocks of .* cluster 1 .* summing to L = 6, with the server's",
    ),
    (split, {"schedule": 4, "caps": 1, "chunks": 1}, r"schedule .* is 4, expected a synchronous one"),
    (
        lambda: split(SEQUENTIAL),
        {"server_blocks": at((1, 1), 1)},
        r"cluster 1 is 1, expected the same in all",
    ),
    (
        lambda: split(SEQUENTIAL),
        {"micro_batches": 2},
        r"micro_batches .* is 2, expected 1 under a sequential",
    ),
    (
        lambda: split(SEQUENTIAL),
        {"schedule": 1, "caps": 1, "chunks": 1},
        r"is 1, expected 0 \(gpipe\) under a seq",
    ),
    (in_turn, {"local_steps": 4}, r"local_steps.*sequential"),
    (opened, {"participates": 2}, "participates.*cluster 0 is 2, expected 0 or 1"),
    (opened, {"participates": 0}, "participates.*at least 1"),
    (opened, {"participates": lambda v: v[:, :1]}, "participates has shape"),
    (opened, {"local_steps": 3}, r"local_steps.*is 3, expected one of \[1, 2, 4, 8, 16\]"),
    (opened, {"local_steps": lambda v: v[:, :1]}, "local_steps has shape"),
    (opened, {"local_steps": lambda v: v + 0.5}, r"local_steps.*whole number"),
    (opened, {"recompute": 2}, r"recompute.*cluster 0 is 2, expected 0 or 1"),
    (opened, {"recompute": lambda v: v[:, :1]}, r"recompute.*shape"),
    (opened, {"clock_cap": 0.1}, r"clock_cap.*0\.1.*expected a share of the full clock in \[0\.2, 1\]"),
    (opened, {"clock_cap": 1.2}, r"clock_cap.*1\.2"),
    (opened, {"clock_cap": np.nan}, r"clock_cap.*nan"),
    (opened, {"clock_cap": lambda v: v[:, :1]}, r"clock_cap has shape \(3, 1, 5\)"),
    (closed, {"participates": at((0, 1), 0)}, "participates.*do not list participation"),
    (closed, {"local_steps": 1}, "local_steps.*do not list local_steps"),
    (closed, {"recompute": 1}, r"recompute.*do not list recompute"),
    (closed, {"clock_cap": 0.5}, "decisions do not list clock_cap"),
]


@pytest.mark.parametrize(("sound", "changes", "words"), FAULTS)
def test_one_fault_is_refused_by_name_and_place(sound, changes, words):
    parameters, state, plan = sound()
    check_allocation(parameters, state, plan)
    like = {"caps": plan.blocks}
    changed = {}
    for name, value in changes.items():
        array = like.get(name, plan.micro_batches) if plan.given(name) is None else plan.given(name)
        changed[name] = value(array) if callable(value) else np.full_like(array, value)
    with pytest.raises(AllocationError, match=words):
        check_allocation(parameters, state, replace(plan, **changed))


def test_memory_that_one_schedule_needs_and_another_does_not():
    parameters, state, plan = ordered(room=0)
    state = replace(state, memory_bytes=round_costs(parameters, state, plan).memory)
    check_allocation(parameters, state, plan)
    with pytest.raises(AllocationError, match="or a lower cap"):
        check_allocation(parameters, state, replace(plan, caps=plan.caps + 1))
    plain = replace(plan, schedule=None, caps=None, chunks=None)
    with pytest.raises(AllocationError, match=r"give it fewer blocks$"):
        check_allocation(parameters, state, plain)


def test_memory_is_that_of_the_clusters_setting_of_recomputation():
    parameters, _, plan = opened()
    caps, more = STATE.memory_cap, memory_caps(parameters.other_costs, STATE.memory_bytes)
    assert (more >= caps).all()
    n, k = np.argwhere((more[0] > caps[0]) & (caps[0] < OPEN.blocks))[0]
    blocks = plan.blocks.copy()
    # As many on one device as fit under recomputation alone, the others share the rest.
    blocks[0, n] = 0
    blocks[0, n, k] = min(more[0, n, k], OPEN.blocks)
    for other in range(blocks.shape[-1]):
        if other != k:
            blocks[0, n, other] = min(caps[0, n, other], OPEN.blocks - blocks[0, n].sum())
    assert blocks[0, n].sum() == OPEN.blocks
    assert blocks[0, n, k] > caps[0, n, k]
    chosen = np.zeros_like(plan.recompute)
    with pytest.raises(AllocationError, match=r"needs .* bytes for its"):
        check_allocation(parameters, STATE, replace(plan, blocks=blocks, recompute=chosen))
    chosen[0, n] = 1
    check_allocation(parameters, STATE, replace(plan, blocks=blocks, recompute=chosen))


def test_whatever_fits_the_caps_fits_with_any_number_of_micro_batches():
    p, s, a = make_case(11, lead=(20,), devices=3, recompute=True, link_errors="none")
    c, blocks = p.costs, a.blocks
    # Room for what each device holds, for the working set of the whole mini-batch, and a bit.
    need = blocks * (c.block_state_bytes + c.batch_size * c.stored_activation_bytes)
    bit = 1.0 + np.random.default_rng(0).uniform(0, 1e-3, blocks.shape)
    memory = np.where(blocks > 0, need + c.batch_size * c.working_bytes, 0.0) * bit
    np.testing.assert_array_equal(memory_caps(c, memory), blocks)
    short = memory - np.where(blocks > 0, 2e-3 * memory, 0.0)
    np.testing.assert_array_equal(memory_caps(c, short), np.maximum(blocks - 1, 0))
    state = replace(s, memory_bytes=memory)
    for M in p.micro_batch_choices:
        check_allocation(p, state, replace(a, micro_batches=np.full_like(a.micro_batches, M)))
    few = replace(state, memory_bytes=memory - c.batch_size * c.working_bytes * (blocks > 0))
    with pytest.raises(AllocationError, match=r"needs .* bytes for its"):
        check_allocation(p, few, a)


def test_only_players_need_room_and_bandwidth():
    parameters, _, plan = opened()
    plan = replace(plan, recompute=None, local_steps=None)
    blocks, share = plan.blocks.copy(), np.full(plan.bandwidth.shape, 1.0)
    blocks[:, 1:] = 0
    plays = np.zeros(share.shape, dtype=np.int64)
    plays[:, 0] = 1
    alone = replace(plan, blocks=blocks, bandwidth=share, participates=plays)
    check_allocation(parameters, STATE, alone)
    memory = STATE.memory_bytes.copy()
    memory[:, 1:] = 0.0
    caps = np.where(memory > 0.0, STATE.memory_cap, 0)
    poor = replace(STATE, memory_bytes=memory, memory_cap=caps)
    check_allocation(parameters, poor, replace(alone, blocks=plan.blocks))
    # Where nobody can hold the encoder, nobody has to play.
    none = replace(STATE, memory_bytes=0.0 * memory, memory_cap=0 * caps)
    check_allocation(parameters, none, replace(alone, participates=0 * plays))
    with pytest.raises(AllocationError, match="at most 1"):
        check_allocation(parameters, STATE, replace(alone, blocks=plan.blocks, participates=0 * plays + 1))


def test_the_box_refuses_schedules():
    parameters, _, plan = ordered()
    with pytest.raises(AllocationError, match="cannot express schedule where"):
        ActionCodec(parameters, 3).encode(plan)
