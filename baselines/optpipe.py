"""OptPipe (arXiv 2510.05186): the schedule of a pipeline by mathematical optimisation, for this system.

Stated by the public abstract and reviews (``algorithms.md`` 4.3): operation timing, activation off-loading
and memory are optimised jointly with a split backward pass; the solver starts from a memory-safe schedule,
is run online, and schedules are cached. The programme itself is a reconstruction ([R], after the zero-bubble
one), solved by CP-SAT of OR-Tools rather than by a mixed-integer solver. Ours beyond that ([R], [X]):

* links, the CU's relay, the uplink, the downlink and the server are also machines of the programme
  (:mod:`~.planning.optpipe_model`);
* nothing is off-loaded: edge boards have one memory and flash is slow;
* the partition is an input, as in OptPipe: the one of a few usual splits (PipeEdge's, that of least latency,
  FLOP-proportional; within memories that hold all, half, a quarter ... of the micro-batches) which is
  fastest under 1F1B, ZB-H1 or GPipe, exactly timed. Devices are visited in index order; ``M`` is the largest
  allowed number within the programme's limit, or where passes and messages have overheads the one within it
  with the fastest of those schedules. The fastest of all is the warm start;
* overheads are in the durations of the programme's operations, and a link's latency lies between two of them;
* the simulator executes named schedules with caps, not any order of operations. What is executed is the
  fastest of 1F1B and ZB-H1 with the caps read off the optimal order (forwards before the first backward;
  most micro-batches between F and B; between F and W) and of the warm start's candidates.
  :attr:`OptPipe.reports` says how far that is from the optimum: a few per cent where memory is ample, on
  average 9 % (up to 29 %) in trials with a third of the memory and eight micro-batches;
* a cluster is planned in the first round of an episode and again when its devices, their memories or their
  speeds change (or the layout does), with the channels of that round; otherwise its plan is kept, whatever
  the channels do, as cached schedules are. Decisions of a row depend on that row's earlier states only.

Where the programme would be too large, 1F1B with caps that count the links is executed instead, with a
warning :class:`OptPipeFallback` and a note in the report. Queues are ignored.
"""

from __future__ import annotations

import importlib.util
import itertools
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.errors import AllocationError, ScenarioError
from collapipe_env.physics.allocation import Allocation, ScheduleName
from collapipe_env.physics.apportionment import apportion
from collapipe_env.physics.overheads import NO_OVERHEADS
from collapipe_env.physics.schedules.makespans import run_chain
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import StateScheduler
from collapipe_env.simulator.state import SystemState

from .planning.block_partition import optimal_blocks, quickest_of_fastest
from .planning.chain_problem import ChainProblem, block_room, chain_problems, plan_times
from .planning.draft_pricing import lower_caps
from .planning.optpipe_model import solve_chain
from .planning.scheduled_plan import ScheduledPlan, allocation_of, link_aware_caps

Split = tuple[tuple[int, ...], tuple[int, ...]]
"""Devices of the stages in pipeline order, and their blocks."""

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


def storable(problem: ChainProblem, split: Split, micro_batches: int) -> IntArray:
    """Micro-batches that the memory of each stage's device can store (S,), at most ``M``, 0 if none.

    Args:
        split: Devices and blocks.
        micro_batches: ``M``.
    """
    plan = ScheduledPlan(*split, "zb-h1", (micro_batches,) * len(split[0]), micro_batches).arrays()
    lower_caps(problem, plan)
    return plan.caps


def usual_splits(problem: ChainProblem, micro_batches: int) -> list[Split]:
    """The splits among which the partition is chosen, each once, those with the most memory left first.

    Args:
        micro_batches: ``M``.
    """
    L = problem.numbers.blocks
    block_s, hop_s = problem.both_ways(micro_batches)
    # A latency passes once each way in a pipeline of micro-batches, which takes 1 / M of these times.
    late_s = hop_s + 2.0 * micro_batches * problem.numbers.overheads.latency_s
    splits: dict[Split, None] = {}
    stored = micro_batches
    while stored >= 1:
        room = block_room(problem, stored, micro_batches)
        stored //= 2
        if room.sum() < L:
            continue
        for blocks in (
            quickest_of_fastest(L, room, block_s, hop_s),
            optimal_blocks(L, room, block_s, late_s, False, np.inf)[1],
            apportion(L, 1.0 / block_s, room),
        ):
            devices = np.flatnonzero(blocks)
            splits[tuple(devices.tolist()), tuple(blocks[devices].tolist())] = None
    return list(splits)


def named_plans(
    problem: ChainProblem,
    split: Split,
    micro_batches: int,
    caps: Iterable[IntArray],
    schedules: Iterable[ScheduleName],
) -> Iterator[ScheduledPlan]:
    """Named schedules of a split, their caps cut to what memory allows; none if a stage has no room.

    Args:
        split: Devices and blocks.
        micro_batches: ``M``.
        caps: Caps of the stages (S,) to try.
        schedules: Schedules to try them with.
    """
    most = storable(problem, split, micro_batches)
    if most.min() < 1:
        return
    for wanted, schedule in itertools.product(caps, schedules):
        cut = tuple(np.clip(wanted, 1, most).tolist())
        plan = ScheduledPlan(*split, schedule, cut, micro_batches)
        if plan.fits(problem):
            yield plan


def warm_starts(problem: ChainProblem, split: Split, micro_batches: int) -> list[ScheduledPlan]:
    """1F1B and ZB-H1 with the standard caps, with caps that count the links and with full memories; GPipe."""
    S = len(split[0])
    standard = np.arange(S, 0, -1) + 1
    full = np.full(S, micro_batches)
    plans = list(
        named_plans(problem, split, micro_batches, (standard, link_aware_caps(S), full), ("zb-h1", "1f1b"))
    )
    plans.extend(named_plans(problem, split, micro_batches, (full,), ("gpipe",)))
    return plans


def run_plan(problem: ChainProblem, plan: ScheduledPlan) -> tuple[float, FloatArray]:
    """Makespan of a plan's local step [s] and its events, as the simulation writes them."""
    arrays, S, M = plan.arrays(), len(plan.devices), plan.micro_batches
    weights = S + 1 if plan.schedule == "zb-h1" else 0
    events = np.full((M * (2 * (S + 1 + S + 2) + weights), 6), -1.0)
    times, duplex = plan_times(problem, arrays), problem.numbers.half_duplex
    return run_chain(times, arrays.schedule, arrays.caps, 1, M, duplex, events), events


def plan_cluster(
    problem: ChainProblem,
    options: Sequence[int],
    *,
    solver_time: float,
    seed: int = 0,
    refused: str | None = None,
    max_devices: int = MAX_DEVICES,
) -> OptPipeReport | None:
    """Plan one cluster.

    Args:
        options: Numbers of micro-batches to choose from; the warm start decides.
        solver_time: Work limit of the solver, in its deterministic unit of about a second.
        seed: Seed of the solver.
        refused: Why the solver must not be used; ``None`` if it may.
        max_devices: Most stages for the solver.

    Returns:
        The plan and its figures; ``None`` if no split fits the memories.
    """

    def quickest(plans: Iterable[ScheduledPlan]) -> ScheduledPlan:
        return min(plans, key=lambda plan: plan.seconds(problem))

    splits = [(split, M) for M in options for split in usual_splits(problem, M)]
    plans = [plan for split, M in splits for plan in warm_starts(problem, split, M)]
    if not plans:
        return None
    start = quickest(plans)
    split, micro_batches = (start.devices, start.held), start.micro_batches
    S = len(start.devices)
    if refused is None and max_devices < S:
        refused = f"its split has {S} stages, the programme is limited to {max_devices}"
    if refused is not None:
        caps = ((split, M, (link_aware_caps(len(split[0])),)) for split, M in splits)
        plan = quickest(p for split, M, cap in caps for p in named_plans(problem, split, M, cap, ("1f1b",)))
        return OptPipeReport(plan, run_plan(problem, plan)[0], None, None, False, refused)
    solution = solve_chain(
        plan_times(problem, start._replace(schedule="zb-h1").arrays()),
        storable(problem, split, micro_batches),
        micro_batches,
        problem.numbers.half_duplex,
        run_plan(problem, start)[1],
        deterministic_time=solver_time,
        seed=seed,
    )
    read_off = (solution.warm_ups, solution.in_flight, solution.stored)
    candidates = [
        *(p for p in plans if (p.devices, p.held, p.micro_batches) == (*split, micro_batches)),
        *named_plans(problem, split, micro_batches, read_off, ("zb-h1", "1f1b")),
    ]
    plan = quickest(candidates)
    executed = run_plan(problem, plan)[0]
    # A plan read off an order that is not optimal may be faster than that order.
    optimum = min(solution.seconds, executed)
    note = None
    if not solution.proven:
        note = f"the solver's limit came first: best order {optimum:.6g} s, none below {solution.bound:.6g} s"
    return OptPipeReport(plan, executed, optimum, solution.bound, solution.proven, note)


class OptPipe(StateScheduler):
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
        self._refused = (
            None
            if within
            else f"the smallest allowed number of micro-batches is {min(choices)}, the programme is limited "
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

    def allocate(self, state: SystemState) -> Allocation:
        """Decide one round; see :meth:`StateScheduler.act`.

        Args:
            state: The system before the round (E, ...).

        Raises:
            AllocationError: If no split fits the memories of some cluster.
        """
        E, N = state.uplink_gain.shape
        for e, now in enumerate(state.round_index.tolist()):
            if now < self._last_round.get(e, now):  # a new episode of this row
                for n in range(N):
                    self._cache.pop((e, n), None)
            self._last_round[e] = now
        problems: dict[tuple[int, int], ChainProblem] = {}
        reports = {}
        for e, n in np.ndindex(E, N):
            known = self._cache.setdefault((e, n), {})
            key = _situation(state, e, n)
            if key not in known:
                problems = problems or chain_problems(self.parameters, state)
                known[key] = self._plan(problems[e, n], e, n)
            reports[e, n] = known[key]
        self.reports = reports
        return allocation_of(self.parameters, state, {at: report.plan for at, report in reports.items()})

    def _plan(self, problem: ChainProblem, e: int, n: int) -> OptPipeReport:
        report = plan_cluster(
            problem,
            self._options,
            solver_time=self.solver_time,
            seed=self.seed,
            refused=self._refused,
            max_devices=self.max_devices,
        )
        if report is None:
            room = int(block_room(problem, 1, self.micro_batches).sum())
            raise AllocationError(
                f"environment {e}, cluster {n}: its devices can hold only {room} blocks with one of "
                f"{self.micro_batches} micro-batches each, but the encoder has {problem.numbers.blocks}: no "
                "plan exists"
            )
        if report.optimum_s is None and not self._warned:
            self._warned = True
            warnings.warn(
                f"OptPipe runs 1F1B with link-aware caps in environment {e}, cluster {n}: {report.note}; "
                "further clusters are not reported, see OptPipe.reports",
                OptPipeFallback,
                stacklevel=5,
            )
        return report


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
