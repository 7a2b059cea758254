"""PettingZoo's view: one agent for each cluster, all of them acting at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from collapipe_env.envs.cluster_columns import cluster_columns, cluster_layout
from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.mdp import NOT_BY_CLUSTER
from collapipe_env.envs.views.cost_apart import CostApart
from collapipe_env.envs.views.objectives import MultiObjectiveEnv
from collapipe_env.envs.wrappers import flat_layout, unwrapped
from collapipe_env.ground.errors import (
    AllocationError,
    MissingPackageError,
    NotResetError,
    ScenarioError,
    nearest_name,
)
from collapipe_env.ground.real_numbers import real_numbers

try:
    from pettingzoo import ParallelEnv
except ImportError:
    raise MissingPackageError.of("agents by cluster", "PettingZoo", "pettingzoo") from None

Credit = Literal["round", "clusters"]
Vector = npt.NDArray[np.float32]
ParallelStep = tuple[
    dict[str, Vector], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]
]
"""Observations, rewards, terminated, truncated and infos by agent."""


class ClusterAgents(ParallelEnv):
    """A PettingZoo ``ParallelEnv`` in which agent ``cluster_<n>`` plays the part of cluster ``n``.

    The agents' actions, concatenated, are an action of the single environment, which plays the round. With
    the same seed and actions, both go through the same trajectory, bit for bit.

    **Action** of an agent, ``Box(-1, 1, (A / N,), float32)``: its cluster's part of the action. All agents
    share the uplink: a bandwidth score is a weight relative to the other agents' scores.

    **Observation** of an agent, a ``Box`` of the same shape for all: the features of its cluster and of the
    whole system, in the order of the single environment. :attr:`observation_layout` names them.
    :meth:`state` is the whole observation, for critics that see everything.

    **Reward**. With ``credit="round"`` every agent receives the round's reward, so all share one goal. With
    ``credit="clusters"`` each receives its difference reward, the change of the round's reward that its
    cluster's work causes (:class:`~collapipe_env.envs.rewards.ClusterReward`); the difference rewards do not
    add up to the round's reward.

    **End and info** are the round's, the same for all agents. All agents live until the episode ends, even
    those of clusters that sit a round out.

    Args:
        env: A :class:`~collapipe_env.envs.env.CollaPipeEnv` with the flat observation, possibly in wrappers
            that leave observations, actions and rewards as they are, as ``gymnasium.make`` returns it.
        credit: ``"round"`` or ``"clusters"``.

    Attributes:
        env: The environment.
        possible_agents: ``cluster_0`` to ``cluster_<N-1>``.
        agents: The same during an episode; empty before the first and after the end.
        state_space: Space of :meth:`state`.
        observation_layout: Names, places, shapes and units of the features of one agent's observation.

    Raises:
        ScenarioError: For another environment, one with vector rewards or a cost apart, an unknown credit, or
            a reward that cannot be split by cluster under ``credit="clusters"``.
    """

    def __init__(self, env: gym.Env[Any, Any], credit: Credit = "round") -> None:
        inner = unwrapped(env, "ClusterAgents", CollaPipeEnv)
        if isinstance(inner, MultiObjectiveEnv):
            raise ScenarioError(
                "ClusterAgents gives every agent one number as reward, and this environment's rewards are "
                "vectors: use an id without MO, such as CollaPipeSurrogate-v0"
            )
        outer: gym.Env[Any, Any] = env
        while isinstance(outer, gym.Wrapper):
            if isinstance(outer, CostApart):
                raise ScenarioError(
                    "ClusterAgents wraps environments whose step returns five values, and that of CostApart "
                    'returns six: leave CostApart out; the cost is in every agent\'s info["cost"]'
                )
            outer = outer.env
        layout = flat_layout(inner, "ClusterAgents")
        same = env.observation_space == inner.observation_space and env.action_space == inner.action_space
        if not same:
            raise ScenarioError(
                "ClusterAgents tells observations and actions apart by their places, which a wrapper has "
                "changed: wrap the agents instead"
            )
        if credit not in get_args(Credit):
            raise ScenarioError(
                f"credit = {credit!r} is not known: {nearest_name(str(credit), get_args(Credit))}"
            )
        if credit == "clusters" and inner._mdp.cluster_reward() is None:
            raise ScenarioError(NOT_BY_CLUSTER)
        self.env, self._inner, self._credit = env, inner, credit
        self.metadata = {**inner.metadata, "name": "collapipe_clusters_v0", "is_parallelizable": True}
        self.render_mode = inner.render_mode
        N = inner.scenario.clusters
        self.possible_agents = [f"cluster_{n}" for n in range(N)]
        self.agents: list[str] = []
        self._columns = cluster_columns(layout, N)
        self.observation_layout = cluster_layout(layout, N)
        whole = inner.observation_space
        assert isinstance(whole, spaces.Box)
        self.state_space = whole
        entries = inner.codec.cluster_entries
        # PettingZoo requires the same object every time; each agent's space is seeded on its own.
        self.observation_spaces = {
            agent: spaces.Box(whole.low[columns], whole.high[columns], dtype=np.float32)
            for agent, columns in zip(self.possible_agents, self._columns, strict=True)
        }
        self.action_spaces = {
            agent: spaces.Box(-1.0, 1.0, (entries,), np.float32) for agent in self.possible_agents
        }
        self._seen: Vector = np.zeros(whole.shape, dtype=np.float32)

    def observation_space(self, agent: str) -> spaces.Box:
        """Space of an agent's observations."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Box:
        """Space of an agent's actions."""
        return self.action_spaces[agent]

    def state(self) -> Vector:
        """The whole observation (D,), as the single environment last returned it."""
        return self._seen.copy()

    def reset(
        self,
        seed: int | None = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002 - part of the interface
    ) -> tuple[dict[str, Vector], dict[str, dict[str, Any]]]:
        """Start an episode.

        Args:
            seed: As for the single environment.
            options: Ignored; PettingZoo's checks pass some of their own.

        Returns:
            Observations and infos by agent.
        """
        self._seen, info = self.env.reset(seed=seed)
        self.agents = self.possible_agents.copy()
        return self._apart(self._seen), {agent: dict(info) for agent in self.agents}

    def step(self, actions: Mapping[str, npt.NDArray[np.float32]]) -> ParallelStep:
        """Play one round.

        Args:
            actions: An action (A / N,) of every agent; values outside [-1, 1] are clipped.

        Returns:
            Observations, rewards, terminated, truncated and infos by agent; all empty if the episode is over
            and nobody acts.

        Raises:
            AllocationError: If the actions are no mapping, or an agent's action is missing, unknown, of
                another shape or type, or not finite; the environment is left as it was.
            NotResetError: Before the first reset, or after the end of an episode.
        """
        if not isinstance(actions, Mapping):
            raise AllocationError(
                f"actions of type {type(actions).__name__} were given, expected a mapping from every agent "
                f"to its action, such as {{{self.possible_agents[0]!r}: ...}}"
            )
        if not self.agents:
            if not actions:
                return {}, {}, {}, {}, {}
            raise NotResetError("no agent is alive: call reset() to begin an episode")
        self._seen, reward, terminated, truncated, info = self.env.step(self._joint(actions))
        agents = self.agents
        if self._credit == "clusters":
            rewards = [float(own) for own in self._inner._mdp.cluster_rewards()[0]]
        else:
            rewards = [float(reward)] * len(agents)
        if terminated or truncated:
            self.agents = []
        return (
            self._apart(self._seen),
            dict(zip(agents, rewards, strict=True)),
            dict.fromkeys(agents, terminated),
            dict.fromkeys(agents, truncated),
            {agent: dict(info) for agent in agents},
        )

    def render(self) -> npt.NDArray[np.uint8] | None:
        """The last round as one picture, as in the single environment."""
        return self._inner.render()

    def close(self) -> None:
        """Close the environment; doing so twice is harmless."""
        self.env.close()

    def _apart(self, observation: Vector) -> dict[str, Vector]:
        """Each agent's part of an observation (D,)."""
        return {
            agent: observation[columns]
            for agent, columns in zip(self.possible_agents, self._columns, strict=True)
        }

    def _joint(self, actions: Mapping[str, Any]) -> npt.NDArray[Any]:
        """The action (A,) of the single environment."""
        for agent in actions:
            if agent not in self.action_spaces:
                raise AllocationError(f"there is no agent {agent!r}: {nearest_name(agent, self.agents)}")
        parts = []
        for agent, space in self.action_spaces.items():
            if agent not in actions:
                raise AllocationError(f"the action of {agent} is missing: every agent acts in every round")
            part = real_numbers(f"the action of {agent}", actions[agent], space.shape)
            if part.shape != space.shape:
                raise AllocationError(f"the action of {agent} has shape {part.shape}, expected {space.shape}")
            parts.append(part)
        return np.concatenate(parts)


def parallel_env(env_id: str = "CollaPipeSurrogate-v0", credit: Credit = "round", **kwargs: Any) -> Any:
    """Make the agents of an id, as PettingZoo's own environments are made.

    Args:
        env_id: An id that the package registers.
        credit: As for :class:`ClusterAgents`.
        **kwargs: For ``gymnasium.make``, such as ``scenario`` and ``reward``.
    """
    return ClusterAgents(gym.make(env_id, **kwargs), credit)
