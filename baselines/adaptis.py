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

from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import StateScheduler
from collapipe_env.simulator.state import SystemState

from .planning.adaptis_search import search
from .planning.schedule_search import micro_batch_options, searched
from .planning.scheduled_plan import ScheduledPlan, allocation_of


class AdaPtis(StateScheduler):
    """A local optimum of the round's delay over partition, placement and schedule of each cluster.

    Args:
        micro_batches: Wanted number of micro-batches; the nearest allowed one is used. ``None`` to choose.
        restarts: Random starts of the search in addition to the usual one.

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

    def allocate(self, state: SystemState) -> Allocation:
        """Decide one round; restarts have a fixed seed."""
        return allocation_of(self.parameters, state, self.plans(state))

    def plans(self, state: SystemState) -> dict[tuple[int, int], ScheduledPlan]:
        """The plan of every environment and cluster; arguments and errors as for :meth:`act`."""
        found = searched(
            self.parameters, state, lambda problem: search(problem, self._options, self.restarts)
        )
        return {at: best.plan for at, best in found.items()}
