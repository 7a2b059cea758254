"""DSSRA decides where activations are recomputed: against fixed settings, and every pattern of its plans."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import scheduler_support as support

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs

TIGHT = load_scenario(
    {
        "base": "llm-boards",
        "decisions": list(support.DECISIONS),
        "cluster": {"clusters": 3},
        "devices": {
            "profiles": [
                {
                    "name": "board",
                    "clock_min_hz": 0.306e9,
                    "clock_max_hz": 0.625e9,
                    "flops_per_cycle": 3072,
                    "switched_capacitance": 4.0e-26,
                    "memory_bytes": [0.35e9, 0.45e9, 0.6e9, 1.2e9],
                }
            ]
        },
    }
)
"""Some clusters do well to store, others have slow devices with room and fast ones without."""


def fixed(scenario, on):
    return scenario.with_overrides({"decisions": support.DECISIONS[:4], "workload.recompute": on})


@pytest.mark.parametrize("drift", ["bound", "exact"])
def test_no_mixture_of_plans_for_fixed_settings_is_better(drift):
    parameters = system_parameters(TIGHT)
    scheduler = DSSRA(TIGHT, drift=drift)
    shares = []
    for seed, mean in itertools.product(range(3), (0.0, 0.5)):
        state = support.loaded_state(TIGHT, 2, seed, mean, silent=0.0)
        plan = scheduler.allocate(state)
        check_allocation(parameters, state, plan)
        found = scheduler.objective(state, plan)
        shares.append(plan.recompute.mean())
        again = DSSRA(fixed(TIGHT, True), drift=drift).allocate(state)
        assert (
            found <= scheduler.objective(state, replace(again, recompute=np.ones_like(plan.recompute)))
        ).all()
        for pattern in itertools.product((0, 1), repeat=TIGHT.clusters):
            # The best segments of the found plan under another pattern, where its memory allows that.
            other = replace(plan, recompute=np.broadcast_to(pattern, plan.recompute.shape).copy())
            costs = round_costs(parameters, state, other)
            fits = (costs.memory <= state.memory_bytes).all(axis=(-1, -2))
            value = scheduler.objective(state, other)
            assert (found[fits] <= value[fits] * (1.0 + 1e-4) + 1e-9).all(), (seed, mean, pattern)
    assert 0.05 < np.mean(shares) < 0.95, shares


def test_where_nothing_fits_otherwise_every_cluster_recomputes():
    """With memory for the inputs of blocks only."""
    scarce = TIGHT.with_overrides({"workload.recompute": True, "devices.profiles.0.memory_bytes": (0.3e9,)})
    state = support.loaded_state(scarce, 2, seed=0, mean=0.2)
    plan = DSSRA(scarce).allocate(state)
    check_allocation(system_parameters(scarce), state, plan)
    assert (plan.recompute == 1).all()
