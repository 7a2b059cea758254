"""Rollouts that keep rewards, values and likelihoods of every cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.buffers import RolloutBuffer


class ClusterSamples(NamedTuple):
    """A minibatch of B transitions.

    Attributes:
        observations: (B, D).
        actions: (B, N (2K + 3)).
        old_likelihoods: Log-likelihoods when played, of each cluster's plan and of its bandwidth score
            (B, 2 N).
        advantages: Advantages of each cluster's reward, and last of the round's (B, N + 1).
        returns: Returns of the same rewards (B, N + 1).
    """

    observations: torch.Tensor
    actions: torch.Tensor
    old_likelihoods: torch.Tensor
    advantages: torch.Tensor
    returns: torch.Tensor


class ClusterRolloutBuffer(RolloutBuffer):
    """Buffer of PPO's rollouts whose rewards, values, advantages and returns have an axis (N + 1).

    The axis holds the clusters' rewards, and last the round's. ``log_probs`` has an axis (2 N).

    Args:
        *args: As for Stable-Baselines3's buffer.
        clusters: ``N``.
        **kwargs: As for Stable-Baselines3's buffer.
    """

    def __init__(self, *args: Any, clusters: int, **kwargs: Any) -> None:
        self._clusters = clusters
        super().__init__(*args, **kwargs)

    def reset(self) -> None:
        """Empty the buffer."""
        super().reset()
        shape = (self.buffer_size, self.n_envs, self._clusters + 1)
        self.rewards, self.returns, self.values, self.advantages = (
            np.zeros(shape, dtype=np.float32) for _ in range(4)
        )
        self.log_probs = np.zeros((*shape[:2], 2 * self._clusters), dtype=np.float32)

    def add(
        self,
        obs: npt.NDArray[Any],
        action: npt.NDArray[Any],
        reward: npt.NDArray[Any],
        episode_start: npt.NDArray[Any],
        value: torch.Tensor,
        log_prob: torch.Tensor,
    ) -> None:
        """Keep a step of all environments: rewards and values (E, N + 1), log-likelihoods (E, 2 N)."""
        here = self.pos
        self.observations[here], self.actions[here] = obs, action
        self.rewards[here], self.episode_starts[here] = reward, episode_start
        self.values[here], self.log_probs[here] = value.numpy(), log_prob.numpy()
        self.pos += 1
        self.full = self.pos == self.buffer_size

    def compute_returns_and_advantage(self, last_values: torch.Tensor, dones: npt.NDArray[Any]) -> None:
        """Compute advantages and returns, as Stable-Baselines3 does, of each cluster on its own.

        Args:
            last_values: Values of the states after the rollout (E, N + 1).
            dones: Environments whose episodes have just ended (E,).
        """
        following, going = last_values.numpy(), 1.0 - dones.astype(np.float32)[:, None]
        advantage = np.zeros_like(following)
        for step in reversed(range(self.buffer_size)):
            error = self.rewards[step] + self.gamma * going * following - self.values[step]
            advantage = error + self.gamma * self.gae_lambda * going * advantage
            self.advantages[step] = advantage
            following, going = self.values[step], 1.0 - self.episode_starts[step][:, None]
        self.returns = self.advantages + self.values

    def minibatches(self, size: int) -> Iterator[ClusterSamples]:
        """All transitions once, in random order, in minibatches.

        Args:
            size: Transitions of a minibatch.
        """
        arrays = (self.observations, self.actions, self.log_probs, self.advantages, self.returns)
        flat = [array.reshape(-1, array.shape[-1]) for array in arrays]
        order = np.random.permutation(len(flat[0]))  # noqa: NPY002 - the generator that Stable-Baselines3 seeds
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            yield ClusterSamples(*(torch.as_tensor(array[chosen]) for array in flat))
