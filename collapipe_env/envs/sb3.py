"""Adapter from the native vector environment to Stable-Baselines3's ``VecEnv``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.vec_env import VecEnv

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.errors import ScenarioError


class CollaPipeVecEnv(VecEnv):
    """Lets Stable-Baselines3 train on all rows of a :class:`CollaPipeVectorEnv` at once.

    Info dictionaries are empty during an episode (building them would cost more than the step); at its
    end they hold ``terminal_observation``, ``TimeLimit.truncated``, ``episode`` (return and length, as
    ``VecMonitor`` gives them) and ``summary``. The system's own figures of the last step are in
    :attr:`last_info`.

    Args:
        env: A vector environment with ``autoreset_mode="SameStep"``.

    Raises:
        ScenarioError: If the environment resets in another mode.
    """

    def __init__(self, env: CollaPipeVectorEnv) -> None:
        if env.autoreset_mode is not AutoresetMode.SAME_STEP:
            raise ScenarioError(
                f"autoreset_mode = {env.autoreset_mode.value!r}: Stable-Baselines3 resets in the same step, "
                "build the environment with autoreset_mode='SameStep'"
            )
        self.env = env
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)
        self.render_mode = env.render_mode
        self._actions: npt.NDArray[Any] = np.zeros(env.action_space.shape or (), dtype=np.float32)
        self.last_info: dict[str, npt.NDArray[Any]] = {}

    def reset(self) -> npt.NDArray[np.float32]:
        """Start new episodes, with the seeds given by :meth:`seed`."""
        seeds = self._seeds if any(s is not None for s in self._seeds) else None
        observation, _ = self.env.reset(seed=seeds)
        self.reset_infos = [{} for _ in range(self.num_envs)]
        self._reset_seeds()
        self._reset_options()
        return observation

    def step_async(self, actions: npt.NDArray[Any]) -> None:
        """Store the actions of the next step."""
        self._actions = actions

    def step_wait(
        self,
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.bool_], list[dict[str, Any]]]:
        """Play one round in every row."""
        observation, reward, terminated, truncated, info = self.env.step(self._actions)
        done = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        names = ("delay", "cost", "backlog", "loss", "metric")
        self.last_info = {name: info[name] for name in names if name in info}
        if done.any():
            summaries = info["final_info"]["summary"]
            for row in np.flatnonzero(done):
                summary = {
                    name: values[row].item()
                    for name, values in summaries.items()
                    if not name.startswith("_") and summaries[f"_{name}"][row]
                }
                infos[row] = {
                    "terminal_observation": info["final_obs"][row],
                    "TimeLimit.truncated": bool(truncated[row] and not terminated[row]),
                    "episode": {"r": summary["return"], "l": summary["rounds"]},
                    "summary": summary,
                }
        return observation, reward.astype(np.float32), done, infos

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def get_attr(self, attr_name: str, indices: int | Iterable[int] | None = None) -> list[Any]:
        """An attribute of the environment, once for each of the rows asked for."""
        value = getattr(self.env, attr_name)
        return [value for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: int | Iterable[int] | None = None) -> None:
        """Set an attribute; the rows are one object, so it holds for all of them."""
        if len(list(self._get_indices(indices))) != self.num_envs:
            raise ScenarioError(f"set_attr({attr_name!r}) for single rows: the rows share one environment")
        setattr(self.env, attr_name, value)

    def env_method(
        self,
        method_name: str,
        *method_args: Any,
        indices: int | Iterable[int] | None = None,
        **method_kwargs: Any,
    ) -> list[Any]:
        """Call a method of the environment once; its result stands for each row asked for."""
        result = getattr(self.env, method_name)(*method_args, **method_kwargs)
        return [result for _ in self._get_indices(indices)]

    def env_is_wrapped(
        self,
        wrapper_class: Any,  # noqa: ARG002 - the interface of VecEnv
        indices: int | Iterable[int] | None = None,
    ) -> list[bool]:
        """No row has a wrapper of its own."""
        return [False for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[npt.NDArray[np.uint8] | None]:
        """One picture a row."""
        return self.env.render() or [None] * self.num_envs
