"""Rewards of one's own cannot change the physics, and a failing one takes no round."""

# ruff: noqa: ARG002, ARG005 - every reward takes the same three

import dataclasses
from operator import attrgetter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from env_support import VARIANTS, make_actions, make_env, shortened
from variants_support import mostly_slow

from collapipe_env.envs.own_reward import guarded
from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import RewardError
from collapipe_env.simulator.costs import round_costs

E, ROUNDS = 2, 3
FIELDS = (
    "before.backlog",
    "before.present",
    "before.d2d_gain",
    "costs.delay",
    "costs.energy_ratio",
    "costs.elements.uplink",
    "costs.allocation.device_power",
    "after.backlog",
    "after.speed",
    "after.loss",
)
"""Some of the arrays that a reward sees."""


def on_tensors(reward, **kwargs):
    return CollaPipeTorchVectorEnv(E, shortened("moving", ROUNDS), reward=reward, **kwargs)


def seen(field, *round_of):
    """One of the arrays, by its dotted name."""
    return attrgetter(field)(
        SimpleNamespace(**dict(zip(("before", "costs", "after"), round_of, strict=True)))
    )


class Failing:
    """Minus the delay, but for the calls that fail."""

    def __init__(self, *calls):
        self.calls, self.count = calls, -1

    def __call__(self, before, costs, after):
        self.count += 1
        return None if self.count in self.calls else -costs.delay


@pytest.mark.parametrize("dtype", [torch.complex64, torch.bool])
def test_rewards_on_tensors_are_real_numbers(dtype):
    env = on_tensors(lambda _, costs, after: costs.delay.to(dtype))
    env.reset(seed=0)
    with pytest.raises(RewardError, match=f"{dtype}, expected real numbers"):
        env.step(np.zeros(env.action_space.shape))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_rewards_on_tensors_may_be_of_any_real_type(dtype):
    env = on_tensors(lambda _, costs, after: torch.full_like(costs.delay, -2.0).to(dtype))
    env.reset(seed=0)
    assert env.step(np.zeros(env.action_space.shape))[1].tolist() == [-2.0, -2.0]


def test_masked_rewards_are_refused():
    env = make_env(reward=lambda _, costs, after: np.ma.masked_array(costs.delay, mask=True))
    env.reset(seed=0)
    with pytest.raises(RewardError, match="MaskedArray"):
        env.step(np.zeros(env.action_space.shape))


def arrays(record, place=""):
    """Every array of a record, by its dotted name."""
    for field in dataclasses.fields(record):
        value, name = getattr(record, field.name), f"{place}{field.name}"
        if dataclasses.is_dataclass(value):
            yield from arrays(value, f"{name}.")
        elif hasattr(value, "dtype"):
            yield name, value


@pytest.mark.parametrize(("what", "least"), [("state", 12), ("costs", 21)])
def test_every_array_that_a_reward_sees_is_a_read_only_view(what, least):
    env = make_env("moving")
    env.reset(seed=0)
    env.step(make_actions(env, 1)[0])
    record = getattr(env.last_round, what)
    shown = guarded(record)
    assert type(shown) is type(record)
    pairs = list(zip(arrays(shown), arrays(record), strict=True))
    assert len(pairs) >= least
    for (name, mine), (other, theirs) in pairs:
        assert name == other
        assert np.shares_memory(mine, theirs)
        assert theirs.flags.writeable
        assert not mine.flags.writeable
    if what == "costs":
        assert shown.allocation.stage is None
        np.testing.assert_array_equal(shown.graph.active, record.graph.active)
        again = round_costs(env._mdp.world.parameters, guarded(env.last_round.state), shown.allocation)
        np.testing.assert_array_equal(again.delay, record.delay)


@pytest.mark.parametrize("field", FIELDS)
def test_writing_to_what_a_reward_sees_is_a_clear_error(field):
    def writes(before, costs, after):
        seen(field, before, costs, after)[:] = 1
        return -costs.delay

    env, untouched = make_env("moving", reward=writes), make_env("moving", reward="delay")
    action = make_actions(env, 1)[0]
    for one in (env, untouched):
        one.reset(seed=0)
    expected = untouched.simulate(action)
    with pytest.raises(RewardError, match=r"writes failed with ValueError.*read-only"):
        env.step(action)
    env._mdp._judge = untouched._mdp._judge
    assert env.simulate(action)[4]["backlog"] == expected[4]["backlog"]


@pytest.mark.parametrize("field", FIELDS)
def test_writing_to_tensors_that_a_reward_sees_changes_nothing(field):
    def writes(before, costs, after):
        delay = costs.delay.clone()
        seen(field, before, costs, after).fill_(1)
        return -delay

    env, untouched = on_tensors(writes), on_tensors(lambda _, costs, after: -costs.delay)
    for one in (env, untouched):
        one.reset(seed=0)
    for action in make_actions(env, ROUNDS + 2, lead=(E,)):
        mine, other = env.step(action), untouched.step(action)
        for a, b in zip(mine[:4], other[:4], strict=True):
            assert torch.equal(a, b)
        for name, values in other[4].items():
            assert torch.equal(mine[4][name], values)


def test_rewards_may_keep_what_they_saw():
    kept = []

    def keeps(before, costs, after):
        kept.append(after.backlog)
        return -costs.delay

    env = make_env(reward=keeps)
    env.reset(seed=0)
    for action in make_actions(env, 2):
        env.step(action)
        np.testing.assert_array_equal(kept[-1], env.last_round.backlog)


@pytest.mark.parametrize("failing", mostly_slow([0, 1, ROUNDS - 1], [1]))
def test_a_failed_reward_takes_no_round(failing):
    """Played again, the system goes on as if nothing had been."""
    env, untouched = (make_env("moving", ROUNDS, reward=reward) for reward in (Failing(failing), "delay"))
    actions = make_actions(env, ROUNDS)
    for one in (env, untouched):
        one.reset(seed=0)
    total = 0.0
    for t, action in enumerate(actions):
        if t == failing:
            state, record, summary = env.state, env.last_round, env.summary()
            with pytest.raises(RewardError, match="Failing"):
                env.step(action)
            assert env.state is state
            assert env.last_round is record
            assert env.summary() == summary
        mine, other = env.step(action), untouched.step(action)
        for name in ("delay", "cost", "backlog"):
            assert mine[4][name] == other[4][name]
        np.testing.assert_array_equal(
            env.last_round.arrivals.survived, untouched.last_round.arrivals.survived
        )
        np.testing.assert_array_equal(env.state.uplink_gain, untouched.state.uplink_gain)
        np.testing.assert_array_equal(env.state.speed, untouched.state.speed)
        assert mine[2:4] == other[2:4] == (False, t == ROUNDS - 1)
        total += other[4]["delay"]
    assert env.ended_summary()["rounds"] == ROUNDS
    assert env.ended_summary()["total_delay"] == pytest.approx(total)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_a_failed_reward_loses_no_end_of_a_batch(mode):
    scenario = shortened("moving", ROUNDS)
    env, untouched = (
        CollaPipeVectorEnv(E, scenario, "surrogate", reward, autoreset_mode=mode)
        for reward in (Failing(ROUNDS - 1), Failing())
    )
    for one in (env, untouched):
        one.reset(seed=0)
    actions = make_actions(env, ROUNDS, lead=(E,))
    for t, action in enumerate(actions):
        if t == ROUNDS - 1:
            with pytest.raises(RewardError):
                env.step(action)
        mine, other = env.step(action), untouched.step(action)
        for a, b in zip(mine[1:4], other[1:4], strict=True):
            np.testing.assert_array_equal(a, b)
    assert mine[3].all()
    for name in ("rounds", "total_delay", "return", "final_backlog"):
        np.testing.assert_array_equal(env.ended_summaries[name], untouched.ended_summaries[name])


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_a_failed_reward_takes_no_round_on_tensors(mode):
    """Here the learner is put back, too: all goes on bit for bit."""
    assert VARIANTS["moving"]["radio"]["fading_correlation"] > 0.0  # something is remembered between rounds
    env, untouched = (on_tensors(reward, autoreset_mode=mode) for reward in (Failing(0, 2, 4), Failing()))
    for one in (env, untouched):
        one.reset(seed=0)
    for t, action in enumerate(make_actions(env, ROUNDS + 2, lead=(E,))):
        if t in (0, 1, 2):
            with pytest.raises(RewardError):
                env.step(action)
        mine, other = env.step(action), untouched.step(action)
        for a, b in zip(mine[:4], other[:4], strict=True):
            assert torch.equal(a, b)
        assert torch.equal(mine[4]["loss"], other[4]["loss"])
        for name, values in untouched.ended_summaries.items():
            assert torch.equal(env.ended_summaries[name], values)
