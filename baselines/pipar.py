"""PiPar (Zhang et al., JPDC 2024, arXiv 2302.12803; formerly PipeLearn): split training with a pipeline.

Stated by the public abstract and by the authors' public code (blessonvar/PipeLearn): the model is split
between a client and the server, which has a replica for every client; client and server models are averaged
at a set frequency. A mini-batch is cut into parallel batches. The client runs the forward passes of all of
them one after another and then the backward passes; the server runs forward and backward pass of a batch as
soon as it has arrived and sends its gradient back at once. Uplink, downlink, client and server thus work
at the same time. Split point and number of batches are selected from profiled times before the training: the
code tries every split point, computes for each a number of batches with which the gradients of the first
batch are back when the last forward pass ends, estimates the time from the graph of dependencies and keeps
the fastest pair.

Here ([R], [X]): that timetable is the schedule ``1f1b`` with room for all ``M`` micro-batches at the device,
and the device's memory must hold the activations of the whole mini-batch, as under GPipe. The selection is
repeated in every round for the channels and speeds of the moment and is exact: all split points and all
allowed numbers of micro-batches are priced by the simulator, so it is never slower than the pair that the
authors' rule would choose among them (their code also keeps at least two samples in a batch; here the
scenario's list decides). Averaging comes at the end of the round. How clients are mapped to clusters, what
the server is charged for and why **the delays are not on equal terms with DSSRA's** is explained in
:mod:`.planning.split_training`. Queues of the energy budgets are ignored.
"""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import IntArray
from collapipe_env.physics.allocation import Allocation, with_schedule

from .planning.split_training import SplitTraining


class PiPar(SplitTraining):
    """Split point and number of micro-batches of every cluster, jointly the best for the round."""

    name = "PiPar"

    def plan(self, cut: IntArray, device: IntArray, micro_batches: IntArray, server_mode: int) -> Allocation:
        """The allocation of given cuts in PiPar's timetable; see :meth:`SplitTraining.plan`."""
        plain = super().plan(cut, device, micro_batches, server_mode)
        return with_schedule(plain, "1f1b", np.where(plain.blocks > 0, plain.micro_batches[..., None], 0))
