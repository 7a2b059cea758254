"""Observations as a policy saw them in training: normalised by the wrappers of its environment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorObservationWrapper
from gymnasium.wrappers import NormalizeObservation, vector

from collapipe_env.envs.observation_kinds import Observation
from collapipe_env.ground.errors import SchedulerError, shown

Transform: TypeAlias = Callable[[Observation], Observation]


def transforms_of(env: Any) -> list[tuple[Any, Transform]]:
    """Return what the wrappers of an environment do to observations, the innermost first.

    Statistics are read at every call and never updated. Of several environments side by side, the first one
    stands for all.

    Args:
        env: A single or vector environment of Gymnasium or Stable-Baselines3, wrapped or not; anything else
            has no wrappers.

    Returns:
        Wrappers, and functions of observations (E, ...).

    Raises:
        SchedulerError: If several environments side by side have statistics of their own.
    """
    found: list[tuple[Any, Transform]] = []
    beside = 1
    while env is not None:
        own = getattr(env, "__dict__", {})
        if "venv" in own or "norm_obs" in own:  # a wrapper of Stable-Baselines3, or a loaded one without env
            if callable(normalize := getattr(type(env), "normalize_obs", None)):
                found.append((env, partial(normalize, env)))
            env = own.get("venv")
            continue
        if isinstance(env, NormalizeObservation | vector.NormalizeObservation):
            if beside > 1:
                raise SchedulerError(
                    f"each of the {beside} environments has a NormalizeObservation with its own statistics: "
                    "give normalise= one of them, or train with one for all (VecNormalize, or "
                    "gymnasium.wrappers.vector.NormalizeObservation)"
                )
            found.append((env, partial(_normalised, env)))
        elif isinstance(env, gym.ObservationWrapper):
            found.append((env, partial(_row_by_row, env)))
        elif isinstance(env, VectorObservationWrapper):
            found.append((env, env.observations))
        envs = own.get("envs")
        beside = len(envs) if envs else beside
        env = envs[0] if envs else own.get("env")
    return found[::-1]


def training_transforms(policy: Any, normalise: Any, called: str) -> list[tuple[Any, Transform]]:
    """Return what turns plain observations into those that a policy was trained on.

    Args:
        normalise: The argument of :class:`~.policy_scheduler.PolicyScheduler`.
        called: The policy in errors.

    Raises:
        SchedulerError: If the policy was trained on normalised observations and the statistics are not at
            hand, or ``normalise`` has none.
    """
    if normalise is False:
        return []
    if normalise is not None:
        found = transforms_of(normalise) or ([(normalise, normalise)] if callable(normalise) else [])
        if not found:
            raise SchedulerError(
                f"policy {called}: normalise = {shown(normalise)} has no statistics of observations: give "
                "the training environment, a VecNormalize (from a file by VecNormalize.load(FILE, env), "
                "which runs code in it), a function of observations, or False for none"
            )
        return found
    get_env = getattr(policy, "get_env", None)
    found = transforms_of(get_env()) if callable(get_env) else []
    known = any(hasattr(type(one), "normalize_obs") or "obs_rms" in vars(one) for one, _ in found)
    if not known and (sign := _sign_of_normalising(policy)):
        raise SchedulerError(
            f"policy {called} was trained on normalised observations ({sign}), and the statistics are not "
            "stored with it: give normalise= the wrapped training environment or "
            "VecNormalize.load(FILE, env), or normalise=False if observations were not normalised"
        )
    if not found and _is_magnified(policy):
        raise SchedulerError(
            f"policy {called} was trained on other observations (its observation space is larger than the "
            "environment's, as under MagnifiedBacklog): give normalise= the wrapped training environment, or "
            "normalise=False if observations were those of the environment"
        )
    return found


def statistics_of(transforms: list[tuple[Any, Transform]]) -> Iterator[bytes]:
    """Bytes of everything on which normalised observations depend.

    Args:
        transforms: From :func:`training_transforms`.
    """
    for wrapper, _ in transforms:
        own = getattr(wrapper, "__dict__", {})
        found = own.get("obs_rms")
        parts = found if isinstance(found, Mapping) else {"": found}
        for name, part in sorted(parts.items()):
            if part is not None:
                yield f"{name} {own.get('epsilon')} {own.get('clip_obs')} {own.get('norm_obs')}".encode()
                yield np.asarray(part.mean).tobytes() + np.asarray(part.var).tobytes()


def _sign_of_normalising(policy: Any) -> str | None:
    """The mark that normalising wrappers leave on a policy; ``None`` if there is none."""
    space = getattr(policy, "observation_space", None)
    if isinstance(space, gym.spaces.Box) and not (space.bounded_below.any() or space.bounded_above.any()):
        return "its observation space has no bounds, as under Gymnasium's NormalizeObservation"
    # Stable-Baselines3 stores a model's last observations. Those of the environment lie within its space, and
    # a VecNormalize, which leaves the space as it is, makes about half of the numbers negative.
    last = getattr(policy, "_last_obs", None)
    boxes = getattr(space, "spaces", {"": space})
    for name, rows in (last if isinstance(last, dict) else {"": last}).items():
        box = boxes.get(name)
        inside = rows is None or not isinstance(box, gym.spaces.Box) or (box.low <= rows) & (rows <= box.high)
        if not np.all(inside):
            return "its last observations lie outside of their space, as under VecNormalize"
    return None


def _is_magnified(policy: Any) -> bool:
    """Whether a policy's bounded observation space is larger than any of a shipped environment."""
    # Imported late, so that `import collapipe_env` stays light.
    from collapipe_env.envs.features import GAIN_BOUND

    space = getattr(policy, "observation_space", None)
    return isinstance(space, gym.spaces.Box) and bool(np.max(space.high, initial=0.0) > GAIN_BOUND)


def _normalised(wrapper: Any, observation: Any) -> Any:
    """As Gymnasium's wrappers do it, without their update of the statistics."""
    spread = np.sqrt(wrapper.obs_rms.var + wrapper.epsilon)
    return ((observation - wrapper.obs_rms.mean) / spread).astype(np.float32)


def _row_by_row(wrapper: gym.ObservationWrapper[Any, Any, Any], observation: Any) -> Any:
    """A wrapper of single environments, for every row."""
    if not isinstance(observation, dict):
        return np.stack([wrapper.observation(row) for row in observation])
    names, count = list(observation), len(next(iter(observation.values())))
    rows = [wrapper.observation({name: observation[name][row] for name in names}) for row in range(count)]
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
