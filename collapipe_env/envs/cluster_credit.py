"""Rewards of a round split by cluster, where the reward and the scenario allow it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collapipe_env.envs.mdp import BatchMDP
from collapipe_env.envs.rewards import ClusterReward
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.simulator.build import system_parameters


def credits_clusters(mdp: BatchMDP) -> bool:
    """Return whether the reward can be split by cluster.

    False with a user's own reward, and where clusters wait for each other in every local step
    (``workload.head`` is ``common``).
    """
    return not system_parameters(mdp.scenario).barrier and isinstance(mdp.reward, ClusterReward)


def require_cluster_credit(mdp: BatchMDP) -> ClusterReward:
    """Return the reward that tells clusters apart.

    Raises:
        ScenarioError: If :func:`credits_clusters` is False.
    """
    reward = mdp.reward
    if not credits_clusters(mdp) or not isinstance(reward, ClusterReward):
        raise ScenarioError(
            "the reward cannot be split by cluster: use one of the package's own, and no common "
            "head with several local steps"
        )
    return reward


def cluster_rewards(mdp: BatchMDP) -> npt.NDArray[np.float32]:
    """Difference rewards of the round just played (E, N), see :class:`ClusterReward`.

    Raises:
        ScenarioError: Before the first round, or if the reward cannot be split by cluster.
    """
    reward, record = require_cluster_credit(mdp), mdp.world.last_round
    if record is None:
        raise ScenarioError("no round was played yet: call step() first")
    return np.asarray(reward.by_cluster(record), dtype=np.float32)
