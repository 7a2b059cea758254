"""MO-Gymnasium's view: a reward of three numbers, delay, energy and learning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from collapipe_env.envs.env import CollaPipeEnv, ScenarioLike
from collapipe_env.envs.mdp import BatchMDP, BatchStep
from collapipe_env.envs.vector import CollaPipeVectorEnv, StepResult
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.simulator.record import RoundRecord

OBJECTIVES = ("delay", "energy", "learning")
"""Names of the objectives, in their order."""


def reward_space() -> spaces.Box:
    """Space of the vector rewards (3,), float32: the first two are never positive."""
    high = np.array([0.0, 0.0, np.inf], dtype=np.float32)
    return spaces.Box(np.full(3, -np.inf, dtype=np.float32), high, dtype=np.float32)


def objectives(record: RoundRecord, reference_delay: float) -> npt.NDArray[np.float32]:
    """Return the vector rewards of a round (E, 3); more is better in each.

    ``delay`` is ``-T / T_ref``; ``energy`` minus the sum over nodes of the energy above what the round
    grants, in budgets; ``learning`` the fall of the smoothed evaluation loss [nat]. Their sums over an
    episode are its total delay, its total energy excess, and how far the loss has fallen.

    Args:
        reference_delay: ``T_ref`` [s].
    """
    columns = (
        -record.costs.delay / reference_delay,
        -record.energy_excess,
        record.state.loss - record.smoothed_loss,
    )
    stacked: npt.NDArray[np.float32] = np.stack(columns, axis=-1).astype(np.float32)
    return stacked


class MultiObjectiveEnv(CollaPipeEnv):
    """:class:`~collapipe_env.envs.env.CollaPipeEnv` with the vector rewards of :func:`objectives`.

    ``gymnasium.make("CollaPipeMO-v0")`` and ``"CollaPipeMOSurrogate-v0"`` make it, and so does
    ``mo_gymnasium.make``. Only the reward differs from the single environment.

    The arguments are those of the single environment; :meth:`summary` adds up its ``reward``.

    Attributes:
        reward_space: Space of the rewards (3,), where MO-Gymnasium looks for it.
        reward_dim: 3.
    """

    def __init__(self, scenario: ScenarioLike = "medium", **kwargs: Any) -> None:
        super().__init__(scenario, **kwargs)
        self.reward_space = reward_space()
        self.reward_dim = len(OBJECTIVES)

    def _unpack(self, step: BatchStep) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, _, terminated, truncated, info = super()._unpack(step)
        return observation, _last_objectives(self._mdp)[0], terminated, truncated, info


class MultiObjectiveVectorEnv(CollaPipeVectorEnv):
    """:class:`~collapipe_env.envs.vector.CollaPipeVectorEnv` with vector rewards (E, 3), float32.

    ``gymnasium.make_vec("CollaPipeMOSurrogate-v0", num_envs=64)`` makes it. Row ``i`` is bit-identical to a
    :class:`MultiObjectiveEnv` with its seed.

    The arguments are those of the vector environment; ``backend`` is ``"numpy"``, as no other has vector
    rewards.

    Attributes:
        reward_space: Space of the rewards (3,) of one row, as MO-Gymnasium's vector environments have it.
        reward_dim: 3.

    Raises:
        ScenarioError: For another backend, or as for the vector environment.
    """

    def __init__(
        self, num_envs: int = 1, scenario: ScenarioLike = "medium", backend: str = "numpy", **kwargs: Any
    ) -> None:
        if backend != "numpy":
            raise ScenarioError(
                f"backend = {backend!r} has no vector rewards: leave it out, or use an id without MO"
            )
        super().__init__(num_envs, scenario, **kwargs)
        self.reward_space = reward_space()
        self.reward_dim = len(OBJECTIVES)
        self.batched_reward_space = batch_space(self.reward_space, num_envs)

    def _finish(self, play: Callable[[], BatchStep]) -> StepResult:
        waiting = self._done.copy()  # these rows begin an episode in this step, with reward 0
        observation, _, terminated, truncated, info = super()._finish(play)
        rewards = _last_objectives(self._mdp)
        rewards[waiting] = 0.0
        return observation, rewards, terminated, truncated, info


def _last_objectives(mdp: BatchMDP) -> npt.NDArray[np.float32]:
    """Vector rewards (E, 3) of the round that was just played."""
    record = mdp.world.last_round
    assert record is not None
    return objectives(record, mdp.reference_delay)
