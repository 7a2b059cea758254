"""DSSRA, the Lyapunov reference scheduler: segments, micro-batches, bandwidth and powers of every round.

Reconstruction of CollaPipe's "Dynamic Segment Scheduling and Resource Allocation" ([S]: the problem, its
Lyapunov form and the decisions; [R]: every formula and the solver, see ``algorithms.md`` 1.5). Each round
minimises the drift plus penalty ``V max_n T_n + L(t+1) - L(t)`` from the current channels, speeds and
backlogs [X], or, as the paper does, its bound ``V max_n T_n + sum_k z_k e_k`` [S]. With budgets per second
the drift also depends on the delay: each second costs ``V`` less the amount that it grants the queues
(`prices.md`) [X].

Where a scenario opens schedules, clocks or decisions of one's own, or local steps wait for the slowest
cluster (``workload.head: common``), a joint search of all decisions continues from that plan
(:mod:`.joint_search`) [X].
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import COPIES, Allocation, stack_allocations
from collapipe_env.physics.apportionment import apportion
from collapipe_env.physics.parameters import Numbers
from collapipe_env.physics.server import most_server_blocks
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.decision_names import opens
from collapipe_env.schedulers import StateScheduler
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.refusal import require_room
from collapipe_env.simulator.running import running_state
from collapipe_env.simulator.state import SystemState, able_clusters
from collapipe_env.simulator.unable_clusters import sitting_out, with_room_everywhere

from .argument_checks import require_choice, require_number, require_weights, require_whole
from .joint_jumps import explicit, is_large
from .joint_prices import Worth
from .joint_search import SEARCHED_BEFORE, search_jointly
from .option_table import option_table
from .parallel_rounds import Openings, allocation_of, default_threads, open_plan, search_open_rounds
from .pricing import round_objective
from .round_input import round_input
from .round_solver import SearchBudget

THRIFT = 0.25
"""Part of ``V`` with which a further start of the joint search is planned."""
SLOW_CLOCKS = (0.7, 0.45)
"""Shares of the full clocks with which further starts are planned, where clocks are open."""
SERVED = (0.5, 0.9)
"""Parts of the encoder on the server in further starts, where that is open."""


class DSSRA(StateScheduler):
    """Drift-plus-penalty scheduler. It is deterministic, and a row's plan does not depend on the batch.

    Args:
        tradeoff_v: Lyapunov ``V`` [1/s], > 0; the scenario's by default.
        sweeps: Largest number of refining block-coordinate sweeps in each turn of the search, >= 1.
        exploring_sweeps: Largest number of exploring sweeps in each turn, >= 0.
        turns: Largest number of turns of exploring and refining per decision, >= 1; only one in systems with
            more than 1,000 moves of a block between two devices of a cluster. With 1, a joint search of open
            decisions has a single start, as in these systems, which takes about half of the time.
        tolerance: Relative improvement of the objective below which the search stops after the turn.
        convergence_weight: Weight ``c >= 0`` of an additional term ``c sum_n -ln(survival_n)`` that steers
            away from lossy links: the part of the convergence bound that the decisions change, to first
            order (``eps`` of ``system_model.md`` section 8 is ``1 - survival``). The default of 0 leaves
            it out. No effect if links do not fail.
        drift: ``"exact"`` minimises the drift plus penalty itself, ``V T + L(t+1) - L(t)``, whose price of
            energy is the queue after the round [X]; ``"bound"`` minimises ``V T + sum z e``, the bound of the
            paper. Where a round changes a queue by its whole size, as in large systems, the exact form gives
            shorter rounds at the same energy.
        threads: Largest number of threads that share a batch, >= 1; they change the time, never the
            decisions. By default as many as there are processors, or one in worker processes
            (``parallel_rounds``).

    Raises:
        AllocationError: If an argument is out of range.
    """

    name = "DSSRA"
    seats_clusters = True

    def __init__(
        self,
        scenario: Scenario,
        *,
        tradeoff_v: float | None = None,
        sweeps: int = 8,
        exploring_sweeps: int = 4,
        turns: int = 4,
        tolerance: float = 3e-4,
        convergence_weight: float = 0.0,
        drift: Literal["bound", "exact"] = "exact",
        threads: int | None = None,
    ) -> None:
        super().__init__(scenario)
        V = self.parameters.tradeoff_v if tradeoff_v is None else tradeoff_v
        self.tradeoff_v: float
        self.convergence_weight: float
        self.tradeoff_v, self.convergence_weight = require_weights("DSSRA", V, convergence_weight)
        require_choice("DSSRA", "drift", drift, ("bound", "exact"))
        self.drift = drift
        self.budget: SearchBudget = SearchBudget(
            require_whole("DSSRA", "turns", turns, 1),
            require_whole("DSSRA", "exploring_sweeps", exploring_sweeps, 0),
            require_whole("DSSRA", "sweeps", sweeps, 1),
            require_number(
                "DSSRA", "tolerance", tolerance, "a number in [0, 1)", 0.0, math.nextafter(1.0, 0.0)
            ),
        )
        self.threads: int = (
            default_threads() if threads is None else require_whole("DSSRA", "threads", threads, 1)
        )
        p, self._most_server = self.parameters, 0
        if opens(scenario, "server_blocks"):
            self._most_server = most_server_blocks(p.server, p.costs, p.clusters) // p.clusters
        self._openings = Openings(
            server_blocks=opens(scenario, "server_blocks"),
            recompute=p.other_costs is not None,
            recomputes=p.costs.training_memory.recompute,
            options=option_table(p, self._most_server),
        )
        waits = p.barrier and max(p.local_steps_choices, default=p.costs.local_steps) > 1
        self._joint = waits or bool(set(p.opened) - SEARCHED_BEFORE)

    @property
    def _numbers(self) -> Numbers:
        """The scenario's scalars, with this scheduler's ``V``."""
        return self.parameters.numbers._replace(tradeoff_v=self.tradeoff_v)

    def with_local_steps(self, local_steps: int) -> DSSRA:
        """Return a copy that plans with another number of local steps; budgets and ``T_ref`` stay the same.

        Args:
            local_steps: ``H``, one that the scenario allows.
        """
        p = self.parameters
        choices = p.local_steps_choices or (p.costs.local_steps,)
        if local_steps not in choices:
            raise AllocationError(f"DSSRA(local_steps: expected one of {list(choices)}, got {local_steps!r})")
        other = copy.copy(self)
        own, recomputed = p.costs, p.other_costs
        other.parameters = replace(
            p,
            costs=replace(own, local_steps=local_steps),
            other_costs=None if recomputed is None else replace(recomputed, local_steps=local_steps),
        )
        return other

    def allocate(self, state: SystemState, start: Allocation | None = None) -> Allocation:
        """Decide one round.

        Args:
            state: The system before the round (E, ...).
            start: Feasible plan from which the search starts (E, ...); by default a closed-form plan.

        Returns:
            The allocation (E, ...); its objective is at most that of the even split. Clusters whose devices
            cannot hold the encoder sit out, where that is allowed.

        Raises:
            AllocationError: If the devices present in some cluster cannot hold the encoder, and all clusters
                have to take part, or the system has no batch axis.
        """
        if state.present.ndim != 3:
            shape = state.present.shape
            raise AllocationError(f"DSSRA.allocate: expected a batch axis, devices (E, N, K), got {shape}")
        plan = self._planned(state, start)
        if not (self._joint and len(plan.blocks)):
            return plan
        worth = Worth(
            self.parameters,
            self.tradeoff_v,
            self.drift == "exact",
            self.convergence_weight,
            self.extra_price(state),
            self.use_price(state),
        )
        several = self.budget.turns > 1 and not is_large(plan)
        further = self._further_starts(state, plan) if several else ()
        found = self._better(state, search_jointly(worth, state, [plan, *further]), plan)
        return found if start is None else self._better(state, found, start)

    def _further_starts(self, state: SystemState, plan: Allocation) -> Iterator[Allocation]:
        """Plans far from the first one (E, ...): the joint search changes few blocks at a time."""
        if not self.parameters.may_sit_out:
            yield even_split(self.parameters, state)
        thrifty = copy.copy(self)
        thrifty.tradeoff_v = THRIFT * self.tradeoff_v
        yield thrifty._planned(state, None)
        if self._most_server > 0:
            L = self.parameters.costs.blocks
            for part in SERVED:
                kept = np.full_like(plan.micro_batches, min(self._most_server, math.ceil(part * L)))
                blocks = apportion((L - kept)[..., None], plan.blocks.astype(np.float64), plan.blocks)
                yield replace(plan, blocks=blocks, server_blocks=kept, server_mode=0 * kept[:, 0] + COPIES)
        if "clock_cap" in self.parameters.opened:
            for cap in SLOW_CLOCKS:
                caps = np.full(plan.blocks.shape, max(cap, self.parameters.clock_cap_min))
                slow = running_state(state, replace(plan, clock_cap=caps))
                yield replace(self._planned(slow, None), clock_cap=caps)

    def _planned(self, state: SystemState, start: Allocation | None) -> Allocation:
        """Decide everything that the search of GPipe's rounds knows."""
        if not self.parameters.may_sit_out:
            return self._allocated(state, start)
        able = able_clusters(self.parameters, state)
        if able.all():
            return self._allocated(state, start)
        room = with_room_everywhere(state, able, self.parameters.costs.blocks)
        return sitting_out(self._allocated(room, start), able)

    def _better(self, state: SystemState, first: Allocation, second: Allocation) -> Allocation:
        """In each row the plan with the smaller objective (the first if equal)."""
        return self._best(state, [explicit(self.parameters, plan) for plan in (first, second)])

    def _best(self, state: SystemState, plans: Sequence[Allocation]) -> Allocation:
        """In each row the plan with the smallest objective (the first of equal ones)."""
        every = stack_allocations(plans, np.concatenate)
        # Small batches cost much more per row.
        value = self.objective(state.map(lambda a: np.concatenate([a] * len(plans))), every)
        value = np.nan_to_num(value.reshape(len(plans), -1), nan=np.inf, posinf=np.inf, neginf=-np.inf)
        return every[value.argmin(axis=0) * value.shape[1] + np.arange(value.shape[1])]

    def _allocated(self, state: SystemState, start: Allocation | None) -> Allocation:
        """Decide one round in which all clusters take part."""
        inputs = round_input(
            self.parameters,
            state,
            convergence_weight=self.convergence_weight,
            exact_drift=self.drift == "exact",
            choose_recompute=True,
            most_server=self._most_server,
            extra_price=self.extra_price(state),
            use_price=self.use_price(state),
        )
        require_room(inputs.cap[:, 0], self.parameters.costs.blocks)
        given = None if start is None else open_plan(start, self._openings)
        # First, as over dead links no plan has a finite objective, and the search places no blocks.
        plans = [open_plan(even_split(self.parameters, state), self._openings)]
        plans += search_open_rounds(inputs, self._numbers, self.budget, self.threads, self._openings, given)
        plans += [] if given is None else [given]
        found = self._best(state, [allocation_of(plan, self._openings) for plan in plans])
        used = found.device_blocks > 0
        if inputs.held.shape[-2]:
            used = used | inputs.held.any(axis=-2)  # they may send moments
        return replace(found, device_power=np.where(used, found.device_power, self.parameters.power_min_w))

    def objective(self, state: SystemState, allocation: Allocation) -> FloatArray:
        """``V T`` plus the drift (and the convergence term), from the simulator's physics.

        Args:
            state: The system (..., ).
            allocation: The decisions to price (...).

        Returns:
            The objective (...).
        """
        costs = round_costs(self.parameters, state, allocation)
        value = round_objective(
            costs,
            state,
            self.tradeoff_v,
            self.convergence_weight,
            exact_drift=self.drift == "exact",
            participation_min=self.parameters.participation_min,
        )
        extra = self.extra_price(state)
        if extra is not None:
            value = value + (extra * costs.busy_energy).sum(axis=(-2, -1))
        using = self.use_price(state)
        if using is not None:
            used = (allocation.device_blocks > 0) & costs.plays[..., None]
            value = value + (using * used).sum(axis=(-2, -1))
        return value

    def extra_price(self, state: SystemState) -> FloatArray | None:  # noqa: ARG002 - for subclasses
        """Price of every node's energy on top of its queue's (..., N, K+1) [1/J], >= 0; ``None`` for none.

        Energy of idle radios has no such price.

        Args:
            state: The system before the round (...).
        """
        return None

    def use_price(self, state: SystemState) -> FloatArray | None:  # noqa: ARG002 - for subclasses
        """Price of giving each device any blocks at all (..., N, K), >= 0; ``None`` for none.

        Args:
            state: The system before the round (...).
        """
        return None


class DSSRABound(DSSRA):
    """DSSRA with the paper's bound of the drift plus penalty, ``V T + sum z e`` ([S], the solver [R]).

    The bound prices energy with the queue before the round and leaves out ``(e - 1)^2 / 2`` of every node.

    Args:
        options: Options of :class:`DSSRA` except ``drift``.

    Raises:
        AllocationError: If an argument is out of range.
    """

    name = "DSSRA (paper's bound)"

    def __init__(self, scenario: Scenario, **options: Any) -> None:
        super().__init__(scenario, drift="bound", **options)


class DSSRATruth(DSSRA):
    """DSSRA that sees the truth, an oracle for scenarios whose gains are known late or with errors ([X]).

    Where everything is known it is :class:`DSSRA`.

    Args:
        options: Options of :class:`DSSRA`.

    Raises:
        AllocationError: If an argument is out of range.
    """

    name = "DSSRA on the truth"
    sees = "truth"
