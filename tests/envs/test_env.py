"""The single environment: ends, infos, summaries, and plans of extreme numbers, played as what they say."""

import dataclasses
import math

import environments_support as support
import numpy as np
import pytest
from environments_support import make_actions, single
from state_ways_support import assert_same
from variants_support import mostly_slow

from collapipe_env.ground.errors import AllocationError, ScenarioError
from collapipe_env.physics.allocation import SCHEDULES, with_schedule
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.even_split import even_split


def play(env, actions, seed):
    """Rewards, ends and infos of one episode, or as far as the actions go."""
    env.reset(seed=seed)
    steps = []
    for action in actions:
        steps.append(env.step(action))
        if steps[-1][2] or steps[-1][3]:
            break
    return [s[1] for s in steps], [s[2:4] for s in steps], [s[4] for s in steps]


@pytest.mark.parametrize("name", ["small", "medium"])
def test_infos_are_a_few_numbers_the_same_in_every_step(name):
    env = single(name, 3)
    first = env.reset(seed=0)[1]
    _, ends, infos = play(env, make_actions(env, 3), seed=0)
    assert ends == [(False, False), (False, False), (False, True)]
    for info in (first, *infos):
        assert list(info) == ["delay", "cost", "backlog", "loss"]
        # Floats with a type of NumPy's: recorders ask for it.
        assert all(type(value) is np.float64 and math.isfinite(value) for value in info.values()), info
    assert first["delay"] == first["cost"] == first["backlog"] == 0.0
    assert all(info["delay"] > 0.0 for info in infos)
    summary = env.summary()
    assert summary["rounds"] == 3
    assert summary["total_delay"] == pytest.approx(sum(info["delay"] for info in infos))
    assert summary["mean_delay"] == pytest.approx(summary["total_delay"] / 3)
    # Summed in another order.
    assert summary["final_backlog"] == pytest.approx(infos[-1]["backlog"], rel=1e-14)


def test_the_summary_of_an_ended_episode_outlives_the_reset():
    env = single("small", 2)
    assert env.ended_summary() == {}
    actions = make_actions(env, 3)
    play(env, actions[:1], seed=0)
    assert env.ended_summary() == {}
    play(env, actions, seed=0)
    ended = env.summary()
    assert ended["rounds"] == 2
    assert env.ended_summary() == ended
    play(env, actions[:1], seed=1)
    assert env.summary() != ended
    assert env.ended_summary() == ended


def test_episode_is_truncated_after_its_rounds_and_starts_afresh():
    env = single("small", 4)
    for seed in (0, None):
        ends = play(env, make_actions(env, 10), seed)[1]
        assert ends == [(False, False)] * 3 + [(False, True)]
    env.reset()
    assert env.state.round_index[0] == 0
    assert not env.state.backlog.any()
    assert env.summary()["rounds"] == 0
    assert env.summary()["total_delay"] == 0.0


def test_episode_terminates_at_the_smoothed_target_loss():
    scenario = support.shortened("small", 50, target_loss=0.6)
    env = single(scenario, learner=support.SteadyLearner(), reward="time_to_target")
    rewards, ends, infos = play(env, make_actions(env, 50), seed=0)
    smoothed, expected = 1.0, 0
    while smoothed > 0.6:
        expected += 1
        smoothed = 0.8 * smoothed + 0.2 * (1.0 - 0.1 * expected)
    assert len(ends) == expected
    assert ends[-1] == (True, False)
    assert not any(terminated for terminated, _ in ends[:-1])
    assert env.summary()["time_to_target"] == pytest.approx(sum(info["delay"] for info in infos))
    np.testing.assert_allclose(rewards, [-info["delay"] / env.reference_delay for info in infos])


def test_target_not_reached_has_no_time():
    env = single(support.shortened("small", 2, target_loss=0.1))
    play(env, make_actions(env, 2), seed=0)
    assert env.summary()["rounds"] == 2
    assert "time_to_target" not in env.summary()


def test_absent_devices_take_no_blocks():
    env = single("uneven")
    env.reset(seed=0)
    allocation = even_split(system_parameters(env.scenario), env.state)
    n, k = np.argwhere(~env.state.present[0])[0]
    blocks = allocation.blocks.copy()
    donor = int(blocks[0, n].argmax())
    blocks[0, n, donor] -= 1
    blocks[0, n, k] += 1
    with pytest.raises(AllocationError, match=f"cluster {n}, device {k}.*absent"):
        env.step_allocation(dataclasses.replace(allocation, blocks=blocks))


# Plans


def ready(scenario="small"):
    env = single(scenario, 5)
    env.reset(seed=0)
    plan = even_split(system_parameters(env.scenario), env.state)[0].map(np.copy)
    return env, plan


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_huge_caps_are_no_caps(schedule):
    """Any integer type may say that there is no limit but the number of micro-batches."""
    env, plan = ready()
    plan.blocks[:] = (3, 3, 0)  # two stages, into which "interleaved" can divide the micro-batches
    M = int(plan.micro_batches.max())
    expected = env.simulate(with_schedule(plan, schedule, M))
    for huge in (np.uint64(2**63 - 1), np.int64(2**63 - 1), np.int32(2**31 - 1)):
        same = dataclasses.replace(
            with_schedule(plan, schedule, M),
            caps=np.full(plan.blocks.shape, huge),
            chunks=np.ones(2, np.uint8),
        )
        assert_same(env.simulate(same), expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.longdouble])
def test_shares_of_other_types_are_played_as_the_same_numbers(dtype):
    env, plan = ready()
    plan = dataclasses.replace(plan, bandwidth=np.array([0.25, 0.5]))
    same = dataclasses.replace(plan, bandwidth=plan.bandwidth.astype(dtype))
    assert_same(env.simulate(same), env.simulate(plan))


def test_the_least_share_is_played_and_gives_finite_numbers():
    env, plan = ready()
    plan.bandwidth[1] = 1e-9
    observation, reward, _, _, info = env.step_allocation(plan)
    assert np.isfinite(observation).all()
    assert np.isfinite([reward, *info.values()]).all()
    # A thousandth of the share takes a thousand times as long, for all but the rounds' other parts.
    slow = env.last_round.costs.upload[0, 1]
    plan.bandwidth[1] = 1e-6
    env.reset(seed=0)
    env.step_allocation(plan)
    assert slow > 10.0 * env.last_round.costs.upload[0, 1]


def test_every_action_at_the_least_floor_is_an_accepted_plan():
    env = single({"base": "small", "budgets": {"bandwidth_floor": 1e-9}})
    with pytest.raises(ScenarioError, match="bandwidth_floor"):
        single({"base": "small", "budgets": {"bandwidth_floor": 1e-300}})
    env.reset(seed=0)
    action = np.ones(env.action_space.shape)
    action[-1] = -1.0  # the last cluster's share
    plan = env.codec.decode(action[None], env.state.memory_cap)
    assert plan.bandwidth[0, -1] == pytest.approx(1e-9, rel=1e-6)
    assert_same(env.simulate(plan), env.simulate(action))


def test_a_round_without_end_is_refused_before_anything_changes():
    # A most robust format would bound the time of every message.
    env, plan = ready({"base": "small", "radio": {"snr_floor_db": None}})
    env.state.uplink_gain[0, 1] = 0.0  # nothing ever arrives
    before = env.get_state()
    for way in (env.step_allocation, env.simulate):
        with np.errstate(divide="ignore"), pytest.raises(AllocationError, match="environment 0 is inf"):
            way(plan)
    assert_same(env.get_state(), before)


@pytest.mark.filterwarnings("ignore::collapipe_env.feasibility.EnergyBudgetWarning")
@pytest.mark.filterwarnings("ignore::collapipe_env.simulator.idle_fields.IdleFieldWarning")
@pytest.mark.parametrize(("base", "shadowing_db"), mostly_slow([("small", 8.0), ("medium", 12.0)]))
def test_repeats_cost_at_most_as_many_rounds_as_they_are(base, shadowing_db):
    """Rayleigh fading and strong shadowing under random actions, beside links that never fail."""
    radio = {"diversity": 1, "d2e_shadowing_db": shadowing_db, "d2d_shadowing_db": shadowing_db}
    repeats, played = {"waterfall_threshold": 1.0, "max_transmissions": 16}, {}
    for mode in ("none", "arq"):
        scenario = {"base": base, "radio": {**radio, "link_errors": mode, **repeats}}
        env = single(scenario)
        played[mode] = play(env, make_actions(env, 8), seed=3)
    (rewards, _, infos), (repeated, _, longer) = played.values()
    assert np.isfinite(env.step(make_actions(env, 1)[0])[0]).all()
    delays, least = (np.array([info["delay"] for info in each]) for each in (longer, infos))
    assert (delays > least).all()
    assert (delays <= 16.0 * least * (1.0 + 1e-12)).all()
    assert np.abs(repeated).max() < 16.0**2 * np.abs(rewards).max()
