"""The vector environment that takes and returns tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor

from collapipe_env.envs.env import ScenarioLike, arguments_of, refuse_unknown
from collapipe_env.envs.mdp import BatchStep
from collapipe_env.envs.observation_kinds import Observation
from collapipe_env.envs.rewards import Reward
from collapipe_env.envs.vector import CollaPipeVectorEnv, StepResult
from collapipe_env.ground.arrays import BoolArray
from collapipe_env.ground.backends.torch_backend import TorchBackend
from collapipe_env.ground.errors import AllocationError, ScenarioError
from collapipe_env.ground.forking import one_thread_after_fork
from collapipe_env.ground.real_numbers import not_real, real_numbers
from collapipe_env.physics.allocation import Allocation


class CollaPipeTorchVectorEnv(CollaPipeVectorEnv):
    """:class:`~collapipe_env.envs.vector.CollaPipeVectorEnv` as tensors on one device.

    Observations, rewards, ends and infos are tensors on the device; observations and rewards are ``float32``
    whatever ``dtype`` is. Actions may be tensors or NumPy arrays. Under ``SameStep``, ``final_obs`` is one
    tensor (E, D), or with ``observation="graph"`` a dictionary of such tensors; only the rows marked in
    ``_final_obs`` are valid. Row ``i`` with seed ``s + i`` plays the episode of the NumPy environment, apart
    from rounding. States consist of NumPy arrays. Returned tensors are never written to again.

    With ``check_actions=False``, no ``dynamics.target_loss`` and a fixed layout, a step does not wait for the
    device, as the host knows when episodes end.

    The arguments are those of the NumPy environment, without real training and pictures, and:

    Args:
        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ...
        dtype: ``"float64"`` or ``"float32"``.
        check_actions: Refuse actions that are not finite, which waits for the device in every step. Without
            the check NaN makes the rewards of its row NaN, and infinity counts as the nearest bound.
        compiled: Compile the parts of a round with ``torch.compile``. This needs a C++ compiler on a CPU,
            adds seconds to a minute to the first step, and makes the other steps a good deal faster.

    Raises:
        ScenarioError: For an unknown or misspelt argument or scenario field, a learner other than the
            surrogate, or a device that does not exist.
    """

    _place: TorchBackend

    def __init__(
        self,
        num_envs: int = 1,
        scenario: ScenarioLike = "medium",
        learner: str = "surrogate",
        reward: str | Reward | None = None,
        render_mode: str | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        max_episode_steps: int | None = None,
        device: str | torch.device = "cpu",
        dtype: str | torch.dtype = "float64",
        check_actions: bool = True,
        compiled: bool = False,
        observation: str = "flat",
        **unknown: Any,
    ) -> None:
        refuse_unknown(unknown, arguments_of(CollaPipeTorchVectorEnv))
        if render_mode is not None:
            raise ScenarioError(
                f"render_mode = {render_mode!r}: the torch backend draws no pictures; use None, or "
                "backend='numpy'"
            )
        one_thread_after_fork()
        self._place = TorchBackend(device, dtype, compiled=compiled)
        self._check_actions = check_actions
        limit = max_episode_steps
        with torch.no_grad():
            super().__init__(num_envs, scenario, learner, reward, None, autoreset_mode, limit, observation)
        self.metadata["render_modes"] = []

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self._place.device

    @torch.no_grad()
    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start new episodes, as in the NumPy environment. A ``reset_mask`` may be a tensor."""
        mask = (options or {}).get("reset_mask")
        if isinstance(mask, Tensor):
            options = {**(options or {}), "reset_mask": mask.cpu().numpy()}
        return super().reset(seed=seed, options=options)

    def step_allocation(self, allocation: Allocation) -> StepResult:
        """Play one round with allocations (E, ...), tensors or NumPy arrays, checked on the host."""
        if isinstance(allocation, Allocation):
            allocation = allocation.map(lambda a: a.detach().cpu() if isinstance(a, Tensor) else a)
        return super().step_allocation(allocation)

    @torch.no_grad()
    def _finish(self, play: Callable[[], BatchStep]) -> StepResult:
        observation, reward, terminated, truncated, info = super()._finish(play)
        return observation, reward.to(torch.float32), terminated, truncated, info

    def _read(self, actions: Any) -> Tensor:
        if not isinstance(actions, Tensor):
            return self._place.array(
                real_numbers("actions", actions, self.action_space.shape).astype("float64")
            )
        if actions.is_complex() or actions.dtype == torch.bool:
            raise not_real("actions", actions.dtype)
        if actions.is_meta or actions.layout != torch.strided:
            kind = "meta" if actions.is_meta else str(actions.layout).removeprefix("torch.")
            raise AllocationError(f"actions: a {kind} tensor, expected a dense one that holds numbers")
        return actions.to(device=self.device, dtype=self._place.real)

    def _final_observations(self, observation: Observation, ended: BoolArray) -> Any:  # noqa: ARG002
        return observation
