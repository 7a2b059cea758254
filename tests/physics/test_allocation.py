"""Plans: fields that go together, and plans of different kinds joined."""

from dataclasses import replace

import numpy as np
import pytest
from round_support import make_case

from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import Allocation, own_arrays, stack_allocations, with_schedule
from collapipe_env.simulator.costs import round_costs


def test_fields_that_go_together():
    _, _, plain = make_case(1)
    with pytest.raises(AllocationError, match=r"schedule, caps, chunks go together.*not schedule alone"):
        replace(plain, schedule=np.ones(plain.micro_batches.shape))
    with pytest.raises(AllocationError, match="server_blocks, server_mode go together"):
        replace(plain, server_blocks=np.ones(plain.micro_batches.shape))


def test_plans_with_and_without_extensions_stack():
    parameters, state, plain = make_case(2, lead=())
    slow = np.full_like(plain.device_power, 0.5)
    said = {"participates": np.array([1, 0, 1]), "local_steps": np.full(3, 4), "recompute": np.ones(3, int)}
    plans = [
        plain,
        with_schedule(plain, "1f1b", np.array([5, 4, 3, 2])),
        replace(plain, server_blocks=np.zeros(3, dtype=np.int64), server_mode=np.array(0)),
        replace(plain, **said, clock_cap=slow),
    ]
    stacked = stack_allocations(plans)
    assert isinstance(stacked, Allocation)
    delays = round_costs(parameters, state.map(lambda a: a[None]), stacked).delay
    for delay, plan in zip(delays, plans, strict=True):
        assert delay == pytest.approx(float(round_costs(parameters, state, plan).delay), rel=1e-12)
    both = stack_allocations([plain, plans[3]])
    assert both.is_plain
    for name, neutral in (("participates", 1), ("local_steps", -1), ("recompute", -1)):
        np.testing.assert_array_equal(getattr(both, name), [[neutral] * 3, said[name]])
    np.testing.assert_array_equal(both.clock_cap, [np.ones_like(slow), slow])


def test_yes_and_no_become_numbers():
    _, _, plan = make_case(1)
    owned = own_arrays(replace(plan, participates=plan.bandwidth > 0.0))
    assert owned.participates.dtype == np.int64
