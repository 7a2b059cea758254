"""Baselines with a fixed number of micro-batches, and common defaults for everything a system leaves open.

These are equal bandwidth, full power and the even split's number of micro-batches, so any difference in delay
from the even split is due to what the system decides.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import StateScheduler
from collapipe_env.simulator.even_split import REFERENCE_MICRO_BATCHES, equal_resources, nearest_choice
from collapipe_env.simulator.refusal import require_room
from collapipe_env.simulator.state import SystemState


class PlanBaseline(StateScheduler):
    """A scheduler that decides who holds what; equal bandwidth, full power and fixed ``M``.

    Args:
        micro_batches: Wanted number of micro-batches; the nearest allowed one is used, the larger of two
            equally near. By default the class's own.
    """

    default_micro_batches: ClassVar[int] = REFERENCE_MICRO_BATCHES
    """Wanted number of micro-batches unless another is given."""

    def __init__(self, scenario: Scenario, *, micro_batches: int | None = None) -> None:
        super().__init__(scenario)
        wanted = self.default_micro_batches if micro_batches is None else micro_batches
        self.micro_batches = nearest_choice(self.parameters.micro_batch_choices, wanted)

    def with_defaults(
        self, blocks: IntArray, *, stage: IntArray | None = None, share: FloatArray | None = None
    ) -> Allocation:
        """Allocation of a partition with the common defaults.

        Args:
            blocks: Blocks of each stage slot (..., N, K).
            stage: Slot of each device (..., N, K), -1 for none; ``None`` for one device per stage.
            share: Each device's share of its stage's samples (..., N, K), with ``stage``.
        """
        return Allocation(
            blocks=blocks,
            micro_batches=np.full(blocks.shape[:-1], self.micro_batches, dtype=np.int64),
            **equal_resources(self.parameters, blocks.shape),
            stage=stage,
            sample_share=share,
        )


class SegmentBaseline(PlanBaseline):
    """A baseline that chooses segments, one device per stage, within the memory caps of GPipe."""

    def allocate(self, state: SystemState) -> Allocation:
        """Decide one round; refuses states in which a cluster's devices cannot hold the encoder."""
        cap = np.where(state.present, state.memory_cap, 0).astype(np.int64)
        require_room(cap, self.parameters.costs.blocks)
        return self.with_defaults(self.segments(state, cap))

    @abstractmethod
    def segments(self, state: SystemState, cap: IntArray) -> IntArray:
        """Blocks of each device (E, N, K), summing to ``L`` in each cluster.

        Args:
            cap: Blocks that each device can hold (E, N, K), 0 for absent ones; ``L`` or more in each cluster.
        """


def fill_in_order(total: int, order: IntArray, caps: npt.NDArray[np.integer]) -> IntArray:
    """Blocks of devices (..., K), filled to their caps (..., K) in an order of their indices (..., K)."""
    sorted_caps = np.take_along_axis(np.asarray(caps, dtype=np.int64), order, axis=-1)
    before = np.cumsum(sorted_caps, axis=-1) - sorted_caps
    taken: IntArray = np.clip(total - before, 0, sorted_caps)
    blocks = np.zeros_like(taken)
    np.put_along_axis(blocks, order, taken, axis=-1)
    return blocks
