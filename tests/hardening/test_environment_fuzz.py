"""Random scenarios under random and extreme actions: every round keeps the invariants, every fault is named.

``COLLAPIPE_FUZZ_STEPS`` sets the steps of the long run, ``COLLAPIPE_FUZZ_SEED`` where its scenarios begin.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from typing import Any

import numpy as np
import pytest
from playing_support import check_observation
from round_invariants import check_round
from scenario_fuzz import drawn_scenario
from state_ways_support import assert_same

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import AllocationError, CollaPipeError

pytestmark = [
    # Scenarios whose budgets nobody can meet, and fields that have no effect, are valid.
    pytest.mark.filterwarnings("ignore::collapipe_env.feasibility.EnergyBudgetWarning"),
    pytest.mark.filterwarnings("ignore::collapipe_env.simulator.idle_fields.IdleFieldWarning"),
    pytest.mark.filterwarnings("ignore::collapipe_env.simulator.law_ranges.LawRangeWarning"),
]

LONG = int(os.environ.get("COLLAPIPE_FUZZ_STEPS", "1000000"))
FIRST = int(os.environ.get("COLLAPIPE_FUZZ_SEED", "1000"))
PARTS = 20


def legal_actions(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Real numbers of any size: what is outside of the box is clipped."""
    way = rng.integers(8)
    if way == 0:
        return rng.choice([-1.0, 1.0], shape)
    if way == 1:
        return np.broadcast_to(rng.choice([-1.0, 0.0, 1.0, -0.0, 5e-324], (shape[0], 1)), shape).copy()
    if way == 2:
        return rng.choice([-1.7e308, -1e30, -2.0, 2.0, 1e30, 1.7e308], shape)
    if way == 3:
        return np.nextafter(rng.choice([-1.0, 0.0, 1.0], shape), rng.choice([-9.0, 9.0], shape))
    if way == 4:
        return rng.integers(-128, 128, shape).astype(np.int8)
    if way == 5:
        return np.where(rng.random(shape) < 0.1, rng.uniform(-1.0, 1.0, shape), -1.0).astype(np.float16)
    return rng.uniform(-1.2, 1.2, shape).astype(np.float32)


def illegal_actions(rng: np.random.Generator, shape: tuple[int, int]) -> Any:
    """Something that no environment plays."""
    actions = rng.uniform(-1.0, 1.0, shape)
    way = rng.integers(9)
    if way < 3:
        actions[rng.integers(shape[0]), rng.integers(shape[1])] = (np.nan, np.inf, -np.inf)[way]
        return actions if rng.random() < 0.5 else actions.astype(np.float32)
    return [
        actions[:, :-1], actions[1:], actions[None], actions > 0.0, actions + 1j, actions.astype(object),
        actions.astype(str), None, "up", actions.astype("datetime64[s]"),
    ][rng.integers(10)]  # fmt: skip


class Fuzzed:
    """Rows of one drawn scenario under legal and illegal actions.

    Args:
        seed: Of the scenario, and of what is done to it.
        rows: Rows of the vector environment.
    """

    def __init__(self, seed: int, rows: int) -> None:
        self.scenario, self.kind = drawn_scenario(seed)
        self.rng = np.random.default_rng([seed, 78])
        self.rows = rows
        observation = str(self.rng.choice(["flat", "graph"]))
        self.given = {"learner": "surrogate", "observation": observation}
        self.env = CollaPipeVectorEnv(rows, self.scenario, **self.given)
        self.shape = self.env.action_space.shape
        self.refused: Counter[str] = Counter()
        self.seed = int(self.rng.integers(2**31))

    def play(self, steps: int) -> int:
        """Play some steps of all rows; returns how many of rows were played."""
        env, ended = self.env, np.zeros(self.rows, dtype=bool)
        first, _ = env.reset(seed=self.seed)
        check_observation(env.observation_space, first)
        self.check_refusals()
        for step in range(steps):
            actions = legal_actions(self.rng, self.shape)
            try:
                found = env.step(actions)
            except CollaPipeError as error:
                self.expect(error)
                self.refused[one_line(error)[:60]] += 1
                return step * self.rows
            check_round(env, found, ended)
            if step == 0:
                self.check_single(actions[0], found)
            ended = found[2] | found[3]
            if self.rng.random() < 0.02:
                self.check_clipping()
            if self.rng.random() < 0.05:
                self.check_refusals()
        return steps * self.rows

    def expect(self, error: CollaPipeError) -> None:
        """Only where fields lie anywhere in their ranges a round may have no end."""
        if self.kind != "wild":
            raise AssertionError(f"a {self.kind} scenario was refused: {error}")

    def check_refusals(self) -> None:
        """Illegal actions get one error of one line, and change nothing."""
        wrong, before = illegal_actions(self.rng, self.shape), self.env.get_state()
        # Rows that wait for their reset ignore what their action holds.
        waiting = before["env"]["done"]
        if isinstance(wrong, np.ndarray) and wrong.shape == self.shape and waiting.any():
            return
        with pytest.raises(AllocationError) as raised:
            self.env.step(wrong)
        one_line(raised.value)
        assert_same(self.env.get_state(), before, "state")

    def check_clipping(self) -> None:
        """Actions outside of the box play what their clipped numbers play."""
        actions = 10.0 * self.rng.standard_normal(self.shape)
        try:
            mine, its = self.env.simulate(actions), self.env.simulate(np.clip(actions, -1.0, 1.0))
        except CollaPipeError as error:
            self.expect(error)
            return
        assert_same(mine[0], its[0], "observation")
        np.testing.assert_array_equal(mine[1], its[1])

    def check_single(self, action: np.ndarray, found: Any) -> None:
        """A single environment plays what the first row plays, bit for bit."""
        env = CollaPipeEnv(self.scenario, **self.given)
        env.reset(seed=self.seed)
        alone = env.step(action)
        row = {k: v[0] for k, v in found[0].items()} if isinstance(found[0], dict) else found[0][0]
        assert_same(alone[0], row, "observation")
        assert alone[1:4] == (found[1][0], found[2][0], found[3][0])


def one_line(error: Exception) -> str:
    """The message of an error, which is one line that can be read."""
    text = str(error)
    assert text
    assert "\n" not in text
    assert len(text) < 1000
    return text


def fuzz(first_seed: int, steps: int, rows: int, each: int) -> tuple[int, int, Counter[str]]:
    """Play drawn scenarios until so many steps of rows are played.

    Returns:
        Steps, scenarios, and refusals of rounds without end by the beginning of their messages.
    """
    done, scenarios, refused, faults = 0, 0, Counter(), []
    for seed in itertools.count(first_seed):
        if done >= steps or len(faults) >= 5:
            break
        try:
            fuzzed = Fuzzed(seed, rows)
            done += max(fuzzed.play(each), rows)
            refused += fuzzed.refused
        except Exception as error:
            faults.append(f"seed {seed}: {type(error).__name__}: {str(error)[:600]}")
        scenarios += 1
    assert not faults, "\n".join(faults)
    return done, scenarios, refused


@pytest.mark.parametrize("part", range(8))
def test_every_round_of_drawn_scenarios_keeps_the_invariants(part: int) -> None:
    done, scenarios, _ = fuzz(2 * part, 250, 8, 16)
    assert done >= 250
    assert scenarios >= 2


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(PARTS))
def test_the_long_run(part: int, capsys: pytest.CaptureFixture[str]) -> None:
    done, scenarios, refused = fuzz(FIRST + 100_000 * part, LONG // PARTS, 50, 50)
    with capsys.disabled():
        print(f"\npart {part}: {done:,} steps of {scenarios} scenarios; rounds refused: {dict(refused)}")
    assert done >= LONG // PARTS
