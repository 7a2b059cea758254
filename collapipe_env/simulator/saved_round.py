"""A round reduced to the arrays from which its full record can be computed again."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from collapipe_env.ground.arrays import IntArray, WordArray, on_host
from collapipe_env.ground.errors import AllocationError, StateError
from collapipe_env.ground.records import Declared, mapped
from collapipe_env.ground.state_trees import REMEDY
from collapipe_env.physics.allocation import Allocation, own_arrays
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.learner import LearningReport
from collapipe_env.simulator.record import RoundRecord
from collapipe_env.simulator.round import Interruption
from collapipe_env.simulator.state import Parameters, SystemState


class SavedRound(NamedTuple):
    """A round that was played, in NumPy arrays."""

    state: SystemState
    """The system before it."""
    allocation: Allocation
    """The plan that was played."""
    counts: Annotated[IntArray, Declared("N H", kind="whole", low=0.0)]
    """Micro-batches that arrived in each local step."""
    pick: Annotated[WordArray, Declared("N H", kind="word")]
    """Random words from which the arrived ones are chosen; zeros where nobody can ask for them."""
    learning: LearningReport
    """Report of the learner after it."""
    interruption: Interruption | None
    """Events of processes inside it; ``None`` where there can be none."""

    @classmethod
    def of(cls, record: RoundRecord) -> SavedRound:
        """Keep a round that was played."""
        counts, pick = on_host(record.arrivals.counts).astype(np.int64), record.arrivals.pick
        return cls(
            record.state.map(on_host),
            own_arrays(record.allocation.map(on_host)),
            counts,
            np.zeros(counts.shape, np.uint64) if pick is None else pick,
            mapped(record.learning, on_host),
            mapped(record.interruption, on_host),
        )

    def check(self, parameters: Parameters) -> None:
        """Refuse a round that cannot have been played; compiled code does not check again.

        This takes as long as playing it, so it comes when somebody asks for the round.

        Raises:
            StateError: Names the fault.
        """
        plan = self.allocation
        try:
            check_allocation(parameters, self.state, plan)
        except AllocationError as error:
            raise StateError(f"last_round/allocation cannot have been played ({error}): {REMEDY}") from None
        failed, devices = self.interruption and self.interruption.failed, plan.blocks.shape[-1]
        if failed and (failed.device >= devices).any():
            raise StateError(f"last_round/interruption/failed/device is not a device: {REMEDY}")
        if (self.counts > plan.micro_batches[..., None]).any():
            raise StateError(f"last_round/counts are above the micro-batches: {REMEDY}")
