"""Greedy drift plus penalty: blocks are placed one by one where they add least.

The idea (extend the current segment or open the next device, whichever adds less drift plus penalty) is an
additional control named in ``algorithms.md`` 1.1, not a published system ([X]); what is added up is our
reconstruction of the per-round objective, ``V T_n + sum z e`` of a cluster ([R]).
"""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.state import SystemState

from .planning.plan_baseline import SegmentBaseline

LEAST_WORTH = 0.02
"""Least weight of the delay with budgets per second, as a part of ``V``."""


class GreedyDPP(SegmentBaseline):
    """Greedy segments for the current queues, speeds and channels.

    The first block goes to the first device. Every further block extends the last segment or opens the next
    device, whichever gives the cheaper partial plan, closed by the hop to the CU, at the simulator's price of
    a GPipe round; on ties it extends the segment. Devices without memory are skipped. A device is opened only
    if it and the later ones can hold the rest, so the plan is always completed.

    Powers, bandwidth and micro-batches keep the common defaults. Every cluster weighs its own delay with the
    whole ``V``, as if it were the slowest one; with budgets per second, with ``V - sum z / T_ref``, as
    DSSRA's bound does, and with idle radios of a power ``P`` with ``sum z P / Ebar`` more. Where full power
    breaks a CU's budget (``medium``), that CU's queue grows without end and the segments spare its hops more
    and more, at the expense of the delay.
    """

    name = "Greedy DPP"

    def segments(self, state: SystemState, cap: IntArray) -> IntArray:
        """See :meth:`SegmentBaseline.segments`."""
        total, device = self.parameters.costs.blocks, np.arange(cap.shape[-1])
        room = np.cumsum(cap[..., ::-1], axis=-1)[..., ::-1]  # of each device and the later ones
        blocks, last = np.zeros_like(cap), (cap > 0).argmax(axis=-1)
        for placed in range(total):
            # The last segment's device and the next one with memory; the last one again where there is none.
            later = (device > last[..., None]) & (cap > 0) & (room >= total - placed)
            following = np.where(later.any(axis=-1) & (placed > 0), later.argmax(axis=-1), last)
            tried = [blocks + (device == k[..., None]) for k in (last, following)]
            price = self._price(state, np.stack(tried))
            full = np.take_along_axis(blocks >= cap, last[..., None], axis=-1)[..., 0]
            last = np.where(full | (price[1] < price[0]), following, last)
            blocks = blocks + (device == last[..., None])
        return blocks

    def _price(self, state: SystemState, blocks: IntArray) -> FloatArray:
        """``V T_n + sum z e`` of each cluster with some of its blocks placed (..., E, N)."""
        parameters, radio = self.parameters.without_idle_radios, self.parameters.radio_power
        costs = round_costs(parameters, state.map(lambda a: a[None]), self.with_defaults(blocks))
        left = np.zeros(len(state.present))
        if parameters.budget_period_s is not None:
            # A second grants every node of the system its part of a budget.
            queues = state.live_backlog.sum(axis=(-2, -1))
            if state.server_backlog is not None:
                queues = queues + state.server_backlog
            left = queues / parameters.budget_period_s
        if radio.idle_w > 0.0:
            # Every radio that is on uses a part of it again.
            left = left - radio.idle_w * (state.live_backlog / state.budget).sum(axis=(-2, -1))
        V = parameters.tradeoff_v
        worth = np.maximum(V - left, LEAST_WORTH * V)[:, None]
        # A wait for the other clusters says nothing about this one.
        delay = costs.cluster_delay - parameters.costs.local_steps * costs.barrier
        price: FloatArray = worth * delay + (state.live_backlog * costs.energy_ratio).sum(axis=-1)
        return price
