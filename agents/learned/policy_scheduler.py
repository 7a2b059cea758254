"""Scheduler that plays any policy: a model of Stable-Baselines3, a PyTorch module, a plain function."""

from __future__ import annotations

import hashlib
import inspect
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from collapipe_env.envs.observation_kinds import OBSERVATIONS, Observation
from collapipe_env.ground.errors import SchedulerError, nearest_name, reason, shown
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
        self._file, self._line = _caller()
        if observation is None:
            observation = "flat" if _parts_of(policy) is None else "graph"
        if observation not in OBSERVATIONS:
            raise SchedulerError(
                f"observation = {shown(observation)} ({self._place}) is not known: "
                f"{nearest_name(observation, OBSERVATIONS)}"
            )
        self.observation = observation
        self._state: Any = None
        self._starting = True
        predict = getattr(policy, "predict", None)
        self._ask: Callable[[Observation], Any]
        if callable(predict):
            self._options = _options(predict, deterministic)
            self._ask = self._predict
        elif _is_module(policy):
            policy.eval()
            self._ask = self._forward
        elif callable(policy):
            self._ask = policy
        else:
            raise SchedulerError(
                f"policy {shown(policy)} ({self._place}) is not callable and has no method predict: "
                "give a model of Stable-Baselines3, a PyTorch module or a function from observations to "
                "actions"
            )
        self._transforms = training_transforms(policy, normalise, f"{self.name!r} ({self._place})")

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
        self._require_kind(observation)
        shapes = _shapes(observation)
        try:
            for _, transform in self._transforms:
                observation = transform(observation)
            answer = self._ask(observation)
        except Exception as error:
            # A library's line says little: name the user's line, unless the failure is in that file anyway.
            if any(frame.filename == self._file for frame in traceback.extract_tb(error.__traceback__)):
                raise
            raise SchedulerError(
                f"policy {self.name!r} ({self._place}) failed with {type(error).__name__}: {reason(error)}"
            ) from error
        if hasattr(answer, "detach"):
            answer = answer.detach().float().cpu().numpy()  # NumPy has no bfloat16
        actions = np.asarray(answer, dtype=np.float32)
        envs = next(iter(shapes.values()))[0]
        if actions.ndim != 2 or len(actions) != envs:
            raise SchedulerError(
                f"policy {self.name!r} ({self._place}) returned shape {actions.shape} for observations of "
                f"{_told(shapes)}: it must return one action for each, "
                "(E, N (2K + 3))"
            )
        clipped: npt.NDArray[np.float32] = np.clip(actions, -1.0, 1.0)
        return clipped

    def fingerprint(self) -> str:
        """SHA-256 of the policy's weights and statistics, if it has any: new ones are evaluated again."""
        holder = next(
            (p for p in (self._policy, getattr(self._policy, "policy", None)) if _has_weights(p)), None
        )
        statistics = list(statistics_of(self._transforms))
        if holder is None and not statistics:
            return ""
        digest = hashlib.sha256(b"".join(statistics))
        for name, value in sorted(holder.state_dict().items()) if holder is not None else ():
            array = value.detach().cpu() if hasattr(value, "detach") else value
            digest.update(
                f"{name} {getattr(array, 'dtype', '')} {tuple(getattr(array, 'shape', ()))}\0".encode()
            )
            digest.update(_bytes(array))
        return digest.hexdigest()

    @property
    def _place(self) -> str:
        """Line of the user's code that made this scheduler."""
        return f"{self._file}, line {self._line}"

    def _require_kind(self, observation: Observation) -> None:
        """Refuse observations whose kind or shape differs from those that the policy was trained on."""
        given = "graph" if isinstance(observation, dict) else "flat"
        if given != self.observation:
            raise SchedulerError(
                f"policy {self.name!r} ({self._place}) reads {self.observation} observations and was given "
                f"{given} ones: build the environment with observation={self.observation!r}"
            )
        if given == "graph":
            trained = _parts_of(self._policy)
            found = {name: shape[1:] for name, shape in _shapes(observation).items()}
            for name in ("device", *found, *(trained or ())):
                if trained is not None and trained.get(name) != found.get(name):
                    raise SchedulerError(
                        f"policy {self.name!r} ({self._place}) was trained on graphs with {name!r} of shape "
                        f"{trained.get(name)}, here it is {found.get(name)}: give one that was trained on "
                        "this scenario, or one for all sizes"
                    )
            return
        shape, numbers = _shape_of(self._policy), observation.shape[-1]
        if isinstance(shape, tuple) and len(shape) == 1 and shape[0] != numbers:
            raise SchedulerError(
                f"policy {self.name!r} ({self._place}) was trained on observations of {shape[0]} "
                f"numbers, those of this scenario have {numbers}: give one that was trained on this scenario"
            )

    def _predict(self, observation: Observation) -> Any:
        options = dict(self._options)
        envs = next(iter(_shapes(observation).values()))[0]
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


def _shape_of(policy: Any) -> Any:
    """Shape of the observations that a policy was trained on, if it states one."""
    return getattr(getattr(policy, "observation_space", None), "shape", None)


def _parts_of(policy: Any) -> dict[str, tuple[int, ...]] | None:
    """Shapes of the arrays by name, if a policy states that it was trained on a dictionary of them."""
    parts = getattr(getattr(policy, "observation_space", None), "spaces", None)
    return {name: space.shape for name, space in parts.items()} if isinstance(parts, dict) else None


def _shapes(observation: Observation) -> dict[str, tuple[int, ...]]:
    """Shapes of an observation's arrays by name."""
    arrays = observation if isinstance(observation, dict) else {"": observation}
    return {name: array.shape for name, array in arrays.items()}


def _told(shapes: dict[str, tuple[int, ...]]) -> str:
    return "shape " + ", ".join(f"{name} {shape}".strip() for name, shape in sorted(shapes.items()))


def _caller() -> tuple[str, int]:
    """File and line of the code outside this package that is being run."""
    frame = sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("collapipe_env."):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


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


def _is_module(policy: Any) -> bool:
    torch = sys.modules.get("torch")  # whoever has a module has imported it
    return torch is not None and isinstance(policy, torch.nn.Module)


def _has_weights(holder: Any) -> bool:
    return callable(getattr(holder, "state_dict", None))


def _bytes(value: Any) -> bytes:
    """A tensor's content; bfloat16 and the like have no NumPy type."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return bytes(value.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode()
