"""AdaPtis (arXiv 2509.23722): partition, placement and schedule searched together, every round.

Stated by the public abstract and reviews (``algorithms.md`` 4.2): a performance model, a pipeline generator
and an executor; partition, placement and schedule are chosen jointly; a device's load is
``C_d = sum (C_s + comm(s))`` and its memory ``M_d = sum M_s``. The generator's steps are not public. The
search here is a reconstruction ([R]): from a balanced partition over all devices in index order under 1F1B,

* partition: move a boundary block away from the device with the largest ``C_d``;
* placement: swap the devices of two stages, switch between linear and interleaved stages;
* schedule: other orders and caps, with backward before forward before weight gradients;

each step takes the best neighbour by simulated time, until none is quicker. Ours beyond that ([X]):

* the simulator's exact time stands in for the published model's bubble and overlap terms, whose formula
  was not recovered;
* stages compute equally long at the start, not equally much: these devices differ in speed;
* any block at a boundary may move when relieving the busiest device does not help;
* devices may be left out, taken in and exchanged for idle ones, since hops are slow here and not every
  device is worth its hops;
* the number of micro-batches is chosen too: among all where passes and messages have overheads, which count
  in loads and times; otherwise among the largest few and the even split's;
* memory caps lower the micro-batches in flight; a plan whose blocks do not fit is skipped;
* random restarts, off by default.

V-shaped placement gives a device two stages that are not neighbours in the chain; the simulator's chain
has one stage (or evenly interleaved chunks) for each device, so it is left out. Equal bandwidth and full
power; queues are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import ScheduleName
from collapipe_env.scenario import Scenario

from .planning.chain_problem import ChainProblem, plan_times
from .planning.plan_search import (
    Moves,
    PlanSearch,
    best_plan,
    micro_batch_options,
    next_numbers,
    rearranged,
    resized_devices,
    shifted_blocks,
    usable_devices,
    without,
)
from .planning.scheduled_plan import CapRule, ScheduledPlan, caps_of

RULES: tuple[CapRule, ...] = ("ordinary", "link")
INTERLEAVED_CHUNKS = 2


class AdaPtis(PlanSearch):
    """A local optimum of the round's delay over partition, placement and schedule of each cluster.

    Args:
        micro_batches: Wanted number of micro-batches; the nearest allowed one is used. ``None`` to choose.
        restarts: Random starts of the search in addition to the usual one, from a fixed seed.

    Raises:
        AllocationError: ``restarts`` is negative.
    """

    name = "AdaPtis"

    def __init__(self, scenario: Scenario, *, micro_batches: int | None = None, restarts: int = 0) -> None:
        if restarts < 0:
            raise AllocationError(f"restarts = {restarts}: give 0 or more random restarts")
        super().__init__(scenario)
        self.restarts = restarts
        self._options = micro_batch_options(self.parameters, micro_batches)

    def search(self, problem: ChainProblem) -> ScheduledPlan:
        """The best local optimum from the usual start and from random ones; depends on the cluster only."""
        usable = usable_devices(problem, self._options[-1])
        starts = [start_drafts(usable, self._options)]
        for restart in range(self.restarts):
            rng = np.random.default_rng([restart, len(usable)])
            size = int(rng.integers(1, len(usable) + 1))
            devices = tuple(usable[i] for i in rng.permutation(len(usable))[:size])
            caps = caps_of("link", "1f1b", size)
            starts.append([ScheduledPlan(devices, (), "1f1b", caps, self._options[-1])])
        moves = neighbourhood(problem, self._options, usable)
        found = [best for drafts in starts if (best := best_plan(problem, drafts, moves))]
        return min(found, key=lambda best: best.seconds).plan


def start_drafts(usable: tuple[int, ...], options: Sequence[int]) -> list[ScheduledPlan]:
    """Balanced partition over all devices in index order under 1F1B, for every number of micro-batches."""
    caps = caps_of("ordinary", "1f1b", len(usable))
    return [ScheduledPlan(usable, (), "1f1b", caps, M) for M in reversed(options)]


def neighbourhood(
    problem: ChainProblem, options: Sequence[int], usable: Sequence[int]
) -> tuple[tuple[Moves, ...], ...]:
    """AdaPtis's three kinds of moves, in the order in which they take turns.

    All stages may give blocks away if relieving the busiest does not help.
    """
    return (
        (
            lambda plan: boundary_moves(plan, [int(compute_load(problem, plan).argmax())]),
            lambda plan: boundary_moves(plan, range(len(plan.devices))),
        ),
        (lambda plan: placement_moves(plan, usable),),
        (lambda plan: schedule_moves(plan, options),),
    )


def compute_load(problem: ChainProblem, plan: ScheduledPlan) -> FloatArray:
    """AdaPtis's ``C_d = sum over stages s on d of C_s + comm(s)``, for a mini-batch, by stage (S,) [s].

    ``C_s`` is the time of the stage's blocks, forward and backward, launches included. What ``comm(s)`` holds
    is not public; here it is what the stage's device sends: activations onward and gradients back ([X]). A
    device has one stage in this system (under ``interleaved`` its chunks together), so devices and stages
    coincide. Bubbles and overlap, the other terms of AdaPtis's ``T_d``, are left to the exact simulation.
    """
    times = plan_times(problem, plan._replace(schedule="1f1b", chunks=1).arrays())
    S = len(plan.devices)
    load: FloatArray = times.forward[:S] + times.backward[:S] + times.link_forward[1 : S + 1]
    load += times.link_backward[:S]
    return plan.micro_batches * load


def boundary_moves(plan: ScheduledPlan, stages: Iterable[int]) -> Iterator[ScheduledPlan]:
    """Give a block of one of these stages to the stage before or after it; an empty stage disappears."""
    for held in shifted_blocks(plan.held, stages):
        if min(held) > 0:
            yield plan._replace(held=held)
            continue
        s = held.index(0)
        devices, caps = without(plan.devices, s), without(plan.caps, s)
        if plan.schedule == "interleaved":  # its warm-up depends on the number of stages
            yield from rebuilt(plan, devices)
        else:
            yield plan._replace(devices=devices, held=without(held, s), caps=caps)


def placement_moves(plan: ScheduledPlan, usable: Sequence[int]) -> Iterator[ScheduledPlan]:
    """Other devices for the stages: exchanged, left out or added; also linear or interleaved stages."""
    S = len(plan.devices)
    yield from rearranged(plan, usable)
    for devices in resized_devices(plan.devices, usable):
        yield from rebuilt(plan, devices)
    if plan.schedule == "interleaved":
        for rule in RULES:
            yield plan._replace(schedule="1f1b", chunks=1, caps=caps_of(rule, "1f1b", S))
    else:
        caps = caps_of("ordinary", "interleaved", S, INTERLEAVED_CHUNKS)
        yield plan._replace(held=(), schedule="interleaved", chunks=INTERLEAVED_CHUNKS, caps=caps)


def schedule_moves(plan: ScheduledPlan, options: Sequence[int]) -> Iterator[ScheduledPlan]:
    """Other orders, caps one up or down, and the next numbers of micro-batches.

    Backward before forward before weight gradients, AdaPtis's priority, is what 1F1B and ZB-H1 do.
    """
    S, caps = len(plan.devices), plan.caps
    orders: tuple[ScheduleName, ...] = ("1f1b", "zb-h1")
    for schedule in orders:
        for rule in RULES:
            yield plan._replace(schedule=schedule, chunks=1, caps=caps_of(rule, schedule, S))
    yield plan._replace(schedule="gpipe", chunks=1, caps=caps_of("ordinary", "gpipe", S))
    if plan.schedule != "gpipe":
        for step in (1, -1):
            yield plan._replace(caps=tuple(c + step for c in caps))
            if S > 1 and plan.schedule != "interleaved":  # whose caps must fall evenly
                for s in range(S):
                    yield plan._replace(caps=(*caps[:s], caps[s] + step, *caps[s + 1 :]))
    for M in next_numbers(options, plan.micro_batches):
        yield plan._replace(micro_batches=M)


def rebuilt(plan: ScheduledPlan, devices: tuple[int, ...]) -> Iterator[ScheduledPlan]:
    """The plan on more or fewer devices: split anew, with the caps of each rule."""
    for rule in RULES[:1] if plan.schedule == "gpipe" else RULES:
        caps = caps_of(rule, plan.schedule, len(devices), plan.chunks)
        yield plan._replace(devices=devices, held=(), caps=caps)
