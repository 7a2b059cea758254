"""Rewards ``reward(before, costs, after)`` by name (`environment.md`, Reward)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar, overload, runtime_checkable

from collapipe_env.envs.own_reward import OwnReward
from collapipe_env.ground.arrays import Array, at_most, concatenate, namespace, where
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.ground.registry import FORMS, Registry
from collapipe_env.physics.queues import per_node, update_backlog
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.record import RoundRecord
from collapipe_env.simulator.round import RoundCosts
from collapipe_env.simulator.state import SystemState

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
class DriftReward:
    """``-(V T + drift) / (V T_ref)``, with the drift of all queues: of the nodes, the server and absence.

    A kind says how much a change of a queue weighs. Queues of clusters that sit out and of absent devices
    stay as they are.

    Attributes:
        tradeoff_v: ``V`` [1/s], > 0.
        reference_delay: ``T_ref`` [s].
        backlog_cap: ``z_cap``, for kinds that cap the weight of a queue.
    """

    tradeoff_v: float
    reference_delay: float
    backlog_cap: float

    def __call__(self, before: SystemState, costs: RoundCosts, after: SystemState) -> Array:
        """Return the rewards (E,)."""
        drift = self._of_nodes(before, costs, after)
        if math.isfinite(costs.server_budget_j):
            drift = drift + self._of_queue(
                before.server_backlog, costs.server_ratio, costs.allowance, costs.budget_period_s
            )
        if before.absence is not None:
            missed = self._weighed(before.absence, after.absence - before.absence)
            drift = drift + namespace(missed).sum(missed, axis=-1)
        return self._reward(costs.delay, drift)

    def by_cluster(self, record: RoundRecord) -> Array:
        """Return difference rewards (E, N), see :class:`ClusterReward`."""
        state, costs, period = record.state, record.costs, record.costs.budget_period_s
        z, granted = state.server_backlog, costs.allowance
        marginal = marginal_delay(costs.cluster_delay)
        own = self._of_clusters(state, costs, granted)
        drift = own
        if state.absence is not None and record.absence is not None:
            drift = drift + self._weighed(state.absence, record.absence - state.absence)
        if z is not None:  # the rise of its queue due to each cluster's blocks on the server
            used, spent = costs.server_ratio[..., None], costs.terms.server_j / costs.server_budget_j
            without = self._of_queue(z[..., None], used - spent, granted[..., None], period)
            drift = drift + self._of_queue(z[..., None], used, granted[..., None], period) - without
        if period is not None:
            # Without the slowest cluster the round would end when the second slowest is done, and would grant
            # the others less.
            xp = namespace(marginal)
            less = (costs.delay - xp.max(marginal, axis=-1)) / period
            lost = self._of_clusters(state, costs, less) - own
            others = xp.sum(lost, axis=-1)[..., None] - lost
            if z is not None:
                now = self._of_queue(z, costs.server_ratio, granted, period)
                others = others + (self._of_queue(z, costs.server_ratio, less, period) - now)[..., None]
            drift = drift - xp.where(marginal > 0.0, others, xp.zeros_like(others))
        return self._reward(marginal, drift)

    def _reward(self, delay: Array, drift: Array) -> Array:
        return (self.tradeoff_v * delay + drift) * (-1.0 / (self.tradeoff_v * self.reference_delay))

    def _of_nodes(self, before: SystemState, costs: RoundCosts, after: SystemState) -> Array:  # noqa: ARG002
        """Drift of the nodes' queues (E,)."""
        found = self._of_clusters(before, costs, costs.allowance)
        return namespace(found).sum(found, axis=-1)

    def _of_clusters(self, before: SystemState, costs: RoundCosts, granted: Array) -> Array:
        """Drift of the nodes' queues, by cluster (E, N), in a round that grants so much (E,)."""
        each = self._of_queue(
            before.live_backlog, costs.energy_ratio, per_node(granted), costs.budget_period_s
        )
        return namespace(each).sum(where(costs.plays[..., None], each, 0.0 * each), axis=-1)

    def _of_queue(self, queue: Array, used: Array, granted: Array, period_s: float | None) -> Array:  # noqa: ARG002
        """Weight of a queue's change by a round.

        Args:
            queue: ``z`` before the round (...).
            used: ``e`` (...).
            granted: ``a``, broadcastable to the others.
            period_s: Period of a budget [s]; ``None`` where budgets are per round.
        """
        return self._weighed(queue, update_backlog(queue, used, granted) - queue)

    def _weighed(self, queue: Array, change: Array) -> Array:
        """Weight of a queue's change (...)."""
        raise NotImplementedError


@dataclass(frozen=True)
class LyapunovReward(DriftReward):
    """The exact drift plus penalty, ``-(V T + L(t+1) - L(t)) / (V T_ref)`` with ``L = 1/2 sum z^2``.

    Summed over an episode it gives the weighted total delay plus the final ``L``, so it is not myopic. Where
    clusters may sit out, ``L`` also includes their participation queues: ``1/2 sum y^2``.
    """

    def _of_nodes(self, before: SystemState, costs: RoundCosts, after: SystemState) -> Array:  # noqa: ARG002
        return after.energy_lyapunov - before.energy_lyapunov

    def _weighed(self, queue: Array, change: Array) -> Array:
        return change * (queue + 0.5 * change)


@dataclass(frozen=True)
class DriftPlusPenaltyReward(DriftReward):
    """The per-round form ``-(V T + sum min(z, z_cap) (e - 1)) / (V T_ref)``: denser, faster to learn.

    With budgets per second ``max(e - a, -z)`` replaces ``e - 1``: no queue falls by more than it holds,
    however long the round, and endless rounds earn nothing [X]. Where clusters may sit out, the queues of
    absent clusters stay constant, and ``min(y, z_cap)`` weights the change of their participation queue [X].
    """

    def _of_queue(self, queue: Array, used: Array, granted: Array, period_s: float | None) -> Array:
        if period_s is None:
            return self._weighed(queue, used - 1.0)
        return super()._of_queue(queue, used, granted, period_s)

    def _weighed(self, queue: Array, change: Array) -> Array:
        return at_most(queue, self.backlog_cap) * change


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
        target_loss: ``dynamics.target_loss`` of the scenario [nat]; ``None`` where it sets none.
    """
    if target_loss is None:
        return namespace(state.loss).zeros_like(state.present[..., 0, 0])
    reached: Array = state.loss <= target_loss
    return reached


def _drift_reward(kind: type[DriftReward], name: str, scenario: Scenario, reference_delay: float) -> Reward:
    tradeoff = scenario.budgets.tradeoff
    if tradeoff <= 0.0:
        raise ScenarioError(
            f"reward {name!r} is scaled by budgets.tradeoff, which is {tradeoff:g}: use a value above 0"
        )
    return kind(tradeoff / reference_delay, reference_delay, scenario.budgets.backlog_cap)


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


REWARDS: Registry[Any] = Registry(
    "reward",
    {
        "lyapunov": partial(_drift_reward, LyapunovReward, "lyapunov"),
        "drift_plus_penalty": partial(_drift_reward, DriftPlusPenaltyReward, "drift_plus_penalty"),
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
