"""Arrays of a round that rewards read, also as the single argument of rewards of the old form."""

from __future__ import annotations

from dataclasses import dataclass

from collapipe_env.arrays import Array, concatenate, namespace
from collapipe_env.simulator.costs import RoundCosts
from collapipe_env.simulator.state import SystemState


def node_present(state: SystemState) -> Array:
    """Return the nodes that exist (E, N, K+1), bool: every control unit and the present devices."""
    present = state.present
    return concatenate((namespace(present).ones_like(present[..., :1]), present))


def target_reached(state: SystemState, target_loss: float | None) -> Array:
    """Return whether the target loss is reached (E,), bool.

    Args:
        state: The system after a round.
        target_loss: ``dynamics.target_loss`` of the scenario [nat]; ``None`` where it sets none.
    """
    if target_loss is None:
        return namespace(state.loss).zeros_like(state.present[..., 0, 0])
    reached: Array = state.loss <= target_loss
    return reached


@dataclass(frozen=True)
class RewardInputs:
    """Argument of rewards of the old form, for ``E`` environments: NumPy arrays, or tensors.

    Attributes:
        delay: Round delay ``T`` (E,) [s].
        energy_ratio: Energy over budget ``e`` (E, N, K+1).
        present: Nodes that exist (E, N, K+1), bool.
        backlog_before: Queues ``z(t)`` (E, N, K+1).
        backlog_after: Queues ``z(t+1)`` (E, N, K+1).
        loss: Smoothed evaluation loss (E,).
        target_reached: The target loss is reached (E,), bool.
    """

    delay: Array
    energy_ratio: Array
    present: Array
    backlog_before: Array
    backlog_after: Array
    loss: Array
    target_reached: Array

    @classmethod
    def of_round(
        cls, before: SystemState, costs: RoundCosts, after: SystemState, target_loss: float | None
    ) -> RewardInputs:
        """Take the inputs from a round.

        Args:
            before: The system before the round.
            costs: Costs of the round.
            after: The system after it.
            target_loss: As for :func:`target_reached`.
        """
        return cls(
            delay=costs.delay,
            energy_ratio=costs.energy_ratio,
            present=node_present(before),
            backlog_before=before.backlog,
            backlog_after=after.backlog,
            loss=after.loss,
            target_reached=target_reached(after, target_loss),
        )
