"""VanillaFL: federated learning without a pipeline, every device trains the whole encoder.

CollaPipe's evaluation names VanillaFL as a baseline without details that are public to us. Its form here is
the field's standard one ([R], ``algorithms.md`` section 6) fitted into a cluster ([X],
``system_model.md`` section 4): one stage whose group is all devices of the cluster. The CU deals out its
mini-batch, devices process their shares in parallel, a ring all-reduce averages their gradients in every
local step, and the lead device sends the encoder to the CU. The decoder stays on the server, as in all
plans of this system, so activations and gradients also cross the CU and the uplink.
"""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.memory import samples_beside
from collapipe_env.simulator.state import SystemState

from .planning.plan_baseline import PlanBaseline


def data_shares(largest: FloatArray) -> FloatArray:
    """Shares of the mini-batch under memory limits.

    The largest group whose members can all take an equal share gets it; the others are left out. Where
    not even one such group exists, all devices take part with equal shares cut to what each can hold,
    the rest going to those with room.

    Args:
        largest: Largest share that each device's memory allows (..., K); at most 0 where not even the
            weights fit.

    Returns:
        Shares (..., K), 0 for devices left out; they sum to 1, or to less where ``largest`` does.
    """
    K = largest.shape[-1]
    largest = np.clip(largest, 0.0, 1.0)
    order = np.argsort(-largest, axis=-1, stable=True)
    ordered = np.take_along_axis(largest, order, axis=-1)
    count = np.arange(1, K + 1)
    # The k devices with most room can take 1 / k each if the k-th of them can.
    size = np.where(ordered * count >= 1.0, count, 0).max(axis=-1, keepdims=True)
    rank = np.argsort(order, axis=-1, stable=True)
    equal = np.where(rank < size, 1.0 / np.maximum(size, 1), 0.0)

    # Fill up from the smallest: the level at which those not yet full share what the full ones left.
    ascending = ordered[..., ::-1]
    level = (1.0 - (np.cumsum(ascending, axis=-1) - ascending)) / count[::-1]
    reached = level <= ascending
    first = np.where(reached.any(axis=-1), reached.argmax(axis=-1), K - 1)[..., None]
    filled = np.minimum(largest, np.take_along_axis(level, first, axis=-1))
    return np.where(size > 0, equal, filled)


class VanillaFL(PlanBaseline):
    """Data-parallel training of the whole encoder in every cluster; equal bandwidth and full power.

    The CU's data are dealt out evenly: device ``k`` of a group of ``g`` has the share ``1 / g``. A device
    must hold the weights, gradients and moments of all ``L`` blocks and the activations of its share. Devices
    that cannot are left out and counted by :meth:`left_out`; the remaining shares grow, so the group is the
    largest one that fits. Memory pressure is thus relieved by smaller shares; activations are not recomputed.
    In the shipped scenarios all devices fit. Where no group fits with even shares, they become uneven (see
    :func:`data_shares`). The scheduler refuses a state only if a cluster's devices together cannot hold a
    mini-batch.

    Channels and queues are ignored. Micro-batches let the transfers between the CU, the group and the
    server overlap with computing; ``micro_batches=1`` switches that off.
    """

    name = "VanillaFL"

    def allocate(self, state: SystemState) -> Allocation:
        """Decide one round; refuses states in which a cluster cannot hold the encoder and a mini-batch."""
        share = self.shares(state)
        blocks = np.zeros(share.shape, dtype=np.int64)
        blocks[..., 0] = self.parameters.costs.blocks
        return self.with_defaults(blocks, stage=np.where(share > 0.0, 0, -1), share=share)

    def shares(self, state: SystemState) -> FloatArray:
        """Each device's share of the mini-batch (E, N, K), 0 for devices left out.

        Raises:
            AllocationError: If the devices of some cluster together cannot hold the encoder and a mini-batch.
        """
        costs = self.parameters.costs
        # All blocks in one stage: the working set of one of them counts as a part of what each stores.
        working = costs.working_bytes / (self.micro_batches * costs.blocks)
        sample_bytes = costs.stored_activation_bytes + working
        batch_bytes = costs.batch_size * sample_bytes
        memory = np.asarray(state.memory_bytes, dtype=np.float64)
        samples = samples_beside(memory, costs.blocks, costs.block_state_bytes, sample_bytes)
        share = data_shares(np.where(state.present, samples / costs.batch_size, 0.0))
        short = share.sum(axis=-1) < 1.0 - 1e-9
        if short.any():
            e, n = np.argwhere(short)[0]
            raise self.refusal(
                e,
                n,
                "every device needs "
                f"{costs.blocks * costs.block_state_bytes:.4g} bytes for the whole encoder and all together "
                f"{costs.blocks * batch_bytes:.4g} for the activations of a mini-batch; the memories hold "
                f"{100.0 * share[e, n].sum():.0f} % of a mini-batch. Give devices more memory, or a smaller "
                "batch_size",
            )
        return share

    def left_out(self, state: SystemState) -> IntArray:
        """Number of present devices in each cluster that cannot take part (E, N); see :meth:`shares`."""
        idle: BoolArray = state.present & (self.shares(state) == 0.0)
        count: IntArray = idle.sum(axis=-1, dtype=np.int64)
        return count
