"""Plans of partition, placement and schedule, caps by rule, and the resulting allocation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from collapipe_env.physics.allocation import SCHEDULES, Allocation, ScheduleName
from collapipe_env.physics.parameters import Parameters
from collapipe_env.simulator.even_split import equal_resources
from collapipe_env.simulator.state import SystemState

from .chain_problem import ChainProblem, PlanArrays, fits_memory, plan_of_row, plan_seconds

_KINDS = {name: kind for kind, name in enumerate(SCHEDULES)}

CapRule = Literal["ordinary", "link", "room"]
"""Ways of setting caps: as in data centres, with links counted as stages, or by the memories alone."""


class ScheduledPlan(NamedTuple):
    """One cluster's pipeline, or a draft of one, whose open split and caps the pricing settles.

    Attributes:
        devices: Device of each stage in pipeline order (S,), all different.
        held: Blocks of each stage (S,), >= 1; in a draft also empty, for the split whose slowest stage
            computes least.
        schedule: The schedule.
        caps: Its caps (S,), >= 1, not read under GPipe; in a draft the wanted ones, which are lowered to what
            the memories allow (not under ``interleaved``).
        micro_batches: ``M``.
        chunks: ``v``, 1 unless interleaved.
        origin: Place of the schedule that it is drafted from, in a space of schedules; not part of the plan.
    """

    devices: tuple[int, ...]
    held: tuple[int, ...]
    schedule: ScheduleName
    caps: tuple[int, ...]
    micro_batches: int
    chunks: int = 1
    origin: int = 0

    def seconds(self, problem: ChainProblem) -> float:
        """Relay, local steps and collection [s]; see :func:`~.chain_problem.plan_seconds`."""
        return plan_seconds(problem, self.arrays())

    def fits(self, problem: ChainProblem) -> bool:
        """Whether the devices have the memory for it."""
        return fits_memory(problem, self.arrays())

    def arrays(self) -> PlanArrays:
        """The plan as compiled code reads it."""
        return plan_of_row(np.array(self.row(len(self.devices))))

    def row(self, width: int) -> tuple[int, ...]:
        """The plan as :func:`~.chain_problem.plan_of_row` reads it, padded to a number of stages."""
        devices, held, schedule, caps, M, v, _ = self
        S, empty = len(devices), (0,) * (width - len(devices))
        return (S, _KINDS[schedule], v, M, *devices, *empty, *(held or (0,) * S), *empty, *caps, *empty)


@lru_cache(maxsize=4096)
def caps_of(
    rule: CapRule | int, schedule: ScheduleName, stages: int, chunks: int = 1, micro_batches: int = 1
) -> tuple[int, ...]:
    """Caps by rule for ``S`` device stages and the server after them (S,); ones for GPipe, which has none.

    Args:
        rule: ``ordinary``: the schedule's own warm-up, under 1F1B ``P - s`` with ``P = S + 1`` stages;
            ``link``: about twice that, so that each link and the CU's relay have a micro-batch on them
            (``algorithms.md`` 5.3); ``room``: ``M``, so that only memories limit them; a number: the same for
            all stages.
        micro_batches: ``M``, read under ``room``.
    """
    S, link = stages, rule == "link"
    if schedule == "gpipe":
        return (1,) * S
    if isinstance(rule, int) or rule == "room":
        return (rule if isinstance(rule, int) else micro_batches,) * S
    if schedule == "zb-h1":  # limits on what is stored: the same for all stages
        return (2 * S + 1 if link else S + 1,) * S
    if schedule == "interleaved":  # Megatron's warm-up and one more; the server adds nothing to wait for
        extra = (chunks - 1) * S + 1 + (S + 1 if link else 0)
        return tuple(2 * (S - s - 1) + extra for s in range(S))
    return tuple(2 * left + 2 if link else left + 1 for left in range(S, 0, -1))


def allocation_of(
    parameters: Parameters, state: SystemState, plans: Mapping[tuple[int, int], ScheduledPlan]
) -> Allocation:
    """The plans of all environments and clusters at full power and equal bandwidth.

    If every cluster visits its devices in index order, stages take the slots of their devices. Otherwise slot
    ``s`` is stage ``s``, and groups of one device tell which device that is.
    """
    shape, (E, N) = state.present.shape, state.uplink_gain.shape
    in_order = all(list(plan.devices) == sorted(plan.devices) for plan in plans.values())
    blocks, caps = np.zeros((2, *shape), dtype=np.int64)
    stage, share = np.full(shape, -1, dtype=np.int64), np.zeros(shape)
    schedule, chunks, micro_batches = np.zeros((3, E, N), dtype=np.int64)
    for at, plan in plans.items():
        devices = np.asarray(plan.devices)
        slots = devices if in_order else np.arange(len(devices))
        blocks[at][slots] = plan.held
        caps[at][slots] = plan.caps
        stage[at][devices] = slots
        share[at][devices] = 1.0
        schedule[at], chunks[at] = SCHEDULES.index(plan.schedule), plan.chunks
        micro_batches[at] = plan.micro_batches
    return Allocation(
        blocks=blocks,
        micro_batches=micro_batches,
        **equal_resources(parameters, shape),
        stage=None if in_order else stage,
        sample_share=None if in_order else share,
        schedule=schedule,
        caps=caps,
        chunks=chunks,
    )
