"""Rounds in which nobody takes part, and what scenarios leave open of participation and local steps."""

import dataclasses

import numpy as np
import pytest

from collapipe_env.feasibility.sampled_rounds import sample_rounds
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.physics.participation import waiting_steps
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.decision_names import COLLAPIPE
from collapipe_env.simulator.build import reference_delay, system_parameters
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.general_costs import general_round_costs

CLOSED = load_scenario("medium")
OPEN = CLOSED.with_overrides({"decisions": [*COLLAPIPE, "participation", "local_steps"]})
STATE = sample_rounds(CLOSED).state[:3]


def test_nobody_plays_and_who_cannot_counts_the_usual_round():
    parameters = system_parameters(OPEN)
    usual = reference_delay(CLOSED)
    assert parameters.idle_round_s == usual
    assert system_parameters(OPEN.with_overrides({"workload.local_steps": 4})).idle_round_s == usual
    assert system_parameters(OPEN.with_overrides({"budgets.per": "second"})).budget_period_s == usual
    plan = even_split(parameters, STATE)
    nobody = dataclasses.replace(plan, participates=np.zeros_like(plan.micro_batches))
    cap, memory = STATE.memory_cap.copy(), STATE.memory_bytes.copy()
    cap[1, 2] = memory[1, 2] = 0  # one cluster that holds nothing
    state = dataclasses.replace(STATE, memory_cap=cap, memory_bytes=memory)
    some = nobody.participates.copy()
    some[:, 0] = 1
    for price in (round_costs, general_round_costs):
        idle = price(parameters, STATE, nobody)
        np.testing.assert_array_equal(idle.delay, usual)
        assert not idle.energy.any()
        assert not idle.broadcast.any()
        counted = price(parameters, state, dataclasses.replace(plan, participates=some))
        np.testing.assert_array_equal(counted.cluster_delay[1, 1:], [0.0, usual, 0.0])
        longest = max(counted.cluster_delay[1, 0], usual)
        assert counted.delay[1] == pytest.approx(longest + counted.broadcast[1])
        assert counted.delay[0] == pytest.approx(counted.cluster_delay[0, 0] + counted.broadcast[0])


def test_local_steps_wait_for_whoever_is_still_at_work_but_in_a_round_of_one():
    seconds = np.array([3.0, 5.0, 4.0])
    for steps, mean in (([2.0, 1.0, 0.0], [(5.0 + 3.0) / 2, 5.0, 4.0]), ([1.0, 1.0, 0.0], seconds)):
        np.testing.assert_array_equal(waiting_steps(np.array(steps), seconds), mean)


def test_scenarios_name_what_is_open():
    other = OPEN.with_overrides({"workload.local_steps_choices": [1, 3], "budgets.participation_min": 0.25})
    assert system_parameters(other).local_steps_choices == (1, 3)
    assert system_parameters(other).participation_min == 0.25
    for overrides, message in (
        ({"workload.local_steps": 3}, r"local_steps = 3 is not among .*choices = \[1, 2, 4, 8, 16\]"),
        ({"workload.local_steps_choices": [2, 1]}, "local_steps_choices"),
        ({"workload.local_steps_choices": []}, "at least one number"),
        ({"workload.local_steps_choices": [0, 1]}, "local_steps_choices"),
        ({"budgets.participation_min": 1.5}, "participation_min"),
    ):
        with pytest.raises(ScenarioError, match=message):
            OPEN.with_overrides(overrides)
