"""The full record of one round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collapipe_env.allocation import Allocation
from collapipe_env.learners.base import LearningReport
from collapipe_env.physics._array import Array
from collapipe_env.simulator.costs import RoundCosts
from collapipe_env.simulator.state import SystemState


@dataclass(frozen=True, eq=False)
class RoundRecord:
    """Everything that happened in one round of ``E`` environments.

    Attributes:
        state: The system as the scheduler saw it, queues before the round included.
        allocation: What was played.
        costs: Delays, energies, memory, interference and element times.
        survived: Micro-batches whose gradients arrived (E, N, H, M_max); the first ``M_n`` count.
        backlog: Normalised virtual queues after the round (E, N, K+1).
        learning: Report of the learner after the round.
        half_duplex: Whether device-to-device hops served one direction at a time.
    """

    state: SystemState
    allocation: Allocation
    costs: RoundCosts
    survived: npt.NDArray[np.bool_]
    backlog: Array
    learning: LearningReport
    half_duplex: bool = False

    def surviving_fraction(self) -> npt.NDArray[np.float64]:
        """Share of each cluster's micro-batches that survived (E, N)."""
        counted = np.arange(self.survived.shape[-1]) < self.allocation.micro_batches[..., None, None]
        kept = (self.survived & counted).sum(axis=(-2, -1))
        fraction: npt.NDArray[np.float64] = kept / counted.sum(axis=-1)[..., 0] / self.survived.shape[-2]
        return fraction
