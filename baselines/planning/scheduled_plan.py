"""Plans of partition, placement and schedule, and the resulting allocation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from collapipe_env.ground.arrays import IntArray
from collapipe_env.physics.allocation import SCHEDULES, Allocation, ScheduleName
from collapipe_env.physics.parameters import Parameters
from collapipe_env.simulator.even_split import equal_resources
from collapipe_env.simulator.state import SystemState

from .chain_problem import ChainProblem, PlanArrays, fits_memory, plan_seconds


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
    """

    devices: tuple[int, ...]
    held: tuple[int, ...]
    schedule: ScheduleName
    caps: tuple[int, ...]
    micro_batches: int
    chunks: int = 1

    def seconds(self, problem: ChainProblem) -> float:
        """Relay, local steps and collection [s]; see :func:`~.chain_problem.plan_seconds`."""
        return plan_seconds(problem, self.arrays())

    def fits(self, problem: ChainProblem) -> bool:
        """Whether the devices have the memory for it."""
        return fits_memory(problem, self.arrays())

    def arrays(self) -> PlanArrays:
        """The plan as compiled code reads it."""
        devices, held, caps = (np.asarray(a, dtype=np.int64) for a in (self.devices, self.held, self.caps))
        kind = SCHEDULES.index(self.schedule)
        return PlanArrays(devices, held, kind, caps, self.chunks, self.micro_batches)


def ordinary_caps(stages: int) -> IntArray:
    """1F1B's usual caps, ``P - s`` with the server as the last of ``P = S + 1`` stages (S,)."""
    return np.arange(stages, 0, -1) + 1


def link_aware_caps(stages: int) -> IntArray:
    """Caps that also count links and the CU's relay as stages: ``2 (S - s) + 2`` (S,)."""
    return 2 * np.arange(stages, 0, -1) + 2


def allocation_of(
    parameters: Parameters, state: SystemState, plans: Mapping[tuple[int, int], ScheduledPlan]
) -> Allocation:
    """The plans of all environments and clusters at full power and equal bandwidth.

    If every cluster visits its devices in index order, stages take the slots of their devices. Otherwise slot
    ``s`` is stage ``s``, and groups of one device tell which device that is.

    Args:
        state: The system (E, ...).
        plans: A plan for every environment and cluster.
    """
    shape, (E, N) = state.present.shape, state.uplink_gain.shape
    in_order = all(list(plan.devices) == sorted(plan.devices) for plan in plans.values())
    blocks, caps = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    stage, share = np.full(shape, -1, dtype=np.int64), np.zeros(shape)
    schedule, chunks, micro_batches = (np.zeros((E, N), dtype=np.int64) for _ in range(3))
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
