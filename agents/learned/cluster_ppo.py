"""PPO in which every cluster learns from its own contribution ([X])."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import explained_variance
from stable_baselines3.common.vec_env import VecEnv

from collapipe_env.envs.sb3 import CollaPipeVecEnv
from collapipe_env.ground.errors import ScenarioError

from .cluster_policies import ClusterActorCritic
from .cluster_rollouts import ClusterRolloutBuffer, ClusterSamples


class ClusterPPO(PPO):
    """PPO with an advantage and a probability ratio for each cluster.

    PPO's own ratio is a product over all entries of an action, and its single advantage mixes the actions of
    all clusters: the more clusters there are, the less each learns about its own actions. Here a cluster's
    segments, micro-batches and powers have their own ratio, clipped on its own, and the advantage of the
    cluster's difference reward (:class:`~collapipe_env.envs.rewards.ClusterReward`). A bandwidth score takes
    from the other clusters what it gives to its own, so each score has its own ratio and the advantage of the
    round's reward.

    Args:
        *args: As for PPO; the policy must be a :class:`ClusterActorCritic`, the environment a
            :class:`~collapipe_env.envs.sb3.CollaPipeVecEnv`.
        credit: ``"clusters"``, or ``"round"`` for the round's reward in place of the clusters' own. Rewards
            that cannot be split by cluster always use ``"round"``.
        **kwargs: As for PPO.

    Raises:
        ScenarioError: If the policy or the environment is of another class.
    """

    policy: ClusterActorCritic

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
        self.rollout_buffer_class = ClusterRolloutBuffer
        self.rollout_buffer_kwargs = {"clusters": self._clusters}
        super()._setup_model()
        policy: object = self.policy
        if not isinstance(policy, ClusterActorCritic):
            raise ScenarioError(
                f"ClusterPPO trains a ClusterActorCritic, not a policy of {type(policy).__name__}: give "
                "that class, with the options of policy_options"
            )

    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        """Play rounds with the present policy; False if a callback ends the training."""
        assert isinstance(env, CollaPipeVecEnv)
        self.policy.set_training_mode(False)
        rollout_buffer.reset()
        callback.on_rollout_start()
        for _ in range(n_rollout_steps):
            seen, starts = self._last_obs, self._last_episode_starts
            assert isinstance(seen, np.ndarray)
            assert starts is not None
            with torch.no_grad():
                drawn, values, likelihoods = self.policy.forward_clusters(torch.as_tensor(seen))
            actions = drawn.numpy()
            new_obs, rewards, dones, infos = env.step(np.clip(actions, -1.0, 1.0))
            self.num_timesteps += env.num_envs
            callback.update_locals(locals())
            if not callback.on_step():
                return False
            self._update_info_buffer(infos, dones)
            credited = self._credited(env, rewards)
            self._add_values_of_cut_episodes(credited, dones, infos)
            rollout_buffer.add(seen, actions, credited, starts, values, likelihoods)
            assert isinstance(new_obs, np.ndarray)
            self._last_obs, self._last_episode_starts = new_obs, dones
        with torch.no_grad():
            values = self.policy.cluster_values(torch.as_tensor(new_obs))
        rollout_buffer.compute_returns_and_advantage(last_values=values, dones=dones)
        callback.update_locals(locals())
        callback.on_rollout_end()
        return True

    def _credited(self, env: CollaPipeVecEnv, rewards: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Rewards of the clusters, and last of the round (E, N + 1)."""
        if self._by_cluster:
            return np.concatenate((env.cluster_rewards(), rewards[:, None]), axis=-1, dtype=np.float32)
        return np.repeat(rewards[:, None], self._clusters + 1, axis=-1).astype(np.float32)

    def _add_values_of_cut_episodes(
        self, rewards: npt.NDArray[np.float32], dones: npt.NDArray[Any], infos: list[dict[str, Any]]
    ) -> None:
        """Add the value expected beyond episodes that were cut at their full length to their last rewards."""
        cut = [row for row in np.flatnonzero(dones) if infos[row].get("TimeLimit.truncated", False)]
        if not cut or self.gamma == 0.0:
            return
        last = torch.as_tensor(np.stack([infos[row]["terminal_observation"] for row in cut]))
        with torch.no_grad():
            rewards[cut] += self.gamma * self.policy.cluster_values(last).numpy()

    def train(self) -> None:
        """Improve policy and values with the rollout."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        buffer = self.rollout_buffer
        assert isinstance(buffer, ClusterRolloutBuffer)
        fit = explained_variance(buffer.values.flatten(), buffer.returns.flatten())
        buffer.advantages = normalised(buffer.advantages)
        figures: dict[str, list[float]] = {}
        for _ in range(self.n_epochs):
            near = all(self._improved(batch, figures) for batch in buffer.minibatches(self.batch_size))
            self._n_updates += 1
            if not near:
                break
        for name, numbers in figures.items():
            self.logger.record(f"train/{name}", float(np.mean(numbers)))
        self.logger.record("train/explained_variance", fit)
        self.logger.record("train/std", self.policy.log_std.exp().mean().item())
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")

    def _improved(self, batch: ClusterSamples, figures: dict[str, list[float]]) -> bool:
        """Take a gradient step, unless the policy has moved too far already.

        Args:
            batch: The minibatch.
            figures: Receives what is logged.
        """
        clip = self.clip_range(self._current_progress_remaining)  # type: ignore[operator]
        values, likelihoods, entropy = self.policy.evaluate_clusters(batch.observations, batch.actions)
        gain, distance, clipped = clipped_gain(likelihoods, batch.old_likelihoods, batch.advantages, clip)
        value_loss = torch.nn.functional.mse_loss(values, batch.returns)
        entropy_loss = -entropy.mean() / self._clusters
        loss = -gain + self.ent_coef * entropy_loss + self.vf_coef * value_loss
        logged = {
            "policy_gradient_loss": -gain,
            "value_loss": value_loss,
            "entropy_loss": entropy_loss,
            "approx_kl": distance,
            "clip_fraction": clipped,
            "loss": loss,
        }
        for name, value in logged.items():
            figures.setdefault(name, []).append(value.item())
        if self.target_kl is not None and distance.item() > 1.5 * self.target_kl:
            return False
        self.policy.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
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
