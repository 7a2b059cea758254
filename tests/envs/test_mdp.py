"""Clusters that sit out: what agents see, which plans they keep, what evaluations count of them."""

import dataclasses

import numpy as np
import pytest
from environments_support import assert_close, make_actions, single, vector
from participation_support import OPENED, PLAYED, SCENARIOS, period_of, plans

from collapipe_env.evaluation.episode import HELD_OUT_SEED, play_episode
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.even_split import even_split

pytestmark = pytest.mark.filterwarnings("ignore::collapipe_env.feasibility.EnergyBudgetWarning")


@pytest.mark.parametrize("observation", ["flat", "graph"])
def test_agents_see_how_long_clusters_were_missing(observation):
    env = single(OPENED, observation=observation)
    env.reset(seed=0)
    for plan in list(plans(env))[:2]:
        seen = env.step_allocation(plan)[0]
    physical = env.observation_layout.physical(seen)
    found = physical["cluster_absence"] if observation == "flat" else physical["absence"]["absence"]
    np.testing.assert_allclose(found, env.state.absence[0], rtol=1e-5)
    assert env.observation_space.contains(seen)
    closed = single("medium", observation=observation).observation_layout
    assert not {"cluster_absence", "absence"} & set(closed)


def test_a_cluster_that_sits_out_keeps_its_plan():
    scenario = {**OPENED, "dynamics": {"rounds": 20, "processes": {"migration": {}}}}
    env = single(scenario)
    env.reset(seed=2)
    plan = even_split(system_parameters(env.scenario), env.state)
    other = plan.blocks.copy()
    for n in range(3):  # one block moves to a device that has room
        taker = int(np.argmax(env.state.memory_cap[0, n] - other[0, n]))
        giver = int(np.argmax(np.where(np.arange(other.shape[-1]) == taker, 0, other[0, n])))
        other[0, n, giver] -= 1
        other[0, n, taker] += 1

    def play(blocks, plays):
        env.step_allocation(dataclasses.replace(plan, blocks=blocks, participates=np.array([plays])))
        return env.last_round.costs, env.state.processes["migration"]["blocks"][0]

    held = play(plan.blocks, [1, 0, 1])[1]
    np.testing.assert_array_equal(held, plan.blocks[0] * np.array([[1], [0], [1]]))
    single(scenario).set_state(env.get_state())  # one cluster that holds nothing yet
    costs, held = play(other, [0, 1, 1])
    np.testing.assert_array_equal(held, [plan.blocks[0, 0], other[0, 1], other[0, 2]])
    assert (costs.terms.once["migration"][0] > 0.0).tolist() == [False, False, True]
    assert not costs.terms.notes["moments"][0, 0].any()
    assert not costs.energy[0, 0].any()
    costs, held = play(plan.blocks, [1, 0, 0])  # back at once: nothing has to move
    assert not costs.terms.once["migration"].any()
    np.testing.assert_array_equal(held, [plan.blocks[0, 0], other[0, 1], other[0, 2]])


def test_opening_decisions_changes_nothing_until_they_are_used():
    budgets = {"device_energy_j": 6, "cu_energy_j": 1}
    closed = {name: value for name, value in OPENED.items() if name != "decisions"}
    envs = single({**closed, "budgets": budgets}), single(OPENED)
    for env in envs:
        env.reset(seed=3)
    for action in make_actions(envs[0], 5):
        plan = envs[0].codec.decode(action[None], envs[0].state.memory_cap)
        infos = [env.step_allocation(plan)[4] for env in envs]
        assert infos[0]["delay"] == infos[1]["delay"]
        assert infos[0]["backlog"] == infos[1]["backlog"]
        # Which packets arrive is drawn for the most local steps that there may be: other luck.
    assert not envs[1].state.absence.any()


def test_evaluated_episodes_count_mean_power_over_own_rounds():
    class Sometimes:
        name, observation_kind = "sometimes", "flat"

        def reset(self, seed):  # noqa: ARG002
            self.plans = None

        def act(self, observation, state):  # noqa: ARG002
            self.plans = self.plans or plans(env)
            return next(self.plans)

    scenario = load_scenario(SCENARIOS["absent by second"])
    env = vector(scenario, num_envs=1)
    env.reset(seed=HELD_OUT_SEED)
    result = play_episode("sometimes", Sometimes(), scenario, 0, len(PLAYED), "surrogate").result
    used, granted, worst = 0.0, np.zeros(3), []
    for (plays, _), plan in zip(PLAYED, plans(env), strict=True):
        env.step_allocation(plan)
        costs = env.last_round.costs
        used, allowed = used + costs.energy_ratio[0], costs.delay[0] / period_of(scenario)
        granted += np.array(plays) * allowed
        worst.append(costs.energy_ratio.max() / allowed)
    ratios = used / granted[:, None]
    np.testing.assert_allclose(result.energy_ratio, ratios, rtol=1e-9)
    assert_close([*result.worst_energy, result.worst_energy_ratio], [*worst, ratios.max()], exact=False)
