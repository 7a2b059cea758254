"""Errors in the middle of a round of real training: the environment goes on only from a clean state."""

import copy
from itertools import count

import numpy as np
import pytest
from state_ways_support import assert_same
from variants_support import mostly_slow

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import NotResetError
from collapipe_env.training import federation, held_out_evaluation
from collapipe_env.training.exchange import Exchange

N, H = 3, 2
SCENARIO = {
    "base": "small",
    "cluster": {"clusters": N},
    "workload": {"local_steps": H},
    "learning": {"evaluation_samples": 20, "metric_samples": 20, "evaluate_every": 1},
    "dynamics": {"rounds": 4},
}
PASSES = (federation, "pipeline_step")
POINTS = {
    "first cluster": (PASSES, 1, MemoryError),
    "last cluster": (PASSES, N * H, KeyboardInterrupt),
    "second row": (PASSES, N * H + 1, RuntimeError),
    "aggregation": ((Exchange, "end_round"), 1, KeyboardInterrupt),
    "evaluation": ((held_out_evaluation.Evaluator, "__call__"), 1, FloatingPointError),
    "reward": (None, 1, KeyboardInterrupt),
    "beginning": ((federation, "begin_training"), 1, MemoryError),
}
"""Where a round breaks off: a function, the number of its call, and the error."""
IN_ROUNDS = [point for point in POINTS if point != "beginning"]
CASES = [(rows, point) for rows in (None, 2) for point in IN_ROUNDS if rows or point != "second row"]


def made(rows):
    return CollaPipeEnv(SCENARIO) if rows is None else CollaPipeVectorEnv(rows, SCENARIO, "real")


def actions_of(env):
    env.action_space.seed(0)
    return [env.action_space.sample() for _ in range(3)]


def break_off(env, point, monkeypatch, play, action):
    """Run into an error while a round is played."""
    place, number, error = POINTS[point]
    calls, (owner, name) = count(1), place or (env._mdp, "_judge")
    original = getattr(owner, name)

    def failing(*args, **kwargs):
        if next(calls) == number:
            raise error("broken off")
        return original(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, failing)
        with pytest.raises(error, match="broken off"):
            play(action)


def assert_refuses(env, action, rows=r"\[0"):
    for entry in (lambda: env.step(action), lambda: env.simulate(action), env.get_state):
        with pytest.raises(NotResetError, match=rf"environments {rows}.*broke off.*call reset\(\)"):
            entry()


@pytest.mark.parametrize(("rows", "point"), mostly_slow(CASES, [1, 4, 6]))
def test_a_round_that_breaks_off_leaves_no_trace_after_a_reset_or_a_state(rows, point, monkeypatch):
    env, twin = made(rows), made(rows)
    actions = actions_of(env)
    for one in (env, twin):
        one.reset(seed=0)
        one.step(actions[0])
    before = env.get_state()
    break_off(env, point, monkeypatch, env.step, actions[1])
    assert_refuses(env, actions[1])
    assert_refuses(copy.deepcopy(env), actions[1])
    env.set_state(before)
    assert_same(env.step(actions[1]), twin.step(actions[1]))
    assert_same(env.get_state(), twin.get_state())

    break_off(env, point, monkeypatch, env.step, actions[2])
    if rows:
        env.reset(options={"reset_mask": np.array([True, False])})
        assert_refuses(env, actions[2], r"\[1\]")
    fresh = made(rows)
    assert_same(env.reset(seed=5), fresh.reset(seed=5))
    for action in actions:
        assert_same(env.step(action), fresh.step(action))
    assert_same(env.get_state()["mdp"]["simulator"], fresh.get_state()["mdp"]["simulator"])


def test_a_simulation_that_breaks_off_changes_nothing(monkeypatch):
    env = made(None)
    actions = actions_of(env)
    env.reset(seed=0)
    before = env.get_state()
    break_off(env, "aggregation", monkeypatch, env.simulate, actions[0])
    assert_same(env.get_state(), before)


def test_rows_whose_reset_breaks_off_are_refused(monkeypatch):
    env, twin = made(2), made(2)
    actions = actions_of(env)
    for one in (env, twin):
        one.reset(seed=0)
        one.step(actions[0])
    second = {"reset_mask": np.array([False, True])}
    break_off(env, "beginning", monkeypatch, lambda mask: env.reset(options=mask), second)
    assert_refuses(env, actions[1], r"\[1\]")
    for one in (env, twin):
        one.reset(seed=7, options=second)
    assert_same(env.step(actions[1]), twin.step(actions[1]))
