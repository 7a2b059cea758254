"""Rewards under terms of the server: its queue counts as the nodes' queues do."""

import numpy as np
import pytest

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import SCHEDULERS
from collapipe_env.simulator.build import system_parameters


@pytest.mark.parametrize("per", ["round", "second"])
def test_rewards_count_the_servers_queue(per) -> None:
    """Summed up, the exact reward is the delay and the last Lyapunov function, the server's part included."""
    scenario = load_scenario(
        {"base": "small", "server": {"terms": "contended", "energy_budget_j": 1.0}, "budgets": {"per": per}}
    )
    env = CollaPipeVectorEnv(2, scenario, "surrogate", reward="lyapunov")
    other = CollaPipeVectorEnv(2, scenario, "surrogate", reward="drift_plus_penalty")
    for one in (env, other):
        one.reset(seed=3)
    scheduler = SCHEDULERS.get("splitfed_v1")(scenario)
    V, T = system_parameters(scenario).tradeoff_v, env.reference_delay
    summed, delays = np.zeros(2), np.zeros(2)
    for _ in range(5):
        before = other.state
        plan = scheduler.allocate(env.state)
        summed += env.step_allocation(plan)[1]
        reward = other.step_allocation(plan)[1]
        costs = env.last_round.costs
        delays += costs.delay
        z, e = before.server_backlog, costs.server_ratio
        pressure, change = np.minimum(before.backlog, 20.0), costs.energy_ratio - 1.0
        own = e - 1.0
        if per == "second":
            a = costs.allowance
            change = np.maximum(costs.energy_ratio - a[:, None, None], -before.backlog)
            own = np.maximum(e - a, -z)
        drift = (pressure * change).sum(axis=(-2, -1)) + np.minimum(z, 20.0) * own
        np.testing.assert_allclose(reward, -(V * costs.delay + drift) / (V * T), rtol=1e-6)
    after = env.state
    assert (after.server_backlog > 0.0).all()
    lyapunov = 0.5 * ((after.backlog**2).sum(axis=(-2, -1)) + after.server_backlog**2)
    np.testing.assert_allclose(summed, -(V * delays + lyapunov) / (V * T), rtol=1e-6)


def test_difference_rewards_weigh_the_servers_energy_by_its_capped_queue() -> None:
    """Of the reward per round, against sums that are written out."""
    scenario = load_scenario(
        {
            "base": "small",
            "server": {"terms": "metered", "energy_budget_j": 0.5},
            "budgets": {"backlog_cap": 1.5},
        }
    )
    env = CollaPipeVectorEnv(1, scenario, "surrogate", reward="drift_plus_penalty")
    env.reset(seed=3)
    scheduler = SCHEDULERS.get("splitfed_v1")(scenario)
    capped = 0
    for _ in range(4):
        env.step_allocation(scheduler.allocate(env.state))
        record, reward = env.last_round, env._mdp.reward
        state, costs, delays = record.state, record.costs, record.costs.cluster_delay[0]
        V, T = system_parameters(scenario).tradeoff_v, env.reference_delay
        capped += state.server_backlog[0] > 1.5
        for n, found in enumerate(reward.by_cluster(record)[0]):
            marginal = max(delays[n] - np.delete(delays, n).max(), 0.0)
            drift = (np.minimum(state.backlog[0, n], 1.5) * (costs.energy_ratio[0, n] - 1.0)).sum()
            drift += min(state.server_backlog[0], 1.5) * costs.terms.server_j[0, n] / 0.5
            assert found == pytest.approx(-(V * marginal + drift) / (V * T), rel=1e-9)
    assert 0 < capped < 4


@pytest.mark.parametrize("per", ["round", "second"])
def test_difference_rewards_are_what_the_round_loses_without_a_cluster(per) -> None:
    """Of the exact reward, against queues moved by hand without a cluster's energy and delay."""
    scenario = load_scenario(
        {"base": "small", "server": {"terms": "metered", "energy_budget_j": 0.5}, "budgets": {"per": per}}
    )
    env = CollaPipeVectorEnv(2, scenario, "surrogate", reward="lyapunov")
    env.reset(seed=3)
    scheduler = SCHEDULERS.get("splitfed_v1")(scenario)
    for _ in range(3):
        env.step_allocation(scheduler.allocate(env.state))
    record, period = env.last_round, system_parameters(scenario).budget_period_s
    found = env._mdp.reward.by_cluster(record)
    costs, V, T = record.costs, system_parameters(scenario).tradeoff_v, env.reference_delay
    for e in range(2):
        z, spent = record.state.server_backlog[e], costs.terms.server_j[e] / 0.5
        order = np.sort(costs.cluster_delay[e])
        for n in range(scenario.clusters):
            marginal = max(costs.cluster_delay[e, n] - order[-2], 0.0)
            now = float(costs.allowance[e])
            own = 0.5 * ((record.backlog[e, n] ** 2) - record.state.backlog[e, n] ** 2).sum()
            after = max(z + spent.sum() - now, 0.0)
            own += 0.5 * (after**2 - max(z + spent.sum() - spent[n] - now, 0.0) ** 2)
            relief = 0.0
            if per == "second" and marginal > 0.0:
                less = (costs.delay[e] - marginal) / period
                for m in range(scenario.clusters):
                    if m != n:
                        without = np.maximum(
                            record.state.backlog[e, m] + costs.energy_ratio[e, m] - less, 0.0
                        )
                        relief += 0.5 * (without**2 - record.backlog[e, m] ** 2).sum()
                relief += 0.5 * (max(z + spent.sum() - less, 0.0) ** 2 - after**2)
            assert found[e, n] == pytest.approx(-(V * marginal - relief + own) / (V * T), rel=1e-9)
