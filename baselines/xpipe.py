"""XPipe (Guan et al., arXiv 1911.04610): an asynchronous pipeline with weight prediction.

Stated by the public abstract (``algorithms.md`` 4.4): micro-batches of different mini-batches are in the pipe
at once, so it is not flushed between them, and the weights of a stage are predicted, to counter the
inconsistency and staleness that this causes. Reconstructed ([R]): 1F1B order with ``K_k = P - k``
micro-batches in flight, prediction over ``ceil((K_k - 1) / M)`` steps by the optimiser's own rule (a learner
that trains a model does that), and one more copy of a stage's weights in memory.

Ours ([X]):

* the ``H`` mini-batches of a round run without a flush; there is one before the clusters' models are
  averaged. With ``H = 1``, the default of the shipped scenarios, no asynchrony is left: XPipe is then 1F1B
  that pays for one more copy of the weights;
* the server is the last of the ``P`` stages. It and its head are as in every plan: one mini-batch's update
  after the other, no prediction;
* XPipe takes the partition as given. Here every set of devices, visited in index order, gets the partition
  with the fastest slowest stage that memory allows, and the set with the least exact time of a round wins
  (of more than ten devices not all sets are tried). Links count in the choice of devices, not in the
  partition;
* ``link_aware`` also plans with links counted as stages, and takes the faster plan: ``K_k`` is then the
  number of elements from the stage to the server, ``2 (S - k) + 2`` with ``S`` device stages. On slow links
  that keeps devices busy; where memory is scarce it costs them blocks;
* where no partition fits the memories, a ceiling for all ``K_k`` is lowered until one does;
* launches count in the partition, all overheads, latencies and updates in the time of a round. ``M`` is an
  input.

Queues are ignored.
"""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.errors import AllocationError
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.even_split import REFERENCE_MICRO_BATCHES, nearest_choice

from .planning.chain_problem import ChainProblem
from .planning.plan_search import PlanSearch, device_sets, quickest
from .planning.scheduled_plan import ScheduledPlan, caps_of


def in_flight_caps(stages: int, link_aware: bool, ceiling: int) -> tuple[int, ...]:
    """``K_k`` of the device stages (S,), at most the ceiling; the server is one more stage behind them."""
    caps = caps_of("link" if link_aware else "ordinary", "async", stages)
    return tuple(min(cap, ceiling) for cap in caps)


class XPipe(PlanSearch):
    """A pipeline without a flush between mini-batches; equal bandwidth, full power and fixed ``M``.

    Args:
        micro_batches: Wanted number of micro-batches, by default the even split's; the nearest allowed one is
            used.
        link_aware: Also try to count links as stages when allowing micro-batches in flight.
    """

    name = "XPipe"

    def __init__(
        self,
        scenario: Scenario,
        *,
        micro_batches: int = REFERENCE_MICRO_BATCHES,
        link_aware: bool = False,
    ) -> None:
        super().__init__(scenario)
        self.micro_batches = nearest_choice(self.parameters.micro_batch_choices, micro_batches)
        self.link_aware = link_aware

    def search(self, problem: ChainProblem) -> ScheduledPlan:
        """The set with the least time; with the rule's own caps where memory allows."""
        present, M = np.flatnonzero(problem.memory_bytes).tolist(), self.micro_batches
        sets = device_sets(problem, present)
        highest = 2 * len(present) + 2
        for ceiling in (highest, *range(min(highest, M * self.parameters.costs.local_steps) - 1, 0, -1)):
            # On ties the plan without link-aware caps wins.
            drafts = [
                ScheduledPlan(devices, (), "async", in_flight_caps(len(devices), aware, ceiling), M)
                for aware in ((False, True) if self.link_aware else (False,))
                for devices in sets
            ]
            for found in quickest(problem, drafts):
                return found.plan
        raise AllocationError(
            f"its {len(present)} devices cannot hold the {problem.numbers.blocks} blocks with a second copy "
            "of their weights and the activations of even one micro-batch in flight: no plan exists. Give "
            "devices more memory, or a smaller batch_size",
        )
