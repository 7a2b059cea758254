"""Schedules, orders of devices and blocks of the server in the action box: feasible and invertible."""

from dataclasses import fields, replace
from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from collapipe_env.physics.memory import memory_caps
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.decisions import COLLAPIPE
from collapipe_env.simulator.build import action_codec, system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.sampled_rounds import sample_rounds

NAMES = ("recompute", "schedule", "order", "server_blocks")
OPENINGS = [chosen for count in range(1, 5) for chosen in combinations(NAMES, count)]
STATE = sample_rounds(load_scenario("medium")).state[:3]
SMALL = sample_rounds(load_scenario("small")).state[:2]


def opened(*names, base="medium", **changes):
    return load_scenario(base).with_overrides({"decisions": [*COLLAPIPE, *names], **changes})


def with_memory(scenario, state, factor):
    """State with another memory, just enough where it would be too little for the encoder."""
    costs = system_parameters(scenario).costs
    while True:
        memory = state.memory_bytes * factor
        cap = memory_caps(costs, memory)
        if (cap.sum(axis=-1) >= scenario.blocks).all():
            return replace(state, memory_bytes=memory, memory_cap=cap)
        factor *= 1.1


def same(one, two, places=1e-6):
    """Whether two plans are equal: whole numbers exactly, powers and shares to rounding."""
    for field in fields(one):
        left, right = getattr(one, field.name), getattr(two, field.name)
        if left is None or right is None:
            assert left is right, field.name
        elif np.asarray(left).dtype.kind == "i":
            np.testing.assert_array_equal(left, right, err_msg=field.name)
        else:
            np.testing.assert_allclose(left, right, rtol=places, atol=places, err_msg=field.name)


@settings(max_examples=120, deadline=None)
@given(
    names=st.sampled_from(OPENINGS),
    own=st.booleans(),
    factor=st.sampled_from([0.05, 0.1, 0.2, 0.35, 0.6, 1.0, 3.0]),
    data=st.data(),
)
def test_every_action_decodes_to_a_plan_that_the_simulator_accepts(names, own, factor, data):
    scenario = opened(*names, **{"workload.recompute": own})
    parameters, codec = system_parameters(scenario), action_codec(scenario)
    state = with_memory(scenario, STATE, factor)
    elements = st.floats(-1.5, 1.5, width=32) | st.sampled_from([-1.0, 1.0, 0.0])
    seed = data.draw(st.integers(0, 2**31))
    action = np.random.default_rng(seed).uniform(-1.2, 1.2, (3, codec.action_size))
    action[0] = data.draw(hnp.arrays(np.float32, codec.action_size, elements=elements))
    plan = codec.decode(action, state.memory_cap, state.memory_bytes)
    check_allocation(parameters, state, plan)
    # What is decoded comes back from its action, and a plan's action stands for itself.
    encoded = codec.encode(plan)
    assert encoded.dtype == np.float32
    assert (np.abs(encoded) <= 1.0).all()
    same(codec.decode(encoded, state.memory_cap, state.memory_bytes), plan)
    np.testing.assert_array_equal(codec.join(codec.split(action)), action)
    # The form for any array library says the same.
    same(codec.decode_finite(action, state.memory_cap, state.memory_bytes), plan, 1e-12)
