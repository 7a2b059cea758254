"""Budgets per second in the environment, against numbers that are worked out node by node."""

import dataclasses

import numpy as np
import pytest
from env_support import make_actions, play

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.evaluation.episode import play_episode
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.rendering.round_view import RoundView, preview
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import reference_delay

TIGHT = {
    "base": "medium",
    "cluster": {"clusters": 3, "devices": [4, 3, 5]},
    "workload": {"local_steps": 2},
    "budgets": {"device_energy_j": 6, "cu_energy_j": 1, "per": "second"},
    "dynamics": {"rounds": 12},
}
"""Budgets that break, and clusters of other sizes, so that devices are absent."""


def joules_of(scenario):
    """Budgets of the nodes of a cluster [J]."""
    return np.array(
        [scenario.budgets.cu_energy_j] + [scenario.budgets.device_energy_j] * scenario.max_devices
    )


def period_of(scenario):
    """Delay of the even split at one local step, where budgets are per round [s]."""
    return reference_delay(scenario.with_overrides({"workload.local_steps": 1, "budgets.per": "round"}))


def test_queues_rewards_costs_and_totals_follow_their_definitions():
    rewards = ("lyapunov", "drift_plus_penalty", "delay")
    envs = {reward: CollaPipeEnv(TIGHT, "surrogate", reward=reward) for reward in rewards}
    actions = make_actions(envs["delay"], 12)
    played = {reward: play(env, actions, seed=1)[1] for reward, env in envs.items()}
    env = CollaPipeEnv(TIGHT, "surrogate")
    scenario, T_ref = env.scenario, env.reference_delay
    period, budget = period_of(scenario), joules_of(scenario)
    assert 0.0 < period < T_ref
    V, cap = scenario.budgets.tradeoff_v, scenario.budgets.backlog_cap
    env.reset(seed=1)
    z = np.zeros((scenario.clusters, scenario.max_devices + 1))
    joules, seconds, emptied = np.zeros_like(z), 0.0, False
    close = {"rel": 1e-9, "abs": 1e-9}
    for t, action in enumerate(actions):
        info = env.step(action)[-1]
        costs = env.last_round.costs
        T, E = float(costs.delay[0]), costs.energy[0]
        joules, seconds = joules + E, seconds + T
        # In joules, as the constraint has it.
        after = np.maximum(z * budget + E - budget / period * T, 0.0) / budget
        drift = pressure = 0.0
        for before, following in zip(z.ravel(), after.ravel(), strict=True):
            drift += 0.5 * (following**2 - before**2)
            pressure += min(before, cap) * (following - before)
            emptied = emptied or before > following == 0.0
        assert float(costs.allowance[0]) == pytest.approx(T / period, **close)
        np.testing.assert_allclose(env.last_round.backlog[0], after, rtol=1e-9, atol=1e-9)
        assert played["lyapunov"][t] == pytest.approx(-(V * T + drift) / (V * T_ref), **close)
        assert played["drift_plus_penalty"][t] == pytest.approx(-(V * T + pressure) / (V * T_ref), **close)
        assert played["delay"][t] == pytest.approx(-T / T_ref, **close)
        assert info["cost"] == pytest.approx(np.maximum(E / budget - T / period, 0.0).sum(), **close)
        assert info["backlog"] == pytest.approx(after.sum(), **close)
        z = after
    assert z.sum() > 0.0
    assert emptied, "no queue was emptied: what it can give back was not tested"
    worst = (joules / seconds / (budget / period)).max()
    assert env.summary()["energy_ratio_max"] == pytest.approx(worst, **close)
    # The totals of no rounds at all are no numbers by zero.
    env.reset(seed=2)
    assert env.summary()["energy_ratio_max"] == 0.0


@pytest.mark.filterwarnings("ignore::collapipe_env.feasibility.EnergyBudgetWarning")
def test_physics_do_not_depend_on_what_budgets_are_for():
    second = CollaPipeEnv(TIGHT, "surrogate", reward="delay")
    actions = make_actions(second, 6)
    per_round = CollaPipeEnv(
        load_scenario(TIGHT).with_overrides({"budgets.per": "round"}), "surrogate", reward="delay"
    )
    first, other = play(per_round, actions, seed=3), play(second, actions, seed=3)
    assert first[1] == other[1]
    for name in ("delay", "energy", "energy_ratio", "memory"):
        np.testing.assert_array_equal(
            getattr(per_round.last_round.costs, name), getattr(second.last_round.costs, name)
        )
    assert per_round.last_round.costs.allowance.tolist() == [1.0]
    assert not np.array_equal(per_round.last_round.backlog, second.last_round.backlog)


def test_rewards_of_the_users_own_see_the_allowance():
    env = CollaPipeEnv(TIGHT, "surrogate", reward=lambda _before, costs, _after: costs.allowance * 1.0)
    rewards, infos = play(env, make_actions(env, 3), seed=0)[1::2]
    period = period_of(env.scenario)
    assert rewards == pytest.approx([info["delay"] / period for info in infos])


@pytest.mark.filterwarnings("ignore::collapipe_env.feasibility.EnergyBudgetWarning")
def test_evaluated_episodes_count_mean_power():
    scenario = load_scenario(TIGHT)
    played = play_episode("pipeline", make_scheduler("pipeline", scenario), scenario, 0, 6, "surrogate")
    per_round = dataclasses.replace(scenario, budgets=dataclasses.replace(scenario.budgets, per="round"))
    same = play_episode("pipeline", make_scheduler("pipeline", per_round), per_round, 0, 6, "surrogate")
    assert played.result.delay == same.result.delay
    periods = np.array(played.result.delay) / period_of(scenario)
    expected = np.array(same.result.energy_ratio) * 6 / periods.sum()
    np.testing.assert_allclose(played.result.energy_ratio, expected, rtol=1e-12)
    np.testing.assert_allclose(played.result.worst_energy, np.array(same.result.worst_energy) / periods)
    assert played.result.worst_energy_ratio == pytest.approx(expected.max())


def test_pictures_show_power_over_that_of_the_budget():
    from collapipe_env.rendering import page

    env = CollaPipeEnv(TIGHT, "surrogate")
    env.reset(seed=0)
    record = preview(env._mdp.world)
    view = RoundView(record, "title")
    T = float(record.costs.delay[0])
    granted = T / period_of(env.scenario)
    np.testing.assert_allclose(record.backlog, np.maximum(record.costs.energy_ratio - granted, 0.0))
    drawn = []

    class Bars:
        def __call__(self, _panel, _view, values, title, budget_line):
            drawn.append((values, title, budget_line))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page.side_panels, "draw_bars", Bars())
        sheet = page.Sheet(100.0, 100.0)
        page._energy(sheet, view, 0.0, 0.0, 100.0, 100.0)
        costs = dataclasses.replace(record.costs, budget_period_s=None)
        same = RoundView(dataclasses.replace(record, costs=costs), "title")
        page._energy(sheet, same, 0.0, 0.0, 100.0, 100.0)
    (_, second), (_, first) = drawn[:2], drawn[2:]
    assert [(title, line) for _, title, line in (second, first)] == [
        ("power / budget", True),
        ("energy e / budget", True),
    ]
    np.testing.assert_allclose(second[0] * T / period_of(env.scenario), first[0])
