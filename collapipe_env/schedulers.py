"""The one interface of everything that decides: DSSRA, learned agents and the published systems."""

from __future__ import annotations

from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from collapipe_env.allocation import Allocation
from collapipe_env.simulator.state import SystemState

Decision: TypeAlias = npt.NDArray[np.float32] | Allocation
"""Actions (E, N (2K + 3)) of the box, or allocations that the box cannot express."""


@runtime_checkable
class Scheduler(Protocol):
    """Decides one round for a batch of ``E`` environments at once.

    Learned agents read the observation, model-based ones the state; both decide from what is known
    before the round: channels, speeds, memories and queues.

    Attributes:
        name: Short name for tables and plots.
    """

    name: str

    def reset(self, seed: int | None = None) -> None:
        """Forget earlier episodes; ``seed`` governs the scheduler's own randomness, if it has any."""
        ...

    def act(self, observation: npt.NDArray[np.float32], state: SystemState) -> Decision:
        """Decide one round.

        Args:
            observation: What a learned agent sees (E, D).
            state: The system before the round (E, ...).

        Returns:
            Actions (E, N (2K + 3)), or an :class:`~collapipe_env.allocation.Allocation` (E, ...).
        """
        ...
