"""What holds for all baselines: feasible decisions, rows that do not depend on the batch, whole episodes."""

from dataclasses import fields, replace

import numpy as np
import pytest
from baseline_support import PRICED, RECOMPUTED, SMALL, UNEVEN, decide, first_state

from collapipe_env.baselines.optpipe import OptPipe
from collapipe_env.evaluation.episode import pack_allocations, play_episode, replay, unpack_allocations
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.ground.errors import AllocationError
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import Scheduler
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
def test_rows_do_not_depend_on_the_batch(name: str) -> None:
    state = first_state(UNEVEN, 3, seed=5)
    together = decide(scheduler_of(name, UNEVEN), state)
    for row in range(3):
        alone = decide(scheduler_of(name, UNEVEN), state[row : row + 1])
        for field in fields(together):
            values = getattr(together, field.name)
            if values is None:
                assert getattr(alone, field.name) is None
            else:
                assert np.array_equal(getattr(alone, field.name)[0], values[row]), field.name


@pytest.mark.parametrize("name", NAMES)
def test_an_episode_is_played_stored_and_replayed(name: str) -> None:
    played = play_episode(name, scheduler_of(name, SMALL), SMALL, 2, 3, "surrogate")
    assert len(played.result.delay) == 3
    assert np.isfinite(played.result.delay).all()
    allocations = unpack_allocations(pack_allocations(played.allocations), len(played.allocations))
    assert replay(SMALL, 2, allocations, 2).costs.delay[0] == played.result.delay[2]


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
    state = first_state(SMALL, 1)
    present = state.present.copy()
    present[0, 0, 1] = False
    memory = np.where(present, state.memory_bytes, 0.0)
    state = replace(
        state, present=present, memory_bytes=memory, memory_cap=np.where(present, state.memory_cap, 0)
    )
    scheduler = scheduler_of(name, SMALL)
    allocation = decide(scheduler, state)
    check_allocation(scheduler.parameters, state, allocation)
    assert allocation.device_blocks[0, 0, 1] == 0


@pytest.mark.parametrize("name", OTHERS)
def test_a_cluster_that_can_hold_nothing_is_named(name: str) -> None:
    state = first_state(SMALL, 2)
    memory = state.memory_bytes.copy()
    memory[1, 0] = 1e3
    cap = state.memory_cap.copy()
    cap[1, 0] = 0
    with pytest.raises(AllocationError, match="environment 1, cluster 0"):
        scheduler_of(name, SMALL).act(None, replace(state, memory_bytes=memory, memory_cap=cap))
