"""Rewards by name (`environment.md`, Reward). A reward is any callable from :class:`RewardInputs`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from collapipe_env.arrays import Array, at_most, namespace
from collapipe_env.errors import RewardError, ScenarioError, nearest_name
from collapipe_env.physics.queues import lyapunov
from collapipe_env.scenario import Scenario


@dataclass(frozen=True)
class RewardInputs:
    """What one round offers a reward, for ``E`` environments: NumPy arrays, or tensors of the torch backend.

    Attributes:
        delay: Round delay ``T`` (E,) [s].
        energy_ratio: Energy over budget ``e`` (E, N, K+1).
        present: Nodes that exist (E, N, K+1), bool.
        backlog_before: Queues ``z(t)`` (E, N, K+1).
        backlog_after: Queues ``z(t+1)`` (E, N, K+1).
        loss: Smoothed evaluation loss (E,).
        target_reached: The target loss is reached (E,), bool.
    """

    delay: Array
    energy_ratio: Array
    present: Array
    backlog_before: Array
    backlog_after: Array
    loss: Array
    target_reached: Array


class Reward(Protocol):
    """Turns a round into one number for each environment."""

    def __call__(self, inputs: RewardInputs) -> Array:
        """Return the rewards (E,)."""
        ...


@dataclass(frozen=True)
class OwnReward:
    """A callable of the user's, whose rewards are looked at in every step.

    It sees read-only views of NumPy arrays and copies of tensors, so it cannot change the round.

    Attributes:
        function: The callable.

    Raises:
        ScenarioError: If it cannot be called.
    """

    function: Reward

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ScenarioError(
                f"reward = {self.function!r} is neither a name ({', '.join(REWARDS)}) nor a callable"
            )

    def __call__(self, inputs: RewardInputs) -> Array:
        """Return the rewards (E,).

        Raises:
            RewardError: If the callable fails, or returns anything but a finite number for each environment.
        """
        on_numpy = namespace(inputs.delay) is np
        try:
            rewards = self.function(_each(inputs, _read_only)) if on_numpy else self.on_copies(inputs)
        except Exception as error:
            raise RewardError(
                f"the reward {self.name} failed with {type(error).__name__}: {error}; it gets a RewardInputs "
                "and returns an array (E,)"
            ) from error
        if on_numpy:
            return self._numbers(rewards, inputs.delay.shape)
        self.check_shape(rewards, inputs.delay)
        return rewards

    @property
    def name(self) -> str:
        """What its author calls it."""
        return str(getattr(self.function, "__qualname__", type(self.function).__qualname__))

    def on_copies(self, inputs: RewardInputs) -> Array:
        """Return what the callable says of copies of tensors, without a look at it."""
        return self.function(_each(inputs, lambda tensor: tensor.clone()))

    def check_shape(self, rewards: Array, like: Array) -> None:
        """Refuse what is not a tensor of one real number for each environment; does not wait for a device.

        Args:
            rewards: What was returned.
            like: A tensor (E,).

        Raises:
            RewardError: Names the reward, and type and shape.
        """
        if type(rewards) is not type(like) or rewards.shape != like.shape:
            raise self._refusal(rewards, tuple(like.shape))
        if not namespace(like).isdtype(rewards.dtype, ("integral", "real floating")):
            raise self._refusal(rewards, tuple(like.shape))

    def _numbers(self, rewards: Array, shape: tuple[int, ...]) -> Array:
        try:
            numbers = np.asarray(rewards)
        except Exception:  # ragged lists, tensors elsewhere, and whatever an object's own __array__ raises
            raise self._refusal(rewards, shape) from None
        if isinstance(rewards, np.ma.MaskedArray):
            raise self._refusal(rewards, shape)
        if numbers.shape != shape or numbers.dtype.kind not in "fiu":
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
            "environment, as inputs.delay has"
        )


def _each(inputs: RewardInputs, function: Callable[[Array], Array]) -> RewardInputs:
    return RewardInputs(**{name: function(array) for name, array in vars(inputs).items()})


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True)
class LyapunovReward:
    """The exact drift plus penalty, ``-(V T + L(t+1) - L(t)) / (V T_ref)`` with ``L = 1/2 sum z^2``.

    Summed over an episode it is the weighted total delay plus the final ``L``: no myopic artefact.
    """

    tradeoff_v: float
    reference_delay: float

    def __call__(self, inputs: RewardInputs) -> Array:
        """Return the rewards (E,)."""
        drift = lyapunov(inputs.backlog_after) - lyapunov(inputs.backlog_before)
        reward: Array = -(self.tradeoff_v * inputs.delay + drift) / (self.tradeoff_v * self.reference_delay)
        return reward


@dataclass(frozen=True)
class DriftPlusPenaltyReward:
    """The per-round form ``-(V T + sum min(z, z_cap) (e - 1)) / (V T_ref)``: denser, faster to learn."""

    tradeoff_v: float
    reference_delay: float
    backlog_cap: float

    def __call__(self, inputs: RewardInputs) -> Array:
        """Return the rewards (E,)."""
        pressure = at_most(inputs.backlog_before, self.backlog_cap)
        drift = namespace(pressure).sum(pressure * (inputs.energy_ratio - 1.0), axis=(-2, -1))
        reward: Array = -(self.tradeoff_v * inputs.delay + drift) / (self.tradeoff_v * self.reference_delay)
        return reward


@dataclass(frozen=True)
class DelayReward:
    """``-T / T_ref``; constrained learners find the energy excess in ``info["cost"]``."""

    reference_delay: float

    def __call__(self, inputs: RewardInputs) -> Array:
        """Return the rewards (E,)."""
        return -inputs.delay / self.reference_delay


def _lyapunov(scenario: Scenario, reference_delay: float) -> Reward:
    return LyapunovReward(_positive_v(scenario, "lyapunov"), reference_delay)


def _drift_plus_penalty(scenario: Scenario, reference_delay: float) -> Reward:
    v = _positive_v(scenario, "drift_plus_penalty")
    return DriftPlusPenaltyReward(v, reference_delay, scenario.budgets.backlog_cap)


def _delay(scenario: Scenario, reference_delay: float) -> Reward:  # noqa: ARG001 - one signature for all
    return DelayReward(reference_delay)


def _time_to_target(scenario: Scenario, reference_delay: float) -> Reward:
    """The delay until the target loss ends the episode: the same number a round, another horizon."""
    if scenario.dynamics.target_loss is None:
        raise ScenarioError(
            "reward 'time_to_target' needs dynamics.target_loss, which is null: set the evaluation loss "
            "that ends an episode, for instance {'base': 'medium', 'dynamics': {'target_loss': 0.6}}"
        )
    return DelayReward(reference_delay)


def _positive_v(scenario: Scenario, name: str) -> float:
    v = scenario.budgets.tradeoff_v
    if v <= 0.0:
        raise ScenarioError(
            f"reward {name!r} is scaled by budgets.tradeoff_v, which is {v:g}: use a value above 0"
        )
    return v


REWARDS: dict[str, Callable[[Scenario, float], Reward]] = {
    "lyapunov": _lyapunov,
    "drift_plus_penalty": _drift_plus_penalty,
    "delay": _delay,
    "time_to_target": _time_to_target,
}
"""Rewards by name; each entry builds one from the scenario and its reference delay."""


def make_reward(reward: str | Reward, scenario: Scenario, reference_delay: float) -> Reward:
    """Build a reward from its name, or pass an object through.

    Args:
        reward: ``"lyapunov"``, ``"drift_plus_penalty"``, ``"delay"``, ``"time_to_target"`` or a callable.
        scenario: The scenario.
        reference_delay: ``T_ref`` [s].

    Raises:
        ScenarioError: For an unknown name, what cannot be called, or a scenario that the reward cannot be
            used with.
    """
    if not isinstance(reward, str):
        return OwnReward(reward)
    if reward not in REWARDS:
        raise ScenarioError(f"reward = {reward!r} is not known: {nearest_name(reward, REWARDS)}")
    return REWARDS[reward](scenario, reference_delay)
