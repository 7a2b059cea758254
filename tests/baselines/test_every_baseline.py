"""What holds for all baselines: feasible decisions, rows that do not depend on the batch, whole episodes."""

from dataclasses import replace

import numpy as np
import pytest
from baseline_support import PRICED, RECOMPUTED, SMALL, UNEVEN, decide, first_state
from record_support import leaves

from collapipe_env.baselines.optpipe import OptPipe
from collapipe_env.evaluation.episode import (
    pack_allocations,
    play_episode,
    replayed_rounds,
    unpack_allocations,
)
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.ground.errors import AllocationError
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import SCHEDULERS, Scheduler
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.check import check_allocation

# These choose segments under GPipe's memory caps, and leave all else to the defaults.
SEGMENTS = (
    "best_single_device",
    "flop_proportional",
    "greedy_dpp",
    "memory_proportional",
    "pipeedge",
    "titanic",
)
# These go by the memories themselves, because their groups, schedules or split models need less of them.
OTHERS = (
    "vanilla_fl",
    "asteroid",
    "splitfed_v1",
    "splitfed_v2",
    "pipar",
    "adaptis",
    "optpipe",
    "flexpipe",
    "xpipe",
)
NAMES = (*SEGMENTS, *OTHERS)
ONE_MICRO_BATCH = ("titanic", "splitfed_v1", "splitfed_v2")
WITHOUT_ROOM = {
    "vanilla_fl": "hold 0 % of a mini-batch",
    "asteroid": "no grouping of its 3 devices",
    "xpipe": "its 3 devices cannot hold",
    **dict.fromkeys(("splitfed_v1", "splitfed_v2", "pipar"), "no device that is present can hold one"),
    **dict.fromkeys(("adaptis", "optpipe", "flexpipe"), "its devices can hold only 0 blocks"),
}
"""What each says of a cluster that can hold nothing."""
CHOOSE_MICRO_BATCHES = ("pipar", "adaptis", "optpipe", "flexpipe")


def scheduler_of(name, scenario):
    """A scheduler by name; OptPipe needs its solver, which gets a tenth of its usual limit."""
    if name != "optpipe":
        return make_scheduler(name, scenario)
    pytest.importorskip("ortools", reason="OptPipe needs the extra 'optimize'")
    return OptPipe(load_scenario(scenario), solver_time=0.1)


SCENARIOS = {
    "small": "small",
    "medium": "medium",
    "large": "large",
    "uneven": UNEVEN,
    "priced": PRICED,
    "recomputed": RECOMPUTED,
}
# The solver of OptPipe takes seconds for most, and half a minute for large.
LONG = {("optpipe", "small"), ("optpipe", "medium"), ("optpipe", "large"), ("optpipe", "recomputed")}


@pytest.mark.parametrize(
    ("name", "scenario"),
    [
        pytest.param(
            name, scenario, id=f"{name}-{label}", marks=[pytest.mark.slow] if (name, label) in LONG else []
        )
        for name in NAMES
        for label, scenario in SCENARIOS.items()
    ],
)
def test_decisions_are_feasible_and_leave_the_defaults_alone(scenario, name: str) -> None:
    scenario = load_scenario(scenario) if isinstance(scenario, str) else scenario
    state = first_state(scenario, 2)
    scheduler = scheduler_of(name, scenario)
    assert isinstance(scheduler, Scheduler)
    parameters = system_parameters(scenario)
    allocation = decide(scheduler, state)
    check_allocation(parameters, state, allocation)
    assert np.allclose(allocation.bandwidth, 1.0 / scenario.clusters, atol=1e-6)
    for power in (allocation.device_power, allocation.cu_power):
        assert np.allclose(power, parameters.power_max_w, rtol=1e-6)
    if name not in CHOOSE_MICRO_BATCHES:
        wanted = 1 if name in ONE_MICRO_BATCH else 4 if 4 in parameters.micro_batch_choices else 2
        assert (allocation.micro_batches == wanted).all()


@pytest.mark.parametrize("name", NAMES)
def test_rows_depend_neither_on_the_batch_nor_on_a_seed_or_what_was_before(name: str) -> None:
    state = first_state(UNEVEN, 3, seed=5)
    together = decide(scheduler_of(name, UNEVEN), state)
    scheduler = scheduler_of(name, UNEVEN)
    for row in range(3):
        scheduler.reset(seed=row)  # nothing is random, and what was decided before does not matter
        alone = decide(scheduler, state[row : row + 1])
        for (name, mine), (_, values) in zip(leaves(alone), leaves(together), strict=True):
            assert np.array_equal(mine[0], values[row]), name


@pytest.mark.parametrize("name", NAMES)
def test_an_episode_is_played_stored_and_replayed(name: str) -> None:
    played = play_episode(name, scheduler_of(name, SMALL), SMALL, 2, 3, "surrogate")
    assert len(played.result.delay) == 3
    assert np.isfinite(played.result.delay).all()
    allocations = unpack_allocations(pack_allocations(played.allocations), len(played.allocations))
    *_, last = replayed_rounds(SMALL, 2, allocations)
    assert last.costs.delay[0] == played.result.delay[2]


@pytest.mark.parametrize("name", SEGMENTS)
def test_a_cluster_without_room_is_named(name: str) -> None:
    state = first_state(SMALL, 2)
    cap = state.memory_cap.copy()
    cap[1, 0] = [1, 2, 0]
    with pytest.raises(AllocationError, match="environment 1, cluster 0: its devices can hold only 3 blocks"):
        make_scheduler(name, SMALL).act(None, replace(state, memory_cap=cap))


@pytest.mark.parametrize("name", SEGMENTS)
def test_absent_devices_and_full_memories_are_respected(name: str) -> None:
    state = first_state(SMALL, 1)
    present = state.present.copy()
    present[0, 0, 1] = False
    cap = np.where(present, [[[3, 0, 3], [1, 0, 5]]], 0)
    state = replace(state, present=present, memory_cap=cap)
    blocks = decide(make_scheduler(name, SMALL), state).blocks
    assert blocks.tolist() == [[[3, 0, 3], [1, 0, 5]]]


@pytest.mark.parametrize("name", OTHERS)
def test_absent_devices_take_no_part(name: str) -> None:
    """Neither the fastest one, nor where its memory is still known."""
    state = first_state(SMALL, 1)
    present, speed = state.present.copy(), state.speed.copy()
    present[0, 0, 1], speed[0, 0, 1] = False, 10.0 * speed.max()
    cap = np.where(present, state.memory_cap, 0)
    for memory in (state.memory_bytes, np.where(present, state.memory_bytes, 0.0)):
        seen = replace(state, present=present, speed=speed, memory_bytes=memory, memory_cap=cap)
        scheduler = scheduler_of(name, SMALL)
        allocation = decide(scheduler, seen)
        check_allocation(scheduler.parameters, seen, allocation)
        assert allocation.device_blocks[0, 0, 1] == 0


@pytest.mark.parametrize("name", OTHERS)
def test_a_cluster_that_can_hold_nothing_is_named(name: str) -> None:
    state = first_state(SMALL, 2)
    memory = state.memory_bytes.copy()
    memory[1, 0] = 1e3
    cap = state.memory_cap.copy()
    cap[1, 0] = 0
    with pytest.raises(AllocationError, match=f"environment 1, cluster 0.*: .*{WITHOUT_ROOM[name]}"):
        scheduler_of(name, SMALL).act(None, replace(state, memory_bytes=memory, memory_cap=cap))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("adaptis", {"restarts": -1}, "restarts = -1"),
        ("titanic", {"client_price_s": -1.0}, "client_price_s"),
        ("titanic", {"client_price_s": float("nan")}, "client_price_s"),
        ("titanic", {"client_price_s": float("inf")}, "client_price_s"),
        ("flexpipe", {"beam": 0}, "beam = 0"),
        ("flexpipe", {"schedules": "1f1b"}, "give a list of at least one"),
        ("flexpipe", {"schedules": ["1f1b m=5"]}, "m=5 is not allowed, use one of "),
        ("flexpipe", {"schedules": ["1f1b d=0,3"]}, "clusters have 3 devices at most"),
        ("flexpipe", {"schedules": ["2f2b"]}, "is not a schedule"),
    ],
)
def test_bad_options_are_refused(name: str, options, message: str) -> None:
    with pytest.raises(AllocationError, match=message):
        SCHEDULERS.get(name)(SMALL, **options)
