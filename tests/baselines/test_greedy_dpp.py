"""Greedy drift plus penalty against the same rule priced by the simulator's physics."""

import dataclasses

import pytest
from baseline_support import PRICED, RELAYED, SMALL, UNEVEN, decide, first_state
from oracles.greedy_blocks import slow_greedy

from collapipe_env.baselines.greedy_dpp import GreedyDPP
from collapipe_env.scenario import load_scenario


@pytest.mark.parametrize(
    "scenario",
    [
        SMALL,
        UNEVEN,
        PRICED,
        RELAYED,
        load_scenario("medium"),
        SMALL.with_overrides({"radio.idle_w": 3.0, "budgets.device_energy_j": 60, "budgets.cu_energy_j": 60}),
        SMALL.with_overrides({"budgets.per": "second"}),
        load_scenario({"base": "medium", "budgets": {"per": "second"}}),
    ],
    ids=["small", "uneven", "priced", "relayed", "medium", "idle", "small_per_second", "medium_per_second"],
)
@pytest.mark.parametrize("seed", range(3))
def test_every_block_goes_where_it_adds_least(scenario, seed: int) -> None:
    state = first_state(scenario, 1, seed)
    # Without what the other clusters radiate: all are planned at once, and the oracle holds the others.
    state = dataclasses.replace(state, cross_gain=0.0 * state.cross_gain)
    scheduler = GreedyDPP(scenario)
    blocks = decide(scheduler, state).blocks
    for n in range(scenario.clusters):
        assert blocks[0, n].tolist() == slow_greedy(scheduler, state, n)
