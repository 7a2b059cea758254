"""Rewards of a round split by cluster, where the reward and the scenario allow it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collapipe_env.envs.mdp import BatchMDP
from collapipe_env.envs.rewards import ClusterReward
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.simulator.build import system_parameters


def cluster_reward(mdp: BatchMDP) -> ClusterReward | None:
    """Return the reward that tells clusters apart.

    ``None`` with a user's own reward, and where clusters wait for each other in every local step
    (``workload.head`` is ``common``).
    """
    waits, reward = system_parameters(mdp.scenario).barrier, mdp.reward
    return reward if isinstance(reward, ClusterReward) and not waits else None


def require_cluster_reward(mdp: BatchMDP) -> ClusterReward:
    """Return the reward that tells clusters apart.

    Raises:
        ScenarioError: If there is none.
    """
    reward = cluster_reward(mdp)
    if reward is None:
        raise ScenarioError(
            "the reward cannot be split by cluster: use one of the package's own, and no common "
            "head with several local steps"
        )
    return reward


def rewards_by_cluster(mdp: BatchMDP) -> npt.NDArray[np.float32]:
    """Difference rewards of the round just played (E, N), see :class:`ClusterReward`.

    Raises:
        ScenarioError: Before the first round, or if the reward cannot be split by cluster.
    """
    reward, record = require_cluster_reward(mdp), mdp.world.last_round
    if record is None:
        raise ScenarioError("no round was played yet: call step() first")
    return np.asarray(reward.by_cluster(record), dtype=np.float32)
