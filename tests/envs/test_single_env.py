"""The single environment: seeds, rewards, ends, infos and allocations played directly."""

import dataclasses
import math

import numpy as np
import pytest
from env_support import VARIANTS, ConstantLearner, make_actions, make_env, play

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.ground.errors import AllocationError, ScenarioError
from collapipe_env.simulator.even_split import even_split


@pytest.mark.parametrize("name", VARIANTS)
def test_seed_decides_the_trajectory(name):
    actions = make_actions(make_env(name), 5)
    first = play(make_env(name), actions, seed=3)
    env = make_env(name)
    again, other = play(env, actions, seed=3), play(env, actions, seed=4)
    third = play(env, actions, seed=3)
    for run in (again, third):
        np.testing.assert_array_equal(run[0], first[0])
        assert run[1:] == first[1:]
    assert not np.array_equal(other[0], first[0])
    assert other[1] != first[1]


def test_unseeded_second_episode_is_a_new_one():
    env = make_env()
    actions = make_actions(env, 5)
    first = play(env, actions, seed=3)
    second = play(env, actions, seed=None)
    assert not np.array_equal(first[0], second[0])
    env.reset(seed=3)
    np.testing.assert_array_equal(play(env, actions, seed=None)[0], second[0])


def test_unseeded_environments_differ():
    actions = make_actions(make_env(), 2)
    first, second = (play(make_env(), actions, seed=None)[1] for _ in range(2))
    assert first != second


@pytest.mark.parametrize("name", ["medium", "uneven"])
def test_rewards_follow_their_definitions(name):
    rewards = ("lyapunov", "drift_plus_penalty", "delay")
    envs = {reward: make_env(name, reward=reward) for reward in rewards}
    actions = make_actions(envs["delay"], 5)
    played = {reward: play(env, actions, seed=1)[1] for reward, env in envs.items()}
    env = make_env(name)
    scenario, T_ref = env.scenario, env.reference_delay
    V, cap = scenario.budgets.tradeoff_v, scenario.budgets.backlog_cap
    env.reset(seed=1)
    z = np.zeros((scenario.clusters, scenario.max_devices + 1))
    for t, action in enumerate(actions):
        info = env.step(action)[-1]
        e = env.last_round.costs.energy[0] / np.array(
            [scenario.budgets.cu_energy_j] + [scenario.budgets.device_energy_j] * scenario.max_devices
        )
        z_next = np.maximum(z + e - 1.0, 0.0)
        T = max(env.last_round.costs.cluster_delay[0]) + env.last_round.costs.broadcast[0]
        drift = 0.5 * ((z_next**2).sum() - (z**2).sum())
        pressure = sum(
            min(zk, cap) * (ek - 1.0) for zk, ek in zip(z.ravel(), e.ravel(), strict=True) if zk > 0
        )
        close = {"rel": 1e-12, "abs": 1e-12}
        assert played["lyapunov"][t] == pytest.approx(-(V * T + drift) / (V * T_ref), **close)
        assert played["drift_plus_penalty"][t] == pytest.approx(-(V * T + pressure) / (V * T_ref), **close)
        assert played["delay"][t] == pytest.approx(-T / T_ref, **close)
        assert info["delay"] == pytest.approx(T, **close)
        assert info["cost"] == pytest.approx(np.maximum(e - 1.0, 0.0).sum(), **close)
        assert info["backlog"] == pytest.approx(z_next.sum(), **close)
        z = z_next
    assert z.sum() > 0.0, "no queue ever filled: the drift was not tested"


def test_lyapunov_rewards_telescope():
    env = make_env("medium", rounds=30)
    _, rewards, _, infos = play(env, make_actions(env, 30), seed=0)
    V, T_ref = env.scenario.budgets.tradeoff_v, env.reference_delay
    final = 0.5 * (env.state.backlog**2).sum()
    total = V * sum(info["delay"] for info in infos) + final
    assert final > 0.0
    assert sum(rewards) == pytest.approx(-total / (V * T_ref), rel=1e-12)
    assert env.summary()["return"] == pytest.approx(sum(rewards), rel=1e-12)


def test_rewards_refuse_scenarios_that_they_cannot_serve():
    with pytest.raises(ScenarioError, match="target_loss"):
        make_env(reward="time_to_target")
    with pytest.raises(ScenarioError, match="tradeoff_v"):
        CollaPipeEnv({"base": "small", "budgets": {"tradeoff_v": 0}}, "surrogate")


@pytest.mark.parametrize("name", ["small", "medium"])
def test_infos_are_a_few_numbers_the_same_in_every_step(name):
    env = make_env(name, rounds=3)
    first = env.reset(seed=0)[1]
    _, _, ends, infos = play(env, make_actions(env, 3), seed=0)
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
    assert summary["final_backlog"] == infos[-1]["backlog"]


def test_the_summary_of_an_ended_episode_outlives_the_reset():
    env = make_env(rounds=2)
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
    env = make_env(rounds=4)
    for seed in (0, None):
        ends = play(env, make_actions(env, 10), seed)[2]
        assert ends == [(False, False)] * 3 + [(False, True)]
    env.reset()
    assert env.state.round_index[0] == 0
    assert not env.state.backlog.any()
    assert env.summary()["rounds"] == 0
    assert env.summary()["total_delay"] == 0.0


def test_episode_terminates_at_the_smoothed_target_loss():
    scenario = {"base": "small", "dynamics": {"rounds": 50, "target_loss": 0.6}}
    env = CollaPipeEnv(scenario, ConstantLearner(first=1.0, step=0.1), reward="time_to_target")
    _, rewards, ends, infos = play(env, make_actions(env, 50), seed=0)
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
    scenario = {"base": "small", "dynamics": {"rounds": 2, "target_loss": 0.1}}
    env = CollaPipeEnv(scenario, ConstantLearner())
    play(env, make_actions(env, 2), seed=0)
    assert env.summary()["rounds"] == 2
    assert "time_to_target" not in env.summary()


@pytest.mark.parametrize("name", ["small", "moving", "uneven"])
def test_step_allocation_equals_step_for_the_decoded_allocation(name):
    one, two = make_env(name), make_env(name)
    actions = make_actions(one, 5)
    np.testing.assert_array_equal(one.reset(seed=2)[0], two.reset(seed=2)[0])
    for i, action in enumerate(actions):
        allocation = two.codec.decode(action, two.state.memory_cap[0])
        assert allocation.blocks.ndim == 2
        if i % 2:  # with the batch axis of one, too
            allocation = allocation.map(lambda a: a[None])
        a, b = one.step(action), two.step_allocation(allocation)
        np.testing.assert_array_equal(a[0], b[0])
        assert a[1:] == b[1:]


def broken(allocation, **changes):
    return dataclasses.replace(
        allocation, **{k: f(getattr(allocation, k).copy()) for k, f in changes.items()}
    )


def put(index, value):
    def change(array):
        array[index] = value
        return array

    return change


FAULTS = {
    "too few blocks": ({"blocks": put((0, 1, 0), 0)}, "blocks.*cluster 1.*summing to L"),
    "negative blocks": ({"blocks": lambda b: b + np.array([[[-9, 9, 0]] * 2])}, "blocks.*non-negative"),
    "broken blocks": ({"blocks": lambda b: b + np.array([[[-0.5, 0.5, 0.0]] * 2])}, "blocks.*whole"),
    "too much memory": ({"blocks": lambda b: b * 0 + [[[6, 0, 0]] * 2]}, "bytes for its 6 blocks"),
    "odd micro-batches": ({"micro_batches": put((0, 0), 3)}, r"micro_batches.*cluster 0 is 3.*\[1, 2, 4"),
    "no power": ({"cu_power": put((0, 0), 0.0)}, r"cu_power.*is 0.0.*\[0.002, 0.2\] W"),
    "strong device": ({"device_power": put((0, 1, 2), 0.3)}, "device_power of .*cluster 1, device 2 is 0.3"),
    "nan power": ({"device_power": put((0, 0, 0), np.nan)}, "device_power.*nan"),
    "no bandwidth": ({"bandwidth": put((0, 0), 0.0)}, "bandwidth.*at least 1e-09"),
    "nan bandwidth": ({"bandwidth": put((0, 0), np.nan)}, "bandwidth.*nan"),
    "too much bandwidth": ({"bandwidth": put((0, 0), 0.9)}, "bandwidth.*sum.*at most 1"),
    "wrong shape": ({"bandwidth": lambda b: b[:, :1]}, r"bandwidth has shape \(1, 1\), expected \(1, 2\)"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_infeasible_allocations_are_refused_and_change_nothing(fault):
    changes, message = FAULTS[fault]
    env, untouched = make_env(), make_env()
    actions = make_actions(env, 3)
    for one in (env, untouched):
        one.reset(seed=0)
        one.step(actions[0])
    # Some memory must be too small for the whole encoder, or the fault of that name would be none.
    assert env.state.memory_cap.min() < env.scenario.blocks
    allocation = even_split(env._mdp.world.parameters, env.state)
    record, state = env.last_round, env.state
    with pytest.raises(AllocationError, match=message):
        env.step_allocation(broken(allocation, **changes))
    assert env.last_round is record
    assert env.state is state
    assert env.summary() == pytest.approx(untouched.summary(), nan_ok=True)
    a, b = env.step(actions[1]), untouched.step(actions[1])
    np.testing.assert_array_equal(a[0], b[0])
    assert a[1:] == b[1:]


def test_absent_devices_take_no_blocks():
    env = make_env("uneven")
    env.reset(seed=0)
    allocation = even_split(env._mdp.world.parameters, env.state)
    n, k = np.argwhere(~env.state.present[0])[0]
    blocks = allocation.blocks.copy()
    donor = int(blocks[0, n].argmax())
    blocks[0, n, donor] -= 1
    blocks[0, n, k] += 1
    with pytest.raises(AllocationError, match=f"cluster {n}, device {k}.*absent"):
        env.step_allocation(dataclasses.replace(allocation, blocks=blocks))


@pytest.mark.parametrize("name", ["small", "uneven"])
def test_render_without_a_display(name, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.delenv("MPLBACKEND", raising=False)
    env = make_env(name, render_mode="rgb_array")
    env.reset(seed=0)
    before = env.render()
    for action in make_actions(env, 2):
        env.step(action)
    after = env.render()
    for picture in (before, after):
        assert picture.dtype == np.uint8
        assert picture.ndim == 3
        assert picture.shape[-1] == 3
        assert picture.std() > 5.0
    assert not np.array_equal(before, after)
    env.reset(seed=0)
    np.testing.assert_array_equal(env.render(), before)
