"""PipeEdge (Hu et al., arXiv 2110.14895; partitioner of the public code usc-isi/PipeEdge), for training.

From the public code (``algorithms.md`` 4.1): a dynamic programme over contiguous layers and used devices
that minimises the slowest stage or hop; only stages that fit a device's memory are considered and not all
devices need be used. PipeEdge plans the *inference* throughput of a pipeline. Ours ([R], [X]):

* training: a stage costs its forward plus backward time, a hop its activations plus gradients, and memory
  holds weights, gradients, moments and all activations of the mini-batch (GPipe);
* "layers" are whole encoder blocks, the segments of this system, rather than quarters of them;
* devices have speeds and links of their own, so every device is a type of its own. Stages visit the
  devices in index order, as all CollaPipe plans do; for that order the programme is exact. The public code
  may also permute devices, which needs a state for every subset of them;
* the hops from and to the CU count, because the data and the decoder's uplink are there;
* of equally slow plans the one with the least total time is taken (the public code keeps the first found).

Fill and drain of the pipeline are ignored by design; the round is charged with them.
"""

from __future__ import annotations

import numpy as np

from collapipe_env.arrays import FloatArray, IntArray
from collapipe_env.compiled import compiled
from collapipe_env.simulator.state import SystemState

from .planning.chain_problem import chain_problems
from .planning.plan_baseline import SegmentBaseline


@compiled
def slowest_element(total: int, cap: IntArray, block_s: FloatArray, hop_s: FloatArray) -> float:
    """Least time of the slowest stage or hop over all plans in index order, exact, ``O(K^2 L^2)``.

    Args:
        total: ``L``.
        cap: Blocks that each device can hold (K,).
        block_s: Time of a block on each device (K,) [s].
        hop_s: Time of a hop (K+1, K+1) [s]; node 0 is the CU, device ``k`` is node ``k + 1``.

    Returns:
        Seconds; infinity if the devices cannot hold the blocks.
    """
    devices = cap.shape[0]
    # slowest[l, v]: least maximum over plans of the first l blocks whose last node is v.
    slowest = np.full((total + 1, devices + 1), np.inf)
    slowest[0, 0] = 0.0
    answer = np.inf
    for node in range(1, devices + 1):
        for after in range(1, total + 1):
            for blocks in range(1, min(cap[node - 1], after) + 1):
                stage = blocks * block_s[node - 1]
                for before in range(node):
                    value = max(max(slowest[after - blocks, before], hop_s[before, node]), stage)
                    slowest[after, node] = min(slowest[after, node], value)
        answer = min(answer, max(slowest[total, node], hop_s[node, 0]))
    return answer


@compiled
def quickest_within(
    total: int, cap: IntArray, block_s: FloatArray, hop_s: FloatArray, limit_s: float
) -> IntArray:
    """Plan with the least sum of stage and hop times of which none is slower than a limit, exact.

    Args:
        total: ``L``.
        cap: Blocks that each device can hold (K,).
        block_s: Time of a block on each device (K,) [s].
        hop_s: Time of a hop (K+1, K+1) [s].
        limit_s: No stage and no hop may last longer [s].

    Returns:
        Blocks of each device (K,); zeros if there is no such plan.
    """
    devices = cap.shape[0]
    least = np.full((total + 1, devices + 1), np.inf)
    chosen = np.zeros((total + 1, devices + 1), dtype=np.int64)
    previous = np.zeros((total + 1, devices + 1), dtype=np.int64)
    least[0, 0] = 0.0
    best, last = np.inf, 0
    for node in range(1, devices + 1):
        for after in range(1, total + 1):
            for blocks in range(1, min(cap[node - 1], after) + 1):
                stage = blocks * block_s[node - 1]
                if stage > limit_s:
                    break
                for before in range(node):
                    if hop_s[before, node] > limit_s:
                        continue
                    value = least[after - blocks, before] + hop_s[before, node] + stage
                    if value < least[after, node]:
                        least[after, node] = value
                        chosen[after, node] = blocks
                        previous[after, node] = before
        if hop_s[node, 0] <= limit_s and least[total, node] + hop_s[node, 0] < best:
            best, last = least[total, node] + hop_s[node, 0], node
    segments = np.zeros(devices, dtype=np.int64)
    placed = total
    while last > 0:
        segments[last - 1] = chosen[placed, last]
        placed, last = placed - chosen[placed, last], previous[placed, last]
    return segments


class PipeEdge(SegmentBaseline):
    """The partition with the fastest bottleneck for the speeds and channels of the moment; no queues.

    Args:
        scenario: The scenario to schedule.
        micro_batches: Wanted number of micro-batches; the nearest allowed one is used.
    """

    name = "PipeEdge"

    def segments(self, state: SystemState) -> IntArray:
        """See :meth:`SegmentBaseline.segments`."""
        total = self.parameters.costs.blocks
        blocks = np.zeros(state.present.shape, dtype=np.int64)
        # Times of a whole mini-batch: those of a micro-batch are 1 / M of them, for every plan alike.
        caps = np.where(state.present, state.memory_cap, 0).astype(np.int64)
        for at, problem in chain_problems(self.parameters, state).items():
            block_s = problem.times.block_forward + problem.times.block_backward
            hop_s = problem.times.hop_forward + problem.times.hop_backward
            limit_s = slowest_element(total, caps[at], block_s, hop_s)
            blocks[at] = quickest_within(total, caps[at], block_s, hop_s, limit_s)
        return blocks
