"""What holds for all baselines: feasible decisions, rows that do not depend on the batch, whole episodes."""

from dataclasses import replace

import numpy as np
import pytest
from baseline_support import SMALL, UNEVEN, decide, first_state

from collapipe_env.errors import AllocationError
from collapipe_env.evaluation.episode import pack_allocations, play_episode, replay, unpack_allocations
from collapipe_env.evaluation.registry import make_scheduler
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import Scheduler
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.check import check_allocation

NAMES = (
    "best_single_device",
    "flop_proportional",
    "greedy_dpp",
    "memory_proportional",
    "pipeedge",
    "titanic",
    "vanilla_fl",
)


@pytest.mark.parametrize("scenario", ["small", "medium", "large", UNEVEN], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_decisions_are_feasible_and_leave_the_defaults_alone(scenario, name: str) -> None:
    scenario = load_scenario(scenario) if isinstance(scenario, str) else scenario
    state = first_state(scenario, 2)
    scheduler = make_scheduler(name, scenario)
    assert isinstance(scheduler, Scheduler)
    parameters = system_parameters(scenario)
    allocation = decide(scheduler, state)
    check_allocation(parameters, state, allocation)
    assert np.allclose(allocation.bandwidth, 1.0 / scenario.clusters, atol=1e-6)
    for power in (allocation.device_power, allocation.cu_power):
        assert np.allclose(power, parameters.power_max_w, rtol=1e-6)
    wanted = 1 if name == "titanic" else 4 if 4 in parameters.micro_batch_choices else 2
    assert (allocation.micro_batches == wanted).all()


@pytest.mark.parametrize("name", NAMES)
def test_rows_do_not_depend_on_the_batch(name: str) -> None:
    state = first_state(UNEVEN, 3, seed=5)
    together = make_scheduler(name, UNEVEN).act(None, state)
    for row in range(3):
        alone = make_scheduler(name, UNEVEN).act(None, state[row : row + 1])
        if isinstance(together, np.ndarray):
            assert np.array_equal(alone[0], together[row])
        else:
            assert np.array_equal(alone.share[0], together.share[row])
            assert np.array_equal(alone.stage[0], together.stage[row])


@pytest.mark.parametrize("name", NAMES)
def test_an_episode_is_played_stored_and_replayed(name: str) -> None:
    played = play_episode(name, make_scheduler(name, SMALL), SMALL, 2, 3, "surrogate")
    assert len(played.result.delay) == 3
    assert np.isfinite(played.result.delay).all()
    allocations = unpack_allocations(pack_allocations(played.allocations))
    assert replay(SMALL, 2, allocations, 2).costs.delay[0] == played.result.delay[2]


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"vanilla_fl"}))
def test_a_cluster_without_room_is_named(name: str) -> None:
    state = first_state(SMALL, 2)
    cap = state.memory_cap.copy()
    cap[1, 0] = [1, 2, 0]
    with pytest.raises(AllocationError, match="environment 1, cluster 0: its devices can hold 3 blocks"):
        make_scheduler(name, SMALL).act(None, replace(state, memory_cap=cap))


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"vanilla_fl"}))
def test_absent_devices_and_full_memories_are_respected(name: str) -> None:
    state = first_state(SMALL, 1)
    present = state.present.copy()
    present[0, 0, 1] = False
    cap = np.where(present, [[[3, 0, 3], [1, 0, 5]]], 0)
    state = replace(state, present=present, memory_cap=cap)
    blocks = decide(make_scheduler(name, SMALL), state).blocks
    assert blocks.tolist() == [[[3, 0, 3], [1, 0, 5]]]
