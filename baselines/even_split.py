"""PipeLine: the static pipeline that CollaPipe's evaluation compares with (our reading of it, [R])."""

from __future__ import annotations

from collapipe_env.physics.allocation import Allocation
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.state import SystemState

from .planning.plan_baseline import PlanBaseline


class PipeLine(PlanBaseline):
    """Even split over the devices present, a fixed number of micro-batches, equal bandwidth, full power.

    Channels and queues are ignored.
    """

    name = "PipeLine"

    def allocate(self, state: SystemState) -> Allocation:
        """Decide one round; see :meth:`StateScheduler.act`."""
        return even_split(self.parameters, state, self.micro_batches)
