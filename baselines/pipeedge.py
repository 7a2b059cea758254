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
* among equally slow plans the one with the least total time wins (the public code keeps the first found);

* launches of a stage and overheads of messages count in stages and hops, for the given ``M``. A
  latency occupies no link, so it does not slow a stream of inferences down.

Fill and drain of the pipeline, latencies, the update at the end of a local step and what comes once in a
round (collection, upload, new weights) are ignored by design; the round is charged with them.
"""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import IntArray
from collapipe_env.simulator.state import SystemState

from .planning.block_partition import quickest_of_fastest
from .planning.chain_problem import chain_problems
from .planning.plan_baseline import SegmentBaseline


class PipeEdge(SegmentBaseline):
    """The partition with the fastest bottleneck for the current speeds and channels; no queues."""

    name = "PipeEdge"

    def segments(self, state: SystemState, cap: IntArray) -> IntArray:
        """See :meth:`SegmentBaseline.segments`."""
        blocks, total = np.zeros_like(cap), self.parameters.costs.blocks
        for at, problem in chain_problems(self.parameters, state).items():
            # Times of a whole mini-batch: those of a micro-batch are 1 / M of them, for every plan alike.
            blocks[at] = quickest_of_fastest(total, cap[at], *problem.both_ways(self.micro_batches))
        return blocks
