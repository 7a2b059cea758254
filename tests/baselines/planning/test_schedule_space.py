"""Spaces of schedules: their text form, their candidates, and what FlexPipe's search of them keeps."""

import numpy as np
import pytest
from baseline_support import SMALL, changed, first_state, random_problem
from hypothesis import given
from hypothesis import strategies as st
from oracles.planned_chains import simulated

from collapipe_env.baselines.flexpipe import DEFAULT_SCHEDULES, FlexPipe
from collapipe_env.baselines.planning.plan_search import quickest, usable_devices
from collapipe_env.baselines.planning.schedule_space import ScheduleTuple, Space, parse_schedule, search
from collapipe_env.ground.errors import AllocationError
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.check import check_allocation

SPACE = Space.of(DEFAULT_SCHEDULES, (2, 4, 8))

open_parts = {
    "micro_batches": st.none() | st.integers(1, 10**9 - 1),
    "devices": st.none() | st.lists(st.integers(0, 99), min_size=1, max_size=8, unique=True).map(tuple),
}
any_caps = st.sampled_from(["ordinary", "link", "room"]) | st.integers(1, 10**9 - 1)
tuples = st.one_of(
    st.builds(ScheduleTuple, schedule=st.just("gpipe"), caps=st.none(), **open_parts),
    st.builds(ScheduleTuple, schedule=st.sampled_from(["1f1b", "zb-h1"]), caps=any_caps, **open_parts),
    st.builds(
        ScheduleTuple,
        schedule=st.just("interleaved"),
        chunks=st.integers(2, 9),
        caps=st.sampled_from(["ordinary", "link"]),
        **open_parts,
    ),
)


@given(tuples)
def test_the_text_form_is_read_back(schedule: ScheduleTuple) -> None:
    assert parse_schedule(str(schedule)) == schedule
    assert str(schedule).split()[0] == schedule.schedule


@given(st.text(alphabet="gpielndratz-h1bf =,kvmd0123456789x", max_size=30))
def test_any_text_is_read_or_refused_with_one_error(text: str) -> None:
    schedule, message = None, f"schedule {text!r}: "
    try:
        schedule = parse_schedule(text)
    except AllocationError as error:
        message = str(error)
    assert message.startswith(f"schedule {text!r}: ")
    assert schedule is None or parse_schedule(str(schedule)) == schedule


def test_the_notation_means_what_it_says() -> None:
    full = parse_schedule("1f1b k=link v=1 m=16 d=2,0,1")
    assert full == ScheduleTuple(caps="link", micro_batches=16, devices=(2, 0, 1))
    assert str(full) == "1f1b k=link v=1 m=16 d=2,0,1"
    assert parse_schedule("  gpipe   m=4 ") == ScheduleTuple("gpipe", caps=None, micro_batches=4)
    assert parse_schedule("zb-h1 k=5") == ScheduleTuple("zb-h1", caps=5)
    assert parse_schedule("interleaved").chunks == 2
    assert full.plan(8, (1, 0), (3, 2, 1), 5) == ((2, 0, 1), (3, 2, 1), "1f1b", (8, 6, 4), 16, 1, 5)
    assert parse_schedule("1f1b k=3").plan(8, (1, 0)) == ((1, 0), (), "1f1b", (3, 3), 8, 1, 0)
    assert parse_schedule("1f1b k=room").plan(8, (1, 0)).caps == (8, 8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a schedule"),
        ("1f1c", "did you mean '1f1b'"),
        ("async k=2", "'async' is not a schedule: "),
        ("1f1b link", "'link' is not understood: k=, v=, m= or d="),
        ("1f1b K=link", "'K=link' is not understood"),
        ("1f1b k=", "'k=' is not understood"),
        ("1f1b m=4 m=8", "m is given twice"),
        ("1f1b k=lnik", r"k=lnik needs a whole number or a rule \(ordinary, link, room\)"),
        ("1f1b k=0", "k = 0: at least 1 micro-batch"),
        ("1f1b m=-4", "m=-4 needs a whole number"),
        ("1f1b m=0", "m = 0: at least 1"),
        ("1f1b v=2", "v is 2 or more under 'interleaved' and 1 under the others"),
        ("interleaved v=1", "v is 2 or more under 'interleaved'"),
        ("1f1b v=0", "v = 0: a device has 1 chunk or more"),
        ("interleaved k=3", "use 'ordinary' or 'link'"),
        ("gpipe k=3", "'gpipe' runs all forwards first and has no caps"),
        ("1f1b d=0,0", "different devices, counted from 0"),
        ("1f1b d=0,,1", "d= needs a whole number"),
    ],
)
def test_bad_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(AllocationError, match=message) as caught:
        parse_schedule(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    "parts",
    [
        *({"schedule": "gpipe"}, {"caps": None}, {"schedule": "interleaved"}),
        *({"schedule": "zb-h1", "chunks": 2}, {"caps": "lnik"}, {"devices": ()}),
    ],
)
def test_points_without_a_schedule_are_refused(parts) -> None:
    with pytest.raises(AllocationError):
        ScheduleTuple(**parts)


def test_candidates_are_the_plans_of_their_schedules_and_priced_as_the_events_take() -> None:
    rng = np.random.default_rng(17)
    for trial in range(6):
        problem = random_problem(rng, 4, 7, trial % 2 == 1)
        best, usable = search(problem, SPACE, 2), usable_devices(problem, 8)
        candidates = list(SPACE.neighbours(best.plan, usable))
        assert len(candidates) > 10
        for draft in candidates:
            schedule = SPACE.schedules[draft.origin]
            assert draft == schedule.plan(draft.micro_batches, draft.devices, draft.held, draft.origin)
        for point in quickest(problem, candidates, keep=5):
            assert point.plan.schedule == SPACE.schedules[point.plan.origin].schedule
            assert point.plan.fits(problem)
            assert point.seconds == pytest.approx(simulated(problem, point.plan), rel=1e-12)


def test_what_the_space_fixes_stays() -> None:
    state = first_state(SMALL, 1)
    scheduler = FlexPipe(SMALL, schedules=["1f1b k=2 m=8 d=2,0"])
    for plan in scheduler.plans(state).values():
        assert str(scheduler.schedule_of(plan)) == "1f1b k=2 v=1 m=8 d=2,0"
        assert plan.devices == (2, 0)
        assert max(plan.caps) <= 2
    scheduler = FlexPipe(SMALL, schedules=["gpipe", "zb-h1"], micro_batches=6)
    for plan in scheduler.plans(state).values():
        assert plan.schedule in ("gpipe", "zb-h1")
        found = scheduler.schedule_of(plan)
        assert (found.schedule, found.micro_batches, found.devices) == (plan.schedule, 8, plan.devices)
    interleaved = FlexPipe(SMALL, schedules=["interleaved v=2"])
    check_allocation(system_parameters(SMALL), state, interleaved.act(None, state))


def test_memory_that_only_the_roomiest_devices_have_is_found() -> None:
    problem, gpipe = random_problem(np.random.default_rng(29), 3, 4, False), Space.of(["gpipe"], (8,))
    needed = problem.numbers.block_state_bytes + problem.numbers.batch_size * problem.numbers.activation_bytes
    speeds, memory = np.array([0.1, 0.1, 9.0]), np.array([0.9, 0.9, 4.0]) * needed
    problem = changed(problem, block_forward=speeds, memory_bytes=memory)
    assert search(problem, gpipe, 1).plan.devices == (2,)
    with pytest.raises(AllocationError, match="no memory for any plan among 'gpipe v=1'"):
        search(changed(problem, memory_bytes=np.full(3, 0.9 * needed), blocks=2), gpipe, 1)
