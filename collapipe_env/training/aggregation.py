"""Aggregation rules, from the mean update to the next common model: FedAvg, FedAvgM, FedAdam, FedYogi.

The server treats the mean of the updates as a gradient of its own (Reddi et al., 2021, arXiv 2003.00295). It
broadcasts that mean, so every party runs the rule itself and all of them reach the same model. A round
without participating clusters is no step and leaves the rule's memory alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from collapipe_env.ground.state_trees import Tree
from collapipe_env.scenario.learning import LearningSpec
from collapipe_env.training.optimizer_state import array_of, tensor_of

ADAPTIVE_RATE = 0.01
"""Default step size of fedadam and fedyogi: a step of 1 in every entry would throw the model off."""


class Aggregation:
    """A rule that moves the common model ``x`` by the mean update ``D``; ``eta`` is its step size.

    - ``fedavg``: ``x + eta D`` (McMahan et al., 2017, arXiv 1602.05629); with ``eta = 1`` the mean of the
      models.
    - ``fedavgm``: ``m = beta_1 m + D``, ``x + eta m`` (Hsu et al., 2019, arXiv 1909.06335). As in that paper,
      the new update enters at full weight, so a constant update is multiplied by ``1 / (1 - beta_1)``.
    - ``fedadam`` and ``fedyogi``: ``m = beta_1 m + (1 - beta_1) D``, ``x + eta m / (sqrt(v) + tau)`` with
      ``v = beta_2 v + (1 - beta_2) D^2`` and ``v = v - (1 - beta_2) D^2 sign(v - D^2)`` (Algorithm 2 of Reddi
      et al.). As in that paper, and unlike in PyTorch's Adam, there is no bias correction, and ``v`` starts
      at ``tau^2``, the least that the paper allows.

    ``m`` starts at 0.
    """

    def __init__(self, learning: LearningSpec, like: Tensor) -> None:
        """Start with an empty memory.

        Args:
            learning: The rule with its step size, ``beta_1`` and ``beta_2`` in [0, 1), and ``tau`` above 0.
            like: A model's parameters, shape (P,).
        """
        self._rule, rate = learning.aggregation, learning.aggregation_rate
        adaptive = self._rule in ("fedadam", "fedyogi")
        self._rate = (ADAPTIVE_RATE if adaptive else 1.0) if rate is None else rate
        self._beta1, self._beta2 = learning.aggregation_momentum, learning.aggregation_second_momentum
        self._floor = learning.aggregation_floor
        self._memory: dict[str, Tensor] = {}
        if self._rule != "fedavg":
            self._memory["mean"] = torch.zeros_like(like)
        if adaptive:
            self._memory["square"] = torch.full_like(like, self._floor**2)

    def step(self, update: Tensor) -> Tensor:
        """Return the change of the common model.

        Args:
            update: Weighted mean of (a cluster's model - common model) over the clusters that took part,
                shape (P,).
        """
        if self._rule == "fedavg":
            return self._rate * update
        mean = self._memory["mean"]
        if self._rule == "fedavgm":
            self._memory["mean"] = mean = self._beta1 * mean + update
            return self._rate * mean
        square, now = self._memory["square"], update.square()
        mean = self._beta1 * mean + (1 - self._beta1) * update
        if self._rule == "fedyogi":
            square = square - (1 - self._beta2) * now * torch.sign(square - now)
        else:
            square = self._beta2 * square + (1 - self._beta2) * now
        self._memory = {"mean": mean, "square": square}
        return self._rate * mean / (square.sqrt() + self._floor)

    def get_state(self) -> Tree:
        """Return copies of the rule's memory."""
        return {name: array_of(value) for name, value in self._memory.items()}

    def set_state(self, tree: Tree) -> None:
        """Continue from a state of :meth:`get_state` of the same rule."""
        self._memory = {name: tensor_of(tree[name], value) for name, value in self._memory.items()}
