"""What a process of one's own may not return: each wrong result is one clear error, and changes nothing."""

import re

import numpy as np
import pytest
from hook_processes import Idle, actions_of, scenario_with

from collapipe_env.arrays import namespace
from collapipe_env.dynamics import PROCESSES, Interruption, Limits, Price, register_process
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.errors import ScenarioError
from collapipe_env.physics.recovery import RecoveryTerms

E, N, K = 2, 3, 4
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


class SpoiledApply(Spoiled):
    part = "apply"

    def apply(self, system, carried):  # noqa: ARG002
        return self.spoil("apply", system)


class SpoiledLimits(Spoiled):
    part = "limits"

    def limits(self, carried):  # noqa: ARG002
        return self.spoil("limits", Limits())


class SpoiledPrice(Spoiled):
    part = "price"

    def price(self, state, plan):  # noqa: ARG002
        xp = namespace(state.backlog)
        return self.spoil("price", Price(xp.zeros_like(state.backlog[..., 0]), xp.zeros_like(state.backlog)))


class SpoiledInterrupt(Spoiled):
    part = "interrupt"

    def interrupt(self, carried, plan, times, u):  # noqa: ARG002
        xp = namespace(times.delay)
        delay = xp.zeros_like(times.cluster_delay)
        return self.spoil("interrupt", Interruption(delay, xp.zeros_like(times.energy), delay >= 0.0))


class SpoiledFailures(Spoiled):
    part = "failures"
    recovery = RecoveryTerms("light", 0.5, 4)

    def failures(self, carried):
        xp = namespace(carried["count"])
        shape = (len(carried["count"]), self.scenario.clusters, self.scenario.max_devices)
        return self.spoil("failures", xp.full(shape, xp.inf))


@pytest.fixture
def played():
    """Plays a round and another with some result; returns the environment and the state between the two."""
    registered = []

    def play(kind, result):
        process = type("Once", (kind,), {"result": staticmethod(lambda right: right)})
        registered.append(register_process(process))
        scenario = scenario_with(process)
        scenario["cluster"] = {"clusters": N, "devices": K}
        env = CollaPipeVectorEnv(E, scenario, "surrogate")
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

    yield play
    for process in registered:
        PROCESSES._added.pop(process.name)


WRONG = [
    (SpoiledApply, lambda _: None, r"returned NoneType: return system\._replace"),
    (
        SpoiledApply,
        lambda s: s._replace(speed=with_value((E, N, K), NAN, (1, 2, 3)) + 1.0),
        r"apply of the process 'spoiled' returned nan in .speed. at \[1, 2, 3\]: return finite .* above 0",
    ),
    (SpoiledApply, lambda s: s._replace(speed=0.0 * s.speed), r"returned 0.0 in 'speed' at \[0, 0, 0\]"),
    (SpoiledApply, lambda s: s._replace(speed=s.speed[..., :1]), r"'speed' as float64 \(2, 3, 1\): expected"),
    (SpoiledApply, lambda s: s._replace(speed=2.0), r"returned 'speed' as float: expected numbers"),
    (
        SpoiledApply,
        lambda s: s._replace(present=None),
        r"returned 'present' as nothing: expected truth values",
    ),
    (SpoiledApply, lambda s: s._replace(memory_bytes=-s.memory_bytes), r"'memory_bytes' at .*at least 0"),
    (SpoiledApply, lambda s: s._replace(link_gain=s.link_gain * np.inf), "'link_gain' at .*above 0"),
    (
        SpoiledApply,
        lambda s: s._replace(known_gain=s.speed),
        r"'known_gain' as float64 \(2, 3, 4\): expected",
    ),
    (SpoiledApply, lambda s: s._replace(server_share=np.zeros(E)), "'server_share' at .*above 0"),
    (
        SpoiledApply,
        lambda s: s._replace(speed=s.speed.astype(str)),
        r"'speed' as <U\d+ \(2, 3, 4\): expected",
    ),
    (SpoiledApply, lambda s: s._replace(present=1.0 * s.present), "'present' as float64 .* expected truth"),
    (SpoiledLimits, lambda _: None, r"limits .* returned NoneType: return Limits\(\.\.\.\)"),
    (SpoiledLimits, lambda _: Limits(clock="half"), "limits .* returned 'clock' as str: expected numbers"),
    (SpoiledLimits, lambda _: Limits(clock=np.ones((N, K + 1))), r"'clock' as float64 \(3, 5\): expected"),
    (SpoiledLimits, lambda _: Limits(clock=-0.5), r"returned -0.5 in 'clock': return shares"),
    (SpoiledLimits, lambda _: Limits(present=np.ones((E, N, K))), "'present' as float64 .* expected truth"),
    (SpoiledLimits, lambda _: Limits(stay_order=np.full((E, N, K), NAN)), "returned nan in 'stay_order'"),
    (SpoiledPrice, lambda _: (1.0, 2.0), r"price .* returned tuple: return Price\(\.\.\.\)"),
    (
        SpoiledPrice,
        lambda p: p._replace(cluster_delay=p.cluster_delay - 1.0),
        r"returned -1.0 in 'cluster_delay' at \[0, 0\]: return finite seconds, at least 0",
    ),
    (
        SpoiledPrice,
        lambda p: p._replace(cluster_delay=1.0),
        r"'cluster_delay' as float: expected numbers",
    ),
    (
        SpoiledPrice,
        lambda p: p._replace(energy=p.energy[..., 1:]),
        r"as float64 \(2, 3, 4\): expected numbers",
    ),
    (
        SpoiledPrice,
        lambda p: p._replace(energy=p.energy * NAN),
        "returned nan in 'energy' at .*finite joules",
    ),
    (SpoiledInterrupt, lambda _: 3, r"interrupt .* returned int: return Interruption\(\.\.\.\)"),
    (
        SpoiledInterrupt,
        lambda i: i._replace(cluster_delay=i.cluster_delay + np.inf),
        r"interrupt .* returned inf in 'cluster_delay' at \[0, 0\]: return finite seconds",
    ),
    (
        SpoiledInterrupt,
        lambda i: i._replace(trained=1.0 * i.trained),
        r"'trained' as float64 \(2, 3\): expected truth values",
    ),
    (SpoiledFailures, lambda f: f[..., 0], r"failures .* as float64 \(2, 3\): expected numbers \(2, 3, 4\)"),
    (
        SpoiledFailures,
        lambda f: np.full(f.shape, NAN),
        r"failures .* returned nan .* at \[0, 0, 0\]: return seconds",
    ),
    (
        SpoiledFailures,
        lambda f: np.full(f.shape, -2.0),
        r"failures .* returned -2.0 .*: return seconds",
    ),
]


@pytest.mark.parametrize(("kind", "result", "message"), WRONG)
def test_a_wrong_result_is_one_clear_error_and_changes_nothing(played, kind, result, message):
    env, before, error = played(kind, result)
    assert re.search(message, str(error))
    assert env.state is before


RIGHT = [
    (kind, lambda right: right) for kind in (SpoiledApply, SpoiledPrice, SpoiledInterrupt, SpoiledFailures)
]
RIGHT += [(SpoiledLimits, lambda _: Limits(clock=0.5, memory_bytes=np.full((N, 1), 1e12)))]
# Harvested power makes a round cheaper, though never cheaper than nothing.
RIGHT += [(SpoiledPrice, lambda p: p._replace(energy=p.energy - 1e9))]


@pytest.mark.parametrize(("kind", "result"), RIGHT)
def test_right_results_are_played(played, kind, result):
    env, before, error = played(kind, result)
    assert error is None
    assert env.state is not before
    assert (env.last_round.costs.energy >= 0.0).all()


def test_failures_without_terms_of_recovery_are_refused(played):
    class Alone(SpoiledFailures):
        recovery = None

    with pytest.raises(ScenarioError, match="'spoiled' says when devices fail, but no process says how"):
        played(Alone, lambda right: right)
