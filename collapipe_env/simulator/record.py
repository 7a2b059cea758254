"""The full record of one round."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from collapipe_env.ground.arrays import Array, FloatArray, at_least, concatenate, where
from collapipe_env.ground.records import Declared, Record
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.queues import update_backlog
from collapipe_env.simulator.failed_records import FailedRounds
from collapipe_env.simulator.learner import Arrivals, LearningReport
from collapipe_env.simulator.round import Interruption, RoundCosts
from collapipe_env.simulator.state import SystemState


@dataclass(frozen=True, eq=False)
class RoundRecord(Record):
    """Everything that happened in one round of ``E`` environments."""

    state: SystemState
    """The system before the round, queues included. Its known gains are those that schedulers saw."""
    allocation: Allocation
    """The plan that was played."""
    costs: RoundCosts
    """Delays, energies, memory, interference and element times."""
    arrivals: Arrivals
    """Micro-batches whose gradients arrived."""
    backlog: Annotated[Array, Declared("N K+1", low=0.0)]
    """Normalised virtual queues after the round."""
    backlog_sum: Annotated[Array, Declared("", low=0.0)]
    """Sum of the queues over all nodes, including the server's where it has one."""
    energy_excess: Annotated[Array, Declared("", low=0.0)]
    """Sum over all nodes of the round's energy above the allowance, in budgets, with the server's excess
    included where it has a queue."""
    learning: LearningReport
    """Report of the learner after the round."""
    smoothed_loss: Annotated[Array, Declared("", "nat", high=math.inf)]
    """Smoothed evaluation loss after the round."""
    half_duplex: bool = False
    """Whether device-to-device hops served one direction at a time."""
    interruption: Interruption | None = None
    """Combined events of all processes inside the round; ``None`` where there can be none."""
    absence: Annotated[Array | None, Declared("N", "rounds", low=0.0)] = None
    """Participation queues after the round; ``None`` where all clusters must take part."""

    @property
    def failed(self) -> FailedRounds | None:
        """Failures of devices inside the round; ``None`` where there can be none."""
        return None if self.interruption is None else self.interruption.failed

    @property
    def granted(self) -> Array:
        """Budgets granted to each node (E, N, K+1): 0 where a cluster sat out or a device was away."""
        each, present = self.costs.granted[..., None], self.state.present
        return concatenate((each, where(present, each, 0.0 * each)))

    @property
    def server_backlog(self) -> Array | None:
        """The server's queue after the round ``z_BS`` (E,); ``None`` where it has no energy budget."""
        return None if self.state.server_backlog is None else server_round(self.state, self.costs)[0]

    def surviving_fraction(self) -> FloatArray:
        """Share of each cluster's micro-batches that survived (E, N); 0 for a cluster that sat out."""
        counts, M = self.arrivals.counts, self.allocation.micro_batches
        steps = self.costs.local_steps
        fraction: FloatArray = (counts.mean(axis=-1) if steps is None else counts.sum(axis=-1) / steps) / M
        return fraction


def server_round(state: SystemState, costs: RoundCosts) -> tuple[Array, Array]:
    """Update the server's queue after a round, where the server has an energy budget.

    Args:
        state: The system before the round (E, ...).

    Returns:
        ``z_BS(t+1)`` (E,), and the server's energy above the allowance, in budgets (E,).
    """
    ratio, granted = costs.server_ratio, costs.allowance
    return update_backlog(state.server_backlog, ratio, granted), at_least(ratio - granted, 0.0)
