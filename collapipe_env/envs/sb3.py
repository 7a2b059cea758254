"""Adapter from the native vector environment to Stable-Baselines3's ``VecEnv``."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.vec_env import VecEnv

from collapipe_env.envs.env import CollaPipeEnv, ScenarioLike, checked_render_mode, refuse_unknown
from collapipe_env.envs.mdp import row_of
from collapipe_env.envs.observation_kinds import Observation
from collapipe_env.envs.registration import VECTOR_ENTRY_POINT, environment_ids
from collapipe_env.envs.rows import EnvironmentRow, rows_of_columns
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.arrays import BoolArray
from collapipe_env.ground.errors import ScenarioError, UnknownArgumentError, nearest_name, shown
from collapipe_env.physics.allocation import Allocation

InfoStyle = Literal["sparse", "full"]
Indices = int | Iterable[int] | None
StepReturn = tuple[Observation, npt.NDArray[np.float32], BoolArray, list[dict[str, Any]]]


class CollaPipeVecEnv(VecEnv):
    """Lets Stable-Baselines3 train on all rows of a :class:`CollaPipeVectorEnv` at once.

    Row ``i`` is bit-identical to the single environment ``i`` of a ``DummyVecEnv`` with the same seed:
    observations, rewards, ends, ``terminal_observation``, ``TimeLimit.truncated`` and :attr:`reset_infos`.
    ``VecMonitor``, ``VecNormalize`` and the other ``VecEnv`` wrappers work on it. Returned arrays and
    dictionaries are never written to again.

    **Information.** A dictionary for every row and step costs more than all the adapter's other work, and the
    algorithms read them only at the ends of episodes. There are therefore two styles:

    ===========  ====================================================================================
    ``sparse``   empty during an episode; complete at its end, as below
    ``full``     as ``DummyVecEnv``: every step the row's ``delay``, ``cost``, ``backlog``, ``loss``, where
                 they exist ``metric`` and ``left_out``, and ``TimeLimit.truncated``
    ===========  ====================================================================================

    An episode's last information has all of these, and also ``summary``, ``terminal_observation`` and
    ``episode`` with return ``r``, length ``l`` and seconds ``t`` since the adapter was built, as ``Monitor``
    writes it. In either style :attr:`last_info` holds the figures of the last step, as arrays.

    **Rows.** ``get_attr``, ``set_attr`` and ``env_method`` answer as single environments do
    (:class:`~collapipe_env.envs.rows.EnvironmentRow`). ``render_mode`` is the only attribute of the
    environment that may be set, for all rows at once.

    Args:
        env: A vector environment with ``autoreset_mode="SameStep"``.
        info: ``"sparse"`` (default) or ``"full"``.

    Attributes:
        env: The vector environment.
        spec: Gymnasium's specification, ``None`` unless the environment was made by its id.
        last_info: ``delay``, ``cost``, ``backlog``, ``loss`` and so on of the last step, arrays (E,).

    Raises:
        ScenarioError: If the environment resets in another mode, or for an unknown style.
    """

    reset_infos: list[dict[str, Any]]
    render_mode: str | None
    _actions: npt.NDArray[Any]

    def __init__(self, env: CollaPipeVectorEnv, info: InfoStyle = "sparse") -> None:
        if not isinstance(env, CollaPipeVectorEnv):
            raise ScenarioError(
                f"CollaPipeVecEnv adapts a CollaPipeVectorEnv, not {type(env).__name__}; for single or "
                "wrapped environments use Stable-Baselines3's make_vec_env"
            )
        if env.autoreset_mode is not AutoresetMode.SAME_STEP:
            raise ScenarioError(
                f"autoreset_mode = {env.autoreset_mode.value!r}: Stable-Baselines3 resets in the same step, "
                "build the environment with autoreset_mode='SameStep'"
            )
        if info not in get_args(InfoStyle):
            raise ScenarioError(
                f"info = {info!r} is not known: {nearest_name(str(info), get_args(InfoStyle))}"
            )
        self.env = env
        self.last_info: dict[str, npt.NDArray[Any]] = {}
        self._full = info == "full"
        self._rows = [EnvironmentRow(env, row) for row in range(env.num_envs)]
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)
        self.metadata: dict[str, Any] = dict(CollaPipeEnv.metadata)
        self.spec = env.spec
        self._built = time.time()

    def reset(self) -> Observation:
        """Start new episodes, with the seeds given by :meth:`seed`.

        Raises:
            ScenarioError: If options were set; none are known.
        """
        for options in self._options:
            refuse_unknown(options, ())
        seeds = self._seeds if any(s is not None for s in self._seeds) else None
        observation, info = self.env.reset(seed=seeds)
        self.reset_infos = [row_of(info, row) for row in range(self.num_envs)]
        self._reset_seeds()
        self._reset_options()
        return observation

    def step_async(self, actions: npt.NDArray[Any]) -> None:
        """Store the actions (E, A) of the next step, which checks them."""
        self._actions = actions

    def step_wait(self) -> StepReturn:
        """Play one round in every row; rows that are done start a new episode."""
        return self._converted(*self.env.step(self._actions))

    def step_allocation(self, allocation: Allocation) -> StepReturn:
        """Play allocations (E, ...), even those that the box cannot express; otherwise like a step.

        Raises:
            AllocationError: If one is infeasible; nothing is played then.
        """
        return self._converted(*self.env.step_allocation(allocation))

    def _converted(
        self,
        observation: Observation,
        reward: npt.NDArray[Any],
        terminated: npt.NDArray[Any],
        truncated: npt.NDArray[Any],
        info: dict[str, Any],
    ) -> StepReturn:
        done = terminated | truncated
        # Where episodes ended, final_info holds the step's figures of all rows; in info, rows that begin an
        # episode show the reset's figures.
        step = info.get("final_info", info)
        last = {name: step[name] for name in step if f"_{name}" in step}
        self.last_info = last
        infos: list[dict[str, Any]]
        if self._full:
            infos = [{**row, "TimeLimit.truncated": False} for row in rows_of_columns(last, slice(None))]
        else:
            infos = [{} for _ in range(self.num_envs)]
        if done.any():
            self._close_episodes(infos, np.flatnonzero(done), truncated & ~terminated, info)
        return observation, reward.astype(np.float32), done, infos

    def _close_episodes(
        self,
        infos: list[dict[str, Any]],
        rows: npt.NDArray[np.intp],
        cut: BoolArray,
        info: dict[str, Any],
    ) -> None:
        """Fill in the last information of the episodes that ended, and the first of those that began."""
        seconds = round(time.time() - self._built, 6)
        lasts = rows_of_columns(self.last_info, rows)
        # The vector environment reports the step; the learner still holds the figures of the resets.
        firsts = rows_of_columns(self.env._mdp.reset_info(), rows)
        for row, last, first in zip(rows.tolist(), lasts, firsts, strict=True):
            summary = self.env.ended_summary(row)
            infos[row] = {
                **last,
                "TimeLimit.truncated": bool(cut[row]),
                "terminal_observation": info["final_obs"][row],
                "summary": summary,
                "episode": {"r": summary["return"], "l": summary["rounds"], "t": seconds},
            }
            self.reset_infos[row] = first

    @property
    def rewards_clusters(self) -> bool:
        """Whether the reward can be split by cluster; see :meth:`BatchMDP.cluster_reward`."""
        return self.env._mdp.cluster_reward() is not None

    def cluster_rewards(self) -> npt.NDArray[np.float32]:
        """Difference rewards of the round just played (E, N), see :class:`ClusterReward`.

        They are computed only when this method is called.

        Raises:
            ScenarioError: Before the first round, or if :attr:`rewards_clusters` is False.
        """
        return self.env._mdp.cluster_rewards()

    def close(self) -> None:
        """Close the environment; doing so twice is harmless."""
        self.env.close()

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """Return an attribute of each selected row, as a single environment would.

        Raises:
            AttributeError: If rows have no such attribute; it names the nearest one.
        """
        return [getattr(row, attr_name) for row in self._chosen(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Set an attribute of the selected rows.

        Raises:
            ScenarioError: For ``render_mode`` of single rows: the rows share one environment.
            AttributeError: For any other attribute of the environment: they are fixed when it is built.
        """
        rows = self._chosen(indices)
        if attr_name == "render_mode":
            if len({id(row) for row in rows}) != self.num_envs:
                raise ScenarioError("set_attr('render_mode') for single rows: the rows share one environment")
            self.env.render_mode = self.render_mode = checked_render_mode(value)
            return
        if hasattr(EnvironmentRow, attr_name) or hasattr(self.env, attr_name):
            raise AttributeError(
                f"set_attr({attr_name!r}): the environment's own attributes are fixed when it is built; "
                "build another one"
            )
        for row in rows:
            setattr(row, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of each selected row, as on a single environment.

        Raises:
            AttributeError: If rows have no such method; it names the nearest one.
            ScenarioError: For ``step`` and ``step_allocation``: the rows step together.
        """
        if method_name == "render":  # the pictures of all rows are drawn at once
            images = self.get_images()
            return [images[index] for index in self._get_indices(indices)]
        return [getattr(row, method_name)(*method_args, **method_kwargs) for row in self._chosen(indices)]

    def env_is_wrapped(
        self,
        wrapper_class: Any,  # noqa: ARG002 - the interface of VecEnv
        indices: Indices = None,
    ) -> list[bool]:
        """No row has a wrapper of its own."""
        return [False for _ in self._chosen(indices)]

    def get_images(self) -> Sequence[npt.NDArray[np.uint8] | None]:
        """One picture per row; ``None`` for each without a render mode."""
        return self.env.render() or [None] * self.num_envs

    def _chosen(self, indices: Indices) -> list[EnvironmentRow]:
        return [self._rows[index] for index in self._get_indices(indices)]


def make_sb3_vec_env(
    scenario: ScenarioLike | None = None, /, num_envs: int = 1, seed: int | None = None, **kwargs: Any
) -> CollaPipeVecEnv:
    """Build an environment that Stable-Baselines3 can train on, all rows in one batch.

    Example::

        model = PPO("MlpPolicy", make_sb3_vec_env("CollaPipeSurrogate-v0", num_envs=64, seed=0))
        model = PPO("MlpPolicy", make_sb3_vec_env("medium", num_envs=64, learner="surrogate"))

    Args:
        scenario: An id that the package registers, or a scenario: name, path, mapping or object. May also be
            passed by keyword, ``scenario=``.
        num_envs: Number of environments, >= 1.
        seed: Seeds the first episodes, row ``i`` with ``seed + i``, and the action space; a model's own
            ``seed`` replaces it.
        **kwargs: ``learner``, ``reward``, ``render_mode``, ``max_episode_steps`` and ``observation`` of
            :class:`CollaPipeVectorEnv`, and ``info`` of :class:`CollaPipeVecEnv`.

    Raises:
        ScenarioError: For an unknown id, scenario or argument, an id of another environment, or both an id
            and a scenario.
    """
    if "scenario" in kwargs:
        also = kwargs.pop("scenario")
        if scenario is not None:
            raise UnknownArgumentError(
                f"{shown(scenario)} and scenario = {shown(also)} are two scenarios for one environment: give "
                "one of them; an id also sets the learner, a scenario takes it from learner="
            )
        scenario = also
    if scenario is None:
        raise UnknownArgumentError("no scenario: give an id such as 'CollaPipeSurrogate-v0', or a scenario")
    info: InfoStyle = kwargs.pop("info", "sparse")
    kwargs.setdefault("autoreset_mode", AutoresetMode.SAME_STEP)
    vector: Any
    if isinstance(scenario, str) and _is_id(scenario):
        vector = gym.make_vec(scenario, num_envs, **kwargs)
    else:
        vector = CollaPipeVectorEnv(num_envs, scenario, **kwargs)
    env = CollaPipeVecEnv(vector, info)
    if seed is not None:
        env.seed(seed)
        env.action_space.seed(seed)
    return env


def _is_id(name: str) -> bool:
    """Whether a string is an id of this package rather than a scenario.

    Raises:
        ScenarioError: If it looks like an id but is unknown, or belongs to another environment.
    """
    spec = gym.registry.get(name.removeprefix("collapipe_env:"))
    if spec is not None:
        if spec.vector_entry_point not in (VECTOR_ENTRY_POINT, CollaPipeVectorEnv):
            raise ScenarioError(
                f"{name} is not an environment of this package: use Stable-Baselines3's make_vec_env"
            )
        return True
    if re.fullmatch(r"[\w/:.-]+-v\d+", name):
        raise ScenarioError(f"{name!r} is not registered: {nearest_name(name, dict(environment_ids()))}")
    return False
