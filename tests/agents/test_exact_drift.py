"""DSSRA under the exact drift: the reward's own form, better plans, and no single change that helps."""

from dataclasses import replace

import numpy as np
import pytest
import scheduler_support as support

from collapipe_env.agents.dssra import DSSRA, DSSRABound
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.scheduler_loading import make_scheduler, package_title
from collapipe_env.ground.errors import AllocationError
from collapipe_env.scenario import load_scenario

SCENARIOS = [support.SMALL, support.MEDIUM, support.MOVING, support.ARQ, support.PRICED, support.RELAYED]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=["small", "medium", "moving", "arq", "priced", "relayed"])
def test_objective_is_what_the_reward_pays_for(scenario):
    env = CollaPipeVectorEnv(3, scenario, "surrogate", reward="lyapunov", autoreset_mode="Disabled")
    env.reset(seed=2)
    scheduler = DSSRA(scenario)
    scale = scenario.budgets.tradeoff_v * env._mdp.reference_delay
    for _ in range(4):
        plan, state = scheduler.allocate(env.state), env.state
        reward = env.step_allocation(plan)[1]
        np.testing.assert_allclose(-reward * scale, scheduler.objective(state, plan), rtol=1e-5)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=["small", "medium", "moving", "arq", "priced", "relayed"])
@pytest.mark.parametrize("mean", [0.0, 0.5, 5.0])
def test_plans_are_better_than_those_of_the_bound(scenario, mean):
    exact, bound = DSSRA(scenario), DSSRABound(scenario)
    gains = []
    for seed in range(3):
        state = support.loaded_state(scenario, 4, seed, mean, silent=0.2)
        values = [exact.objective(state, s.allocate(state)) for s in (exact, bound)]
        gains.append((values[1] - values[0]) / np.abs(values[1]))
    assert np.min(gains) > -5e-3
    assert np.mean(gains) > -1e-4


def test_no_block_elsewhere_and_no_other_power_is_better():
    scenario = support.SMALL
    scheduler = DSSRA(scenario, tolerance=0.0)
    for seed in range(4):
        state = support.loaded_state(scenario, 1, seed, 0.7, silent=0.3)
        plan = scheduler.allocate(state)
        best = scheduler.objective(state, plan)[0]
        tried = support.neighbours(plan, state)
        values = [scheduler.objective(state, other)[0] for other in tried]
        assert best <= min(values) * (1.0 + 2e-3)


@pytest.mark.slow
def test_large_systems_are_faster_at_the_same_energy():
    scenario = load_scenario("large")
    found = {}
    for drift in ("bound", "exact"):
        delays, ratios = support.play(DSSRA(scenario, drift=drift), rows=2, rounds=25)
        found[drift] = delays.mean(), ratios.mean(axis=0).max()
    assert found["exact"][0] < 0.98 * found["bound"][0]
    assert found["exact"][1] < found["bound"][1] * 1.02


def test_schedulers_of_both_forms_go_by_name():
    state = support.loaded_state(support.MEDIUM, 2, 1, 0.5)
    for name, drift in (("dssra", "exact"), ("dssra-bound", "bound")):
        decision = make_scheduler(name, support.MEDIUM).act(None, state)
        support.assert_same(decision, DSSRA(support.MEDIUM, drift=drift).allocate(state))
    assert package_title("dssra-bound") != package_title("dssra")
    assert DSSRABound(support.SMALL, tradeoff_v=3.0, turns=2).budget.turns == 2


def test_other_words_are_refused():
    with pytest.raises(AllocationError, match="drift: expected 'bound' or 'exact', got 'exakt'"):
        DSSRA(support.SMALL, drift="exakt")


@pytest.mark.filterwarnings("ignore::collapipe_env.feasibility.EnergyBudgetWarning")
def test_shares_suit_the_queues_after_the_round():
    """Where the CUs' uplinks are dear, prices of before the shares are not those after them."""
    scenario = load_scenario(
        {
            "base": "small",
            "cluster": {"layout": "per_episode"},
            "radio": {"edge_circuit_w": 1.5, "amplifier_efficiency": 0.35},
            "overheads": {"edge_message_s": 0.001, "edge_latency_s": 0.015},
            "budgets": {"device_energy_j": 15, "cu_energy_j": 5},
        }
    )
    scheduler = DSSRA(scenario, tradeoff_v=0.14)
    for seed in range(8):
        state = support.loaded_state(scenario, 4, seed, 0.3, silent=0.5)
        plan = scheduler.allocate(state)
        value = scheduler.objective(state, plan)
        for share in np.linspace(0.05, 0.95, 91):
            bandwidth = np.broadcast_to([share, 1.0 - share], plan.bandwidth.shape)
            other = scheduler.objective(state, replace(plan, bandwidth=bandwidth))
            assert (other >= value - 2e-3 * np.maximum(np.abs(value), 8.0 * 0.14)).all()
