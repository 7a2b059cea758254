"""The simple controls against sums done by hand."""

from dataclasses import replace

import numpy as np
import pytest
from baseline_support import SMALL, decide, first_state
from hypothesis import given
from hypothesis import strategies as st

from collapipe_env.baselines.best_single_device import BestSingleDevice
from collapipe_env.baselines.even_split import PipeLine
from collapipe_env.baselines.flop_proportional import FlopProportional
from collapipe_env.baselines.memory_proportional import MemoryProportional
from collapipe_env.baselines.planning.plan_baseline import fill_in_order
from collapipe_env.baselines.random_feasible import RandomFeasible
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.even_split import even_split


def system(speed, cap, memory):
    state = first_state(SMALL, 1)
    shape = state.speed.shape
    return replace(
        state,
        speed=np.broadcast_to(np.asarray(speed) * 1e9, shape),
        memory_cap=np.broadcast_to(np.asarray(cap), shape),
        memory_bytes=np.broadcast_to(np.asarray(memory) * 1e6, shape),
    )


@pytest.mark.parametrize(
    ("speed", "cap", "blocks"),
    [
        ([10, 20, 30], [9, 9, 9], [1, 2, 3]),
        ([10, 20, 30], [9, 9, 2], [1, 3, 2]),  # 4/3 and 8/3 are left for the others
        ([1, 1, 58], [4, 4, 5], [1, 0, 5]),
    ],
)
def test_flop_proportional(speed, cap, blocks) -> None:
    state = system(speed, cap, [1000, 1000, 1000])
    assert decide(FlopProportional(SMALL), state).blocks[0, 0].tolist() == blocks


def test_memory_proportional() -> None:
    state = system([30, 1, 5], [9, 4, 4], [900, 450, 450])
    assert decide(MemoryProportional(SMALL), state).blocks[0, 1].tolist() == [3, 2, 1]
    assert decide(FlopProportional(SMALL), state).blocks[0, 1].tolist() != [3, 2, 1]


@pytest.mark.parametrize(
    ("speed", "cap", "blocks"),
    [
        ([10, 30, 20], [9, 9, 9], [0, 6, 0]),
        ([10, 30, 20], [9, 4, 9], [0, 4, 2]),
        ([10, 30, 20], [9, 2, 1], [3, 2, 1]),
        ([20, 20, 10], [5, 5, 9], [5, 1, 0]),
    ],
)
def test_best_single_device_spills_to_the_next_fastest(speed, cap, blocks) -> None:
    state = system(speed, cap, [1000, 1000, 1000])
    assert decide(BestSingleDevice(SMALL), state).blocks[0, 0].tolist() == blocks


@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.data())
def test_filling_leaves_at_most_one_device_partly_full(caps, data) -> None:
    total = data.draw(st.integers(0, sum(caps)))
    order = data.draw(st.permutations(range(len(caps))))
    blocks = fill_in_order(total, np.array(order), np.array(caps))
    assert blocks.sum() == total
    left = total
    for k in order:
        assert blocks[k] == min(left, caps[k])
        left -= blocks[k]


def test_the_even_split_and_random_actions() -> None:
    medium = load_scenario("medium")
    state = first_state(medium, 3)
    even = decide(PipeLine(medium), state)
    wanted = even_split(system_parameters(medium), state)
    np.testing.assert_array_equal(even.blocks, wanted.blocks)
    np.testing.assert_array_equal(even.micro_batches, 4)
    assert (decide(PipeLine(medium, micro_batches=60), state).micro_batches == 64).all()
    random = RandomFeasible(medium, seed=4)
    first, second = random.act(None, state), random.act(None, state)
    assert not np.array_equal(first, second)
    random.reset()
    np.testing.assert_array_equal(random.act(None, state), first)
    random.reset(9)
    assert not np.array_equal(random.act(None, state), first)
    random.reset()
    np.testing.assert_array_equal(random.act(None, state), RandomFeasible(medium, 9).act(None, state))
