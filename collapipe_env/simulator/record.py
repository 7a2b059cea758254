"""The full record of one round, and the energy queues after it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np

from collapipe_env.ground.arrays import (
    Array,
    BoolArray,
    FloatArray,
    at_least,
    concatenate,
    namespace,
    total,
    where,
)
from collapipe_env.ground.records import Declared, Record
from collapipe_env.kernels.queues import queue_rows
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.queues import moved_backlog, per_node, update_backlog
from collapipe_env.simulator.failed_records import FailedRounds
from collapipe_env.simulator.learner import Arrivals, LearningReport
from collapipe_env.simulator.round import Interruption, RoundCosts
from collapipe_env.simulator.state import SystemState

LOSS_SMOOTHING = 0.8
"""Weight of the past in the smoothed evaluation loss, per round. Where clusters choose the number of local
steps it is per local step, to treat long rounds fairly."""


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
    half_duplex: bool = False
    """Whether device-to-device hops served one direction at a time."""
    interruption: Interruption | None = None
    """Combined events of all processes inside the round; ``None`` where there can be none."""
    absence: Annotated[Array | None, Declared("N", "rounds", low=0.0)] = None
    """Participation queues after the round; ``None`` where all clusters must take part."""

    @property
    def survived(self) -> BoolArray:
        """Micro-batches whose gradients arrived (E, N, H, M_max); False beyond the first ``M_n``."""
        return self.arrivals.survived

    @cached_property
    def smoothed_loss(self) -> Array:
        """Smoothed evaluation loss after the round (E,)."""
        steps, plays = self.costs.local_steps, self.costs.plays
        past: Array | float = LOSS_SMOOTHING
        if steps is not None:
            xp, loss = namespace(steps), self.state.loss
            taken = xp.where(plays, steps, xp.zeros_like(steps))
            past = LOSS_SMOOTHING ** xp.astype(xp.max(taken, axis=-1), loss.dtype)
        return past * self.state.loss + (1.0 - past) * self.learning.loss

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
        moved = server_round(self.state, self.costs)
        return None if moved is None else moved[0]

    def surviving_fraction(self) -> FloatArray:
        """Share of each cluster's micro-batches that survived (E, N); 0 for a cluster that sat out."""
        counts, M = self.arrivals.counts, self.allocation.micro_batches
        steps = self.costs.local_steps
        fraction: FloatArray = (counts.mean(axis=-1) if steps is None else counts.sum(axis=-1) / steps) / M
        return fraction


def server_round(state: SystemState, costs: RoundCosts) -> tuple[Array, Array] | None:
    """Update the server's queue after a round.

    Args:
        state: The system before the round (E, ...).

    Returns:
        ``z_BS(t+1)`` (E,), and the server's energy above the allowance, in budgets (E,); ``None`` where it
        has no budget.
    """
    backlog = state.server_backlog
    if backlog is None:
        return None
    ratio = costs.server_ratio
    return update_backlog(backlog, ratio, costs.allowance), at_least(ratio - costs.allowance, 0.0)


def queue_round(
    backlog: Array,
    energy_ratio: Array,
    granted: Array,
    plays: Array,
    present: Array,
) -> tuple[Array, Array, Array]:
    """Update the queues after a round, in a compiled loop for NumPy arrays.

    Args:
        backlog: ``z(t)`` (E, N, K+1).
        energy_ratio: Energy over budget ``e(t)`` (E, N, K+1).
        granted: Allowance of the round ``a(t)`` (E,), :attr:`RoundCosts.allowance`.
        plays: Clusters that take part (E, N), bool; the queues of the others stay constant.
        present: Present devices (E, N, K), bool; the queues of the others stay constant: absence earns no
            credit.

    Returns:
        ``z(t+1)`` (E, N, K+1); the sum over all nodes of the energy above the allowance, in budgets (E,); the
        sum of ``z(t+1)`` (E,).
    """
    if type(backlog) is not np.ndarray:
        each, xp = per_node(granted), namespace(backlog)
        following = moved_backlog(backlog, energy_ratio, each, plays)
        devices = xp.where(present, following[..., 1:], backlog[..., 1:])
        following = xp.concat((following[..., :1], devices), axis=-1)
        return following, total(at_least(energy_ratio - each, 0.0)), total(following)
    following = np.empty_like(backlog)
    excess, held = np.empty(len(backlog)), np.empty(len(backlog))
    plays, present = np.ascontiguousarray(plays), np.ascontiguousarray(present)
    ratio = np.ascontiguousarray(energy_ratio)
    queue_rows(backlog, ratio, granted, plays, present, following, excess, held)
    return following, excess, held
