"""Clusters that sit out in the environment: queues, rewards, totals, states, observations, pictures."""

import dataclasses

import numpy as np
import pytest

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.episode import play_episode
from collapipe_env.rendering.page import filled
from collapipe_env.rendering.round_view import RoundView
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import reference_delay, system_parameters
from collapipe_env.simulator.even_split import even_split

pytestmark = pytest.mark.filterwarnings("ignore::collapipe_env.feasibility.EnergyBudgetWarning")

OPENED = {
    "base": "medium",
    "decisions": ["segments", "micro_batches", "bandwidth", "powers", "participation", "local_steps"],
    "cluster": {"clusters": 3, "devices": [4, 3, 5]},
    "budgets": {"device_energy_j": 6, "cu_energy_j": 1, "participation_min": 0.7},
    "radio": {"waterfall_threshold": 0.5},
    "dynamics": {"rounds": 20},
}
CAPPED = {**OPENED, "budgets": {**OPENED["budgets"], "backlog_cap": 0.6}}
"""The caps of the queues in the reward bind."""
SECOND = {**OPENED, "budgets": {**OPENED["budgets"], "per": "second"}}
N = 3
ROUNDS = [
    ([1, 0, 1], [4, 1, 1]),
    ([0, 0, 1], [1, 1, 16]),
    ([1, 1, 0], [2, 2, 2]),
    ([0, 1, 0], [1, 8, 1]),
    ([1, 1, 1], [1, 1, 1]),
    ([0, 0, 1], [1, 1, 1]),
    ([0, 0, 1], [1, 1, 1]),
]


def plans(env):
    """The rounds' plans on the even split."""
    plan = even_split(system_parameters(env.scenario), env.state)
    for plays, steps in ROUNDS:
        rows = plan.micro_batches.shape[:-1]
        yield dataclasses.replace(
            plan,
            participates=np.broadcast_to(plays, (*rows, N)),
            local_steps=np.broadcast_to(steps, (*rows, N)),
        )


@pytest.mark.parametrize("scenario", [CAPPED, SECOND], ids=["round", "second"])
def test_queues_of_clusters_that_sit_out_stand_still_and_absence_is_counted(scenario):
    rewards = ("lyapunov", "drift_plus_penalty", "delay")
    env = CollaPipeEnv(scenario, "surrogate", reward="lyapunov")
    others = {name: CollaPipeEnv(scenario, "surrogate", reward=name) for name in rewards[1:]}
    for one in (env, *others.values()):
        one.reset(seed=1)
    sc, T_ref = env.scenario, env.reference_delay
    usual = reference_delay(load_scenario(OPENED).with_overrides({"decisions": list(sc.decisions[:4])}))
    V, cap, least = sc.budgets.tradeoff_v, sc.budgets.backlog_cap, sc.budgets.participation_min
    K = sc.max_devices
    z, y = np.zeros((N, K + 1)), np.zeros(N)
    used, granted, seconds, frozen = np.zeros((N, K + 1)), np.zeros(N), 0.0, 0
    for t, plan in enumerate(plans(env)):
        plays, steps = ROUNDS[t]
        result = env.step_allocation(plan)
        costs = env.last_round.costs
        T, e = float(costs.delay[0]), costs.energy_ratio[0]
        allowed = T / usual if sc.budgets.per == "second" else 1.0
        assert float(costs.allowance[0]) == pytest.approx(allowed)
        seconds += T
        before_z, before_y = z.copy(), y.copy()
        drift = pressure = excess = 0.0
        for n in range(N):
            y[n] = max(before_y[n] + least - plays[n], 0.0)
            drift += 0.5 * (y[n] ** 2 - before_y[n] ** 2)
            pressure += min(before_y[n], cap) * (y[n] - before_y[n])
            granted[n] += plays[n] * allowed
            for i in range(K + 1):
                if not plays[n]:
                    assert e[n, i] == 0.0
                    frozen += z[n, i] > 0.0
                    continue
                z[n, i] = max(before_z[n, i] + e[n, i] - allowed, 0.0)
                drift += 0.5 * (z[n, i] ** 2 - before_z[n, i] ** 2)
                change = e[n, i] - 1.0 if allowed == 1.0 else z[n, i] - before_z[n, i]
                pressure += min(before_z[n, i], cap) * change
                excess += max(e[n, i] - allowed, 0.0)
        used += e
        np.testing.assert_allclose(env.last_round.backlog[0], z, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(env.last_round.absence[0], y, rtol=1e-12)
        np.testing.assert_allclose(env.state.absence[0], y, rtol=1e-12)
        assert result[4]["cost"] == pytest.approx(excess)
        assert result[4]["backlog"] == pytest.approx(z.sum())
        assert result[1] == pytest.approx(-(V * T + drift) / (V * T_ref))
        found = others["drift_plus_penalty"].step_allocation(plan)[1]
        assert found == pytest.approx(-(V * T + pressure) / (V * T_ref))
        assert others["delay"].step_allocation(plan)[1] == pytest.approx(-T / T_ref)
        assert pytest.approx(costs.cluster_delay[0].max() + costs.broadcast[0]) == T
        np.testing.assert_array_equal(costs.cluster_delay[0] > 0.0, np.array(plays) == 1)
        counted = np.arange(16) < np.array(steps)[:, None]
        assert not env.last_round.arrivals.counts[0][~(counted & (np.array(plays) == 1)[:, None])].any()
    assert frozen > 0
    assert y.max() > (cap if scenario is CAPPED else 1.0)
    worst = (used / np.where(granted, granted, 1.0)[:, None]).max()
    assert env.summary()["energy_ratio_max"] == pytest.approx(worst)
    assert env.summary()["mean_delay"] == pytest.approx(seconds / len(ROUNDS))


@pytest.mark.parametrize("form", ["lyapunov", "drift_plus_penalty"])
def test_clusters_are_paid_for_their_own_absence(form):
    env = CollaPipeVectorEnv(1, CAPPED, "surrogate", reward=form)
    env.reset(seed=1)
    reward = env._mdp.reward
    V, T_ref = env.scenario.budgets.tradeoff_v, env.reference_delay
    cap, capped = env.scenario.budgets.backlog_cap, 0
    for plan in plans(env):
        env.step_allocation(plan)
        record = env.last_round
        found = reward.by_cluster(record)[0]
        delays = record.costs.cluster_delay[0].tolist()
        for n in range(N):
            rest = max(d for m, d in enumerate(delays) if m != n)
            y, after, z = record.state.absence[0, n], record.absence[0, n], record.state.backlog[0, n]
            if form == "lyapunov":
                drift = 0.5 * (after**2 - y**2) + 0.5 * (record.backlog[0, n] ** 2 - z**2).sum()
            else:
                spent = (record.costs.energy_ratio[0, n] - 1.0) * record.costs.plays[0, n]
                drift = min(y, cap) * (after - y) + (np.minimum(z, cap) * spent).sum()
                capped += y > cap and after != y
            assert found[n] == pytest.approx(-(V * max(delays[n] - rest, 0.0) + drift) / (V * T_ref))
    assert (capped > 0) == (form != "lyapunov")


@pytest.mark.parametrize("observation", ["flat", "graph"])
def test_agents_see_how_long_clusters_were_missing(observation):
    env = CollaPipeEnv(OPENED, "surrogate", observation=observation)
    env.reset(seed=0)
    for plan in list(plans(env))[:2]:
        seen = env.step_allocation(plan)[0]
    physical = env.observation_layout.physical(seen)
    found = physical["cluster_absence"] if observation == "flat" else physical["absence"]["absence"]
    np.testing.assert_allclose(found, env.state.absence[0], rtol=1e-5)
    assert env.observation_space.contains(seen)
    closed = CollaPipeEnv("medium", "surrogate", observation=observation).observation_layout
    assert not {"cluster_absence", "absence"} & set(closed)


def test_a_cluster_that_sits_out_keeps_its_plan():
    scenario = {**OPENED, "dynamics": {"rounds": 20, "processes": {"migration": {}}}}
    env = CollaPipeEnv(scenario, "surrogate")
    env.reset(seed=2)
    plan = even_split(system_parameters(env.scenario), env.state)
    other = plan.blocks.copy()
    for n in range(N):  # one block moves to a device that has room
        taker = int(np.argmax(env.state.memory_cap[0, n] - other[0, n]))
        giver = int(np.argmax(np.where(np.arange(other.shape[-1]) == taker, 0, other[0, n])))
        other[0, n, giver] -= 1
        other[0, n, taker] += 1

    def play(blocks, plays):
        chosen = dataclasses.replace(plan, blocks=blocks, participates=np.array([plays]))
        env.step_allocation(chosen)
        return env.last_round.costs, env.state.processes["migration"]["blocks"][0]

    held = play(plan.blocks, [1, 0, 1])[1]
    np.testing.assert_array_equal(held, plan.blocks[0] * np.array([[1], [0], [1]]))
    saved = CollaPipeEnv(scenario, "surrogate")
    saved.set_state(env.get_state())  # one cluster that holds nothing yet
    costs, held = play(other, [0, 1, 1])
    np.testing.assert_array_equal(held, [plan.blocks[0, 0], other[0, 1], other[0, 2]])
    assert costs.terms.once["migration"][0, 0] == costs.terms.once["migration"][0, 1] == 0.0
    assert costs.terms.once["migration"][0, 2] > 0.0
    assert not costs.terms.notes["moments"][0, 0].any()
    assert not costs.energy[0, 0].any()
    costs, held = play(plan.blocks, [1, 0, 0])  # back at once: nothing has to move
    assert not costs.terms.once["migration"].any()
    np.testing.assert_array_equal(held, [plan.blocks[0, 0], other[0, 1], other[0, 2]])


def test_opening_decisions_changes_nothing_until_they_are_used():
    closed = {name: value for name, value in OPENED.items() if name != "decisions"}
    closed["budgets"] = {"device_energy_j": 6, "cu_energy_j": 1}
    envs = CollaPipeEnv(closed, "surrogate"), CollaPipeEnv(OPENED, "surrogate")
    rng = np.random.default_rng(0)
    for env in envs:
        env.reset(seed=3)
    for _ in range(5):
        action = rng.uniform(-1, 1, envs[0].action_space.shape)
        plan = envs[0].codec.decode(action[None], envs[0].state.memory_cap)
        infos = [env.step_allocation(plan)[4] for env in envs]
        assert infos[0]["delay"] == infos[1]["delay"]
        assert infos[0]["backlog"] == infos[1]["backlog"]
        # Which packets arrive is drawn for the most local steps that there may be: other luck.
    assert not envs[1].state.absence.any()


def test_evaluated_episodes_count_own_rounds_only():
    class Sometimes:
        name, observation_kind = "sometimes", "flat"

        def __init__(self):
            self.round = 0

        def reset(self, seed):  # noqa: ARG002
            self.round = 0

        def act(self, observation, state):  # noqa: ARG002
            plan = even_split(system_parameters(load_scenario(SECOND)), state)
            plays, steps = ROUNDS[self.round % len(ROUNDS)]
            self.round += 1
            return dataclasses.replace(plan, participates=np.array([plays]), local_steps=np.array([steps]))

    played = play_episode("sometimes", Sometimes(), load_scenario(SECOND), 0, len(ROUNDS), "surrogate")
    env = CollaPipeVectorEnv(1, SECOND, "surrogate")
    used, granted, usual = 0.0, np.zeros(N), system_parameters(env.scenario).idle_round_s
    from collapipe_env.evaluation.episode import HELD_OUT_SEED

    env.reset(seed=HELD_OUT_SEED)
    for (plays, _), plan in zip(ROUNDS, plans(env), strict=True):
        env.step_allocation(plan)
        used = used + env.last_round.costs.energy_ratio[0]
        granted += np.array(plays) * env.last_round.costs.delay[0] / usual
    np.testing.assert_allclose(played.result.energy_ratio, used / granted[:, None], rtol=1e-9)


def test_pictures_say_who_sits_out():
    env = CollaPipeEnv(OPENED, "surrogate", render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render() is not None
    env.step_allocation(next(plans(env)))
    view = RoundView(env.last_round, "title")
    words = [word.text for word in filled(view).words]
    assert words.count("sits out") == 1
    assert [word.split(" x ")[0] for word in words if " x " in word and word[0].isdigit()] == ["4", "1"]
    costs = env.last_round.costs
    for n in (0, 2):
        ends = [phase.end_s for phase in view.charts[n].timeline.phases]
        assert np.abs(np.array(ends) - costs.cluster_delay[0, n]).min() < 1e-6
    assert env.render() is not None
