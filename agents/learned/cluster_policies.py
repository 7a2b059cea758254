"""Policies of Stable-Baselines3's PPO and SAC whose networks share their weights over clusters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from stable_baselines3.common.distributions import DiagGaussianDistribution
from stable_baselines3.common.policies import ActorCriticPolicy, ContinuousCritic
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.type_aliases import PyTorchObs
from stable_baselines3.sac.policies import Actor, SACPolicy
from torch import nn

from .cluster_net import ClusterNet

_HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)


class ClusterActorCritic(ActorCriticPolicy):
    """Policy for PPO: one network decides for every cluster, another values every cluster.

    Its features extractor gives rows (E, N, F). One network gives the means of a cluster's ``2K + 3``
    entries; before training they are near 0, which stands for an even split at medium powers. The standard
    deviations are the same for all clusters. Any algorithm for actor-critic policies can train it; with
    :class:`~.cluster_ppo.ClusterPPO` each cluster learns from its own actions.

    Args:
        *args: As for Stable-Baselines3's policy.
        cluster_actions: Entries of an action that belong to one cluster, ``2K + 3`` and one for each opened
            decision.
        bandwidth_entry: Place of the bandwidth score among them.
        **kwargs: As for Stable-Baselines3's policy, ``net_arch`` as a list of widths.
    """

    def __init__(self, *args: Any, cluster_actions: int, bandwidth_entry: int = -1, **kwargs: Any) -> None:
        self._width, self._bandwidth = cluster_actions, bandwidth_entry % cluster_actions
        super().__init__(*args, **kwargs)

    def _build(self, lr_schedule: Callable[[float], float]) -> None:
        widths = [int(width) for width in self.net_arch]
        self.actor = ClusterNet(self.features_dim, widths, self._width, self.activation_fn)
        # The value of the cluster's own reward, and the cluster's part in the value of the round's.
        self.critic = ClusterNet(self.features_dim, widths, 2, self.activation_fn)
        self.actor.initialise(0.01)
        self.critic.initialise(1.0)
        self.log_std = nn.Parameter(torch.full((self._width,), float(self.log_std_init)))
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)  # type: ignore[call-arg]

    def forward(
        self, obs: torch.Tensor, deterministic: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Actions (E, N (2K + 3)), values of the round's reward (E, 1) and log-likelihoods (E,)."""
        actions, values, likelihoods = self.forward_clusters(obs, deterministic=deterministic)
        return actions, values[:, -1:], likelihoods.sum(dim=-1)

    def evaluate_actions(
        self, obs: PyTorchObs, actions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Values (E, 1), log-likelihoods (E,) and entropies (E,) of actions."""
        values, likelihoods, entropy = self.evaluate_clusters(obs, actions)
        return values[:, -1:], likelihoods.sum(dim=-1), entropy

    def predict_values(self, obs: PyTorchObs) -> torch.Tensor:
        """Values of the round's reward (E, 1)."""
        return self.cluster_values(obs)[:, -1:]

    def get_distribution(self, obs: PyTorchObs) -> DiagGaussianDistribution:
        """Distribution of actions."""
        return self._distribution(self._rows(obs))

    def forward_clusters(
        self, obs: PyTorchObs, *, deterministic: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Actions (E, N (2K + 3)), with values and log-likelihoods as in :meth:`evaluate_clusters`."""
        rows = self._rows(obs)
        means = self.actor(rows)
        drawn = means if deterministic else means + torch.randn_like(means) * self.log_std.exp()
        actions = drawn.flatten(-2)
        return actions, self._values(rows), self._likelihoods(means, actions)

    def evaluate_clusters(
        self, obs: PyTorchObs, actions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Values and log-likelihoods of parts of actions.

        Returns:
            Values of each cluster's reward, and last of the round's (E, N + 1); log-likelihoods of each
            cluster's plan without its bandwidth score (N), then of each cluster's bandwidth score (N),
            (E, 2 N); entropies (E,).
        """
        rows = self._rows(obs)
        # The entropy of a Gaussian does not depend on its mean.
        entropy = rows.shape[-2] * (self.log_std + _HALF_LOG_TAU + 0.5).sum()
        return self._values(rows), self._likelihoods(self.actor(rows), actions), entropy.expand(len(rows))

    def cluster_values(self, obs: PyTorchObs) -> torch.Tensor:
        """Values of each cluster's reward, and last of the round's (E, N + 1)."""
        return self._values(self._rows(obs))

    def _rows(self, obs: PyTorchObs) -> torch.Tensor:
        rows = self.extract_features(obs)
        assert isinstance(rows, torch.Tensor)
        return rows

    def _distribution(self, rows: torch.Tensor) -> DiagGaussianDistribution:
        assert isinstance(self.action_dist, DiagGaussianDistribution)
        means = self.actor(rows).flatten(-2)
        return self.action_dist.proba_distribution(means, self.log_std.repeat(rows.shape[-2]))

    def _values(self, rows: torch.Tensor) -> torch.Tensor:
        values = self.critic(rows)
        return torch.cat((values[..., 0], values[..., 1].mean(dim=-1, keepdim=True)), dim=-1)

    def _likelihoods(self, means: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        distance = (actions.reshape(means.shape) - means) * (-self.log_std).exp()
        entries = -0.5 * distance * distance - self.log_std - _HALF_LOG_TAU
        band = self._bandwidth
        others = torch.cat((entries[..., :band], entries[..., band + 1 :]), dim=-1)
        return torch.cat((others.sum(dim=-1), entries[..., band]), dim=-1)


class ClusterActor(Actor):
    """SAC's actor with one network for all clusters; ``features_extractor`` gives rows (E, N, F).

    Args:
        *args: As for Stable-Baselines3's actor.
        cluster_actions: ``2K + 3``.
        **kwargs: As for Stable-Baselines3's actor.
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
    """SAC's critics: each is the mean over clusters of one network's answers to rows of features and actions.

    Args:
        *args: As for Stable-Baselines3's critic.
        cluster_actions: ``2K + 3``.
        **kwargs: As for Stable-Baselines3's critic.
    """

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
    """Policy for SAC whose actor and critics share their weights over clusters.

    Args:
        *args: As for Stable-Baselines3's policy.
        cluster_actions: ``2K + 3``.
        **kwargs: As for Stable-Baselines3's policy, ``net_arch`` as a list of widths.
    """

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
