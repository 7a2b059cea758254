"""The native vector environment: the same MDP, many environments in one set of array operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from collapipe_env.envs.autoreset import (
    autoreset_mode_of,
    checked_mask,
    copied,
    kept_generator,
    masked,
    seed_rows,
)
from collapipe_env.envs.env import (
    CollaPipeEnv,
    ScenarioLike,
    arguments_of,
    checked_render_mode,
    refuse_unknown,
)
from collapipe_env.envs.mdp import BatchMDP, BatchStep, row_of
from collapipe_env.envs.mdp_views import MDPViews
from collapipe_env.envs.observation_kinds import Observation, copied_row
from collapipe_env.envs.rewards import Reward
from collapipe_env.envs.snapshot import Snapshots
from collapipe_env.ground.arrays import BoolArray, namespace
from collapipe_env.ground.backends import NUMPY, Backend
from collapipe_env.ground.errors import AllocationError, ScenarioError, StateError, shown
from collapipe_env.ground.real_numbers import real_numbers
from collapipe_env.ground.state_trees import Tree, generator_of, generator_tree, require_alike
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.learner import Learner

StepResult = tuple[Observation, Any, Any, Any, dict[str, Any]]
"""Observations, rewards, terminated, truncated in the backend's arrays (E, ...), and infos."""


class CollaPipeVectorEnv(MDPViews, Snapshots[StepResult], VectorEnv[Any, Any, Any]):
    """``num_envs`` environments of :class:`~collapipe_env.envs.env.CollaPipeEnv` in one batch.

    Row ``i`` with seed ``s + i`` is bit-identical to a single environment with that seed. Returned arrays
    are never written to again. :attr:`rounds`, :meth:`simulate`, :meth:`get_state` and the other members of
    the single environment work here on all rows at once.

    The other arguments are those of the single environment, the same for all rows.

    Args:
        num_envs: Number of environments, >= 1.
        autoreset_mode: ``NextStep`` (default), ``SameStep`` or ``Disabled``, or Gymnasium's enum.
        max_episode_steps: Ends episodes earlier than the scenario does; ``None`` for the scenario's own
            length.

    Raises:
        ScenarioError: For an unknown or misspelt argument or scenario field.
    """

    _check_actions = True
    _place: Backend = NUMPY

    def __init__(
        self,
        num_envs: int = 1,
        scenario: ScenarioLike = "medium",
        learner: str | Learner = "real",
        reward: str | Reward | None = None,
        render_mode: str | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        max_episode_steps: int | None = None,
        observation: str = "flat",
        **unknown: Any,
    ) -> None:
        refuse_unknown(unknown, arguments_of(CollaPipeVectorEnv))
        self.metadata: dict[str, Any] = dict(CollaPipeEnv.metadata)
        self.render_mode = checked_render_mode(render_mode)
        for name, value in (("num_envs", num_envs), ("max_episode_steps", max_episode_steps)):
            if value is None and name == "max_episode_steps":
                continue
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
                raise ScenarioError(f"{name} = {shown(value)}: use a whole number of at least 1")
        self.autoreset_mode: AutoresetMode = autoreset_mode_of(autoreset_mode)
        self.metadata["autoreset_mode"] = self.autoreset_mode
        self.num_envs = num_envs
        self._mdp = BatchMDP(
            load_scenario(scenario), learner, reward, num_envs, max_episode_steps, self._place, observation
        )
        self.single_action_space: Space[Any] = self._mdp.action_space()
        self.single_observation_space: Space[Any] = self._mdp.observer.space()
        self.action_space: Space[Any] = batch_space(self.single_action_space, num_envs)
        self.observation_space: Space[Any] = batch_space(self.single_observation_space, num_envs)
        self._rngs: list[np.random.Generator | None] = [None] * num_envs
        # Counted on the host, so that no device has to be read. Replaced and never written to.
        self._played = np.zeros(num_envs, dtype=np.int64)
        # Rows whose episode is over and that wait for a reset.
        self._done: BoolArray = np.zeros(num_envs, dtype=np.bool_)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start new episodes.

        Args:
            seed: One seed for row 0, the next numbers for the other rows; or a list, one entry per row.
            options: ``{"reset_mask": array of bool (E,)}`` resets only some rows.

        Raises:
            ScenarioError: For a list of the wrong length, a seed that the single environment refuses, a bad
                mask or an unknown option; no row is reset then.
        """
        options = dict(options or {})
        mask = checked_mask(options.pop("reset_mask", None), self.num_envs)
        refuse_unknown(options, ("reset_mask",))
        put_back = self._remember()
        try:
            seed_rows(self._rngs, seed, mask)
            mask = np.ones(self.num_envs, dtype=np.bool_) if mask is None else mask
            observation = self._start(mask)
        except BaseException:
            put_back()
            raise
        return observation, masked(self._mdp.reset_info(), self._mdp.backend.rows(mask).here)

    def _start(self, mask: BoolArray) -> Any:
        """Begin episodes in some rows (E,); returns all rows' observations."""
        observation = self._mdp.reset(self._generators(), mask)
        self._played, self._done = np.where(mask, 0, self._played), self._done & ~mask
        return observation

    def step(self, actions: Any) -> StepResult:
        """Play one round in every row.

        Args:
            actions: Real numbers (E, N (2K + 3)); values outside [-1, 1] are clipped.

        Raises:
            AllocationError: For another shape or type, or a number that is not finite; nothing is played
                then.
            ScenarioError: Before the first reset, or with autoreset disabled for rows that are done.
        """
        actions = self._read(actions)
        shape = tuple(actions.shape)
        self.codec.check_action_shape(shape)
        if shape != self.action_space.shape:
            raise AllocationError(
                f"actions have shape {shape}, expected {self.action_space.shape}: one action for each "
                "environment"
            )
        if self.autoreset_mode is AutoresetMode.NEXT_STEP and self._done.any():
            # Rows that are about to be reset ignore their action, whatever it holds.
            actions = self._mdp.backend.rows(self._done).fill(actions, 0.0)
        return self._finish(lambda: self._mdp.step(actions, check=self._check_actions))

    def _read(self, actions: Any) -> Any:
        """Actions as an array of the backend."""
        return real_numbers("actions", actions, self.action_space.shape)

    def step_allocation(self, allocation: Allocation) -> StepResult:
        """Play one round with allocations (E, ...), even those that the box cannot express.

        Raises:
            AllocationError: If one is infeasible; nothing is played then.
        """
        return self._finish(lambda: self._mdp.play(allocation))

    def _finish(self, play: Callable[[], BatchStep]) -> StepResult:
        """Play a round and begin the episodes that are due; if one cannot begin, nothing has changed."""
        begins = self.autoreset_mode is AutoresetMode.SAME_STEP or self._done.any()
        if not (begins and self._mdp.may_fail_to_begin):
            return self._finished(play)
        undo = self._mdp.remember(), self._remember()
        try:
            return self._finished(play)
        except BaseException:  # it comes from the user's own process
            for put_back in undo:
                put_back()
            raise

    def _finished(self, play: Callable[[], BatchStep]) -> StepResult:
        """Play a round and begin the episodes that are due, according to the autoreset mode."""
        mode, backend, waiting = self.autoreset_mode, self._mdp.backend, self._done
        if mode is AutoresetMode.DISABLED and waiting.any():
            raise ScenarioError(
                f"environments {np.flatnonzero(waiting).tolist()} are done: with autoreset disabled, reset "
                "them first with reset(options={'reset_mask': mask})"
            )
        step = play()
        observation, reward = step.observation, step.reward
        terminated, truncated = step.terminated, step.truncated
        self._played = self._played + 1
        ended = self._played >= self._mdp.rounds
        if self._mdp.has_target:
            ended = ended | backend.host(terminated)
        self._done = ended = ended & ~waiting
        if ended.any():
            self._mdp.keep_summaries(backend.rows(ended).here)
        begins = ended if mode is AutoresetMode.SAME_STEP else waiting
        if not begins.any():
            return observation, reward, terminated, truncated, masked(step.info, truncated | ~truncated)
        rows = backend.rows(begins)
        here = rows.here
        info: dict[str, Any] = {}
        if mode is AutoresetMode.SAME_STEP:
            info["final_obs"] = self._final_observations(observation, ended)
            info["_final_obs"] = copied(here)
            info["final_info"] = masked(step.info, here)
            info["_final_info"] = copied(here)
        else:
            reward = rows.fill(reward, 0.0)
            terminated, truncated = terminated & ~here, truncated & ~here
        observation = self._start(begins)
        info.update(masked(step.info, ~here))
        # Rows that begin an episode show the reset's information, as Gymnasium's vector environments do.
        for name, values in self._mdp.reset_info().items():
            info[name] = namespace(here).where(here, values, info.get(name, values))
            info[f"_{name}"] = info.get(f"_{name}", False) | here
        return observation, reward, terminated, truncated, info

    def _final_observations(self, observation: Observation, ended: BoolArray) -> Any:
        """Last observations of the rows that ended, in the form of Gymnasium's own vector environments."""
        final = np.full(self.num_envs, None, dtype=object)
        for row in np.flatnonzero(ended).tolist():
            final[row] = copied_row(observation, row)
        return final

    def _generators(self) -> list[np.random.Generator]:
        missing = [row for row, rng in enumerate(self._rngs) if rng is None]
        if missing:
            raise ScenarioError(f"environments {missing} were never reset: call reset() first")
        return [rng for rng in self._rngs if rng is not None]

    @property
    def learner(self) -> Learner:
        """Source of the loss, one learner for all environments."""
        return self._mdp.world.learner

    def summary(self, row: int) -> dict[str, float]:
        """Summary of one row's episode so far; after an autoreset, of the new episode."""
        return self._mdp.summary(row)

    def ended_summary(self, row: int) -> dict[str, float]:
        """Summary of one row's last episode that ended; empty before the first."""
        return row_of(self._mdp.ended_summaries, row)

    @property
    def ended_summaries(self) -> dict[str, npt.NDArray[Any]]:
        """Summaries of each row's last ended episode: arrays (E,) by name with masks ``_name``, or empty.

        A mask is False where no episode has ended, for ``time_to_target`` where the target was missed, and
        for ``metric`` without real training.
        The names are those of :meth:`collapipe_env.envs.mdp.BatchMDP.summaries`.
        """
        return dict(self._mdp.ended_summaries)

    def _own_state(self) -> Tree:
        return {
            "autoreset_mode": str(self.autoreset_mode.value),
            "rngs": {
                str(row): None if rng is None else generator_tree(rng) for row, rng in enumerate(self._rngs)
            },
            "done": self._done.copy(),
        }

    def _read_own_state(self, tree: Any) -> tuple[BoolArray, Callable[[], None]]:
        rows = range(self.num_envs)
        template = {"autoreset_mode": "", "rngs": dict.fromkeys(map(str, rows), ...), "done": self._done}
        require_alike(tree, template, "env")
        if tree["autoreset_mode"] != self.autoreset_mode.value:
            raise StateError(
                f"the state has autoreset_mode = {shown(tree['autoreset_mode'])}, this environment "
                f"{self.autoreset_mode.value!r}: build the environment with the same mode"
            )
        rngs = [
            None if (given := tree["rngs"][str(row)]) is None else generator_of(given, f"env/rngs/{row}")
            for row in rows
        ]

        def apply() -> None:
            self._rngs = rngs
            self._done = tree["done"].copy()
            self._played = self._mdp.backend.host(self._mdp.world.state.round_index)

        return np.array([rng is not None for rng in rngs]), apply

    def _remember(self) -> Callable[[], None]:
        rngs, episodes = [kept_generator(rng) for rng in self._rngs], (self._played, self._done)

        def put_back() -> None:
            self._rngs = [as_it_was() for as_it_was in rngs]
            self._played, self._done = episodes

        return put_back

    def render(self) -> tuple[npt.NDArray[np.uint8], ...] | None:
        """One picture per row of the round just played; ``None`` without a render mode.

        Before the first round of an episode the picture shows what the even split would do.
        """
        if self.render_mode is None:
            return None
        # The last round of a row that was just reset belongs to the episode before.
        fresh = (self.state.round_index == 0).tolist()
        return self._pictures(fresh, [f"{self.scenario.name}, row {row}" for row in range(self.num_envs)])
