"""Rewards ``reward(before, costs, after)`` by name (`environment.md`, Reward)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, overload, runtime_checkable

from collapipe_env.envs.own_reward import OwnReward
from collapipe_env.ground.arrays import Array, at_most, concatenate, namespace, where
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.ground.registry import FORMS, Registry
from collapipe_env.physics.queues import lyapunov, moved_backlog, per_node, queue_drift, update_backlog
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.record import RoundRecord
from collapipe_env.simulator.round import RoundCosts
from collapipe_env.simulator.state import SystemState

__all__ = [
    "REWARDS",
    "ClusterReward",
    "DelayReward",
    "DriftPlusPenaltyReward",
    "LyapunovReward",
    "OwnReward",
    "Reward",
    "make_reward",
    "node_present",
    "register_reward",
    "target_reached",
]

Given = TypeVar("Given")


class Reward(Protocol):
    """Turns a round into one number for each of ``E`` environments."""

    def __call__(self, before: SystemState, costs: RoundCosts, after: SystemState) -> Array:
        """Return the rewards (E,).

        Args:
            before: The system before the round (E, ...): NumPy arrays, or tensors of the torch backend.
            costs: Costs of the round (E, ...).
            after: The system after it (E, ...): updated queues, the next round's channels, the new loss.
        """
        ...


@runtime_checkable
class ClusterReward(Protocol):
    """A reward that can also be split into contributions of the clusters."""

    def by_cluster(self, record: RoundRecord) -> Array:
        """Return difference rewards of a round (E, N) [X].

        A cluster's difference reward is the change of the round's reward that its work causes: its own drift,
        and the delay that it alone causes, ``max(T_n, T_-n) - T_-n``, where ``T_-n`` is the delay of the
        slowest other cluster. Its effect on other clusters, through uplink shares and interference, is not
        included.
        """
        ...


@dataclass(frozen=True)
class LyapunovReward:
    """The exact drift plus penalty, ``-(V T + L(t+1) - L(t)) / (V T_ref)`` with ``L = 1/2 sum z^2``.

    Summed over an episode it gives the weighted total delay plus the final ``L``, so it is not myopic. Where
    clusters may sit out, ``L`` also includes their participation queues: ``1/2 sum y^2``.
    """

    tradeoff_v: float
    reference_delay: float

    def __call__(self, before: SystemState, costs: RoundCosts, after: SystemState) -> Array:
        """Return the rewards (E,)."""
        drift = lyapunov(after.backlog, after.absence) - lyapunov(before.backlog, before.absence)
        if after.server_backlog is not None:
            drift = drift + queue_drift(before.server_backlog, costs.server_ratio, costs.allowance)
        reward: Array = -(self.tradeoff_v * costs.delay + drift) / (self.tradeoff_v * self.reference_delay)
        return reward

    def by_cluster(self, record: RoundRecord) -> Array:
        """Return difference rewards (E, N), see :class:`ClusterReward`."""
        before, after = record.state.backlog, record.backlog
        drift = 0.5 * namespace(after).sum(after * after - before * before, axis=-1)
        missed = record.state.absence
        if missed is not None and record.absence is not None:
            drift = drift + 0.5 * (record.absence * record.absence - missed * missed)
        marginal = marginal_delay(record.costs.cluster_delay)
        drift = drift + _server_drift(record)
        penalty = self.tradeoff_v * marginal - _relief(record, marginal)
        reward: Array = -(penalty + drift) / (self.tradeoff_v * self.reference_delay)
        return reward


def _server_drift(record: RoundRecord) -> Array:
    """Rise of the server's ``L`` due to each cluster's blocks on it (E, N); 0 without a server budget."""
    z, costs = record.state.server_backlog, record.costs
    if z is None:
        return 0.0 * costs.cluster_delay
    used, own = costs.server_ratio[..., None], costs.terms.server_j / costs.server_budget_j
    granted = costs.allowance[..., None]
    return queue_drift(z[..., None], used, granted) - queue_drift(z[..., None], used - own, granted)


def _relief(record: RoundRecord, marginal: Array) -> Array:
    """Fall of the other clusters' ``L`` due to a cluster's own delay (E, N); 0 with budgets per round.

    Args:
        marginal: Delay that each cluster alone causes (E, N) [s].
    """
    period = record.costs.budget_period_s
    if period is None:
        return 0.0 * marginal
    xp, costs = namespace(marginal), record.costs
    # Without the slowest cluster the round would end when the second slowest is done.
    granted = (costs.delay - xp.max(marginal, axis=-1)) / period
    live = record.state.live_backlog
    without = moved_backlog(live, costs.energy_ratio, per_node(granted), costs.plays)
    with_it = moved_backlog(live, costs.energy_ratio, per_node(costs.allowance), costs.plays)
    fall = 0.5 * xp.sum(without * without - with_it * with_it, axis=-1)
    others = xp.sum(fall, axis=-1)[..., None] - fall
    z = record.state.server_backlog
    if z is not None:
        now = queue_drift(z, costs.server_ratio, costs.allowance)
        others = others + (queue_drift(z, costs.server_ratio, granted) - now)[..., None]
    return xp.where(marginal > 0.0, others, xp.zeros_like(others))


@dataclass(frozen=True)
class DriftPlusPenaltyReward:
    """The per-round form ``-(V T + sum min(z, z_cap) (e - 1)) / (V T_ref)``: denser, faster to learn.

    With budgets per second ``max(e - a, -z)`` replaces ``e - 1``: no queue falls by more than it holds,
    however long the round, and endless rounds earn nothing [X]. Where clusters may sit out, the queues of
    absent clusters stay constant, and ``min(y, z_cap)`` weights the change of their participation queue [X].
    """

    tradeoff_v: float
    reference_delay: float
    backlog_cap: float

    def __call__(self, before: SystemState, costs: RoundCosts, after: SystemState) -> Array:
        """Return the rewards (E,)."""
        pressure = at_most(before.live_backlog, self.backlog_cap)
        drift = namespace(pressure).sum(pressure * _change(before, costs), axis=(-2, -1))
        if before.server_backlog is not None:
            drift = drift + at_most(before.server_backlog, self.backlog_cap) * _server_change(before, costs)
        if before.absence is not None:
            missed = at_most(before.absence, self.backlog_cap) * (after.absence - before.absence)
            drift = drift + namespace(missed).sum(missed, axis=-1)
        reward: Array = -(self.tradeoff_v * costs.delay + drift) / (self.tradeoff_v * self.reference_delay)
        return reward

    def by_cluster(self, record: RoundRecord) -> Array:
        """Return difference rewards (E, N), see :class:`ClusterReward`."""
        pressure = at_most(record.state.live_backlog, self.backlog_cap)
        xp, marginal = namespace(pressure), marginal_delay(record.costs.cluster_delay)
        drift = own = xp.sum(pressure * _change(record.state, record.costs), axis=-1)
        missed = record.state.absence
        if missed is not None and record.absence is not None:
            own = own + at_most(missed, self.backlog_cap) * (record.absence - missed)
        penalty = self.tradeoff_v * marginal
        server = record.state.server_backlog
        if server is not None:
            server = at_most(server, self.backlog_cap)
            used = record.costs.terms.server_j / record.costs.server_budget_j
            penalty = penalty + server[..., None] * used
        if record.costs.budget_period_s is not None:
            # Reduction of the others' queues by the slowest cluster's own delay, weighted by their pressure.
            shorter = replace(record.costs, delay=record.costs.delay - xp.max(marginal, axis=-1))
            relief = xp.sum(pressure * _change(record.state, shorter), axis=-1) - drift
            others = xp.sum(relief, axis=-1)[..., None] - relief
            if server is not None:
                now = _server_change(record.state, record.costs)
                others = others + (server * (_server_change(record.state, shorter) - now))[..., None]
            penalty = penalty - xp.where(marginal > 0.0, others, xp.zeros_like(others))
        reward: Array = -(penalty + own) / (self.tradeoff_v * self.reference_delay)
        return reward


def _change(before: SystemState, costs: RoundCosts) -> Array:
    """Change of the queues, as the per-round form counts it (E, N, K+1): ``e - 1`` or ``max(e - a, -z)``."""
    plays = costs.plays
    if costs.budget_period_s is None:
        return where(plays[..., None], costs.energy_ratio - 1.0, 0.0)
    granted = per_node(costs.allowance)
    return moved_backlog(before.backlog, costs.energy_ratio, granted, plays) - before.backlog


def _server_change(before: SystemState, costs: RoundCosts) -> Array:
    """Change of the server's queue, as the per-round form counts it (E,)."""
    if costs.budget_period_s is None:
        return costs.server_ratio - 1.0
    return update_backlog(before.server_backlog, costs.server_ratio, costs.allowance) - before.server_backlog


@dataclass(frozen=True)
class DelayReward:
    """``-T / T_ref``; ``info["cost"]`` holds the energy excess for constrained learners."""

    reference_delay: float

    def __call__(self, before: SystemState, costs: RoundCosts, after: SystemState) -> Array:  # noqa: ARG002
        """Return the rewards (E,)."""
        return -costs.delay / self.reference_delay

    def by_cluster(self, record: RoundRecord) -> Array:
        """Return difference rewards (E, N), see :class:`ClusterReward`."""
        return -marginal_delay(record.costs.cluster_delay) / self.reference_delay


def marginal_delay(cluster_delay: Array) -> Array:
    """Delay that each cluster alone causes, ``max(T_n, T_-n) - T_-n`` [X] (..., N) [s].

    ``T_-n`` is the largest delay of the other clusters, 0 where there are none. Only the slowest cluster
    causes any delay: its lead over the second slowest.

    Args:
        cluster_delay: ``T_n`` (..., N) [s], >= 0.
    """
    if cluster_delay.shape[-1] == 1:
        return cluster_delay
    xp = namespace(cluster_delay)
    ordered = xp.sort(cluster_delay, axis=-1)
    first, second = ordered[..., -1:], ordered[..., -2:-1]
    # Of two equally slow clusters, neither alone causes any delay: the difference is zero.
    return xp.where(cluster_delay == first, first - second, xp.zeros_like(cluster_delay))


def node_present(state: SystemState) -> Array:
    """Return the nodes that exist (E, N, K+1), bool: every control unit and the present devices."""
    present = state.present
    return concatenate((namespace(present).ones_like(present[..., :1]), present))


def target_reached(state: SystemState, target_loss: float | None) -> Array:
    """Return whether the target loss is reached (E,), bool.

    Args:
        state: The system after a round.
        target_loss: ``dynamics.target_loss`` of the scenario [nat]; ``None`` where it sets none.
    """
    if target_loss is None:
        return namespace(state.loss).zeros_like(state.present[..., 0, 0])
    reached: Array = state.loss <= target_loss
    return reached


def _lyapunov(scenario: Scenario, reference_delay: float) -> Reward:
    return LyapunovReward(_positive_v(scenario, "lyapunov"), reference_delay)


def _drift_plus_penalty(scenario: Scenario, reference_delay: float) -> Reward:
    v = _positive_v(scenario, "drift_plus_penalty")
    return DriftPlusPenaltyReward(v, reference_delay, scenario.budgets.backlog_cap)


def _delay(scenario: Scenario, reference_delay: float) -> Reward:  # noqa: ARG001 - one signature for all
    return DelayReward(reference_delay)


def _time_to_target(scenario: Scenario, reference_delay: float) -> Reward:
    """The delay until the target loss ends the episode: per round as ``"delay"``, with another horizon."""
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


REWARDS: Registry[Any] = Registry(
    "reward",
    {
        "lyapunov": _lyapunov,
        "drift_plus_penalty": _drift_plus_penalty,
        "delay": _delay,
        "time_to_target": _time_to_target,
    },
    group="collapipe_env.rewards",
    hint=f"one of your own: in Python pass it or call register_reward, on the command line {FORMS}",
    use="is reward(before, costs, after), or a class that is called with the scenario and makes one",
)
"""Rewards by name. The package's own are built from the scenario and its reference delay ``T_ref`` [s]. A
registered entry is the reward itself, or a class that is called with the scenario."""


@overload
def register_reward(name: str, reward: Given, *, replace: bool = False) -> Given: ...


@overload
def register_reward(name: str, *, replace: bool = False) -> Callable[[Given], Given]: ...


def register_reward(name: str, reward: Any = None, *, replace: bool = False) -> Any:
    """Register your own reward under a name, for this process. Also works as a decorator.

    Args:
        name: Lower-case letters, digits and underscores, at most 40, beginning with a letter.
        reward: A function or object ``reward(before, costs, after)``; or a class, which is called with the
            scenario and returns such an object; or ``"package.module:Name"`` of either.
        replace: Whether to replace another reward registered under this name.

    Returns:
        The reward, or a decorator if none was given.

    Raises:
        ScenarioError: If the name is taken or malformed, or the reward cannot be called.

    Example:
        >>> @register_reward("loss_per_second")
        ... def loss_per_second(before, costs, after):
        ...     return (before.loss - after.loss) / costs.delay
        >>> env = gym.make("CollaPipeSurrogate-v0", reward="loss_per_second")      # doctest: +SKIP
    """
    return REWARDS.register(name, reward, replace=replace)


def make_reward(reward: str | Reward, scenario: Scenario, reference_delay: float) -> Reward:
    """Build a reward from its name, or wrap a user's own reward.

    Args:
        reward: ``"lyapunov"``, ``"drift_plus_penalty"``, ``"delay"``, ``"time_to_target"``, a registered name
            or a callable ``reward(before, costs, after)``.
        reference_delay: ``T_ref`` [s].

    Raises:
        ScenarioError: For an unknown name, an object that cannot be called in this way, or a scenario that
            the reward does not support.
    """
    if not isinstance(reward, str):
        return OwnReward(reward)
    found = REWARDS.get(reward)
    if reward in REWARDS.shipped():
        built: Reward = found(scenario, reference_delay)
        return built
    return OwnReward(found(scenario) if isinstance(found, type) else found)
