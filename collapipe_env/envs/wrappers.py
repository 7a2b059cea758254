"""Views of the environment for algorithms that need another action space."""

from __future__ import annotations

from typing import Any, TypeVar

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.observation import ObservationLayout
from collapipe_env.ground.arrays import IntArray
from collapipe_env.ground.errors import AllocationError, ScenarioError
from collapipe_env.ground.real_numbers import real_numbers

E = TypeVar("E")


def unwrapped(env: Any, wrapper: str, kind: type[E]) -> E:
    """Return the environment inside of all wrappers, or refuse one of another kind with an error."""
    inner = env.unwrapped
    if not isinstance(inner, kind):
        raise ScenarioError(f"{wrapper} wraps a {kind.__name__}, not {type(inner).__name__}")
    return inner


def flat_layout(env: CollaPipeEnv, wrapper: str) -> ObservationLayout:
    """Return the layout of the flat observation, or refuse an environment with another one."""
    layout = env.observation_layout
    if not isinstance(layout, ObservationLayout):
        raise ScenarioError(f"{wrapper} needs the flat observation: leave out observation='graph'")
    return layout


class MultiDiscreteActions(gym.ActionWrapper[Any, Any, Any], gym.utils.RecordConstructorArgs):
    """A ``MultiDiscrete`` view of the action box, in the same order.

    Segment scores have ``L + 1`` levels, so that every split of the ``L`` blocks can be expressed
    (``delta_k`` as level ``delta_k``). Micro-batches have one level for each allowed number. Powers and
    bandwidth scores, and caps on clocks where these are open, have the given numbers of levels, spread evenly
    over [-1, 1]. Other opened decisions have a level for each choice.

    Args:
        env: A :class:`~collapipe_env.envs.env.CollaPipeEnv`, possibly wrapped.
        power_levels: Levels of each transmit power, >= 2; geometric between the limits.
        bandwidth_levels: Levels of each bandwidth score, >= 2.
        clock_levels: Levels of each cap on a clock, >= 2; geometric from the least cap to none. Other opened
            decisions that take any number of a range have as many.

    Raises:
        ScenarioError: For fewer than two levels or another environment.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        power_levels: int = 9,
        bandwidth_levels: int = 11,
        clock_levels: int = 9,
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(
            self, power_levels=power_levels, bandwidth_levels=bandwidth_levels, clock_levels=clock_levels
        )
        gym.ActionWrapper.__init__(self, env)
        asked = {"power": power_levels, "bandwidth": bandwidth_levels, "clock": clock_levels}
        for name, levels in ((f"{kind}_levels", levels) for kind, levels in asked.items()):
            if levels < 2:
                raise ScenarioError(f"{name} = {levels!r}: at least 2 are needed")
        codec = unwrapped(env, "MultiDiscreteActions", CollaPipeEnv).codec
        K = codec.devices
        cluster = [codec.blocks + 1] * K + [power_levels] * (K + 1)
        cluster += [len(codec.micro_batch_choices), bandwidth_levels]
        for part in codec.opened_parts:
            levels = part.levels(codec.parameters) or clock_levels
            cluster += [levels] * (K if part.axes == "N K" else 1)
        self._levels = np.array(cluster * codec.clusters, dtype=np.int64)
        self.action_space = spaces.MultiDiscrete(self._levels)

    def action(self, action: IntArray) -> npt.NDArray[np.float32]:
        """Convert levels to an action of the box.

        Raises:
            AllocationError: For another shape or type.
        """
        action = real_numbers("action", action, self._levels.shape)
        if action.shape != self._levels.shape:
            raise AllocationError(f"action has shape {action.shape}, expected {self._levels.shape}")
        steps = np.maximum(self._levels - 1, 1)
        # A single level stands for the middle of the range.
        unit = np.where(self._levels > 1, action / steps, 0.5)
        box: npt.NDArray[np.float32] = (2.0 * unit - 1.0).astype(np.float32)
        return box


class MagnifiedBacklog(gym.ObservationWrapper[Any, Any, Any], gym.utils.RecordConstructorArgs):
    """The flat observation with the energy queues magnified.

    The observation maps queues up to ``budgets.backlog_cap`` to [0, 1], but good schedulers keep them at a
    small part of that range, and networks learn late to react to such small values. The agents of
    ``collapipe train`` magnify queues in the same way, inside their networks.

    Args:
        env: A :class:`~collapipe_env.envs.env.CollaPipeEnv`, possibly wrapped.
        unit: Queue, in energy budgets of a round, that is mapped to 1; above 0.

    Raises:
        ScenarioError: For a unit that is not above 0, or another environment.
    """

    def __init__(self, env: gym.Env[Any, Any], unit: float = 4.0) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, unit=unit)
        gym.ObservationWrapper.__init__(self, env)
        if not 0.0 < unit < float("inf"):
            raise ScenarioError(f"unit = {unit!r}: a number above 0 is needed")
        inner, space = unwrapped(env, "MagnifiedBacklog", CollaPipeEnv), env.observation_space
        layout = flat_layout(inner, "MagnifiedBacklog")
        assert isinstance(space, spaces.Box)
        self._factor = np.ones(space.shape, dtype=np.float32)
        for name in layout.keys() & {"device_backlog", "cu_backlog", "server_backlog"}:
            self._factor[layout[name].slice] = inner.scenario.budgets.backlog_cap / unit
        self.observation_space = spaces.Box(space.low * self._factor, space.high * self._factor)

    def observation(self, observation: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The observation (D,) with its queues magnified."""
        magnified: npt.NDArray[np.float32] = observation * self._factor
        return magnified
