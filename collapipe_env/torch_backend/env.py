"""The vector environment with tensors in and out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor

from collapipe_env.codec import ActionCodec
from collapipe_env.envs.env import ScenarioLike, refuse_unknown
from collapipe_env.envs.observation import ObservationLayout
from collapipe_env.envs.rewards import Reward
from collapipe_env.envs.vector import autoreset_mode_of, checked_mask
from collapipe_env.errors import AllocationError, ScenarioError, StateError
from collapipe_env.forking import one_thread_after_fork
from collapipe_env.real_numbers import not_real, real_numbers
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.simulator.costs import RoundCosts
from collapipe_env.simulator.state import SystemState
from collapipe_env.torch_backend.draws import Draws
from collapipe_env.torch_backend.episodes import Episodes
from collapipe_env.torch_backend.mdp import TorchMDP, TorchStep
from collapipe_env.torch_backend.placement import Placement
from collapipe_env.torch_backend.rows import Rows

_NUMPY_ONLY = ("get_state", "set_state", "save_state", "load_state", "simulate", "step_allocation")

StepResult = tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]


class NumpyOnlyError(StateError, AttributeError):
    """Something that the NumPy environments have and the torch backend has not; ``hasattr`` says so, too."""


class CollaPipeTorchVectorEnv(VectorEnv[Tensor, Tensor, Tensor]):
    """``num_envs`` environments of :class:`~collapipe_env.envs.env.CollaPipeEnv` as tensors on one device.

    Observations, rewards, ends and infos are tensors on the device, observations and rewards ``float32``
    whatever ``dtype`` is; actions may be tensors or NumPy arrays.
    Infos have the names of :class:`~collapipe_env.envs.vector.CollaPipeVectorEnv`, with their masks; under
    ``SameStep`` ``final_obs`` is one tensor (E, D), of which the rows of ``_final_obs`` count. The spaces
    are those of the NumPy environment, and so are the random numbers: row ``i`` with seed ``s + i`` plays
    what it plays there, but for rounding. Tensors that a call returns are never written to again.

    With ``check_actions=False``, no ``dynamics.target_loss`` and a fixed layout a step does not wait for the
    device: when episodes end is known on the host, and where all rows end together, which is the common
    case, only the seeds of the new episodes are copied to the device. A target loss costs one copy of E
    booleans a step; layouts that are drawn anew in every episode are drawn on the host.

    Args:
        num_envs: Number of environments, >= 1.
        scenario: As for the single environment; the same for all rows.
        learner: ``"surrogate"``; real training is for the other environments.
        reward: A reward's name, or a callable that computes with tensors.
        render_mode: ``None``; pictures are for the other environments.
        autoreset_mode: ``NextStep`` (default), ``SameStep`` or ``Disabled``, or Gymnasium's enum.
        max_episode_steps: Ends episodes earlier than the scenario does; ``None`` for the scenario's own
            length.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ...
        dtype: ``"float64"`` or ``"float32"``.
        check_actions: Refuse actions that are not finite, which waits for the device in every step. Without
            the check NaN makes the rewards of its row NaN, and infinity counts as the nearest bound.
        compiled: Let PyTorch compile the parts of a round (``torch.compile``): it needs a C++
            compiler on a CPU, takes seconds to a minute in the first step, and makes the others a good deal
            faster.
        **unknown: Refused, with the nearest valid name.

    Raises:
        ScenarioError: For an unknown or misspelt argument or scenario field, a learner other than the
            surrogate, or a device that is not there.
    """

    def __init__(
        self,
        num_envs: int = 1,
        scenario: ScenarioLike = "medium",
        learner: str = "surrogate",
        reward: str | Reward = "lyapunov",
        render_mode: str | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        max_episode_steps: int | None = None,
        device: str | torch.device = "cpu",
        dtype: str | torch.dtype = "float64",
        check_actions: bool = True,
        compiled: bool = False,
        **unknown: Any,
    ) -> None:
        valid = ("num_envs", "scenario", "learner", "reward", "render_mode", "autoreset_mode")
        others = ("max_episode_steps", "device", "dtype", "check_actions", "compiled")
        refuse_unknown(unknown, (*valid, *others))
        for name, value in (("num_envs", num_envs), ("max_episode_steps", max_episode_steps)):
            if value is not None and value < 1:
                raise ScenarioError(f"{name} = {value!r}: at least 1 is needed")
        if learner != "surrogate":
            raise ScenarioError(
                f"learner = {learner!r}: the torch backend knows the surrogate only; use learner='surrogate' "
                "(an id that begins with CollaPipeSurrogate), or backend='numpy'"
            )
        if render_mode is not None:
            raise ScenarioError(
                f"render_mode = {render_mode!r}: the torch backend draws no pictures; use None, or "
                "backend='numpy'"
            )
        self.autoreset_mode = autoreset_mode_of(autoreset_mode)
        self.metadata = {"render_modes": [], "autoreset_mode": self.autoreset_mode}
        self.render_mode = None
        self.num_envs = num_envs
        one_thread_after_fork()
        self._place = Placement.of(device, dtype)
        self._check_actions = check_actions
        loaded = load_scenario(scenario)
        self._draws = Draws(loaded, num_envs, self._place, compiled=compiled)
        self._mdp = TorchMDP(loaded, reward, num_envs, self._draws, self._place, compiled=compiled)
        rounds = loaded.dynamics.rounds
        self._episodes = Episodes(num_envs, min(rounds, max_episode_steps or rounds))
        self.single_action_space = spaces.Box(-1.0, 1.0, (self.codec.action_size,), np.float32)
        self.single_observation_space = self._mdp.observer.space()
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)

    @property
    def device(self) -> torch.device:
        """Where the tensors live."""
        return self._place.device

    @property
    def scenario(self) -> Scenario:
        """The scenario."""
        return self._mdp.scenario

    @property
    def codec(self) -> ActionCodec:
        """Maps actions to allocations and back."""
        return self._mdp.simulator.codec

    @property
    def observation_layout(self) -> ObservationLayout:
        """Names, places, shapes and scales of the observation's features."""
        return self._mdp.observer.layout

    @property
    def reference_delay(self) -> float:
        """``T_ref`` [s]: round delay of the even split at mean gains."""
        return self._mdp.reference_delay

    @property
    def rounds(self) -> int:
        """The horizon: after so many rounds an episode is truncated."""
        return self._episodes.limit

    @property
    def state(self) -> SystemState:
        """The system before the next round (E, ...)."""
        return self._mdp.simulator.state

    @property
    def ended_summaries(self) -> dict[str, Tensor]:
        """Of each row's last episode that ended, tensors (E,) by name with masks ``_name``; empty before any.

        As in :attr:`collapipe_env.envs.vector.CollaPipeVectorEnv.ended_summaries`.
        """
        return dict(self._mdp.ended_summaries)

    @property
    def last_costs(self) -> RoundCosts | None:
        """Delays, energies, memory and element times of the round just played; ``None`` before the first."""
        return self._mdp.simulator.last_costs

    def __getattr__(self, name: str) -> Any:
        """Say of what the NumPy environments have and this one has not where to find it."""
        if name in _NUMPY_ONLY:
            raise NumpyOnlyError(
                f"the torch backend has no {name}(): states, simulation and allocations need backend='numpy'"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @torch.no_grad()
    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Tensor, dict[str, Any]]:
        """Start new episodes.

        Args:
            seed: One seed for row 0, the next ones for the other rows; or a list, one entry a row.
            options: ``{"reset_mask": array or tensor of bool (E,)}`` resets only some rows.

        Raises:
            ScenarioError: For a list of the wrong length, a bad mask or an unknown option.
        """
        options = dict(options or {})
        given = options.pop("reset_mask", None)
        refuse_unknown(options, ("reset_mask",))
        mask = checked_mask(given.cpu().numpy() if isinstance(given, Tensor) else given, self.num_envs)
        if mask is not None:
            self._episodes.require_started(~mask)
        self._draws.seed(seed, mask)
        rows = Rows(np.ones(self.num_envs, dtype=np.bool_) if mask is None else mask, self.device)
        observation = self._start(rows)
        return observation, _masked(self._mdp.reset_info(), rows.mask)

    @torch.no_grad()
    def step(self, actions: Tensor) -> StepResult:
        """Play one round in every row.

        Args:
            actions: (E, N (2K + 3)), a tensor on any device or a NumPy array.

        Raises:
            AllocationError: If the actions have the wrong shape or type or, where they are checked, a number
                that is not finite.
            ScenarioError: Before the first reset, or with autoreset disabled for rows that are done.
        """
        self._episodes.require_started()
        resetting = self._episodes.done
        if self.autoreset_mode is AutoresetMode.DISABLED and resetting.any():
            raise ScenarioError(
                f"environments {np.flatnonzero(resetting).tolist()} are done: with autoreset disabled, reset "
                "them first with reset(options={'reset_mask': mask})"
            )
        waiting = Rows(resetting, self.device) if resetting.any() else None
        return self._finish(self._mdp.step(self._read(actions, waiting)), waiting)

    def _read(self, actions: Tensor | npt.NDArray[Any], waiting: Rows | None) -> Tensor:
        """Actions as tensors of the real type; those of rows that wait for their reset are ignored."""
        if not isinstance(actions, Tensor):
            tensor = torch.as_tensor(real_numbers("actions", actions).astype(np.float64))
        elif actions.is_complex() or actions.dtype == torch.bool:
            raise not_real("actions", actions.dtype)
        elif actions.is_meta or actions.layout != torch.strided:
            kind = "meta" if actions.is_meta else str(actions.layout).removeprefix("torch.")
            raise AllocationError(f"actions: a {kind} tensor, expected a dense one that holds numbers")
        else:
            tensor = actions
        tensor = tensor.to(device=self.device, dtype=self._place.real)
        expected = (self.num_envs, self.codec.action_size)
        if tuple(tensor.shape) != expected:
            raise AllocationError(
                f"actions have shape {tuple(tensor.shape)}, expected {expected} = (num_envs, N (2K + 3))"
            )
        if waiting is not None:
            tensor = waiting.fill(tensor, 0.0)
        if self._check_actions:
            self.codec.check_action(tensor)
        return tensor

    def _finish(self, step: TorchStep, waiting: Rows | None) -> StepResult:
        observation, reward = step.observation, step.reward
        live = torch.ones(self.num_envs, dtype=torch.bool, device=self.device)
        terminated = torch.zeros_like(live) if step.reached is None else step.reached
        host_terminated = None if step.reached is None else step.reached.cpu().numpy()
        ended = self._episodes.play(host_terminated, None if waiting is None else waiting.host)
        truncated = self.state.round_index >= self._episodes.limit
        if waiting is not None:
            live = ~waiting.mask
            observation = self._start(waiting)
            reward = waiting.fill(reward, 0.0)
            terminated, truncated = terminated & live, truncated & live
        info: dict[str, Any] = {}
        begun = waiting
        if ended.any():
            rows = Rows(ended, self.device)
            any_reached = host_terminated is not None and bool((host_terminated & ended).any())
            self._mdp.keep_summaries(rows.mask, reached=any_reached)
            if self.autoreset_mode is AutoresetMode.SAME_STEP:
                closing = _masked(step.info, rows.mask)
                info.update(_masked({"final_obs": observation, "final_info": closing}, rows.mask))
                observation = self._start(rows)
                live, begun = ~rows.mask, rows
        info.update(_masked(step.info, live))
        if begun is not None:
            # Rows that begin an episode say what reset says, as in the NumPy environment.
            for name, values in self._mdp.reset_info().items():
                info[name] = torch.where(begun.mask, values, info[name])
                info[f"_{name}"] = live | begun.mask
        return observation, reward.to(torch.float32), terminated, truncated, info

    def _start(self, rows: Rows) -> Tensor:
        self._episodes.start(rows.host)
        return self._mdp.reset(rows)


def _masked(values: dict[str, Any], rows: Tensor) -> dict[str, Any]:
    """Values with the mask of the rows that have them, under the names that Gymnasium gives masks."""
    out: dict[str, Any] = {}
    for name, value in values.items():
        out[name], out[f"_{name}"] = value, rows.clone()
    return out
