"""Rewards of one's own: what they see and may return; they change no round, and a failed one takes none."""

# ruff: noqa: ARG002, ARG005 - every reward takes the same three

import functools
from itertools import pairwise
from operator import attrgetter
from types import SimpleNamespace

import environments_support as support
import numpy as np
import pytest
import torch
from environments_support import KINDS, Player, assert_close, make_actions
from record_support import leaves
from variants_support import mostly_slow

from collapipe_env.envs.own_reward import OwnReward, guarded
from collapipe_env.ground.errors import RewardError, ScenarioError
from collapipe_env.simulator.costs import round_costs

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


def ready(kind, reward, **given):
    player = Player(KINDS[kind](reward=reward, **given))
    player.reset(0)
    return player


def first_action(player):
    return make_actions(player.env, 1)[0]


# What a reward is given


@pytest.mark.parametrize("kind", ["single", "vector", "on_tensors", "adapted"])
def test_it_sees_the_round_and_the_state_that_the_next_one_begins_with(kind):
    rounds = []

    def loss_per_second(before, costs, after):
        rounds.append((before, after))
        return (before.loss - after.loss) / costs.delay

    player = ready(kind, loss_per_second)
    for action in make_actions(player.env, 3):
        said = player.step(action)
        before, after = rounds[-1]
        assert (np.asarray(before.loss) != np.asarray(after.loss)).all()
        for row, one in enumerate(said):
            fall = before.loss[row] - after.loss[row]
            assert one["reward"] == pytest.approx(float(fall / one["info"]["delay"]), rel=2e-7)
    for (_, after), (before, _) in pairwise(rounds):
        for name in ("uplink_gain", "speed", "backlog", "round_index", "loss"):
            np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
    assert not np.array_equal(rounds[0][0].uplink_gain, rounds[1][0].uplink_gain)


@pytest.mark.parametrize(("what", "least"), [("state", 12), ("costs", 21)])
def test_every_array_that_it_sees_is_a_read_only_view(what, least):
    env = ready("single", "delay").env
    env.step(make_actions(env, 1)[0])
    record = getattr(env.last_round, what)
    shown = guarded(record)
    assert type(shown) is type(record)
    pairs = list(zip(leaves(shown), leaves(record), strict=True))
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


@pytest.mark.parametrize("kind", ["single", "on_tensors"])
def test_writing_to_what_it_sees_changes_nothing(kind):
    """With arrays it is an error, with tensors it is the reward's own copy."""
    fields = []

    def writes(before, costs, after):
        delay = costs.delay + 0.0
        for field in fields:
            array = attrgetter(field)(SimpleNamespace(before=before, costs=costs, after=after))
            array[:] = 1
        return -delay

    player, untouched = ready(kind, writes), ready(kind, lambda _, costs, after: -costs.delay)
    action = first_action(player)
    for field in FIELDS:
        fields[:] = [field]
        if kind == "single":
            with pytest.raises(RewardError, match=r"writes failed with ValueError.*read-only"):
                player.step(action)
        else:
            assert_close(player.go_on([action]), untouched.go_on([action]))
    fields.clear()
    assert_close(player.go_on([action]), untouched.go_on([action]))


def test_it_may_keep_what_it_saw():
    kept = []

    def keeps(before, costs, after):
        kept.append(after.backlog)
        return -costs.delay

    env = ready("single", keeps).env
    for action in make_actions(env, 2):
        env.step(action)
        np.testing.assert_array_equal(kept[-1], env.last_round.backlog)


@pytest.mark.slow
def test_own_rewards_can_be_compiled():
    one, two = (
        ready("on_tensors", lambda before, costs, after: (before.loss - after.loss) / costs.delay, compiled=c)
        for c in (False, True)
    )
    for action in make_actions(one.env, 2):
        torch.testing.assert_close(two.env.step(action)[1], one.env.step(action)[1], rtol=1e-5, atol=1e-7)


# What it returns


def named(name, function):
    function.__qualname__ = name
    return function


def per_cluster(before, costs, after):
    return -after.backlog.sum(axis=-1)


def last_is_nan(before, costs, after):
    rewards = -costs.delay
    rewards[-1] = np.nan
    return rewards


class TooLong:
    def __call__(self, before, costs, after):
        return after.loss.repeat(2)


RESULTS = [
    (per_cluster, r"per_cluster returned.*shape \(\d, 2\).*expected real numbers of shape \(\d,\)"),
    (named("number", lambda _, costs, after: -1.0), "number returned a float"),
    (named("nothing", lambda *_: None), "nothing returned a NoneType"),
    (named("words", lambda _, costs, after: ["good"] * len(costs.delay)), "words returned a list"),
    (named("ragged", lambda *_: [[0.0], [0.0, 1.0]]), "ragged returned a list"),
    (named("raising", lambda _, costs, after: costs.latency), "raising failed with AttributeError.*latency"),
    (named("masked", lambda *_: np.ma.masked_array([1.0], mask=True)), "masked returned a MaskedArray"),
    (named("yes", lambda _, costs, after: costs.delay > 0.0), "yes returned .*bool, expected real numbers"),
    (TooLong(), r"TooLong returned.*shape \((2|6),\)"),
]


@pytest.mark.parametrize("kind", ["single", "vector", "on_tensors", "adapted"])
def test_a_reward_that_is_no_finite_number_a_row_is_refused_by_name(kind):
    for reward, message in RESULTS:
        player = ready(kind, reward)
        with pytest.raises(RewardError, match=f"reward .*{message}"):
            player.step(first_action(player))
    if kind == "on_tensors":
        player = ready(kind, lambda _, costs, after: costs.delay.to(torch.complex64))
        with pytest.raises(RewardError, match="complex64, expected real numbers"):
            player.step(first_action(player))
        return
    player = ready(kind, last_is_nan)
    with pytest.raises(RewardError, match=f"nan is nan in environment {0 if kind == 'single' else 2}"):
        player.step(first_action(player))


@pytest.mark.parametrize("kind", ["vector", "on_tensors"])
def test_rewards_of_every_real_type_count(kind):
    for real in ("int32", "int64", "float32", "float64"):

        def twos(_, costs, after, real=real):
            kept = np.full(len(costs.delay), -2.0).astype(real)
            return torch.from_numpy(kept) if kind == "on_tensors" else kept

        player = ready(kind, twos)
        rewards = player.env.step(first_action(player))[1]
        assert rewards.tolist() == [-2.0] * 3
        assert rewards.dtype in (np.float64, torch.float32)


# A reward that fails takes no round


class Failing:
    """Minus the delay, but for the calls that fail."""

    def __init__(self, *calls):
        self.calls, self.count = calls, -1

    def __call__(self, before, costs, after):
        self.count += 1
        return None if self.count in self.calls else -costs.delay


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("single", {}),
        *(("vector", {"autoreset_mode": mode}) for mode in support.MODES),
        *(("on_tensors", {"autoreset_mode": mode}) for mode in support.MODES[:2]),
    ],
)
@pytest.mark.parametrize("failing", mostly_slow([[0], [1], [0, 2, 4]], [2]))
def test_a_failed_reward_takes_no_round(failing, kind, given):
    """Played again, the system goes on as if nothing had been; on tensors the learner is put back, too."""
    player, untouched = (ready(kind, reward, **given, rounds=3) for reward in (Failing(*failing), Failing()))
    calls = 0
    for action in make_actions(player.env, 5):
        if calls in failing:
            record, summaries = player.env.last_round, player.summaries()
            with pytest.raises(RewardError, match="Failing"):
                player.step(action)
            assert player.env.last_round is record
            assert player.summaries() == summaries
            calls += 1
        mine, other = player.step(action), untouched.step(action)
        calls += 1
        if kind == "on_tensors":
            assert_close(mine, other)
            assert_close(player.summaries(), untouched.summaries())
        for one, its in zip(mine, other, strict=True):
            assert all(one[name] == its[name] for name in ("reward", "terminated", "truncated"))
            assert all(one["info"][name] == its["info"][name] for name in ("delay", "cost", "backlog"))
        state, expected = player.env.state, untouched.env.state
        for name in ("uplink_gain", "speed", "backlog"):
            np.testing.assert_array_equal(getattr(state, name), getattr(expected, name))
        if any(done := player.done(mine)) and player.mode.value == "Disabled":
            break
    for mine, its in zip(player.summaries(), untouched.summaries(), strict=True):
        for name in ("rounds", "total_delay", "return", "final_backlog"):
            assert mine["ended"][name] == pytest.approx(its["ended"][name], rel=1e-12)
    assert all(done) or kind != "single"


# How it is called


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
    "function": per_cluster,
    "any": lambda *args: -args[1].delay,
    "option": lambda before, costs, after, weight=1.0: -weight * costs.delay,
    "rest": lambda before, *rest: -rest[0].delay,
    "two": lambda before, costs, after=None: -costs.delay,
    "object": Delay(),
    "method": Delay().method,
    "partial": functools.partial(lambda weight, before, costs, after: -weight * costs.delay, 1.0),
    "keyword": functools.partial(lambda before, costs, after, *, weight: -weight * costs.delay, weight=1.0),
    "wrapped": wrapped(per_cluster),
    "module": DelayModule(),
    "silent": max,
}
WRONG = {
    "none": lambda: 1.0,
    "one": lambda a: a.delay,
    "two": lambda a, b: a,
    "four": lambda a, b, c, d: a,
    "keyword": lambda *, costs: costs,
    "wrapped": wrapped(lambda a: a.delay),
    "module": OneArgument(),
}


@pytest.mark.parametrize("name", RIGHT)
def test_callables_of_three_arguments_are_accepted(name):
    assert OwnReward(RIGHT[name]).function is RIGHT[name]


@pytest.mark.parametrize("name", WRONG)
def test_callables_of_other_numbers_of_arguments_are_refused(name):
    with pytest.raises(ScenarioError, match=r"reward = .*it is called as reward\(before, costs, after\)"):
        OwnReward(WRONG[name])


@pytest.mark.parametrize("kind", ["single", "vector", "on_tensors"])
def test_what_cannot_be_called_is_no_reward(kind):
    with pytest.raises(ScenarioError, match="reward = 5 is neither a name"):
        KINDS[kind](reward=5)
