"""FLOP-proportional split: a simple control that balances only the computing (ours, [X])."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import IntArray
from collapipe_env.physics.apportionment import apportion
from collapipe_env.simulator.state import SystemState

from .planning.plan_baseline import SegmentBaseline


class FlopProportional(SegmentBaseline):
    """Blocks in proportion to the devices' current speeds, within their memories.

    Channels and queues are ignored. Blocks are whole: the largest remainders get what is left over.
    """

    name = "FLOP-proportional"

    def segments(self, state: SystemState, cap: IntArray) -> IntArray:
        """See :meth:`SegmentBaseline.segments`."""
        weights = np.where(state.present, state.speed, 0.0)
        blocks: IntArray = apportion(self.parameters.costs.blocks, weights, cap)
        return blocks
