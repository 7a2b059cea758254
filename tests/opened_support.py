"""What tests of opened decisions share."""

from dataclasses import replace

import numpy as np

from collapipe_env.feasibility.sampled_rounds import sample_rounds
from collapipe_env.ground.records import declarations
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.memory import memory_caps
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.decision_names import COLLAPIPE
from collapipe_env.simulator.build import system_parameters

PLACED = ("recompute", "schedule", "server_blocks")
SITTING_OUT = ("participation", "local_steps")
WARM = {
    "base": "small",
    "budgets.device_energy_j": 20,
    "dynamics.rounds": 6,
    "dynamics.load_levels": [0.5, 1.0],
    "dynamics.processes": {"heat": {"capacity_j_per_k": 2.0}},
}


def opened(*names, base="medium", **changes):
    return load_scenario(base).with_overrides({"decisions": [*COLLAPIPE, *names], **changes})


def small(*names):
    changes = {"budgets.device_energy_j": 20, "dynamics.rounds": 4, "workload.local_steps_choices": [1, 2, 4]}
    return opened(*names, base="small", **changes)


# Of scenarios that open caps on clocks, whose states say what the full clocks are.
STATE = sample_rounds(opened("clock_cap")).state[:3]


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
    assert one.others.keys() == two.others.keys()
    for name in (*declarations(Allocation), *one.others):
        left, right = one.given(name), two.given(name)
        if left is None or right is None:
            assert left is right, name
        elif np.asarray(left).dtype.kind == "i":
            np.testing.assert_array_equal(left, right, err_msg=name)
        else:
            np.testing.assert_allclose(left, right, rtol=places, atol=places, err_msg=name)
