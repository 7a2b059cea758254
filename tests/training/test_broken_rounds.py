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
    "budgets": {"device_energy_j": 40, "cu_energy_j": 40},
    "workload": {"local_steps": H, "blocks": 2},
    "learning": {
        "evaluation_samples": 20, "metric_samples": 20, "evaluate_every": 1,
        "proxy": {"width": 8, "feedforward": 8, "sequence_length": 8, "vocabulary": 200},
    },
    "dynamics": {"rounds": 4},
}  # fmt: skip


class Rewards:
    """A reward of the user's own, which may fail."""

    @staticmethod
    def own(before, _, after):
        return before.loss - after.loss


PASSES = (federation, "pipeline_step")
POINTS = {
    "first cluster": (PASSES, 1, MemoryError),
    "last cluster": (PASSES, N * H, KeyboardInterrupt),
    "second row": (PASSES, N * H + 1, RuntimeError),
    "aggregation": ((Exchange, "end_round"), 1, KeyboardInterrupt),
    "evaluation": ((held_out_evaluation.Evaluator, "__call__"), 1, FloatingPointError),
    "reward": ((Rewards, "own"), 1, KeyboardInterrupt),
    "beginning": ((federation, "begin_training"), 1, MemoryError),
}
"""Where a round breaks off: a function, the number of its call, and the error."""
CASES = [
    (rows, point) for rows in (None, 2) for point in list(POINTS)[:-1] if rows or point != "second row"
]  # fmt: skip


def made(rows):
    settings = {"scenario": SCENARIO, "learner": "real", "reward": lambda *given: Rewards.own(*given)}
    return CollaPipeEnv(**settings) if rows is None else CollaPipeVectorEnv(rows, **settings)


def pair_of(rows):
    """Two equal environments after a round, and further actions."""
    env, twin = made(rows), made(rows)
    env.action_space.seed(0)
    first, *actions = [env.action_space.sample() for _ in range(3)]
    for one in (env, twin):
        one.reset(seed=0)
        one.step(first)
    return env, twin, actions


def break_off(point, monkeypatch, play, action):
    """Run into an error while a round is played."""
    (owner, name), number, error = POINTS[point]
    calls, original = count(1), getattr(owner, name)

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


@pytest.mark.parametrize(("rows", "point"), mostly_slow(CASES, [1, 6, 8]))
def test_a_round_that_breaks_off_leaves_no_trace_after_a_reset_or_a_state(rows, point, monkeypatch):
    env, twin, actions = pair_of(rows)
    before = env.get_state()
    break_off(point, monkeypatch, env.simulate, actions[0])
    assert_same(env.get_state(), before)
    break_off(point, monkeypatch, env.step, actions[0])
    assert_refuses(env, actions[0])
    assert_refuses(copy.deepcopy(env), actions[0])
    env.set_state(before)
    assert_same(env.step(actions[0]), twin.step(actions[0]))
    assert_same(env.get_state(), twin.get_state())
    break_off(point, monkeypatch, env.step, actions[1])
    if rows:
        env.reset(options={"reset_mask": np.array([True, False])})
        assert_refuses(env, actions[1], r"\[1\]")
    assert_same(env.reset(seed=5), twin.reset(seed=5))
    assert_same(env.step(actions[0]), twin.step(actions[0]))
    assert_same(env.get_state()["mdp"]["simulator"], twin.get_state()["mdp"]["simulator"])


def test_rows_whose_reset_breaks_off_are_refused(monkeypatch):
    env, twin, actions = pair_of(2)
    second = {"reset_mask": np.array([False, True])}
    break_off("beginning", monkeypatch, lambda mask: env.reset(options=mask), second)
    assert_refuses(env, actions[0], r"\[1\]")
    for one in (env, twin):
        one.reset(seed=7, options=second)
    assert_same(env.step(actions[0]), twin.step(actions[0]))
