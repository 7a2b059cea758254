"""Users' own rewards: they cannot change the round, and their results are checked in every step."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from collapipe_env.ground.arrays import Array, namespace
from collapipe_env.ground.errors import AllocationError, RewardError, ScenarioError, reason, shown
from collapipe_env.ground.real_numbers import real_numbers
from collapipe_env.ground.records import mapped
from collapipe_env.simulator.round import RoundCosts
from collapipe_env.simulator.state import SystemState

T = TypeVar("T")
FORM = "reward(before, costs, after)"


@dataclass(frozen=True)
class OwnReward:
    """A user's callable, whose rewards are checked in every step.

    It sees read-only views of NumPy arrays and copies of tensors, so it cannot change the round.

    Raises:
        ScenarioError: If it cannot be called as ``reward(before, costs, after)``.
    """

    function: Callable[..., Array]

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ScenarioError(
                f"reward = {shown(self.function)} is neither a name nor a callable {FORM}: names are in "
                "collapipe_env.envs.rewards.REWARDS"
            )
        _require_three_arguments(self.function)

    def __call__(self, before: SystemState, costs: RoundCosts, after: SystemState) -> Array:
        """Return the rewards (E,).

        Raises:
            RewardError: If the callable fails, or returns anything but a finite number for each environment.
        """
        on_numpy = namespace(costs.delay) is np
        try:
            rewards = self.function(guarded(before), guarded(costs), guarded(after))
        except Exception as error:
            raise RewardError(
                f"the reward {self.name} failed with {type(error).__name__}: {reason(error)}; it gets "
                "(before, costs, after) and returns an array (E,)"
            ) from error
        if on_numpy:
            return self._numbers(rewards, costs.delay.shape)
        return self._tensor(rewards, costs.delay)

    @property
    def name(self) -> str:
        """The name given by its author."""
        function = inspect.unwrap(self.function)
        return str(getattr(function, "__qualname__", type(function).__qualname__))

    def _tensor(self, rewards: Array, like: Array) -> Array:
        """The callable's result, if it is a tensor of one real number for each environment, as ``like`` is.

        Whether the numbers are finite is not asked: that would mean waiting for the device.
        """
        alike = type(rewards) is type(like) and rewards.shape == like.shape
        if alike and namespace(like).isdtype(rewards.dtype, ("integral", "real floating")):
            return rewards
        raise self._refusal(rewards, tuple(like.shape))

    def _numbers(self, rewards: Array, shape: tuple[int, ...]) -> Array:
        try:
            numbers = real_numbers(self.name, rewards)
        except AllocationError:
            raise self._refusal(rewards, shape) from None
        if numbers.shape != shape:
            raise self._refusal(rewards, shape)
        if not np.isfinite(numbers).all():
            row = int(np.argmin(np.isfinite(numbers)))
            raise RewardError(
                f"the reward {self.name} is {numbers[row]} in environment {row}, expected a finite number"
            )
        return numbers.astype(np.float64)

    def _refusal(self, rewards: Array, shape: tuple[int, ...]) -> RewardError:
        found = f"a {type(rewards).__name__}"
        if hasattr(rewards, "shape"):
            found += f" of shape {tuple(rewards.shape)} and type {rewards.dtype}"
        return RewardError(
            f"the reward {self.name} returned {found}, expected real numbers of shape {shape}: one for each "
            f"environment, as costs.delay has"
        )


def _require_three_arguments(function: Callable[..., Any]) -> None:
    """Refuse a callable whose signature does not take the three arguments of a reward."""
    # A PyTorch module accepts any call; the signature of its forward shows the arguments.
    said = getattr(function, "forward", function) if hasattr(function, "parameters") else function
    try:
        signature = inspect.signature(said)
    except (TypeError, ValueError):  # compiled functions may have none
        return
    try:
        signature.bind(None, None, None)
    except TypeError:
        name = getattr(function, "__qualname__", type(function).__qualname__)
        raise ScenarioError(
            f"reward = {name}{signature}: it is called as {FORM}, so it takes three arguments"
        ) from None


def guarded(record: T) -> T:
    """Return a record that cannot change the round: read-only views of NumPy arrays, copies of tensors."""
    return mapped(record, _unwritable)


def _unwritable(array: Array) -> Array:
    if not isinstance(array, np.ndarray):
        return array.clone() if hasattr(array, "clone") else array
    view = array.view()
    view.setflags(write=False)
    return view
