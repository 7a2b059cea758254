"""Scheduler that plays any policy: a model of Stable-Baselines3, a PyTorch module, a plain function."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from collapipe_env.envs.observation_kinds import OBSERVATIONS, Observation
from collapipe_env.ground.errors import SchedulerError, nearest_name, shown
from collapipe_env.simulator.state import SystemState

from .training_observations import statistics_of, training_transforms


class PolicyScheduler:
    """Plays a policy that maps observations to actions, wherever it was trained.

    For ``collapipe evaluate --schedulers file.py:trained``::

        from stable_baselines3 import PPO
        from collapipe_env import PolicyScheduler

        def trained(scenario):
            return PolicyScheduler(PPO.load("ppo.zip", device="cpu"), name="my PPO")

    Observations are float32 (E, D), finite, or with ``observation="graph"`` a dictionary of arrays (E, ...)
    (`environment.md`). Actions must have shape (E, N (2K + 3)) and are clipped to [-1, 1]. The kind of the
    policy decides how it is called:

    * an object with a method ``predict``, as in Stable-Baselines3: ``predict(observation, ...)``, which
      returns actions, or actions and a state. The options ``state``, ``episode_start`` and ``deterministic``
      are passed if it accepts them by name or through ``**options``; recurrent policies thus remember the
      observations since ``reset``;
    * a PyTorch module: ``module(observation)`` with a tensor (or a dictionary of tensors) on its device and
      of its type, in evaluation mode and without gradients;
    * any other callable: ``policy(observation)``.

    A policy that was trained on normalised observations needs the same statistics here. A model of
    Stable-Baselines3 that still has its environment brings them along, with all else that the environment's
    wrappers do to observations. One from a file does not: it is refused until ``normalise`` says what to do.
    A PyTorch module or a function does not tell how it was trained.

    Args:
        name: Name for tables and figures; the policy's class by default.
        deterministic: Play the most likely action instead of drawing one, if ``predict`` offers the choice.
        observation: Kind of observation that the policy reads, ``"flat"`` or ``"graph"``; by default
            ``"graph"`` if its own ``observation_space`` is a dictionary, as in models of Stable-Baselines3,
            otherwise ``"flat"``.
        normalise: What normalises observations: the training environment with its wrappers
            (Stable-Baselines3's ``VecNormalize``, Gymnasium's ``NormalizeObservation``, single or vector), or
            a function from observations to observations. Statistics are used as they are and not updated.
            ``False`` for plain observations; by default the policy's own environment.

    Attributes:
        observation: That kind: an evaluation builds its environments accordingly.

    Raises:
        SchedulerError: If the policy is not callable and has no ``predict``, for another kind of observation,
            or if it was trained on normalised observations and the statistics are missing.
    """

    def __init__(
        self,
        policy: Any,
        name: str | None = None,
        *,
        deterministic: bool = True,
        observation: str | None = None,
        normalise: Any = None,
    ) -> None:
        self.name: str = type(policy).__name__ if name is None else name
        self._policy, self._deterministic = policy, deterministic
        space = getattr(policy, "observation_space", None)
        parts = space.spaces if isinstance(space, gym.spaces.Dict) else {"flat": space}
        self._trained_on = {name: getattr(part, "shape", None) for name, part in parts.items()}
        self.observation: str = observation or ("flat" if "flat" in parts else "graph")
        if self.observation not in OBSERVATIONS:
            raise SchedulerError(
                f"observation = {shown(observation)} is not known: {nearest_name(observation, OBSERVATIONS)}"
            )
        self._state: Any = None
        self._starting = True
        torch = sys.modules.get("torch")  # whoever has a module has imported it
        self._ask: Callable[[Observation], Any] = policy
        if callable(predict := getattr(policy, "predict", None)):
            self._options = _options(predict, deterministic)
            self._ask = self._predict
        elif torch is not None and isinstance(policy, torch.nn.Module):
            policy.eval()
            self._ask = self._forward
        elif not callable(policy):
            raise SchedulerError(
                f"policy {shown(policy)} is not callable and has no method predict: give a model of "
                "Stable-Baselines3, a PyTorch module or a function from observations to actions"
            )
        self._transforms = training_transforms(policy, normalise, repr(self.name))

    def reset(self, seed: int | None = None) -> None:
        """Clear the memory of a recurrent policy; ``seed`` seeds PyTorch for policies that draw actions."""
        self._state, self._starting = None, True
        if not self._deterministic and seed is not None and "torch" in sys.modules:
            sys.modules["torch"].manual_seed(seed)

    def act(
        self,
        observation: Observation,
        state: SystemState,  # noqa: ARG002 - model-based schedulers read it
    ) -> npt.NDArray[np.float32]:
        """Actions (E, N (2K + 3)) in [-1, 1] for observations (E, ...)."""
        envs = self._require_fitting(observation)
        for _, transform in self._transforms:
            observation = transform(observation)
        answer = self._ask(observation)
        if hasattr(answer, "detach"):
            answer = answer.detach().float().cpu().numpy()  # NumPy has no bfloat16
        actions = np.asarray(answer, dtype=np.float32)
        if actions.ndim != 2 or len(actions) != envs:
            raise SchedulerError(
                f"policy {self.name!r} returned shape {actions.shape} for {envs} observations: it must "
                "return one action for each, (E, N (2K + 3))"
            )
        clipped: npt.NDArray[np.float32] = np.clip(actions, -1.0, 1.0)
        return clipped

    def fingerprint(self) -> str:
        """SHA-256 of the policy's weights and statistics, if it has any: new ones are evaluated again."""
        found = list(statistics_of(self._transforms))
        holders = (self._policy, getattr(self._policy, "policy", None))
        holder = next((h for h in holders if callable(getattr(h, "state_dict", None))), None)
        for name, value in sorted(holder.state_dict().items()) if holder is not None else ():
            content = value.detach().cpu().double().numpy() if hasattr(value, "detach") else value
            found += [f"{name} {np.shape(content)}".encode(), np.asarray(content).tobytes()]
        return hashlib.sha256(b"".join(found)).hexdigest() if found else ""

    def _require_fitting(self, observation: Observation) -> int:
        """Refuse observations of another kind or shape than in training; returns their number."""
        kind = "graph" if isinstance(observation, dict) else "flat"
        if kind != self.observation:
            raise SchedulerError(
                f"policy {self.name!r} reads {self.observation} observations and was given {kind} ones: "
                f"build the environment with observation={self.observation!r}"
            )
        parts = observation if kind == "graph" else {"flat": observation}
        for name, shape in self._trained_on.items():
            found = parts[name].shape[1:] if name in parts else None
            if shape is not None and shape != found:
                raise SchedulerError(
                    f"policy {self.name!r} was trained on {name} observations of shape {shape}, those of "
                    f"this scenario have {found}: give one that was trained on it, or one for all sizes"
                )
        return len(next(iter(parts.values())))

    def _predict(self, observation: Observation) -> Any:
        options = dict(self._options)
        envs = len(next(iter(observation.values())) if isinstance(observation, dict) else observation)
        if "state" in options:
            options["state"] = self._state
        if "episode_start" in options:
            options["episode_start"] = np.full(envs, self._starting)
        answer = self._policy.predict(observation, **options)
        self._starting = False
        if isinstance(answer, tuple):
            answer, self._state = answer
        return answer

    def _forward(self, observation: Observation) -> Any:
        import torch

        like = next((p for p in self._policy.parameters() if p.is_floating_point()), torch.empty(0))

        def tensor(array: npt.NDArray[np.float32]) -> torch.Tensor:
            return torch.tensor(array, dtype=like.dtype, device=like.device)

        with torch.inference_mode():
            if isinstance(observation, dict):
                return self._policy({name: tensor(array) for name, array in observation.items()})
            return self._policy(tensor(observation))


def _options(predict: Callable[..., Any], deterministic: bool) -> dict[str, Any]:
    """Options of Stable-Baselines3 that a ``predict`` accepts; all if it takes ``**options``."""
    known = {"state": None, "episode_start": None, "deterministic": deterministic}
    try:
        has = inspect.signature(predict).parameters
    except (TypeError, ValueError):  # compiled functions may have no signature
        return {}
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in has.values()):
        return known
    return {name: value for name, value in known.items() if name in has}
