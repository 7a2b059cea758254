"""Memory-proportional split: a simple control that fills all memories to the same fraction (ours, [X])."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import IntArray
from collapipe_env.physics.apportionment import apportion
from collapipe_env.simulator.state import SystemState

from .planning.plan_baseline import SegmentBaseline


class MemoryProportional(SegmentBaseline):
    """Blocks in proportion to the memory that each device offers, and never more than fit.

    Speeds, channels and queues are ignored.
    """

    name = "Memory-proportional"

    def segments(self, state: SystemState, cap: IntArray) -> IntArray:
        """See :meth:`SegmentBaseline.segments`."""
        weights = np.where(state.present, state.memory_bytes, 0.0)
        blocks: IntArray = apportion(self.parameters.costs.blocks, weights, cap)
        return blocks
