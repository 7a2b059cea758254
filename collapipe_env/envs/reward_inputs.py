"""Arrays that rewards derive from a state."""

from __future__ import annotations

from collapipe_env.ground.arrays import Array, concatenate, namespace
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
