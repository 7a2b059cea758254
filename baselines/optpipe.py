"""OptPipe (arXiv 2510.05186): the schedule of a pipeline by mathematical optimisation, for this system.

Stated by the public abstract and reviews (``algorithms.md`` 4.3): operation timing, activation off-loading
and memory are optimised jointly with a split backward pass; the solver starts from a memory-safe schedule,
is run online, and schedules are cached. The programme itself is a reconstruction ([R], after the zero-bubble
one), solved by CP-SAT of OR-Tools rather than by a mixed-integer solver. Ours beyond that ([R], [X]):

* links, the CU's relay, the uplink, the downlink and the server are also machines of the programme
  (:mod:`~.planning.optpipe_model`);
* nothing is off-loaded: edge boards have one memory and flash is slow;
* the partition is an input, as in OptPipe: that of the quickest plan under 1F1B, ZB-H1 or GPipe which the
  common search finds (:mod:`~.planning.schedule_space`), and so is the order of the devices. ``M`` is the
  largest allowed number within the programme's limit, or where passes and messages have overheads searched
  within it. This plan is the warm start;
* overheads are in the durations of the programme's operations, and a link's latency lies between two of them;
* the simulator executes named schedules with caps, not any order of operations. What is executed is the
  fastest of 1F1B and ZB-H1 with the caps read off the optimal order (forwards before the first backward;
  most micro-batches between F and B; between F and W) and of the warm start.
  :attr:`OptPipe.reports` says how far that is from the best order known: in trials on ``small`` and
  ``medium`` with eight micro-batches 1 to 3 % on average and up to 8 %, with a third of the memory as well;
* a cluster is planned in the first round of an episode and again when its devices, their memories or their
  speeds change (or the layout does), with the channels of that round; otherwise its plan is kept, whatever
  the channels do, as cached schedules are. Decisions of a row depend on that row's earlier states only.

Where the programme would be too large, 1F1B with caps that count the links is executed instead, with a
warning :class:`OptPipeFallback` and a note in the report. Queues are ignored.
"""

from __future__ import annotations

import importlib.util
import warnings
from dataclasses import dataclass

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.physics.allocation import ScheduleName
from collapipe_env.physics.overheads import NO_OVERHEADS
from collapipe_env.physics.schedules.makespans import run_chain
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.state import SystemState

from .planning.chain_problem import ChainProblem, chain_problems, plan_times
from .planning.draft_pricing import lower_caps
from .planning.optpipe_model import solve_chain
from .planning.plan_search import PlanSearch, quickest
from .planning.schedule_space import Space, search
from .planning.scheduled_plan import ScheduledPlan

STARTS = ("gpipe", *(f"{name}{caps}" for name in ("1f1b", "zb-h1") for caps in ("", " k=link", " k=room")))
"""Schedules of the warm start."""

FALLBACK = ("1f1b k=link",)
"""Schedules where the programme would be too large."""

READ_OFF: tuple[ScheduleName, ...] = ("zb-h1", "1f1b")
"""Schedules that are executed with the caps of the optimal order."""

BEAM = 4
MAX_DEVICES = 8
MAX_MICRO_BATCHES = 16


class OptPipeFallback(UserWarning):
    """A cluster is too large for the programme and runs 1F1B instead."""


@dataclass(frozen=True)
class OptPipeReport:
    """Record of how one cluster was planned; times are those of the round in which it was planned.

    Attributes:
        plan: The plan that is executed.
        executed_s: Makespan of the passes of its local step, which ends with the update [s].
        optimum_s: Makespan of the best order known for the same split and ``M`` [s]; ``None`` after a
            fallback.
        bound_s: Lower bound on the makespan of any order [s]; ``None`` after a fallback.
        proven: Whether the solver proved its order optimal within its limit.
        note: Why the plan is not read off a proven optimum; ``None`` if it is.
    """

    plan: ScheduledPlan
    executed_s: float
    optimum_s: float | None
    bound_s: float | None
    proven: bool
    note: str | None

    @property
    def gap(self) -> float | None:
        """Excess of the executed schedule over the best order found, relative to that order."""
        return None if self.optimum_s is None else self.executed_s / self.optimum_s - 1.0


def storable(problem: ChainProblem, plan: ScheduledPlan) -> IntArray:
    """Micro-batches that each stage's device can store until their weight gradients (S,), at most ``M``.

    At least what the plan itself stores: where activations are recomputed, ZB-H1 needs more memory for that.
    """
    M, S = plan.micro_batches, len(plan.devices)
    full = plan._replace(schedule="zb-h1", caps=(M,) * S).arrays()
    lower_caps(problem, full)
    own = np.full(S, M) if plan.schedule == "gpipe" else np.minimum(plan.caps, M)
    return np.maximum(full.caps, own)


def run_plan(problem: ChainProblem, plan: ScheduledPlan) -> tuple[float, FloatArray]:
    """Makespan of a plan's local step [s] and its events, as the simulation writes them."""
    arrays, S, M = plan.arrays(), len(plan.devices), plan.micro_batches
    weights = S + 1 if plan.schedule == "zb-h1" else 0
    events = np.full((M * (2 * (S + 1 + S + 2) + weights), 6), -1.0)
    times, duplex = plan_times(problem, arrays), problem.numbers.half_duplex
    return run_chain(times, arrays.schedule, arrays.caps, 1, M, duplex, events), events


class OptPipe(PlanSearch):
    """Schedules from the programme; equal bandwidth and full power.

    Args:
        solver_time: Work limit of a cluster's programme in CP-SAT's deterministic unit, of about a second.
        max_devices: Most stages for the programme.
        max_micro_batches: Most micro-batches for the programme.
        seed: Seed of the solver.

    Raises:
        ScenarioError: OR-Tools is not installed.
    """

    name = "OptPipe"

    def __init__(
        self,
        scenario: Scenario,
        *,
        solver_time: float = 1.0,
        max_devices: int = MAX_DEVICES,
        max_micro_batches: int = MAX_MICRO_BATCHES,
        seed: int = 0,
    ) -> None:
        if importlib.util.find_spec("ortools") is None:
            raise ScenarioError(
                "scheduler 'optpipe' needs OR-Tools, which is not installed; run: "
                "pip install 'collapipe-env[optimize]'"
            )
        super().__init__(scenario)
        self.solver_time = solver_time
        self.max_devices = max_devices
        self.seed = seed
        choices = self.parameters.micro_batch_choices
        within = [choice for choice in choices if choice <= max_micro_batches]
        self.micro_batches = max(within) if within else min(choices)
        """The largest number of micro-batches that is considered."""
        priced = bool(within) and self.parameters.overheads != NO_OVERHEADS
        self._options = tuple(within) if priced else (self.micro_batches,)
        self._refused: str | None = None
        if not within:
            self._refused = (
                f"the smallest allowed number of micro-batches is {min(choices)}, the programme is limited "
                f"to {max_micro_batches}"
            )
        self._warned = False
        self._cache: dict[tuple[int, int], dict[bytes, OptPipeReport]] = {}
        self._last_round: dict[int, int] = {}
        self.reports: dict[tuple[int, int], OptPipeReport] = {}
        """The last decision's report of each environment and cluster."""

    def reset(self, seed: int | None = None) -> None:  # noqa: ARG002 - nothing is random
        """Forget all cached plans."""
        self._cache.clear()
        self._last_round.clear()
        self.reports = {}

    def plans(self, state: SystemState) -> dict[tuple[int, int], ScheduledPlan]:
        """The plan of every environment and cluster, new or cached."""
        E, N = state.uplink_gain.shape
        for e, now in enumerate(state.round_index.tolist()):
            if now < self._last_round.get(e, now):  # a new episode of this row
                for n in range(N):
                    self._cache.pop((e, n), None)
            self._last_round[e] = now
        problems: dict[tuple[int, int], ChainProblem] = {}
        reports = {}
        for at in np.ndindex(E, N):
            known, key = self._cache.setdefault(at, {}), _situation(state, *at)
            if key not in known:
                problems = problems or chain_problems(self.parameters, state)
                known[key] = self.named(at, self.report, problems[at])
            reports[at] = known[key]
            if known[key].optimum_s is None and not self._warned:
                self._warned = True
                warnings.warn(
                    f"OptPipe runs 1F1B with link-aware caps in environment {at[0]}, cluster {at[1]}: "
                    f"{known[key].note}; further clusters are not reported, see OptPipe.reports",
                    OptPipeFallback,
                    stacklevel=4,
                )
        self.reports = reports
        return {at: report.plan for at, report in reports.items()}

    def search(self, problem: ChainProblem) -> ScheduledPlan:
        """The plan of one cluster."""
        return self.report(problem).plan

    def report(self, problem: ChainProblem) -> OptPipeReport:
        """Plan one cluster.

        Raises:
            AllocationError: If no plan fits the memories.
        """
        start, refused = search(problem, Space.of(STARTS, self._options), BEAM).plan, self._refused
        S, M = len(start.devices), start.micro_batches
        if refused is None and self.max_devices < S:
            refused = f"its split has {S} stages, the programme is limited to {self.max_devices}"
        if refused is not None:
            plan = search(problem, Space.of(FALLBACK, self._options), BEAM).plan
            return OptPipeReport(plan, run_plan(problem, plan)[0], None, None, False, refused)
        solution = solve_chain(
            plan_times(problem, start._replace(schedule="zb-h1").arrays()),
            storable(problem, start),
            M,
            problem.numbers.half_duplex,
            run_plan(problem, start)[1],
            deterministic_time=self.solver_time,
            seed=self.seed,
        )
        read_off = [
            start._replace(schedule=schedule, caps=tuple(caps.tolist()))
            for caps in (solution.warm_ups, solution.in_flight, solution.stored)
            for schedule in READ_OFF
        ]
        plan = quickest(problem, [start, *read_off])[0].plan
        executed = run_plan(problem, plan)[0]
        # A plan read off an order that is not optimal may be faster than that order.
        optimum = min(solution.seconds, executed)
        best, bound = f"best order {optimum:.6g} s", f"none below {solution.bound:.6g} s"
        note = None if solution.proven else f"the solver's limit came first: {best}, {bound}"
        return OptPipeReport(plan, executed, optimum, solution.bound, solution.proven, note)


def _situation(state: SystemState, e: int, n: int) -> bytes:
    """Key of a cluster's cached plan: all inputs except the channels; path gains stand for the layout."""
    present = np.asarray(state.present[e, n])
    parts = (
        present,
        np.where(present, state.memory_bytes[e, n], 0.0),
        np.where(present, state.speed[e, n], 0.0),
        np.asarray(state.cross_gain[e]),
    )
    return b"".join(part.tobytes() for part in parts)
