"""Memory of the schedules, and what they refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest
from schedule_oracle.orders import one_f_one_b_orders
from schedule_oracle.recurrence import Operation, StageTimes, run_orders
from schedule_oracle.schedules import Schedule, simulate, stage_memory, stored_micro_batches

from collapipe_env.ground.errors import AllocationError, ScenarioError

LINK_AWARE = Schedule("1f1b", link_aware=True)
MODES = ("full", "half")


def uniform(P, F=1.0, B=2.0, W=None, c=0.0):
    weight = None if W is None else (W,) * P
    return StageTimes((F,) * P, (B,) * P, weight, (c,) * (P - 1), (c,) * (P - 1))


def test_memory_by_schedule():
    assert stored_micro_batches("gpipe", 4, 8) == (8.0,) * 4
    assert stored_micro_batches("1f1b", 4, 3) == (3.0, 3.0, 2.0, 1.0)
    assert stored_micro_batches(LINK_AWARE, 4, 6) == (6.0, 5.0, 3.0, 1.0)
    assert stored_micro_batches(Schedule("1f1b", caps=(2, 5, 1, 9)), 4, 8) == (2.0, 2.0, 1.0, 1.0)
    assert stored_micro_batches(Schedule("interleaved", chunks=2), 4, 8) == (5.5, 4.5, 3.5, 2.5)
    assert stored_micro_batches("zb-h1", 4, 8) == (4.0,) * 4
    needed = stage_memory((4.0, 2.5), (3, 2), 8, 1000.0, 10.0, weight_copy_bytes=100.0)
    assert needed.tolist() == [3 * (1100.0 + 4.0 * 8 * 10.0), 2 * (1100.0 + 2.5 * 8 * 10.0)]
    with pytest.raises(AllocationError, match="stored has 1 entries"):
        stage_memory((4.0,), (3, 2), 8, 1000.0, 10.0)


def test_times_may_be_arrays():
    arrays = StageTimes(np.ones(4), 2 * np.ones(4), None, np.zeros(3), [0.0] * 3)
    assert arrays == uniform(4)


def test_unknown_schedules_are_refused_by_name():
    with pytest.raises(ScenarioError, match="did you mean 'interleaved'"):
        simulate("interleave", uniform(2), 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: simulate(Schedule("interleaved", chunks=2), uniform(4), 6), "give 4, the last one"),
        (lambda: simulate("interleaved", uniform(4), 6), "no multiple of the 4 stages"),
        (lambda: simulate(Schedule("1f1b", caps=(2, 0)), uniform(2), 4), r"caps\[1\] is 0"),
        (lambda: simulate(Schedule("async", caps=(2,)), uniform(2), 4), "caps has 1 entries"),
        (lambda: simulate(Schedule("zb-h1", caps=(0, 1)), uniform(2, W=1.0), 4), r"caps\[0\] is 0"),
        (lambda: simulate("zb-h1", uniform(2), 4), "weight is None"),
        (lambda: simulate("1f1b", uniform(2), 0), "micro_batches is 0"),
        (lambda: simulate("1f1b", uniform(2), 2, duplex="both"), "duplex is 'both'"),
        (lambda: simulate(Schedule("1f1b", caps=()), uniform(2), 4), "caps has 0 entries"),
        (lambda: Schedule("gpipe", caps=(1, 1)), "fixes how many"),
        (lambda: Schedule("1f1b", caps=(1, 1), link_aware=True), "not both"),
        (lambda: Schedule("1f1b", chunks=2), "see 'interleaved'"),
        (lambda: Schedule("async", mini_batches=0), "mini_batches is 0"),
        (lambda: StageTimes((1.0, 2.0), (1.0,)), "backward has 1 entries"),
        (lambda: StageTimes((1.0, math.nan), (1.0, 1.0)), r"forward\[1\] is nan"),
        (lambda: run_orders([[]], uniform(2)), "1 orders for 2 stages"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(AllocationError, match=message):
        call()


@pytest.mark.parametrize("duplex", MODES)
def test_orders_that_deadlock_are_refused(duplex):
    # Stage 1 wants three forwards first, stage 0 sends the second only after a backward.
    with pytest.raises(AllocationError, match=r"wait for each other: stage 0 never gets the input of B 0"):
        run_orders(one_f_one_b_orders((1, 3), 4), uniform(2), duplex=duplex)
    twisted = [[Operation("B", 0), Operation("F", 0)]]
    with pytest.raises(AllocationError, match="stage 0"):
        run_orders(twisted, uniform(1), duplex=duplex)
