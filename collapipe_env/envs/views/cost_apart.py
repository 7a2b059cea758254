"""Safety-Gymnasium's view: steps return six values, the cost as the third.

The view does not import Safety-Gymnasium: its interface is this tuple, and it pins Gymnasium 0.28.1, which is
older than any version that this package supports.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorEnv, VectorWrapper

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.envs.wrappers import unwrapped
from collapipe_env.ground.arrays import namespace

SafeStep = tuple[Any, Any, Any, Any, Any, dict[str, Any]]
"""Observation, reward, cost, terminated, truncated, info."""


class CostApart(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """``step`` returns ``(observation, reward, cost, terminated, truncated, info)``.

    The cost is ``info["cost"]``: the sum over nodes of the energy above what the round grants, in budgets,
    never negative. Make the environment with ``reward="delay"``: the default reward already charges for
    energy.

    Gymnasium's own wrappers and checkers expect five values, so this wrapper must be the outermost.

    Args:
        env: A :class:`~collapipe_env.envs.env.CollaPipeEnv`, possibly wrapped.

    Raises:
        ScenarioError: For another environment.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        unwrapped(env, "CostApart", CollaPipeEnv)

    def step(self, action: Any) -> SafeStep:  # type: ignore[override]
        """Play one round: observation, reward, cost, terminated, truncated, info."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, float(info["cost"]), terminated, truncated, info


class VectorCostApart(VectorWrapper):
    """:class:`CostApart` for all rows of a vector environment, with costs (E,), float64.

    A row whose episode ends in a step gets the cost of that step, even where a new episode begins in the same
    step and ``info["cost"]`` shows the new episode's 0.

    Args:
        env: A :class:`~collapipe_env.envs.vector.CollaPipeVectorEnv`, or that of another backend, possibly
            wrapped.

    Raises:
        ScenarioError: For another environment.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        unwrapped(env, "VectorCostApart", CollaPipeVectorEnv)

    def step(self, actions: Any) -> SafeStep:  # type: ignore[override]
        """Play one round in every row: observations, rewards, costs, terminated, truncated, infos."""
        observation, reward, terminated, truncated, info = self.env.step(actions)
        cost = info["cost"]
        if "final_info" in info:
            last = info["final_info"]
            cost = namespace(cost).where(last["_cost"], last["cost"], cost)
        return observation, reward, cost, terminated, truncated, info
