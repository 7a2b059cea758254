"""Rewards ``reward(before, costs, after)`` in every kind of environment, and by name."""

# ruff: noqa: ARG002, ARG005 - every reward takes the same three

import functools

import gymnasium as gym
import numpy as np
import pytest
import torch
from env_support import VARIANTS, make_actions, shortened

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.own_reward import OwnReward
from collapipe_env.envs.rewards import (
    REWARDS,
    node_present,
    register_reward,
    target_reached,
)
from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import ScenarioError

E, ROUNDS = 3, 6


def loss_per_second(before, costs, after):
    """Decrease of the loss in a second [nat/s]."""
    return (before.loss - after.loss) / costs.delay


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """Nothing stays registered."""
    monkeypatch.setattr(REWARDS, "_added", {})


def single(reward):
    return CollaPipeEnv(shortened("moving", ROUNDS), "surrogate", reward)


def vector(reward):
    return CollaPipeVectorEnv(E, shortened("moving", ROUNDS), "surrogate", reward)


def on_tensors(reward, **more):
    return CollaPipeTorchVectorEnv(E, shortened("moving", ROUNDS), reward=reward, **more)


def played(env):
    """Rewards, losses before and after, and delays (T, E) of an episode, from what the environment says."""
    observation, info = env.reset(seed=5)
    assert observation is not None
    loss, rows = smoothed(env), []
    for action in make_actions(env, ROUNDS, lead=np.shape(info["loss"])):
        _, reward, _, _, info = env.step(action)
        after = smoothed(env)
        rows.append([np.asarray(x, dtype=float) * np.ones(np.shape(info["delay"])) for x in
                     (reward, loss, after, info["delay"])])  # fmt: skip
        loss = after
    return np.moveaxis(np.array(rows), 1, 0)


def smoothed(env):
    """The smoothed loss, which is in the observation of the system."""
    state = env._mdp.world.state if isinstance(env, CollaPipeTorchVectorEnv) else env.state
    loss = np.asarray(state.loss, dtype=float)
    return loss[0] if isinstance(env, CollaPipeEnv) else loss.copy()


@pytest.mark.parametrize("build", [single, vector, on_tensors])
def test_loss_decrease_per_second_written_from_outside(build):
    reward, before, after, delay = played(build(loss_per_second))
    assert (before != after).all()
    np.testing.assert_allclose(reward, (before - after) / delay, rtol=2e-7)


def test_after_is_the_state_that_the_next_round_begins_with():
    """Channels and speeds of the next round included, in NumPy and on tensors."""
    for env in (vector(keep := Keeping()), on_tensors(keep)):
        keep.rounds.clear()
        env.reset(seed=1)
        for action in make_actions(env, ROUNDS - 1, lead=(E,)):
            env.step(action)
        for (_, _, after), (before, _, _) in zip(keep.rounds, keep.rounds[1:], strict=False):
            for name in ("uplink_gain", "speed", "backlog", "round_index", "loss"):
                np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
        gains = [before.uplink_gain for before, _, _ in keep.rounds]
        assert not np.array_equal(gains[0], gains[1])


class Keeping:
    """Minus the delay; keeps what it sees."""

    def __init__(self):
        self.rounds = []

    def __call__(self, before, costs, after):
        self.rounds.append((before, costs, after))
        return -costs.delay


@pytest.mark.slow
def test_own_rewards_can_be_compiled():
    one, two = on_tensors(loss_per_second), on_tensors(loss_per_second, compiled=True)
    for env in (one, two):
        env.reset(seed=0)
    for action in make_actions(one, 2, lead=(E,)):
        torch.testing.assert_close(two.step(action)[1], one.step(action)[1], rtol=1e-5, atol=1e-7)


def test_nodes_and_targets_of_a_state():
    env = CollaPipeVectorEnv(E, VARIANTS["uneven"], "surrogate")
    env.reset(seed=0)
    present = node_present(env.state)
    assert present.shape == (E, 4, 6)
    assert present[..., 0].all()
    assert present[..., 1:].sum(axis=-1).tolist() == [[5, 3, 4, 5]] * E
    tensors = env.state.map(torch.from_numpy)
    assert torch.equal(node_present(tensors), torch.from_numpy(present))
    losses = env.state.loss
    for target, expected in ((None, [False] * E), (losses[1], losses <= losses[1]), (-1.0, [False] * E)):
        assert target_reached(env.state, target).tolist() == list(expected)
        assert target_reached(tensors, target).tolist() == list(expected)
        assert target_reached(env.state, target).dtype == np.bool_


# Names


def test_a_registered_reward_is_a_name():
    assert register_reward("loss_per_second", loss_per_second) is loss_per_second
    assert "loss_per_second" in REWARDS
    by_name, by_hand = played(vector("loss_per_second")), played(vector(loss_per_second))
    np.testing.assert_array_equal(by_name, by_hand)
    env = gym.make("CollaPipeSurrogate-v0", scenario="small", reward="loss_per_second")
    env.reset(seed=0)
    assert env.step(env.action_space.sample())[1] != 0.0


def test_a_class_makes_a_reward_of_the_scenario():
    @register_reward("per_round")
    class PerRound:
        """Minus the delay over the rounds of an episode."""

        def __init__(self, scenario):
            self.rounds = scenario.dynamics.rounds

        def __call__(self, before, costs, after):
            return -costs.delay / self.rounds

    reward, _, _, delay = played(single("per_round"))
    np.testing.assert_allclose(reward, -delay / ROUNDS, rtol=1e-12)


def test_names_of_rewards_that_are_refused():
    with pytest.raises(
        ScenarioError, match=r"reward 'lyapunof' is not known: did you mean 'lyapunov'\?"
    ) as caught:
        single("lyapunof")
    assert "in Python pass it or call register_reward, on the command line path/" in str(caught.value)
    with pytest.raises(ScenarioError, match="reward name 'delay' is taken by the package"):
        register_reward("delay", loss_per_second)
    with pytest.raises(ScenarioError, match=r"reward 'five': 5 cannot be called: register .* that is reward"):
        register_reward("five", 5)
    assert REWARDS.names() == ("lyapunov", "drift_plus_penalty", "delay", "time_to_target")


# The arguments


class Delay:
    def __call__(self, before, costs, after):
        return -costs.delay

    def method(self, before, costs, after):
        return self(before, costs, after)


class OneArgument(torch.nn.Module):
    def forward(self, costs):
        return -costs.delay


class DelayModule(torch.nn.Module):
    def forward(self, before, costs, after):
        return -costs.delay


def wrapped(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        return function(*args, **kwargs)

    return call


RIGHT = {
    "function": loss_per_second,
    "lambda": lambda before, costs, after: -costs.delay,
    "any": lambda *args: -args[1].delay,
    "option": lambda before, costs, after, weight=1.0: -weight * costs.delay,
    "rest": lambda before, *rest: -rest[0].delay,
    "two": lambda before, costs, after=None: -costs.delay,
    "object": Delay(),
    "method": Delay().method,
    "partial": functools.partial(lambda weight, before, costs, after: -weight * costs.delay, 1.0),
    "keyword": functools.partial(lambda before, costs, after, *, weight: -weight * costs.delay, weight=1.0),
    "wrapped": wrapped(loss_per_second),
    "module": DelayModule(),
    "silent": max,
}


@pytest.mark.parametrize("name", RIGHT)
def test_callables_of_three_arguments_are_accepted(name):
    assert OwnReward(RIGHT[name]).function is RIGHT[name]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: 1.0,
        lambda a: a.delay,
        lambda a, b: a,
        lambda a, b, c, d: a,
        lambda *, costs: costs,
        wrapped(lambda a: a.delay),
        OneArgument(),
    ],
    ids=["none", "one", "two", "four", "keyword", "wrapped", "module"],
)
def test_callables_of_other_numbers_of_arguments_are_refused(wrong):
    with pytest.raises(ScenarioError, match=r"reward = .*it is called as reward\(before, costs, after\)"):
        single(wrong)
