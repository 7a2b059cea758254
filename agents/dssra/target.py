"""DSSRA-target: DSSRA for the delay per unit of progress instead of the delay of a round ([X]).

Where a scenario opens participation and local steps, a round's delay says little: the shortest round trains
least. A user waits for a loss to be reached. Minimising the time to that loss under long-term budgets is a
ratio problem with the round's progress as its frame (Neely, "Dynamic Optimization and Learning for Renewal
Systems", IEEE Trans. Autom. Control 2013): each round minimises

    (V T + L(t+1) - L(t)) / progress

over all open decisions. Progress follows from the surrogate's fitted law and the plan's expected arrivals.
All that the scheduler knows of the training is the observed loss, which gives the distance to the target.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.ground.errors import AllocationError
from collapipe_env.learners.expected_progress import ExpectedProgress
from collapipe_env.physics.allocation import Allocation, stack_allocations
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import StateScheduler
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.state import SystemState, able_clusters
from collapipe_env.simulator.unable_clusters import sitting_out

from .argument_checks import ABOVE_0, FINITE, require_number
from .common_end import common_end
from .policy import DSSRA
from .pricing import round_objective

EVERY_SET = 4
"""Largest number of clusters for which every set of participants is tried."""
SWEEPS = 4
"""Largest number of sweeps over each cluster's local steps and participation."""


class TargetPlan(NamedTuple):
    """Plans of a batch, with the parts that differ between candidates.

    Attributes:
        base: Plans of all clusters (E, ...); the shares of participants are scaled up.
        plays: Clusters that take part (E, N), bool.
        steps: Local steps of the clusters, if they take part (E, N), int.
    """

    base: Allocation
    plays: BoolArray
    steps: IntArray


class DSSRATarget(StateScheduler):
    """Minimises drift plus penalty per unit of progress; deterministic, with the same plan in any batch.

    DSSRA plans the round for each allowed number of local steps. With up to four clusters, every set of
    participants is tried; with more clusters, the slowest are left out in turn. From the best of these plans,
    clusters get their own numbers of local steps, leave or return, and share the uplink anew, as long as this
    helps. The best plan has the lowest ratio, which is Dinkelbach's price of progress in that round. Where
    long queues make even waiting pay (a ratio below 0), progress has no price, and the drift plus penalty
    alone decides.

    Args:
        scenario: The scenario to schedule. If it opens neither participation nor local steps, the plans are
            DSSRA's.
        participation: Whether clusters may sit out, where the scenario opens that.
        local_steps: Numbers of local steps to choose from; the scenario's choices by default.
        price_of_progress: Value of a unit of progress, > 0, in units of the drift plus penalty; by default
            the lowest ratio of the round itself. The best price is the same in all rounds: ``V`` times the
            resulting seconds per unit of progress, which episodes measure.
        options: Arguments of :class:`DSSRA` except ``drift``: ratios need the exact drift.

    Raises:
        AllocationError: If an argument is out of range.
        ScenarioError: If one of these decisions is open and the package has no surrogate fit for the task.
    """

    name = "DSSRA-target"
    seats_clusters = True

    def __init__(
        self,
        scenario: Scenario,
        *,
        participation: bool = True,
        local_steps: Sequence[int] | None = None,
        price_of_progress: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(scenario)
        solver = DSSRA(scenario, drift="exact", **options)
        self.tradeoff_v: float = solver.tradeoff_v
        p = self.parameters
        self._own_steps = bool(p.local_steps_choices)
        choices = p.local_steps_choices or (p.costs.local_steps,)
        asked = choices if local_steps is None else local_steps
        wanted = tuple(sorted(set(asked))) if isinstance(asked, Sequence) else ()
        if not wanted or set(wanted) - set(choices):
            raise AllocationError(
                f"DSSRATarget(local_steps: expected some of {list(choices)}, got {local_steps!r})"
            )
        if not isinstance(participation, (bool, np.bool_)):
            raise AllocationError(
                f"DSSRATarget(participation: expected True or False, got {participation!r})"
            )
        self._price = price_of_progress
        if price_of_progress is not None:
            expected = "a finite number above 0, or None"
            self._price = require_number(
                "DSSRATarget", "price_of_progress", price_of_progress, expected, ABOVE_0, FINITE
            )
        self._choices = np.array(wanted)
        self._solvers = [solver.with_local_steps(H) for H in wanted]
        self._may_sit_out = p.may_sit_out
        self._chooses_players = participation and "participation" in p.opened
        self._decides = self._own_steps or self._chooses_players
        if self._decides:
            self._law  # noqa: B018 - a task without a fit is refused here, not in the first round

    @cached_property
    def _law(self) -> ExpectedProgress:
        return ExpectedProgress.of(self.scenario)

    @cached_property
    def _goal(self) -> float | None:
        """Progress at the target; ``None`` without a target, or if the curve never reaches it."""
        target = self.scenario.dynamics.target_loss
        goal = np.inf if target is None else float(self._law.reached(np.array(target)))
        return goal if goal < np.inf else None

    def allocate(self, state: SystemState) -> Allocation:
        """Decide one round of a batch (E, ...).

        Raises:
            AllocationError: If the devices of some cluster cannot hold the encoder, and all have to take
                part.
        """
        if not self._decides:
            return self._solvers[0].allocate(state)
        able = np.asarray(able_clusters(self.parameters, state))
        best, costs, _ = self._best(state, list(self._started(state, able)))
        for _ in range(SWEEPS):
            best, costs, place = self._best(state, [best, *self._moved(best, costs, able)])
            if not place.any():
                break
        return self._allocation(best)

    def ratio(self, state: SystemState, allocation: Allocation) -> FloatArray:
        """Return the objective of plans, ``(V T + L(t+1) - L(t)) / progress`` (E,).

        Infinite for plans that make no progress.
        """
        price, progress, _ = self._priced(state, allocation)
        return _ratio(price, progress)

    def _started(self, state: SystemState, able: BoolArray) -> Iterator[TargetPlan]:
        """DSSRA's plans for each number of local steps, for all clusters and for fewer."""
        for H, solver in zip(self._choices, self._solvers, strict=True):
            base = solver.allocate(state)
            steps = np.full(able.shape, H)
            yield TargetPlan(base, able, steps)
            if not self._chooses_players:
                continue
            delay = round_costs(solver.parameters, state, base).cluster_delay
            for plays in _fewer(delay, able):
                yield TargetPlan(base, plays, steps)

    def _moved(self, plan: TargetPlan, costs: _Costs, able: BoolArray) -> Iterator[TargetPlan]:
        """Plans that differ in one cluster's local steps or participation, or in the shares."""
        shares, plays = self._allocation(plan).bandwidth, plan.plays
        together = common_end(shares, costs.upload, costs.rest, plays)
        used = np.where(plays, plan.base.bandwidth, 0.0).sum(axis=-1, keepdims=True)
        # Shares reserved for clusters that sit out stay, as these may come back.
        share = np.where(plays, together * used, plan.base.bandwidth)
        yield plan._replace(base=replace(plan.base, bandwidth=share))
        for n in range(able.shape[-1]):
            for H in self._choices if self._own_steps and len(self._choices) > 1 else ():
                steps = plan.steps.copy()
                steps[:, n] = H
                yield plan._replace(steps=steps)
            if self._chooses_players:
                plays = plan.plays.copy()
                plays[:, n] = ~plays[:, n] & able[:, n]
                yield plan._replace(plays=np.where(plays.any(axis=-1, keepdims=True), plays, plan.plays))

    def _best(self, state: SystemState, plans: Sequence[TargetPlan]) -> tuple[TargetPlan, _Costs, IntArray]:
        """Return the best of several plans in each environment, their costs and places among them (E,)."""
        rows = state.map(lambda a: np.concatenate([a] * len(plans)))
        every = TargetPlan(
            stack_allocations([plan.base for plan in plans], np.concatenate),
            np.concatenate([plan.plays for plan in plans]),
            np.concatenate([plan.steps for plan in plans]),
        )
        price, progress, costs = self._priced(rows, self._allocation(every))
        price, progress = price.reshape(len(plans), -1), progress.reshape(len(plans), -1)
        worth = _ratio(price, progress).min(axis=0)
        worth = np.where(np.isfinite(worth), np.maximum(worth, 0.0), 0.0)
        if self._price is not None:
            worth = np.full_like(worth, self._price)
        place = (price - worth * progress).argmin(axis=0)
        chosen = place * price.shape[1] + np.arange(price.shape[1])
        best = TargetPlan(every.base[chosen], every.plays[chosen], every.steps[chosen])
        return best, _Costs(*(values[chosen] for values in costs)), place

    def _priced(self, state: SystemState, allocation: Allocation) -> tuple[FloatArray, FloatArray, _Costs]:
        """Price and progress of plans (E,), and the other costs that are needed."""
        p = self.parameters
        costs = round_costs(p, state, allocation)
        price = round_objective(
            costs, state, self.tradeoff_v, exact_drift=True, participation_min=p.participation_min
        )
        progress = self._law.of_costs(costs)
        if self._goal is not None:
            left = self._goal - self._law.reached(np.asarray(state.loss))
            progress = np.where(left > 0.0, np.minimum(progress, left), progress)
        return price, progress, _Costs(costs.upload, costs.cluster_delay - costs.upload)

    def _allocation(self, plan: TargetPlan) -> Allocation:
        """Return the allocations of plans."""
        decided = plan.base
        if self._own_steps:
            decided = replace(decided, local_steps=plan.steps)
        return sitting_out(decided, plan.plays) if self._may_sit_out else decided


class _Costs(NamedTuple):
    """Seconds of the clusters' uploads, and of the rest of their rounds (E, N)."""

    upload: FloatArray
    rest: FloatArray


def _ratio(price: FloatArray, progress: FloatArray) -> FloatArray:
    return np.divide(price, progress, out=np.full_like(price, np.inf), where=progress > 0.0)


def _fewer(delay: FloatArray, able: BoolArray) -> Iterator[BoolArray]:
    """Candidate sets of participants: every set if clusters are few, or all but the slowest in turn."""
    N = able.shape[-1]
    if N <= EVERY_SET:
        for players in itertools.product((True, False), repeat=N):
            plays = able & np.array(players)
            yield np.where(plays.any(axis=-1, keepdims=True), plays, able)
        return
    rank = np.argsort(np.argsort(np.where(able, -delay, np.inf), axis=-1), axis=-1)
    for left_out in range(1, N):
        yield able & (rank >= np.minimum(left_out, able.sum(axis=-1, keepdims=True) - 1))
