"""Model-based schedulers and rewards under terms of the server: what they know of it."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.comparison import notes
from collapipe_env.evaluation.episode import play_episode
from collapipe_env.evaluation.episode_result import EpisodeResult
from collapipe_env.evaluation.labels import BUDGET_NOTE, SERVER_NOTE
from collapipe_env.physics.allocation import COPIES
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import SCHEDULERS
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.costs import round_costs

# Heads that weigh on a round: a slow server, and rounds of several steps.
SLOW = load_scenario(
    {
        "base": "small",
        "workload": {"task": "language-modelling", "vocabulary": 8000},
        "cluster": {"server_flops": 2e10},
    }
)


def first_state(scenario, rows=3, seed=0):
    env = CollaPipeVectorEnv(rows, scenario, "surrogate")
    env.reset(seed=seed)
    rng = np.random.default_rng(seed)
    return replace(env.state, backlog=rng.uniform(0.0, 3.0, env.state.backlog.shape))


@pytest.mark.parametrize("name", ["dssra", "dssra-bound", "asteroid", "pipeedge", "adaptis", "greedy_dpp"])
def test_a_share_that_moves_is_read_as_one_that_stays(name) -> None:
    """Schedulers see .9 of the server gone in the state, and plan as where that is a constant."""
    state = first_state(SLOW)
    constant = SLOW.with_overrides({"server.tenants": 0.9})
    moving = replace(state, server_share=np.full(len(state.loss), 1.0 - 0.9))
    expected, found = (
        SCHEDULERS.get(name)(constant).act(None, state),
        SCHEDULERS.get(name)(SLOW).act(None, moving),
    )
    np.testing.assert_array_equal(found.blocks, expected.blocks)
    np.testing.assert_array_equal(found.micro_batches, expected.micro_batches)
    np.testing.assert_allclose(found.bandwidth, expected.bandwidth, rtol=1e-6)
    np.testing.assert_allclose(found.node_power, expected.node_power, rtol=1e-6)
    free = SCHEDULERS.get(name)(SLOW).act(None, state)
    slow = round_costs(system_parameters(SLOW), moving, found).delay
    assert (slow > round_costs(system_parameters(SLOW), state, free).delay).all()


@pytest.mark.parametrize(("drift", "per"), [("exact", "round"), ("bound", "round"), ("exact", "second")])
def test_dssras_objective_counts_the_servers_queue(drift, per) -> None:
    scenario = SLOW.with_overrides({"server.energy_budget_j": 2.0, "budgets.per": per})
    state = first_state(scenario)
    z = np.array([0.0, 0.7, 4.0])
    state = replace(state, processes={**state.processes, "server": {"backlog": z}})
    scheduler = DSSRA(scenario, drift=drift)
    plan = DSSRA(scenario).allocate(state)
    kept = np.where(plan.blocks.argmax(axis=-1) >= 0, 1, 0)
    blocks = plan.blocks.copy()
    for place in np.ndindex(kept.shape):
        blocks[place][np.flatnonzero(blocks[place])[-1]] -= 1
    plan = replace(plan, blocks=blocks, server_blocks=kept, server_mode=np.full(3, COPIES))
    costs = round_costs(scheduler.parameters, state, plan)
    found = scheduler.objective(state, plan)
    a = costs.allowance
    for e in range(3):
        value = scheduler.tradeoff_v * costs.delay[e]
        pairs = [*zip(state.backlog[e].ravel(), costs.energy_ratio[e].ravel(), strict=True)]
        pairs.append((z[e], float(costs.terms.server_j[e].sum()) / 2.0))
        for queue, ratio in pairs:
            if drift == "bound":
                value += queue * ratio
            else:
                value += 0.5 * (max(queue + ratio - a[e], 0.0) ** 2 - queue**2)
        assert found[e] == pytest.approx(value, rel=1e-9)


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
    V, T = scenario.budgets.tradeoff_v, env.reference_delay
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
        V, T = scenario.budgets.tradeoff_v, env.reference_delay
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
    costs, V, T = record.costs, scenario.budgets.tradeoff_v, env.reference_delay
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


def test_what_the_section_says_of_itself() -> None:
    small = load_scenario("small")
    free = small.with_overrides({"server": {"terms": "free", "pue": None}})
    assert free == small
    metered = small.with_overrides({"server.terms": "metered"})
    own = metered.with_overrides({"server.energy_budget_j": 7.0, "server.flops": 1e12, "server.pue": 1.1})
    terms = system_parameters(own).server
    assert (terms.budget_j, terms.pue, terms.memory_bytes) == (7.0, 1.1, 16e9)
    assert (terms.joules_per_flop, terms.idle_w, terms.amplifier_efficiency) == (35e-12, 30.0, 0.3)
    assert system_parameters(own).server_flops == 1e12
    weak = system_parameters(small.with_overrides({"server.terms": "weak"}))
    assert (weak.server_flops, weak.server.memory_bytes, weak.server.budget_j) == (0.2e12, 8e9, 20.0)


def test_the_comparison_draws_the_servers_overdraft() -> None:
    scenario = load_scenario({"base": "small", "server": {"terms": "metered", "energy_budget_j": 0.1}})
    played = play_episode("pipar", SCHEDULERS.get("pipar")(scenario), scenario, 0, 6, "surrogate").result
    env = CollaPipeVectorEnv(1, scenario, "surrogate")
    c = system_parameters(scenario).costs
    joules = env.scenario.clusters * played.server_blocks * 3 * c.batch_size * c.block_forward_flops * 49e-12
    ratio = joules * c.local_steps / 0.1
    assert played.server_energy_ratio == pytest.approx(ratio, rel=1e-9)
    assert played.worst_energy_ratio == pytest.approx(ratio, rel=1e-9)
    assert played.largest_backlog == pytest.approx([(t + 1) * (ratio - 1.0) for t in range(6)], rel=1e-9)
    assert played.backlog_slope == pytest.approx(ratio - 1.0, rel=1e-6)
    played = replace(played, metric=[0.0] * 6, progress=[0.0] * 6)  # there is none of either
    assert EpisodeResult.from_json(json.dumps(played.to_dict()), "here") == played


@pytest.mark.parametrize(("ratios", "expected"), [((0.0,), SERVER_NOTE), ((1.2,), BUDGET_NOTE), ((), None)])
def test_the_mark_is_explained_with_what_counts(ratios, expected) -> None:
    episodes = [SimpleNamespace(server_blocks=2, server_energy_ratio=r, title="PiPar") for r in ratios]
    one = SimpleNamespace(plan=None, name="one", results={"pipar": episodes, "dssra": []})
    one.results = {name: found for name, found in one.results.items() if found}
    assert notes([one]) == ([] if expected is None else [expected])
