"""FlexPipe (arXiv 2510.05112): an automated search in a space of pipeline schedules, every round.

Stated by the public abstract (``algorithms.md`` 4.5): a succinct language that controls in which order
micro-batches are computed over the stages, and a low-cost automated search over many types of schedules.
Neither the grammar nor the search is public (and other systems are also called FlexPipe). The equivalent
here is a reconstruction ([R]): a schedule is a tuple of device map, chunks, caps, split backward pass,
breadth- or depth-first order and number of micro-batches; GPipe, 1F1B, interleaved 1F1B and ZB-H1 are points
of that space (:mod:`~.planning.schedule_space`). Ours ([X]):

* the notation, e.g. ``1f1b k=link v=1 m=16``; the space to search may be given in it;
* a deterministic beam search (:func:`~.planning.schedule_space.search`): sets of devices with
  a balanced partition each, then schedules on the best of them, then single changes of boundaries, devices,
  schedule and micro-batches until none is quicker;
* caps follow rules and are lowered to what the memories allow; plans that do not fit are pruned;
* plans are priced by the simulator's exact time, overheads and latencies included.

Micro-batches go through the chain in one direction only: V-shapes and bidirectional schedules are left out,
because the simulator's chain cannot express them. Equal bandwidth and full power; queues are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from collapipe_env.ground.errors import AllocationError
from collapipe_env.scenario import Scenario

from .planning.chain_problem import ChainProblem
from .planning.plan_search import PlanSearch, micro_batch_options
from .planning.schedule_space import ScheduleTuple, Space, search
from .planning.scheduled_plan import ScheduledPlan

DEFAULT_SCHEDULES = (
    "gpipe",
    "1f1b k=ordinary",
    "1f1b k=link",
    "1f1b k=room",
    "zb-h1 k=ordinary",
    "zb-h1 k=link",
    "interleaved k=ordinary v=2",
)
"""The space that is searched by default."""


class FlexPipe(PlanSearch):
    """The quickest schedule, device map and partition that a beam search finds for each cluster.

    Args:
        schedules: The space, in the notation of :mod:`~.planning.schedule_space`.
        micro_batches: Wanted number of micro-batches for schedules that name none; the nearest allowed one
            is used. ``None`` to choose among all, or without overheads among the largest few and the even
            split's.
        beam: Plans that the search follows at a time.

    Raises:
        AllocationError: If a schedule cannot be read, splits the mini-batch into a number that is not allowed
            or names devices that no cluster has; or an option is out of range.
    """

    name = "FlexPipe"

    def __init__(
        self,
        scenario: Scenario,
        *,
        schedules: Sequence[str] = DEFAULT_SCHEDULES,
        micro_batches: int | None = None,
        beam: int = 2,
    ) -> None:
        if beam < 1:
            raise AllocationError(f"beam = {beam}: the search follows 1 plan at least")
        if not schedules or isinstance(schedules, str):
            raise AllocationError(f"schedules = {schedules!r}: give a list of at least one, as in ['1f1b']")
        super().__init__(scenario)
        self.beam = beam
        choices, most = self.parameters.micro_batch_choices, scenario.max_devices
        self._space = Space.of(schedules, micro_batch_options(self.parameters, micro_batches))
        for schedule in self._space.schedules:
            M, devices, named = schedule.micro_batches, schedule.devices, f"schedule {str(schedule)!r}"
            if M is not None and M not in choices:
                raise AllocationError(f"{named}: m={M} is not allowed, use one of {list(choices)}")
            if devices is not None and max(devices) >= most:
                raise AllocationError(f"{named}: clusters have {most} devices at most, 0..{most - 1}")

    def search(self, problem: ChainProblem) -> ScheduledPlan:
        """The quickest plan found; refused where no plan of the space fits."""
        return search(problem, self._space, self.beam).plan

    def schedule_of(self, plan: ScheduledPlan) -> ScheduleTuple:
        """The point of the space that a plan stands for, with nothing left open."""
        origin = self._space.schedules[plan.origin]
        return replace(origin, micro_batches=plan.micro_batches, devices=plan.devices)
