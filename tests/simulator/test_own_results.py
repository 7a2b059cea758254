"""What a process of one's own may not return: each wrong result is one clear error, and changes nothing."""

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from process_support import Idle, actions_of, registered, scenario_with
from state_ways_support import assert_same

from collapipe_env.dynamics import CarriedArray, Events, register_process
from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.physics.recovery import RecoveryTerms

E, N, K = 2, 3, 4
COUNT = {"count": CarriedArray("", "s")}
NAN = float("nan")


def with_value(shape, value, at):
    array = np.zeros(shape)
    array[at] = value
    return array


class Spoiled(Idle):
    """Returns what a test says instead of what it should; nothing wrong before that."""

    name = "spoiled"
    result = staticmethod(lambda right: right)

    def spoil(self, part, right):
        return type(self).result(right) if part == self.part else right


class OfAdvance(Spoiled):
    part = "advance"

    def advance(self, *given):
        return self.spoil("advance", super().advance(*given))


class OfApply(Spoiled):
    part = "apply"

    def apply(self, system, carried):  # noqa: ARG002
        return self.spoil("apply", system)


class OfKnown(Spoiled):
    part = "known"

    def known(self, carried, truth, u):  # noqa: ARG002
        return self.spoil("known", replace(truth, speed=1.5 * truth.speed))


class OfSight(Spoiled):
    def __init__(self, scenario, spec):
        super().__init__(scenario, spec)
        self.carries = {**Idle.carries, "count": CarriedArray("", "s", 0.0, shown=(0.0, 1e3))}


class OfEvents(Spoiled):
    part = "events"
    recovery = RecoveryTerms("light", 0.5, 4)

    def events(self, carried, costs):  # noqa: ARG002
        delay = 0.0 * costs.cluster_delay
        return self.spoil("events", Events(delay, 0.0 * costs.energy, delay >= 0.0, costs.memory + np.inf))


@pytest.fixture
def own():
    """Makes and registers a process with other attributes."""
    with registered():
        yield lambda kind, **attributes: register_process(type("Own", (kind,), attributes))


@pytest.fixture
def played(own):
    """Plays a round and another with some result; returns the environment and the state between the two."""

    def play(kind, result):
        process = own(kind, result=staticmethod(lambda right: right))
        env = CollaPipeVectorEnv(E, of(process), "surrogate")
        env.reset(seed=4)
        actions = actions_of(env, 2)
        env.step(actions[0])
        before, process.result = env.state, staticmethod(result)
        error = None
        try:
            env.step(actions[1])
        except ScenarioError as found:
            error = found
        return env, before, error

    return play


def of(process):
    return {**scenario_with(process), "cluster": {"clusters": N, "devices": K}}


WRONG = [
    (OfAdvance, lambda c: {"drawn": c["drawn"]}, "'count' as nothing"),
    (OfAdvance, lambda c: {**c, "extra": 1.0}, "'extra', which its `carries` does not declare"),
    (OfAdvance, lambda c: {**c, "count": c["count"].astype(int)}, r"as int64 \(2,\): expected float64"),
    (OfAdvance, lambda c: {**c, "count": c["count"] + NAN}, r"returned nan in 'count' at \[0\]"),
    (OfApply, lambda _: None, "returned NoneType: return the System that it was given"),
    (OfApply, lambda s: s._replace(speed=with_value((E, N, K), NAN, (1, 2, 3)) + 1.0),
     r"apply of the process 'spoiled' returned nan in .speed. at \[1, 2, 3\]: return numbers from 1e-100"),
    (OfApply, lambda s: s._replace(speed=0.0 * s.speed), r"returned 0.0 in 'speed' at \[0, 0, 0\]"),
    (OfApply, lambda s: s._replace(speed=1e200 * s.speed), "in 'speed' at .*from 1e-100 to"),
    (OfApply, lambda s: s._replace(speed=s.speed[..., :1]), r"'speed' as float64 \(2, 3, 1\): expected"),
    (OfApply, lambda s: s._replace(speed=2.0), r"returned 'speed' as float: expected numbers"),
    (OfApply, lambda s: s._replace(speed=s.speed.astype(str)), r"'speed' as <U\d+ \(2, 3, 4\): expected"),
    (OfApply, lambda s: s._replace(speed=np.ma.masked_array(s.speed, True)), "as MaskedArray: expected"),
    (OfApply, lambda s: s._replace(present=None), "returned 'present' as nothing: expected truth values"),
    (OfApply, lambda s: s._replace(present=1.0 * s.present), "'present' as float64 .* expected truth"),
    (OfApply, lambda s: s._replace(known_gain=s.speed), r"'known_gain' as float64 \(2, 3, 4\): expected"),
    (OfApply, lambda s: s._replace(server_share=np.zeros(E)), "'server_share' at .*from 1e-100 to 1"),
    (OfApply, lambda s: s._replace(cu_position=np.zeros((E, N, 2))), "'cu_position' .* nothing, as before"),
    (OfKnown, lambda _: None, "known .* returned NoneType: return the SystemState that"),
    (OfKnown, lambda t: replace(t, speed=t.speed[:1, :1, :1]), r"'speed' as float64 \(1, 1, 1\): exp"),
    (OfKnown, lambda t: replace(t, budget="much"), "known .* 'budget' as str: expected numbers"),
    (OfKnown, lambda t: replace(t, processes=None), "'processes' as nothing: expected a dictionary"),
    (OfKnown, lambda t: replace(t, absence=t.backlog), "'absence' as float64 .*nothing, as before"),
    (OfEvents, lambda _: 3, r"events .* returned int: return Events\(\.\.\.\)"),
    (OfEvents, lambda i: i._replace(cluster_delay=i.cluster_delay + np.inf),
     r"events .* returned inf in 'cluster_delay' at \[0, 0\]: return numbers"),
    (OfEvents, lambda i: i._replace(trained=1.0 * i.trained), r"as float64 \(2, 3\): expected truth values"),
    (OfEvents, lambda i: i._replace(fails_s=i.fails_s[..., :3]), r"\(2, 3, 3\): expected .* \(2, 3, 4\)"),
    (OfEvents, lambda i: i._replace(fails_s=-2.0),
     r"events .* returned -2.0 in 'fails_s' .*: return numbers from 0 to inf \[s\]"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "result", "message"), WRONG, ids=[str(n) for n in range(len(WRONG))])
def test_a_wrong_result_is_one_clear_error_and_changes_nothing(played, kind, result, message):
    env, before, error = played(kind, result)
    assert re.search(message, str(error))
    assert env.state is before


RIGHT = [(kind, lambda right: right) for kind in (OfApply, OfEvents)]
RIGHT += [
    (OfApply, lambda s, kind=kind: s._replace(speed=s.speed.astype(kind)))
    for kind in (">f8", "f4", "longdouble")
]
RIGHT += [(OfKnown, lambda right: right)]
RIGHT += [(OfEvents, lambda i: i._replace(energy=i.energy.astype("f4")))]
# Harvested power makes a round cheaper, though never cheaper than nothing.
RIGHT += [(OfEvents, lambda i: i._replace(energy=i.energy - 1e9))]


@pytest.mark.parametrize(("kind", "result"), RIGHT)
def test_right_results_are_played(played, kind, result):
    env, before, error = played(kind, result)
    assert error is None
    assert env.state is not before
    assert (env.last_round.costs.energy >= 0.0).all()


def test_failures_without_terms_of_recovery_are_refused(played):
    class Alone(OfEvents):
        recovery = None

    with pytest.raises(ScenarioError, match="'spoiled' says when devices fail, but no process says how"):
        played(Alone, lambda right: right)


def test_numbers_of_other_types_are_played(played):
    halved = played(OfApply, lambda s: s._replace(speed=(0.5 * s.speed).astype(">f8")))[0]
    as_ever = played(OfApply, lambda s: s._replace(speed=0.5 * s.speed))[0]
    np.testing.assert_array_equal(halved.state.speed, as_ever.state.speed)
    assert halved.state.speed.dtype == np.float64
    env = played(OfEvents, lambda i: i._replace(energy=i.energy.astype("f4")))[0]
    env.set_state(env.get_state())


BEGUN = [
    ({"count": 1.0}, r"'count' as float: expected numbers \(2,\)"),
    ({"count": np.zeros(1)}, r"'count' as float64 \(1,\): expected numbers \(2,\)"),
    ({"count": np.full(E, -2.0)}, r"returned -2.0 in 'count' at \[0\]: return numbers from 0 to"),
    ({"count": np.full(E, NAN)}, r"begin of the process 'spoiled' returned nan in 'count' at \[0\]"),
    ({"count": np.zeros(E, dtype=complex)}, "'count' as complex128 .*: expected numbers"),
    ({"count": np.ma.masked_array(np.zeros(E), True)}, "'count' as MaskedArray: expected"),
    ({"other": np.zeros(E)}, r"returned 'count' as nothing: expected numbers"),
]


@pytest.mark.parametrize(("found", "message"), BEGUN, ids=[str(n) for n in range(len(BEGUN))])
def test_a_wrong_begin_is_one_clear_error(own, found, message):
    kind = own(OfSight, begin=lambda *_: found)
    with pytest.raises(ScenarioError, match=message):
        CollaPipeVectorEnv(E, of(kind), "surrogate").reset(seed=1)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"count": np.zeros(1, dtype="f4")}, r"as float32 \(1,\): expected float64 \(1,\), as before"),
        ({"count": np.zeros(1), "more": np.zeros(1)}, "'more', which its `carries` does not declare"),
    ],
)
def test_episodes_begin_alike(own, found, message):
    kind = own(Spoiled, carries=COUNT, begin=lambda *given: {"count": given[2][:, 0]})
    env = CollaPipeVectorEnv(E, of(kind), "surrogate")
    env.reset(seed=1)
    kind.begin = lambda *_: found
    before = env.state
    with pytest.raises(ScenarioError, match=message):
        env.reset(seed=[1, 2], options={"reset_mask": np.array([True, False])})
    assert env.state is before


@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.parametrize("kind", [CollaPipeEnv, partial(CollaPipeVectorEnv, 2)])
def test_an_episode_that_cannot_begin_takes_no_seed(own, kind, seed):
    process = own(Spoiled, carries=COUNT, begin=lambda *given: {"count": given[2][:, 0]})
    env = kind(of(process), "surrogate")
    env.reset(seed=1)
    before = env.get_state()
    process.begin = lambda *given: {"count": NAN * given[2][:, 0]}
    with pytest.raises(ScenarioError, match="returned nan"):
        env.reset(seed=seed)
    assert_same(before, env.get_state())


def test_a_process_that_writes_to_what_it_returned_is_told_so(own):
    kept = {}

    class Keeps(Spoiled):
        carries = COUNT

        def begin(self, system, u):  # noqa: ARG002
            kept["count"] = np.zeros(len(u))
            return dict(kept)

        def advance(self, carried, *_):  # noqa: ARG002
            kept["count"][:] += 1.0
            return dict(kept)

    env = CollaPipeVectorEnv(E, of(own(Keeps)), "surrogate")
    env.reset(seed=1)
    before = env.state
    with pytest.raises(ValueError, match="read-only"):
        env.step(actions_of(env, 1)[0])
    assert env.state is before


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_an_episode_that_cannot_begin_leaves_the_round_before_it_untaken(own, mode):
    kind = own(Idle)
    right = kind.begin

    def env_after(steps):
        env = CollaPipeVectorEnv(E, of(kind), "surrogate", autoreset_mode=mode, max_episode_steps=2)
        env.reset(seed=4)
        for action in actions_of(env, steps):
            env.step(action)
        return env

    due = 2 if mode == "NextStep" else 1
    env, twin = env_after(due), env_after(due)
    action = actions_of(env, 1, seed=9)[0]
    before, kind.begin = env.state, lambda *_: None
    with pytest.raises(ScenarioError, match="begin of the process"):
        env.step(action)
    assert env.state is before
    kind.begin = right
    for one, other in zip(env.step(action)[:4], twin.step(action)[:4], strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(env.state.uplink_gain, twin.state.uplink_gain)


ATTRIBUTES = [
    ({"numbers": "3"}, "numbers of the process 'spoiled' is '3': use a whole number of at least 0"),
    ({"factors": 0}, "factors of the process 'spoiled' is 0: use a whole number of at least 1"),
    ({"carries": ("count",)}, r"carries of the process 'spoiled' is .*: use a dictionary of CarriedArray"),
    ({"carries": {"count": CarriedArray("M")}}, r"carries 'count' with an axis 'M': use numbers, N, K, "),
    ({"recovery": ("light", 0.5, 4)}, r"recovery of the process 'spoiled' is .*: return RecoveryTerms"),
    ({"recovery": RecoveryTerms("soft", 0.5, 4)}, "with a kind of light, heavy, drop-round"),
    ({"recovery": RecoveryTerms("light", -0.5, 4)}, "a positive number of seconds"),
]


@pytest.mark.parametrize(("attributes", "message"), ATTRIBUTES)
def test_wrong_attributes_are_refused_before_anything_is_played(own, attributes, message):
    with pytest.raises(ScenarioError, match=message):
        CollaPipeVectorEnv(E, of(own(OfEvents, **attributes)), "surrogate")


@pytest.mark.parametrize(("axes", "shown"), [("", (0.0, np.inf)), ("", (3.0, 3.0)), ("5", (0.0, 1.0))])
def test_what_is_shown_has_a_finite_range_and_axes_of_the_observation(axes, shown):
    with pytest.raises(ScenarioError, match=f"axes '{axes}' is shown from .*: a feature has finite bounds"):
        CarriedArray(axes, "s", shown=shown)
