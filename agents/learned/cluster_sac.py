"""Policy of Stable-Baselines3's SAC whose networks share their weights over clusters, and its rewards."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from stable_baselines3.common.policies import ContinuousCritic
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn
from stable_baselines3.sac.policies import Actor, SACPolicy
from torch import nn

from .cluster_net import ClusterNet


class BoundedRewards(VecEnvWrapper):
    """Environments whose rewards end at a lowest one.

    A few plans at random last a hundred times as long as the others (an outage, the least power). The squared
    errors of critics would be about these plans alone, and nothing else would be learned.

    Args:
        venv: The environments.
        lowest: The lowest reward of a round.
    """

    def __init__(self, venv: VecEnv, lowest: float) -> None:
        super().__init__(venv)
        self.lowest = lowest

    def reset(self) -> VecEnvObs:
        """Reset all environments."""
        return self.venv.reset()

    def step_wait(self) -> VecEnvStepReturn:
        """Wait for the steps of all environments."""
        observations, rewards, dones, infos = self.venv.step_wait()
        return observations, np.maximum(rewards, self.lowest), dones, infos


class ClusterActor(Actor):
    """SAC's actor with one network for all clusters; ``features_extractor`` gives rows (E, N, F).

    Args:
        *args: As for Stable-Baselines3's actor, like ``kwargs``.
        cluster_actions: Entries of an action that belong to one cluster, ``2K + 3``.
    """

    def __init__(self, *args: Any, cluster_actions: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        *widths, last = self.net_arch
        self.latent_pi = nn.Sequential(
            ClusterNet(self.features_dim, widths, last, self.activation_fn), self.activation_fn()
        )
        self.mu = nn.Sequential(nn.Linear(last, cluster_actions), nn.Flatten(-2))
        self.log_std = nn.Sequential(  # type: ignore[assignment]
            nn.Linear(last, cluster_actions), nn.Flatten(-2)
        )


class ClusterCritic(ContinuousCritic):
    """SAC's critics: each means over clusters what one network answers to rows and actions."""

    def __init__(self, *args: Any, cluster_actions: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        widths: Any = kwargs["net_arch"]
        activation: type[nn.Module] = kwargs["activation_fn"]
        inputs = kwargs["features_dim"] + cluster_actions
        self._width = cluster_actions
        for index in range(self.n_critics):
            net: Any = ClusterNet(inputs, widths, 1, activation)
            self.q_networks[index] = net
            setattr(self, f"qf{index}", net)

    def forward(self, obs: torch.Tensor, actions: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Values (E, 1) of each critic."""
        rows = self.extract_features(obs, self.features_extractor)
        rows = torch.cat((rows, actions.reshape(*rows.shape[:2], self._width)), dim=-1)
        return tuple(net(rows).mean(dim=-2) for net in self.q_networks)


class ClusterSACPolicy(SACPolicy):
    """Policy for SAC whose actor and critics share weights over clusters; arguments as for the actor."""

    def __init__(self, *args: Any, cluster_actions: int, **kwargs: Any) -> None:
        self._width = cluster_actions
        super().__init__(*args, **kwargs)

    def make_actor(self, features_extractor: BaseFeaturesExtractor | None = None) -> ClusterActor:
        """Build the actor."""
        options = self._update_features_extractor(self.actor_kwargs, features_extractor)
        return ClusterActor(**options, cluster_actions=self._width).to(self.device)

    def make_critic(self, features_extractor: BaseFeaturesExtractor | None = None) -> ClusterCritic:
        """Build the critics."""
        options = self._update_features_extractor(self.critic_kwargs, features_extractor)
        return ClusterCritic(**options, cluster_actions=self._width).to(self.device)
