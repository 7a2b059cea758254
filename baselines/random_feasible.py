"""Uniformly random actions: the floor of every comparison."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import action_codec
from collapipe_env.simulator.state import SystemState


class RandomFeasible:
    """Draws every number of the action uniformly from [-1, 1]; every action decodes to a feasible allocation.

    Args:
        seed: Seed of the draws until :meth:`reset` gives another.
    """

    name = "Random"

    def __init__(self, scenario: Scenario, seed: int = 0) -> None:
        self.scenario = scenario
        self._seed = seed
        self._size = action_codec(scenario).action_size
        self._rng = np.random.default_rng(seed)

    def reset(self, seed: int | None = None) -> None:
        """Start the draws anew, from ``seed`` or from the seed of the last start."""
        self._seed = self._seed if seed is None else seed
        self._rng = np.random.default_rng(self._seed)

    def act(
        self,
        observation: npt.NDArray[np.float32],  # noqa: ARG002 - part of the interface
        state: SystemState,
    ) -> npt.NDArray[np.float32]:
        """Decide one round; see :class:`~collapipe_env.schedulers.Scheduler`."""
        rows = state.uplink_gain.shape[0]
        return self._rng.uniform(-1.0, 1.0, (rows, self._size)).astype(np.float32)
