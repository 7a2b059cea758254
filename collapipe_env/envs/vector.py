"""The native vector environment: the same MDP, many environments in one set of array operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from collapipe_env.allocation import Allocation
from collapipe_env.envs.core import BatchMDP, BatchStep, MDPViews
from collapipe_env.envs.env import CollaPipeEnv, ScenarioLike, refuse_unknown
from collapipe_env.envs.rewards import Reward
from collapipe_env.envs.snapshot import Snapshots
from collapipe_env.envs.summaries import row_of
from collapipe_env.errors import ScenarioError, StateError, shown
from collapipe_env.learners.base import Learner
from collapipe_env.real_numbers import real_numbers
from collapipe_env.scenario import load_scenario
from collapipe_env.state_trees import (
    Tree,
    children_of,
    generator_of,
    generator_tree,
    require_alike,
    rewound,
)

BoolArray = npt.NDArray[np.bool_]


StepResult = tuple[
    npt.NDArray[np.float32], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], dict[str, Any]
]


class CollaPipeVectorEnv(
    MDPViews,
    Snapshots[StepResult],
    VectorEnv[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[Any]],
):
    """``num_envs`` environments of :class:`~collapipe_env.envs.env.CollaPipeEnv` in one batch.

    Row ``i`` with seed ``s + i`` is bit-identical to a single environment with that seed. Arrays that a
    call returns are never written to again. :attr:`rounds`, :meth:`simulate`, :meth:`get_state` and the
    others of the single environment are here for all rows at once.

    Args:
        num_envs: Number of environments, >= 1.
        scenario: As for the single environment; the same for all rows.
        learner: Likewise.
        reward: Likewise.
        render_mode: ``None`` or ``"rgb_array"``.
        autoreset_mode: ``NextStep`` (default), ``SameStep`` or ``Disabled``, or Gymnasium's enum.
        max_episode_steps: Ends episodes earlier than the scenario does; ``None`` for the scenario's own
            length.
        **unknown: Refused, with the nearest valid name.

    Raises:
        ScenarioError: For an unknown or misspelt argument or scenario field.
    """

    def __init__(
        self,
        num_envs: int = 1,
        scenario: ScenarioLike = "medium",
        learner: str | Learner = "real",
        reward: str | Reward = "lyapunov",
        render_mode: str | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        max_episode_steps: int | None = None,
        **unknown: Any,
    ) -> None:
        valid = ("num_envs", "scenario", "learner", "reward", "render_mode", "autoreset_mode")
        refuse_unknown(unknown, (*valid, "max_episode_steps"))
        for name, value in (("num_envs", num_envs), ("max_episode_steps", max_episode_steps)):
            if value is not None and value < 1:
                raise ScenarioError(f"{name} = {value!r}: at least 1 is needed")
        if render_mode not in (None, "rgb_array"):
            raise ScenarioError(f"render_mode = {render_mode!r} is not known: use 'rgb_array' or None")
        self.autoreset_mode = autoreset_mode_of(autoreset_mode)
        self.metadata = {**CollaPipeEnv.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = render_mode
        self.num_envs = num_envs
        self._mdp = BatchMDP(load_scenario(scenario), learner, reward, num_envs, max_episode_steps)
        self.single_action_space = self._mdp.action_space()
        self.single_observation_space = self._mdp.observer.space()
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._rngs: list[np.random.Generator | None] = [None] * num_envs
        self._done = np.zeros(num_envs, dtype=np.bool_)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Start new episodes.

        Args:
            seed: One seed for row 0, the next ones for the other rows; or a list, one entry a row.
            options: ``{"reset_mask": array of bool (E,)}`` resets only some rows.

        Raises:
            ScenarioError: For a list of the wrong length, a bad mask or an unknown option.
        """
        options = dict(options or {})
        mask = checked_mask(options.pop("reset_mask", None), self.num_envs)
        refuse_unknown(options, ("reset_mask",))
        seed_rows(self._rngs, seed, mask)
        observation = self._mdp.reset(self._generators(), mask)
        self._done[slice(None) if mask is None else mask] = False
        rows = np.ones(self.num_envs, dtype=np.bool_) if mask is None else mask.copy()
        info: dict[str, Any] = {}
        for name, values in self._mdp.reset_info().items():
            info[name], info[f"_{name}"] = values, rows
        return observation, info

    def step(
        self, actions: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], dict[str, Any]]:
        """Play one round in every row."""
        actions = real_numbers("actions", actions)
        self._mdp.check_shape(actions)
        if self.autoreset_mode is AutoresetMode.NEXT_STEP and self._done.any():
            # Rows that are about to be reset ignore their action, whatever it holds.
            actions = np.where(self._done[:, None], np.float32(0.0), actions)
        return self._finish(lambda: self._mdp.step(actions))

    def step_allocation(
        self, allocation: Allocation
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], dict[str, Any]]:
        """Play one round with allocations (E, ...), also such as the box cannot express.

        Raises:
            AllocationError: If one is infeasible; nothing is played then.
        """
        return self._finish(lambda: self._mdp.play(allocation))

    def _finish(
        self, play: Any
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], dict[str, Any]]:
        mode = self.autoreset_mode
        resetting = self._done.copy()
        if mode is AutoresetMode.DISABLED and resetting.any():
            raise ScenarioError(
                f"environments {np.flatnonzero(resetting).tolist()} are done: with autoreset disabled, reset "
                "them first with reset(options={'reset_mask': mask})"
            )
        step: BatchStep = play()
        observation, reward = step.observation, step.reward
        terminated, truncated = step.terminated, step.truncated
        live = np.ones(self.num_envs, dtype=np.bool_)
        info: dict[str, Any] = {}
        if mode is AutoresetMode.NEXT_STEP and resetting.any():
            live = ~resetting
            observation = self._mdp.reset(self._generators(), resetting)
            reward = np.where(resetting, 0.0, reward)
            terminated, truncated = terminated & live, truncated & live
        done = terminated | truncated
        if done.any():
            self._mdp.keep_summaries(done)
        if mode is AutoresetMode.SAME_STEP and done.any():
            final = np.full(self.num_envs, None, dtype=object)
            for row in np.flatnonzero(done):
                final[row] = observation[row].copy()
            info["final_obs"], info["_final_obs"] = final, done.copy()
            info["final_info"], info["_final_info"] = _masked(step.info, done), done.copy()
            observation = self._mdp.reset(self._generators(), done)
            live, begun = ~done, done
        else:
            begun = resetting
        info.update(_masked(step.info, live))
        if begun.any():
            # Rows that begin an episode say what reset says, as in Gymnasium's own vector environments.
            for name, values in self._mdp.reset_info().items():
                info[name] = np.where(begun, values, info.get(name, values))
                info[f"_{name}"] = info.get(f"_{name}", False) | begun
        self._done = np.zeros_like(done) if mode is AutoresetMode.SAME_STEP else done
        return observation, reward, terminated, truncated, info

    def _generators(self) -> list[np.random.Generator]:
        missing = [row for row, rng in enumerate(self._rngs) if rng is None]
        if missing:
            raise ScenarioError(f"environments {missing} were never reset: call reset() first")
        return [rng for rng in self._rngs if rng is not None]

    def summary(self, row: int) -> dict[str, float]:
        """Summary of one row's episode so far; after an autoreset that is the new one."""
        return self._mdp.summary(row)

    def ended_summary(self, row: int) -> dict[str, float]:
        """Summary of one row's last episode that ended; empty before the first."""
        return row_of(self._mdp.ended_summaries, row)

    @property
    def ended_summaries(self) -> dict[str, npt.NDArray[Any]]:
        """Of each row's last episode that ended, arrays (E,) by name with masks ``_name``; empty before any.

        A mask is False where no episode has ended, and for ``time_to_target`` where the target was missed.
        The names are those of :meth:`collapipe_env.envs.core.BatchMDP.summaries`.
        """
        return dict(self._mdp.ended_summaries)

    def _own_state(self) -> Tree:
        return {
            "autoreset_mode": str(self.autoreset_mode.value),
            "rngs": {str(row): generator_tree(rng) for row, rng in enumerate(self._rngs)},
            "done": self._done.copy(),
        }

    def _read_own_state(self, tree: Any) -> tuple[BoolArray, Callable[[], None]]:
        rows = range(self.num_envs)
        template = {"autoreset_mode": "", "rngs": dict.fromkeys(map(str, rows)), "done": self._done}
        require_alike(tree, template, "env", frozenset(f"env/rngs/{row}" for row in rows))
        if tree["autoreset_mode"] != self.autoreset_mode.value:
            raise StateError(
                f"the state is of autoreset_mode = {shown(tree['autoreset_mode'])}, this is "
                f"{self.autoreset_mode.value!r}: build the environment with the same one"
            )
        rngs = [generator_of(tree["rngs"][str(row)], f"env/rngs/{row}") for row in rows]

        def apply() -> None:
            self._rngs, self._done = rngs, tree["done"].copy()

        return np.array([rng is not None for rng in rngs]), apply

    def _remember(self) -> Callable[[], None]:
        rngs, done = self._rngs.copy(), self._done.copy()
        children = [None if rng is None else children_of(rng) for rng in rngs]

        def put_back() -> None:
            self._done = done
            # A reset takes a child of the seed sequence, which cannot be given back to it.
            self._rngs = [
                rng if rng is None or count is None or children_of(rng) == count else rewound(rng, count)
                for rng, count in zip(rngs, children, strict=True)
            ]

        return put_back

    def render(self) -> tuple[npt.NDArray[np.uint8], ...] | None:
        """One picture a row of the round just played; ``None`` without a render mode.

        Before the first round of an episode the picture shows what the even split would do.
        """
        if self.render_mode is None:
            return None
        from collapipe_env.rendering import draw_round
        from collapipe_env.rendering.round_view import preview, round_view

        steps = self.scenario.workload.local_steps
        fresh = self.state.round_index == 0
        planned = preview(self._mdp.simulator) if fresh.any() else None
        pictures = []
        for row in range(self.num_envs):
            title = f"{self.scenario.name}, row {row}"
            # The last round of a row that was just reset belongs to the episode before.
            record = planned if fresh[row] else self.last_round
            if record is planned:
                title += " (even split, not played)"
            assert record is not None
            pictures.append(draw_round(round_view(record, steps, title, row=row)))
        return tuple(pictures)


def seed_rows(
    rngs: list[np.random.Generator | None], seed: int | Sequence[int | None] | None, mask: BoolArray | None
) -> None:
    """Give the rows of a vector environment their generators, in place.

    Args:
        rngs: Generators of all rows, ``None`` for a row that never had one; those without a seed go on.
        seed: One number for row 0, the next ones for the other rows; or a list, one entry a row.
        mask: Rows that are to be reset; ``None`` for all.

    Raises:
        ScenarioError: For a list of the wrong length.
    """
    envs = len(rngs)
    if seed is None or isinstance(seed, int | np.integer):
        seeds = [None if seed is None else int(seed) + row for row in range(envs)]
    else:
        seeds = list(seed)
        if len(seeds) != envs:
            raise ScenarioError(f"seed lists {len(seeds)} entries for {envs} environments")
    for row, one in enumerate(seeds):
        if (mask is None or mask[row]) and (one is not None or rngs[row] is None):
            rngs[row] = seeding.np_random(None if one is None else int(one))[0]


def _masked(values: dict[str, Any], rows: BoolArray) -> dict[str, Any]:
    """Values with the mask of the rows that have them, under the names that Gymnasium gives masks."""
    out: dict[str, Any] = {}
    for name, value in values.items():
        out[name], out[f"_{name}"] = value, rows.copy()
    return out


def autoreset_mode_of(mode: str | AutoresetMode) -> AutoresetMode:
    """Read how a vector environment is asked to go on after an episode.

    Args:
        mode: Gymnasium's enum, or its value: ``"NextStep"``, ``"SameStep"`` or ``"Disabled"``.

    Raises:
        ScenarioError: For any other name.
    """
    try:
        return mode if isinstance(mode, AutoresetMode) else AutoresetMode(mode)
    except ValueError:
        names = ", ".join(repr(m.value) for m in AutoresetMode)
        raise ScenarioError(f"autoreset_mode = {mode!r} is not known: use one of {names}") from None


def checked_mask(mask: object, num_envs: int) -> BoolArray | None:
    """Read which environments are to be reset.

    Args:
        mask: Booleans (E,), at least one of them True; ``None`` for all environments.
        num_envs: ``E``.

    Raises:
        ScenarioError: For another shape or type, or a mask without a True.
    """
    if mask is None:
        return None
    array = np.asarray(mask)
    if array.shape != (num_envs,) or array.dtype != np.bool_ or not array.any():
        raise ScenarioError(
            f"options['reset_mask'] must be an array of {num_envs} booleans with at least one True, got "
            f"shape {array.shape}, dtype {array.dtype}"
        )
    return array
