"""The idle learner, which learns nothing; for uses where only delays and energies matter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from collapipe_env.ground.arrays import BoolArray
from collapipe_env.ground.state_trees import Tree, require_alike
from collapipe_env.simulator.learner import LearningReport, RoundOutcome


class IdleLearner:
    """Learner with a loss of zero and no metric; the system's trajectory is that of any other learner."""

    def __init__(self, num_envs: int) -> None:
        self._report = LearningReport(np.zeros(num_envs), np.full(num_envs, np.nan), np.zeros(num_envs))

    def reset(
        self,
        rngs: Sequence[np.random.Generator],  # noqa: ARG002 - part of the interface
        mask: BoolArray | None = None,  # noqa: ARG002
    ) -> LearningReport:
        """Return the report; there is no training run to start."""
        return self._report

    def train_round(self, outcome: RoundOutcome) -> LearningReport:  # noqa: ARG002
        """Return the report, without training."""
        return self._report

    def remember(self) -> Callable[[], None]:
        """Return a function that does nothing: there is nothing to undo."""
        return lambda: None

    def get_state(self) -> Tree:
        """Return an empty tree: there is no state."""
        return {}

    def set_state(self, tree: Tree) -> None:
        """Accept an empty tree.

        Raises:
            StateError: If the state is another learner's.
        """
        require_alike(tree, {}, "learner")
