"""One row of the vector environment, with the interface of a single environment."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collapipe_env.envs.env import CollaPipeEnv, refuse_unknown
from collapipe_env.envs.mdp import row_of
from collapipe_env.envs.observation_kinds import Observation, row_of_observation
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import ScenarioError, nearest_name
from collapipe_env.ground.records import mapped

Rows = npt.NDArray[np.intp] | slice
_SHARED = ("scenario", "codec", "observation_layout", "reference_delay", "rounds", "render_mode", "spec")
"""Attributes of the vector environment that are the same for all rows."""
_BY_ROW = ("state", "truth", "last_round")
"""Those of which a row shows its own part (1, ...)."""


class EnvironmentRow:
    """One row of a vector environment, with the interface of :class:`~collapipe_env.envs.env.CollaPipeEnv`.

    A row may be read and reset; it cannot step, as all rows step together. Attributes have the names and
    meanings of the single environment's. Those that no environment has may be set freely: each row keeps its
    own.
    """

    def __init__(self, env: CollaPipeVectorEnv, index: int) -> None:
        self._env, self._index = env, index
        self.metadata = dict(CollaPipeEnv.metadata)
        self.action_space, self.observation_space = env.single_action_space, env.single_observation_space

    @property
    def unwrapped(self) -> EnvironmentRow:
        """The row itself: nothing is wrapped around it."""
        return self

    def summary(self) -> dict[str, float]:
        """Summary of the episode so far; see :meth:`collapipe_env.envs.mdp.BatchMDP.summaries`."""
        return self._env.summary(self._index)

    def ended_summary(self) -> dict[str, float]:
        """Summary of the last episode that ended, kept over its autoreset; empty before the first ends."""
        return self._env.ended_summary(self._index)

    def render(self) -> npt.NDArray[np.uint8] | None:
        """The row's picture (H, W, 3), uint8; ``None`` without a render mode. Draws all rows."""
        pictures = self._env.render()
        return None if pictures is None else pictures[self._index]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, float]]:
        """Start a new episode in this row alone; the others continue.

        Raises:
            ScenarioError: If another row was never reset, or for an option; none are known.
        """
        refuse_unknown(options or {}, ())
        mask = np.arange(self._env.num_envs) == self._index
        seeds = [seed if row == self._index else None for row in range(self._env.num_envs)]
        observation, info = self._env.reset(seed=seeds, options={"reset_mask": mask})
        return row_of_observation(observation, self._index), row_of(info, self._index)

    def step(self, *_: Any, **__: Any) -> None:
        """Refused, as is ``step_allocation``.

        Raises:
            ScenarioError: Always; it names what to call instead.
        """
        raise ScenarioError(
            f"row {self._index} alone cannot step: the rows step together; call step(actions) or "
            "step_allocation(allocation) of the whole, with one action or allocation a row (E, ...)"
        )

    step_allocation = step

    def close(self) -> None:
        """Do nothing: the vector environment closes all rows at once."""

    def has_wrapper_attr(self, name: str) -> bool:
        """Whether the row has an attribute."""
        return hasattr(self, name)

    def get_wrapper_attr(self, name: str) -> Any:
        """An attribute of the row."""
        return getattr(self, name)

    def __getattr__(self, name: str) -> Any:
        # Only reached for names that are not found. copy and pickle look up private names before the row has
        # any attributes.
        if name in _SHARED:
            return getattr(self._env, name)
        if name in _BY_ROW:
            return mapped(getattr(self._env, name), lambda a: a[self._index : self._index + 1])
        known = [] if name.startswith("_") else [n for n in dir(self) if not n.startswith("_")]
        hint = f": {nearest_name(name, [*known, *_SHARED, *_BY_ROW])}" if known else ""
        if name in ("np_random", "np_random_seed"):
            hint = ": the generators of the rows are set by seed() and reset()"
        raise AttributeError(f"a row of the vector environment has no attribute {name!r}{hint}")


def rows_of_columns(columns: dict[str, npt.NDArray[Any]], rows: Rows) -> list[dict[str, Any]]:
    """Turn arrays (E,) by name, at least one, into dictionaries of plain numbers, one per row."""
    values = zip(*(column[rows].tolist() for column in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in values]
