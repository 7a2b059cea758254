"""All blocks on the best device: a simple control without any cooperation (ours, [X])."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import IntArray
from collapipe_env.simulator.state import SystemState

from .planning.plan_baseline import SegmentBaseline, fill_in_order


class BestSingleDevice(SegmentBaseline):
    """All blocks on the fastest device of a cluster; what its memory cannot hold goes to the next fastest.

    In the shipped scenarios larger than ``small`` no device can hold the whole encoder, so several
    devices work there. Channels and queues are ignored. Among equally fast devices the lower index is first.
    """

    name = "Best device"

    def segments(self, state: SystemState, cap: IntArray) -> IntArray:
        """See :meth:`SegmentBaseline.segments`."""
        present = np.where(state.present, state.speed, 0.0)
        order = np.argsort(-present, axis=-1, stable=True).astype(np.int64)
        return fill_in_order(self.parameters.costs.blocks, order, cap)
