"""XPipe (Guan et al., arXiv 1911.04610): an asynchronous pipeline with weight prediction.

Stated by the public abstract (``algorithms.md`` 4.4): micro-batches of different mini-batches are in the pipe
at once, so it is not flushed between them, and the weights of a stage are predicted, against the
inconsistency and staleness that this brings. Reconstructed ([R]): 1F1B order with ``K_k = P - k``
micro-batches in flight, prediction over ``ceil((K_k - 1) / M)`` steps by the optimiser's own rule (a learner
that trains a model does that), and one more copy of a stage's weights in memory.

Ours ([X]):

* the ``H`` mini-batches of a round run without a flush; before the clusters' models are averaged there is
  one. With ``H = 1``, the default of the shipped scenarios, nothing is left of the asynchrony: it then is
  1F1B that pays for one more copy of the weights;
* the server is the last of the ``P`` stages. It and its head are as in every plan: one mini-batch's update
  after the other, no prediction;
* XPipe takes the partition as given. Here every set of devices, visited in index order, gets the partition
  with the fastest slowest stage that memory allows, and of these sets the one with the least time of a
  round is taken, simulated exactly. Links thus count in the choice of devices, not in the partition. In
  clusters of more than ten devices not all sets are looked at (see :func:`device_sets`);
* ``link_aware`` plans with links counted as stages, too, and takes what is faster: ``K_k`` then is the number
  of elements from the stage to the server, ``2 (S - k) + 2`` with ``S`` device stages. On slow links that
  keeps devices busy, where memory is scarce it costs them blocks;
* where no partition fits the memories, a ceiling for all ``K_k`` is lowered until one does.

Queues are ignored.
"""

from __future__ import annotations

import numpy as np

from collapipe_env.allocation import ASYNC, Allocation
from collapipe_env.arrays import BoolArray, IntArray
from collapipe_env.compiled import compiled
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.state import SystemState

from .planning.chain_problem import ChainProblem, PlanArrays, chain_problems, plan_seconds, plan_times
from .planning.draft_pricing import balanced_split
from .planning.plan_baseline import PlanBaseline
from .planning.scheduled_plan import (
    ScheduledPlan,
    allocation_of,
    link_aware_caps,
    ordinary_caps,
)

EXHAUSTIVE = 10
"""Clusters of up to so many devices have all their sets of devices compared."""


@compiled
def in_flight_caps(stages: int, link_aware: bool, ceiling: int) -> IntArray:
    """``K_k`` of the device stages (S,); the server is one more stage behind them.

    Args:
        stages: ``S``.
        link_aware: Count links as stages.
        ceiling: No stage has more.
    """
    caps: IntArray = np.minimum(link_aware_caps(stages) if link_aware else ordinary_caps(stages), ceiling)
    return caps


@compiled
def least_seconds(problem: ChainProblem, plan: PlanArrays) -> float:
    """A lower bound of a plan's time: the busiest stage, and what comes before and after it [s]."""
    S, times = len(plan.devices), plan_times(problem, plan)
    work = times.forward + times.backward
    links = times.link_forward + times.link_backward
    passes = plan.micro_batches * problem.numbers.local_steps
    least: float = passes * work[S] + links[S] + links[S + 2]
    for s in range(S - 1, -1, -1):
        least = links[s] + max(passes * work[s], work[s] + least)
    return least


@compiled
def set_plan(
    devices: IntArray, held: IntArray, micro_batches: int, link_aware: bool, ceiling: int
) -> PlanArrays:
    """The plan of one set of devices, in the order of its stages (S,), with given blocks (S,)."""
    caps = in_flight_caps(len(devices), link_aware, ceiling)
    return PlanArrays(devices, held, ASYNC, caps, 1, micro_batches)


@compiled
def best_partition(
    problem: ChainProblem, sets: BoolArray, micro_batches: int, link_aware: bool, ceiling: int
) -> tuple[float, IntArray]:
    """The balanced partition with the least time of a round over sets of devices.

    Args:
        problem: The cluster.
        sets: Devices of each set (sets, K).
        micro_batches: ``M``.
        link_aware: See :func:`in_flight_caps`.
        ceiling: See :func:`in_flight_caps`.

    Returns:
        Its time, infinite where no set can hold the encoder [s], and blocks of each device (K,).
    """
    # First all sets' lower bounds, then exact times from the lowest bound on: few have to be simulated.
    bound = np.full(len(sets), np.inf)
    held = np.zeros(sets.shape, dtype=np.int64)
    for i in range(len(sets)):
        devices = np.flatnonzero(sets[i])
        plan = set_plan(devices, np.zeros_like(devices), micro_batches, link_aware, ceiling)
        plan.held[:] = balanced_split(problem, plan, ceiling)
        if plan.held[0] > 0:
            held[i][devices] = plan.held
            bound[i] = least_seconds(problem, plan)
    best, least = np.zeros(sets.shape[1], dtype=np.int64), np.inf
    for i in np.argsort(bound, kind="mergesort"):
        if bound[i] >= least:
            break
        devices = np.flatnonzero(sets[i])
        plan = set_plan(devices, held[i][devices], micro_batches, link_aware, ceiling)
        seconds = plan_seconds(problem, plan)
        if seconds < least:
            best, least = held[i], seconds
    return least, best


def device_sets(problem: ChainProblem, present: IntArray) -> BoolArray:
    """Sets of devices to look at.

    Args:
        problem: The cluster.
        present: Devices that are there.

    Returns:
        All sets of up to :data:`EXHAUSTIVE` devices (sets, K). Of more devices, all sets of the fastest ones,
        and for every number the fastest and the roomiest so many; among the latter is one that fits if any
        does with one micro-batch in flight.
    """
    fastest = present[np.argsort(problem.times.block_forward[present], kind="stable")]
    few = fastest[:EXHAUSTIVE]
    codes = np.arange(1, 1 << len(few))
    sets = np.zeros((len(codes), len(problem.memory_bytes)), dtype=np.bool_)
    sets[:, few] = codes[:, None] >> np.arange(len(few)) & 1
    if len(present) <= EXHAUSTIVE:
        return sets
    roomiest = present[np.argsort(-problem.memory_bytes[present], kind="stable")]
    first = np.tril(np.ones((len(present), len(present)), dtype=np.bool_))
    more = np.zeros((2, len(present), sets.shape[1]), dtype=np.bool_)
    more[0][:, fastest], more[1][:, roomiest] = first, first
    return np.concatenate((sets, *more))


class XPipe(PlanBaseline):
    """A pipeline without a flush between mini-batches; equal bandwidth, full power and fixed ``M``.

    Args:
        scenario: The scenario to schedule.
        micro_batches: Wanted number of micro-batches; the nearest allowed one is used.
        link_aware: Also try to count links as stages when allowing micro-batches in flight.
    """

    name = "XPipe"

    def __init__(
        self,
        scenario: Scenario,
        *,
        micro_batches: int | None = None,
        link_aware: bool = False,
    ) -> None:
        super().__init__(scenario, micro_batches=micro_batches)
        self.link_aware = link_aware

    def allocate(self, state: SystemState) -> Allocation:
        """Decide one round; see :meth:`StateScheduler.act`."""
        problems = chain_problems(self.parameters, state)
        plans = {at: self._plan(at, problem, state) for at, problem in problems.items()}
        return allocation_of(self.parameters, state, plans)

    def _plan(self, at: tuple[int, int], problem: ChainProblem, state: SystemState) -> ScheduledPlan:
        """One cluster's plan; with the rule's own caps where memory allows."""
        present, M = np.flatnonzero(state.present[at]), self.micro_batches
        sets = device_sets(problem, present)
        highest = 2 * len(present) + 2
        for ceiling in (highest, *range(min(highest, M * self.parameters.costs.local_steps) - 1, 0, -1)):
            options = [
                (*best_partition(problem, sets, M, aware, ceiling), aware)
                for aware in ((False, True) if self.link_aware else (False,))
            ]
            seconds, blocks, aware = min(options, key=lambda option: option[0])
            if np.isfinite(seconds):
                devices = np.flatnonzero(blocks)
                return ScheduledPlan(
                    devices=tuple(devices.tolist()),
                    held=tuple(blocks[devices].tolist()),
                    schedule="async",
                    caps=tuple(in_flight_caps(len(devices), aware, ceiling).tolist()),
                    micro_batches=M,
                )
        raise self.refusal(
            *at,
            f"its {len(present)} devices cannot hold the {problem.numbers.blocks} blocks with a second copy "
            "of their weights and the activations of even one micro-batch in flight: no plan exists. Give "
            "devices more memory, or a smaller batch_size",
        )
