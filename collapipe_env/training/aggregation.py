"""Aggregation rules, from the mean update to the next common model: FedAvg, FedAvgM, FedAdam, FedYogi.

The server treats the mean of the updates as a gradient of its own (Reddi et al., 2021, arXiv 2003.00295). It
broadcasts that mean, so every party runs the rule itself and all of them reach the same model. A round
without participating clusters is no step and leaves the rule's memory alone.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from collapipe_env.ground.state_trees import Tree, require_alike
from collapipe_env.scenario.learning import LearningSpec
from collapipe_env.training.optimizer_state import array_of, tensor_of

ADAPTIVE_RATE = 0.01
"""Default step size of fedadam and fedyogi: a step of 1 in every entry would throw the model off."""


class Aggregation(Protocol):
    """A rule that moves the common model."""

    def step(self, update: Tensor) -> Tensor:
        """Return the change of the common model.

        Args:
            update: Weighted mean of (a cluster's model - common model) over the clusters that took part,
                shape (P,).
        """
        ...

    def get_state(self) -> Tree:
        """Return copies of the rule's memory; ``None`` for parts that are still empty."""
        ...

    def set_state(self, tree: Tree, like: Tensor) -> None:
        """Continue from a state of :meth:`get_state`.

        Args:
            tree: The state.
            like: A model's parameters, shape (P,).

        Raises:
            StateError: If the state does not fit.
        """
        ...


class FedAvg:
    """``x + eta D`` (McMahan et al., 2017, arXiv 1602.05629); with ``eta = 1`` the mean of the models."""

    def __init__(self, rate: float) -> None:
        self._rate = rate

    def step(self, update: Tensor) -> Tensor:
        """Return ``eta D``."""
        return self._rate * update

    def get_state(self) -> Tree:
        """Return nothing: the rule has no memory."""
        return {}

    def set_state(self, tree: Tree, like: Tensor) -> None:  # noqa: ARG002 - one for all
        """Refuse any memory."""
        require_alike(tree, {}, "aggregation")


class FedAvgM:
    """``m = beta_1 m + D``, ``x + eta m``: server momentum (Hsu et al., 2019, arXiv 1909.06335).

    As in that paper, and unlike in the adaptive rules, the new update enters at full weight, so a constant
    update is multiplied by ``1 / (1 - beta_1)``. Memory starts at zero.
    """

    def __init__(self, rate: float, momentum: float) -> None:
        self._rate, self._momentum = rate, momentum
        self._mean: Tensor | float = 0.0

    def step(self, update: Tensor) -> Tensor:
        """Return ``eta m``."""
        self._mean = self._momentum * self._mean + update
        return self._rate * self._mean

    def get_state(self) -> Tree:
        """Return ``m``."""
        return {"mean": _array_or_none(self._mean)}

    def set_state(self, tree: Tree, like: Tensor) -> None:
        """Set ``m``."""
        require_alike(tree, {"mean": None}, "aggregation", frozenset(("aggregation/mean",)))
        mean = _tensor_or_none(tree, "mean", like)
        self._mean = 0.0 if mean is None else mean


class FedAdaptive:
    """FedAdam and FedYogi, Algorithm 2 of Reddi et al. (arXiv 2003.00295).

    ``m = beta_1 m + (1 - beta_1) D``, ``x + eta m / (sqrt(v) + tau)`` with

    - FedAdam ``v = beta_2 v + (1 - beta_2) D^2``,
    - FedYogi ``v = v - (1 - beta_2) D^2 sign(v - D^2)``.

    As in the paper there is no bias correction; ``m`` starts at 0 and ``v`` at ``tau^2``, the least that the
    paper allows.
    """

    def __init__(self, rate: float, betas: tuple[float, float], floor: float, *, yogi: bool) -> None:
        """Start with empty memory.

        Args:
            rate: ``eta``.
            betas: ``beta_1`` and ``beta_2``, in [0, 1).
            floor: ``tau``, above 0.
            yogi: FedYogi instead of FedAdam.
        """
        self._rate, self._betas, self._floor, self._yogi = rate, betas, floor, yogi
        self._mean: Tensor | float = 0.0
        self._square: Tensor | None = None

    def step(self, update: Tensor) -> Tensor:
        """Return ``eta m / (sqrt(v) + tau)``."""
        beta1, beta2 = self._betas
        now = update.square()
        before = torch.full_like(update, self._floor**2) if self._square is None else self._square
        self._mean = beta1 * self._mean + (1 - beta1) * update
        if self._yogi:
            self._square = before - (1 - beta2) * now * torch.sign(before - now)
        else:
            self._square = beta2 * before + (1 - beta2) * now
        return self._rate * self._mean / (self._square.sqrt() + self._floor)

    def get_state(self) -> Tree:
        """Return ``m`` and ``v``."""
        return {"mean": _array_or_none(self._mean), "square": _array_or_none(self._square)}

    def set_state(self, tree: Tree, like: Tensor) -> None:
        """Set ``m`` and ``v``."""
        free = frozenset(("aggregation/mean", "aggregation/square"))
        require_alike(tree, {"mean": None, "square": None}, "aggregation", free)
        mean, self._square = _tensor_or_none(tree, "mean", like), _tensor_or_none(tree, "square", like)
        self._mean = 0.0 if mean is None else mean


def _array_or_none(memory: Tensor | float | None) -> Any:
    return array_of(memory) if isinstance(memory, Tensor) else None


def _tensor_or_none(tree: Tree, name: str, like: Tensor) -> Tensor | None:
    return None if tree[name] is None else tensor_of(tree[name], like, f"aggregation/{name}")


def make_aggregation(learning: LearningSpec) -> Aggregation:
    """Return the rule that the settings name."""
    momentum = learning.aggregation_momentum
    rate = learning.aggregation_rate
    if rate is None:
        rate = ADAPTIVE_RATE if learning.aggregation in ("fedadam", "fedyogi") else 1.0
    if learning.aggregation == "fedavg":
        return FedAvg(rate)
    if learning.aggregation == "fedavgm":
        return FedAvgM(rate, momentum)
    return FedAdaptive(
        rate,
        (momentum, learning.aggregation_second_momentum),
        learning.aggregation_floor,
        yogi=learning.aggregation == "fedyogi",
    )
