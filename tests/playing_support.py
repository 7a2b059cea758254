"""Playing a combined case: build an environment of its kind, play decisions, compare what comes out."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from combination_support import scenario_of
from covering_support import Case
from environments_support import on_host
from gymnasium.vector import AutoresetMode

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.sb3 import make_sb3_vec_env
from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.envs.wrappers import MagnifiedBacklog, MultiDiscreteActions
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.physics.allocation import SCHEDULES, Allocation
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import SCHEDULERS

SINGLE = ("single", "made", "discrete", "magnified")
ROWS = 2
"""Environments of a vector."""


def own_reward(before: Any, costs: Any, after: Any) -> Any:
    """A user's reward, of arrays of either library."""
    return (before.loss - after.loss) / costs.delay


class Played:
    """One environment of a case, or of another kind, and every number that it has handed out.

    Attributes:
        out: Observations, rewards, ends and infos of every reset and step, in their order.
        done: Rows whose episodes have ended and wait for a reset.
        first: Action of the first round.
        saved_at: Length of ``out`` when the state was written; ``done_when_saved`` are those done then.
    """

    def __init__(self, case: Case, kind: str | None = None) -> None:
        self.case, self.kind = case, kind or case["kind"]
        self.vector = self.kind not in SINGLE
        self.env = self._built()
        self.inner: Any = self.env.env if self.kind == "sb3" else self.env.unwrapped
        self.single_space = getattr(self.env, "single_action_space", self.env.action_space)
        self.out: list[dict[str, np.ndarray]] = []
        self.done = np.zeros(ROWS if self.vector else 1, dtype=np.bool_)
        self.first: Any = None
        self.saved_at, self.done_when_saved = 0, self.done

    def _built(self) -> Any:
        case = self.case
        learner: Any = case["learner"]
        if learner == "idle":
            learner = IdleLearner(ROWS if self.vector else 1)
        reward: Any = {"default": None, "own": own_reward}.get(case["reward"], case["reward"])
        scenario = load_scenario(scenario_of(case))
        given = {"learner": learner, "reward": reward, "observation": case["observation"]}
        if self.kind in ("torch", "torch32"):
            real = "float64" if self.kind == "torch" else "float32"
            return CollaPipeTorchVectorEnv(ROWS, scenario, dtype=real, **given)
        if self.kind == "sb3":
            return make_sb3_vec_env(scenario, ROWS, **given)
        if self.vector:
            mode = AutoresetMode.DISABLED if self.kind == "waiting" else AutoresetMode.NEXT_STEP
            return CollaPipeVectorEnv(ROWS, scenario, autoreset_mode=mode, **given)
        if self.kind == "made":
            return gym.make("CollaPipe-Small-v0", scenario=scenario, **given)
        env = CollaPipeEnv(scenario, **given)
        wrapped = {"discrete": MultiDiscreteActions, "magnified": MagnifiedBacklog}
        return wrapped[self.kind](env) if self.kind in wrapped else env

    @cached_property
    def schedulers(self) -> tuple[Any, Any]:
        """The case's scheduler, and the one whose plans get the case's schedule."""
        return tuple(
            SCHEDULERS.get(name)(self.inner.scenario) for name in (self.case["scheduler"], "pipeline")
        )

    def reset(self, seed: int | None = None) -> None:
        """Start episodes in all rows."""
        if self.kind == "sb3":
            self.env.seed(seed)
            self._record(self.env.reset())
        else:
            observation, info = self.env.reset(seed=seed)
            self._record(observation, info)
        self.done[:] = False

    def ready(self) -> None:
        """Begin new episodes where they have ended and the environment does not do it in its next step."""
        if self.done.any() and not self.vector:
            self.reset()
        elif self.kind == "waiting" and self.done.any():
            observation, info = self.env.reset(options={"reset_mask": self.done.copy()})
            self._record(observation, info)
            self.done[:] = False

    def random_action(self, rng: np.random.Generator) -> np.ndarray:
        """Random levels, or random numbers of the box, of which some are at its bounds."""
        shape = (ROWS, *self.single_space.shape) if self.vector else self.single_space.shape
        if self.kind == "discrete":
            return rng.integers(self.single_space.nvec)
        return np.clip(rng.uniform(-1.2, 1.2, shape), -1.0, 1.0).astype(np.float32)

    def decided(self) -> Any:
        """What the case's scheduler decides, for all rows."""
        return self.schedulers[0].act(None, self._state())

    def planned(self) -> Allocation:
        """A plan with the case's schedule: two stages, or one where only one device is there."""
        return scheduled(self.schedulers[1].act(None, self._state()), self._state(), self.case["plan"])

    def step(self, decision: Any) -> None:
        """Play a round with an action or an allocation."""
        self.ready()
        if isinstance(decision, Allocation):
            plan = decision if self.vector else decision[0]
            # Real training, which takes longest, is tried in one kind.
            tried = self.case["learner"] != "real" or self.kind == "single"
            expected = self.inner.simulate(plan) if tried else None
            # Wrappers know actions only.
            found = (self.env if self.vector else self.env.unwrapped).step_allocation(plan)
            if expected is not None:
                mine, its = (np.asarray(on_host(said[1])) for said in (found, expected))
                np.testing.assert_array_equal(mine, its.astype(mine.dtype))
        else:
            if not self.vector and decision.ndim > 1:
                decision = decision[0]
            found = self.env.step(decision)
        if self.kind == "sb3":  # where new episodes have begun
            observation, reward, done, _ = found
            self._record(observation, self.env.last_info, reward=reward, done=done)
            return
        observation, reward, terminated, truncated, info = found
        self._record(observation, info, reward=reward, terminated=terminated, truncated=truncated)
        self.done = np.atleast_1d(on_host(terminated) | on_host(truncated))

    def save(self, path: Path) -> None:
        """Write the state to a file."""
        self.inner.save_state(path)

    def load(self, path: Path) -> None:
        """Go on from a file."""
        self.inner.load_state(path)
        if self.kind == "made":
            self.env.reset(seed=99)  # Gymnasium's wrappers ask for one
            self.inner.load_state(path)
        if self.kind == "sb3":
            self.env.reset()
            self.inner.load_state(path)

    def _state(self) -> Any:
        return self.inner.state.map(on_host)

    def _record(self, observation: Any, info: Any = None, **numbers: Any) -> None:
        parts = observation if isinstance(observation, dict) else {"observation": observation}
        row = {f"observation/{name}": on_host(part) for name, part in parts.items()}
        row |= {name: np.asarray(on_host(value)) for name, value in numbers.items()}
        for name, value in (info or {}).items():
            if name in ("delay", "cost", "backlog", "loss", "metric"):
                row[f"info/{name}"] = np.asarray(on_host(value))
        check_observation((self.inner if self.kind == "sb3" else self.env).observation_space, observation)
        self.out.append(row)


def check_observation(space: Any, observation: Any) -> None:
    """An observation lies within its space."""
    parts = space.spaces if isinstance(observation, dict) else {"observation": space}
    for name, box in parts.items():
        part = on_host(observation[name] if isinstance(observation, dict) else observation)
        assert part.shape == box.shape, f"{name} has shape {part.shape}, not {box.shape}"
        assert np.isfinite(part).all(), f"{name} holds {part[~np.isfinite(part)][0]}"
        wrong = (part < box.low) | (part > box.high)
        assert not wrong.any(), f"{name} {part[wrong][0]} is out of its bounds"
        assert box.contains(part), f"{name} is of type {part.dtype}, not {box.dtype}"


def scheduled(plan: Allocation, state: Any, schedule: str) -> Allocation:
    """A plan with its blocks on the first two devices that can hold them, under a schedule."""
    if schedule == "gpipe":
        return plan
    blocks = np.zeros_like(plan.blocks)
    total = int(plan.blocks.sum(axis=-1).max())
    able = state.memory_cap >= total
    first, count = np.argmax(able, axis=-1), able.sum(axis=-1)
    second = able.shape[-1] - 1 - np.argmax(able[..., ::-1], axis=-1)
    two = count > 1
    np.put_along_axis(blocks, first[..., None], np.where(two, total - total // 2, total)[..., None], axis=-1)
    shared = np.where(two, total // 2, total)
    np.put_along_axis(blocks, second[..., None], shared[..., None], axis=-1)
    micro = np.full_like(plan.micro_batches, 2)
    chunks = np.where((schedule == "interleaved") & two, 2, 1)
    return dataclasses.replace(
        plan,
        blocks=blocks,
        micro_batches=micro,
        schedule=np.full_like(micro, SCHEDULES.index(schedule)),
        caps=np.full_like(blocks, 4),
        chunks=chunks.astype(micro.dtype),
    )


def play(case: Case, path: Path, kind: str | None = None) -> tuple[Played, list[Any]]:
    """Play a case over the end of an episode, and write the state after the first round.

    Returns:
        The environment, and the decisions after the state was written.
    """
    played, rng = Played(case, kind), np.random.default_rng(7)
    played.reset(seed=5)
    played.first = played.random_action(rng)
    played.step(played.first)
    played.save(path)
    played.saved_at, played.done_when_saved = len(played.out), played.done.copy()
    decisions: list[Any] = []
    choices = [
        played.decided,
        lambda: played.random_action(rng),
        played.planned,
        lambda: played.random_action(rng),
    ]
    # Real training takes far longer than the rest of a round, so its episodes are shorter.
    for choose in choices[::2] if case["learner"] == "real" else choices:
        played.ready()
        decisions.append(choose())
        played.step(decisions[-1])
    return played, decisions
