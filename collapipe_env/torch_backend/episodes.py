"""When episodes end, as far as the host knows it by itself."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collapipe_env.errors import ScenarioError
from collapipe_env.torch_backend.rows import BoolArray


class Episodes:
    """Counts the rounds of every environment on the host, so that nobody has to ask the device.

    Args:
        num_envs: ``E``.
        limit: Rounds of an episode.

    Attributes:
        limit: Rounds of an episode.
        done: Rows whose episode is over and that wait for a reset (E,).
        started: Rows that were ever reset (E,).
    """

    def __init__(self, num_envs: int, limit: int) -> None:
        self.limit = limit
        self.done: BoolArray = np.zeros(num_envs, dtype=np.bool_)
        self.started: BoolArray = np.zeros(num_envs, dtype=np.bool_)
        self._rounds = np.zeros(num_envs, dtype=np.int64)

    def require_started(self, rows: BoolArray | None = None) -> None:
        """Refuse to go on where rows were never reset.

        Args:
            rows: Those that must have been (E,); ``None`` for all.

        Raises:
            ScenarioError: Names the rows.
        """
        if self.started.all():
            return
        missing = np.flatnonzero(~self.started if rows is None else rows & ~self.started).tolist()
        if missing:
            raise ScenarioError(f"environments {missing} were never reset: call reset() first")

    def start(self, rows: npt.NDArray[np.intp]) -> None:
        """Begin episodes."""
        self.started[rows] = True
        self._rounds[rows] = 0
        self.done = self.done.copy()
        self.done[rows] = False

    def play(self, terminated: BoolArray | None, waiting: npt.NDArray[np.intp] | None) -> BoolArray:
        """Count a round; returns the rows whose episode it ended (E,).

        Args:
            terminated: Rows that have reached their target (E,); ``None`` where there is none.
            waiting: Rows whose episode was over before the round.
        """
        self._rounds += 1
        ended: BoolArray = self._rounds >= self.limit
        if terminated is not None:
            ended = ended | terminated
        if waiting is not None:
            ended[waiting] = False
        self.done = ended
        return ended
