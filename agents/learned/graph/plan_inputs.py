"""Second inputs of the graph net: a cluster's chain under its own segments.

Powers, micro-batches and shares depend on the segments, so they are decided afterwards: from the tokens, and
from the neighbours of every node in the chain, its hops to them, and the times of the stages.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapipe_env.ground.arrays import Array, IntArray, exp, log, namespace
from collapipe_env.ground.compiled import compiled, jitable

from .net_inputs import HOP_SHIFT, NetInputs

NODE_INPUTS, CHAIN_INPUTS = 13, 9
USUAL_MICRO_BATCHES = 16.0
"""Micro-batches for which chains of different clusters are compared."""
LEAST_STAGE = 0.01
"""Added to the time of a stage before its logarithm, in ideal times of the system."""


class PlanInputs(NamedTuple):
    """Inputs of the net from its own segments; leading batch axes ``...``.

    Times are those of a round, in ideal times of the system; hops are at the reference power.

    Attributes:
        node: Inputs of each device (..., N, K, NODE_INPUTS).
        chain: Inputs of each cluster's chain (..., N, CHAIN_INPUTS).
    """

    node: Array
    chain: Array


@jitable
def neighbours(counts: IntArray, ahead: IntArray, behind: IntArray) -> None:
    """Write the next and the previous node of the chain for every node of a cluster.

    An idle device's neighbours are the nodes between which it would stand; the CU's are the chain's ends.

    Args:
        counts: Blocks of the devices (K,).
        ahead: Receives the next nodes (K+1,), 0 for the CU.
        behind: Receives the previous nodes (K+1,).
    """
    last = following = 0
    for k in range(1, len(counts) + 1):
        behind[k] = last
        if counts[k - 1] > 0:
            last = k
    for k in range(len(counts), 0, -1):
        ahead[k] = following
        if counts[k - 1] > 0:
            following = k
    ahead[0], behind[0] = following, last


@compiled
def all_neighbours(counts: IntArray, ahead: IntArray, behind: IntArray) -> None:
    """Write the neighbours of many clusters; arguments as for :func:`neighbours`, with a leading axis."""
    for c in range(len(counts)):
        neighbours(counts[c], ahead[c], behind[c])


@jitable
def node_columns(
    count: Array,
    stage: Array,
    hop_ahead: Array,
    hop_behind: Array,
    snr_ahead: Array,
    snr_behind: Array,
    longest_stage: Array,
    all_stages: Array,
    stages: Array,
    mean_blocks: Array,
    longest_hop: Array,
    all_hops: Array,
    slower: Array,
) -> tuple[Array, ...]:
    """Second inputs of a device.

    Args:
        count: Its blocks.
        stage: Time of its stage.
        hop_ahead: The net's input for the time of its hop to the next node.
        hop_behind: The same for its hop to the previous node.
        snr_ahead: The net's input for the SNR of its hop to the next node.
        snr_behind: The same for its hop to the previous node.
        longest_stage: Time of its cluster's longest stage.
        all_stages: Sum of the times of the stages.
        stages: Number of stages.
        mean_blocks: Blocks of a device of its cluster on average.
        longest_hop: Time of its cluster's longest hop.
        all_hops: Sum of the times of the hops.
        slower: Log of the time of its cluster's chain, less the mean over clusters.
    """
    return (
        count / mean_blocks,
        log(stage + LEAST_STAGE),
        hop_ahead,
        hop_behind,
        snr_ahead,
        snr_behind,
        log(longest_stage),
        log(all_stages),
        log(stages),
        stage / longest_stage,
        log(longest_hop),
        log(all_hops),
        slower,
    )


@jitable
def chain_columns(
    longest_stage: Array,
    all_stages: Array,
    stages: Array,
    longest_hop: Array,
    all_hops: Array,
    hop_first: Array,
    hop_last: Array,
    snr_first: Array,
    slower: Array,
) -> tuple[Array, ...]:
    """Second inputs of a cluster.

    Args:
        longest_stage: Time of its longest stage.
        all_stages: Sum of the times of the stages.
        stages: Number of stages.
        longest_hop: Time of its longest hop.
        all_hops: Sum of the times of the hops.
        hop_first: The net's input for the time of the first hop.
        hop_last: The same for the last hop.
        snr_first: The net's input for the SNR of the first hop.
        slower: Log of the time of the chain, less the mean over clusters.
    """
    return (
        log(longest_stage),
        log(all_stages),
        log(stages),
        log(longest_hop),
        log(all_hops),
        hop_first,
        hop_last,
        snr_first,
        slower,
    )


@jitable
def pipeline_time(total: Array, longest: Array, micro_batches: Array) -> Array:
    """Time of a pipeline, from its elements' times for the whole mini-batch.

    Args:
        total: Sum of the elements' times.
        longest: The longest element's time.
        micro_batches: ``M``.
    """
    return (total + (micro_batches - 1.0) * longest) / micro_batches


def plan_inputs(inputs: NetInputs, counts: IntArray) -> PlanInputs:
    """Second inputs of the net, in any array library.

    Args:
        inputs: The net's first inputs (...).
        counts: Blocks of the devices (..., N, K), a NumPy array.
    """
    xp = namespace(inputs.device)
    shape = (*counts.shape[:-1], counts.shape[-1] + 1)
    ahead, behind = np.empty(shape, np.int64), np.empty(shape, np.int64)
    flat = (-1, shape[-1])
    all_neighbours(counts.reshape(-1, counts.shape[-1]), ahead.reshape(flat), behind.reshape(flat))

    def hop_to(nodes: IntArray) -> tuple[Array, Array]:
        where = xp.asarray(nodes)[..., None]
        one = [xp.take_along_axis(inputs.hop[..., i], where, axis=-1)[..., 0] for i in range(2)]
        return one[0], one[1]

    (time_ahead, snr_ahead), (time_behind, snr_behind) = hop_to(ahead), hop_to(behind)
    real = xp.astype(xp.asarray(counts), inputs.device.dtype)
    active = xp.astype(real > 0.0, real.dtype)
    stage = real * exp(inputs.device[..., 1])
    sends = xp.concat((xp.ones_like(active[..., :1]), active), axis=-1)
    hops = sends * exp(time_ahead - HOP_SHIFT)
    longest_stage, longest_hop = xp.max(stage, axis=-1), xp.max(hops, axis=-1)
    all_stages, all_hops = xp.sum(stage, axis=-1), xp.sum(hops, axis=-1)
    stages = xp.sum(active, axis=-1)
    total, longest = all_stages + all_hops, xp.maximum(longest_stage, longest_hop)
    chain_s = log(pipeline_time(total, longest, USUAL_MICRO_BATCHES))
    slower = chain_s - xp.mean(chain_s, axis=-1)[..., None]
    each = (..., None)
    node = node_columns(
        real, stage, time_ahead[..., 1:], time_behind[..., 1:], snr_ahead[..., 1:], snr_behind[..., 1:],
        longest_stage[each], all_stages[each], stages[each], inputs.mean_blocks[each],
        longest_hop[each], all_hops[each], slower[each],
    )  # fmt: skip
    ends = (time_ahead[..., 0], time_behind[..., 0], snr_ahead[..., 0], slower)
    chain = chain_columns(longest_stage, all_stages, stages, longest_hop, all_hops, *ends)
    return PlanInputs(
        node=xp.stack([xp.broadcast_to(column, real.shape) for column in node], axis=-1),
        chain=xp.stack(chain, axis=-1),
    )
