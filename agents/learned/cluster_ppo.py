"""PPO in which every cluster learns from its own contribution ([X]): policy, rollouts and updates.

PPO's own ratio is a product over all entries of an action, and its single advantage mixes the actions of all
clusters: the more clusters there are, the less each learns about its own actions. Here a cluster's segments,
micro-batches and powers have their own ratio, clipped on its own, and the advantage of the cluster's
difference reward (:class:`~collapipe_env.envs.rewards.ClusterReward`). A bandwidth score takes from the other
clusters what it gives to its own, so each score has its own ratio and the advantage of the round's reward.

Shapes: E environments, T rounds of a rollout, N clusters, K devices, B transitions of a minibatch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.distributions import DiagGaussianDistribution
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import PyTorchObs
from stable_baselines3.common.utils import explained_variance
from stable_baselines3.common.vec_env import VecEnv
from torch import nn

from collapipe_env.envs.sb3 import CollaPipeVecEnv
from collapipe_env.ground.errors import ScenarioError

from .cluster_net import ClusterNet

Floats = npt.NDArray[np.float32]
_HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)


class ClusterActorCritic(ActorCriticPolicy):
    """Policy for PPO: one network decides for every cluster, another values every cluster.

    Its features extractor gives rows (E, N, F). One network gives the means of a cluster's ``2K + 3``
    entries; before training they are near 0, which stands for an even split at medium powers. The standard
    deviations are the same for all clusters. Any algorithm for actor-critic policies can train it; with
    :class:`ClusterPPO` each cluster learns from its own actions.

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


class Rollout(NamedTuple):
    """Rounds since the last update; the axis (N + 1) holds the clusters, and last the round.

    Attributes:
        observations: (T, E, D).
        actions: As drawn, before they were cut to the box (T, E, N (2K + 3)).
        likelihoods: Log-likelihoods when drawn, of each cluster's plan and of its bandwidth score
            (T, E, 2 N).
        rewards: (T, E, N + 1).
        values: As expected when played (T, E, N + 1).
        starts: Whether an episode began there (T, E).
    """

    observations: Floats
    actions: Floats
    likelihoods: Floats
    rewards: Floats
    values: Floats
    starts: npt.NDArray[Any]

    def advantages(self, last_values: Floats, dones: npt.NDArray[Any], gamma: float, lam: float) -> Floats:
        """Advantages (T, E, N + 1), generalised as by Stable-Baselines3, of each cluster on its own.

        Args:
            last_values: Values of the states after the rollout (E, N + 1).
            dones: Environments whose episodes have just ended (E,).
            gamma: Discount factor.
            lam: Lambda of the estimation.
        """
        going = 1.0 - np.concatenate((self.starts[1:], dones[None])).astype(np.float32)[..., None]
        found, advantage, following = np.empty_like(self.rewards), np.zeros_like(last_values), last_values
        for step in reversed(range(len(found))):
            error = self.rewards[step] + gamma * going[step] * following - self.values[step]
            found[step] = advantage = error + gamma * lam * going[step] * advantage
            following = self.values[step]
        return found


class ClusterPPO(PPO):
    """PPO with an advantage and a probability ratio for each cluster.

    Args:
        *args: As for PPO; the policy must be a :class:`ClusterActorCritic`, the environment a
            :class:`~collapipe_env.envs.sb3.CollaPipeVecEnv`.
        credit: ``"clusters"``, or ``"round"`` for the round's reward in place of the clusters' own. Rewards
            that cannot be split by cluster always use ``"round"``.
        **kwargs: As for PPO.

    Attributes:
        rollout: Rounds since the last update.

    Raises:
        ScenarioError: If the policy or the environment is of another class.
    """

    policy: ClusterActorCritic
    rollout: Rollout
    _advantages: Floats

    def __init__(self, *args: Any, credit: str = "clusters", **kwargs: Any) -> None:
        self.credit = credit
        super().__init__(*args, **kwargs)

    def _setup_model(self) -> None:
        env = self.env
        if not isinstance(env, CollaPipeVecEnv):
            raise ScenarioError(
                f"ClusterPPO needs each cluster's rewards, which {type(env).__name__} does not have: give it "
                "the environment of make_sb3_vec_env, unwrapped, or train with PPO"
            )
        self._by_cluster = self.credit == "clusters" and env.rewards_clusters
        self._clusters = env.env.scenario.clusters
        super()._setup_model()
        policy: object = self.policy
        if not isinstance(policy, ClusterActorCritic):
            raise ScenarioError(
                f"ClusterPPO trains a ClusterActorCritic, not a policy of {type(policy).__name__}: give "
                "that class, with the options of policy_options"
            )

    def collect_rollouts(
        self,
        env: VecEnv,
        callback: BaseCallback,
        rollout_buffer: RolloutBuffer,
        n_rollout_steps: int,
    ) -> bool:
        """Play rounds with the present policy; False if a callback ends the training."""
        assert isinstance(env, CollaPipeVecEnv)
        self.policy.set_training_mode(False)
        callback.on_rollout_start()
        played = []
        for _ in range(n_rollout_steps):
            seen, starts = self._last_obs, self._last_episode_starts
            assert isinstance(seen, np.ndarray)
            with torch.no_grad():
                actions, values, likelihoods = self.policy.forward_clusters(torch.as_tensor(seen))
            new_obs, rewards, dones, infos = env.step(np.clip(actions.numpy(), -1.0, 1.0))
            self.num_timesteps += env.num_envs
            callback.update_locals(locals())
            if not callback.on_step():
                return False
            self._update_info_buffer(infos, dones)
            credited = self._credited(env, rewards, dones, infos)
            played.append((seen, actions.numpy(), likelihoods.numpy(), credited, values.numpy(), starts))
            assert isinstance(new_obs, np.ndarray)
            self._last_obs, self._last_episode_starts = new_obs, dones
        self.rollout = Rollout(*(np.stack(part) for part in zip(*played, strict=True)))
        with torch.no_grad():
            last_values = self.policy.cluster_values(torch.as_tensor(new_obs)).numpy()
        self._advantages = self.rollout.advantages(last_values, dones, self.gamma, self.gae_lambda)
        callback.update_locals(locals())
        callback.on_rollout_end()
        return True

    def _credited(
        self,
        env: CollaPipeVecEnv,
        rewards: npt.NDArray[Any],
        dones: npt.NDArray[Any],
        infos: list[dict[str, Any]],
    ) -> Floats:
        """Rewards (E, N + 1); those of episodes cut at their full length include what is expected beyond."""
        parts = env.cluster_rewards() if self._by_cluster else rewards[:, None].repeat(self._clusters, axis=1)
        credited = np.concatenate((parts, rewards[:, None]), axis=-1, dtype=np.float32)
        cut = [row for row in np.flatnonzero(dones) if infos[row].get("TimeLimit.truncated", False)]
        if cut and self.gamma > 0.0:
            last = torch.as_tensor(np.stack([infos[row]["terminal_observation"] for row in cut]))
            with torch.no_grad():
                credited[cut] += self.gamma * self.policy.cluster_values(last).numpy()
        return credited

    def train(self) -> None:
        """Improve policy and values with the rollout."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        clip = self.clip_range(self._current_progress_remaining)  # type: ignore[operator]
        rollout, returns = self.rollout, self._advantages + self.rollout.values
        arrays = (*rollout[:3], normalised(self._advantages), returns)
        flat = [torch.as_tensor(array.reshape(-1, array.shape[-1])) for array in arrays]
        logged: list[dict[str, float]] = []
        for _ in range(self.n_epochs):
            order = np.random.permutation(len(flat[0]))  # noqa: NPY002 - the generator that Stable-Baselines3 seeds
            near = all(
                self._improve([part[order[at : at + self.batch_size]] for part in flat], clip, logged)
                for at in range(0, len(order), self.batch_size)
            )
            self._n_updates += 1
            if not near:
                break
        for name in logged[0]:
            self.logger.record(f"train/{name}", float(np.mean([figures[name] for figures in logged])))
        fit = explained_variance(rollout.values.flatten(), returns.flatten())
        self.logger.record("train/explained_variance", fit)
        self.logger.record("train/std", self.policy.log_std.exp().mean().item())
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")

    def _improve(self, batch: list[torch.Tensor], clip: float, logged: list[dict[str, float]]) -> bool:
        """Take a gradient step, unless the policy has moved too far already; ``logged`` receives figures.

        The batch holds observations (B, D), actions (B, N (2K + 3)), log-likelihoods when drawn (B, 2 N),
        advantages and returns (B, N + 1).
        """
        observations, actions, old_likelihoods, advantages, returns = batch
        values, likelihoods, entropy = self.policy.evaluate_clusters(observations, actions)
        gain, distance, clipped = clipped_gain(likelihoods, old_likelihoods, advantages, clip)
        value_loss = nn.functional.mse_loss(values, returns)
        entropy_loss = -entropy.mean() / self._clusters
        loss = -gain + self.ent_coef * entropy_loss + self.vf_coef * value_loss
        logged.append(
            {
                "policy_gradient_loss": -gain.item(),
                "value_loss": value_loss.item(),
                "entropy_loss": entropy_loss.item(),
                "approx_kl": distance.item(),
                "clip_fraction": clipped.item(),
                "loss": loss.item(),
            }
        )
        if self.target_kl is not None and distance.item() > 1.5 * self.target_kl:
            return False
        self.policy.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
        self.policy.optimizer.step()
        return True


def normalised(advantages: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Advantages with mean 0 and standard deviation 1: the clusters' together, the round's alone.

    Args:
        advantages: Advantages of the clusters' rewards, and last of the round's (..., N + 1).
    """
    result = np.empty_like(advantages)
    for part in (slice(None, -1), slice(-1, None)):
        values = advantages[..., part]
        result[..., part] = (values - values.mean()) / (values.std() + 1e-8)
    return result


def clipped_gain(
    likelihoods: torch.Tensor, old_likelihoods: torch.Tensor, advantages: torch.Tensor, clip: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """PPO's objective with a ratio for each cluster's plan and for each bandwidth score.

    Args:
        likelihoods: Log-likelihoods under the policy, of the plans (N) and of the bandwidth scores (N),
            (B, 2 N).
        old_likelihoods: Log-likelihoods when the actions were drawn (B, 2 N).
        advantages: Advantages of the clusters, for their plans, and last of the round, for every bandwidth
            score (B, N + 1).
        clip: Largest change of a ratio that is rewarded.

    Returns:
        Mean over transitions and clusters of the sum of both objectives; the policy's distance from the old
        one (mean Kullback-Leibler divergence of a ratio, estimated as by Stable-Baselines3); share of ratios
        that were clipped. Three tensors ().
    """
    clusters = advantages.shape[-1] - 1
    shared = advantages[:, -1:].expand(-1, clusters)
    advantage = torch.cat((advantages[:, :-1], shared), dim=-1)
    logarithm = likelihoods - old_likelihoods
    ratio = logarithm.exp()
    gain = torch.min(advantage * ratio, advantage * ratio.clamp(1.0 - clip, 1.0 + clip))
    with torch.no_grad():
        distance = ((ratio - 1.0) - logarithm).mean()
        clipped = ((ratio - 1.0).abs() > clip).float().mean()
    return 2.0 * gain.mean(), distance, clipped
