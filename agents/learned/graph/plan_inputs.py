"""Second inputs of the graph net: a cluster's chain under its own segments.

Powers, micro-batches and shares depend on the segments, so they are decided afterwards: from the tokens, and
from the neighbours of every node in the chain, its hops to them, and the times of the stages.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapipe_env.ground.arrays import Array, FloatArray, IntArray

from .net_inputs import HOP_SHIFT, NetInputs, as_columns

NODE_INPUTS, CHAIN_INPUTS = 13, 9
_USUAL_MICRO_BATCHES = 16.0
"""Micro-batches for which chains of different clusters are compared."""
_LEAST_STAGE = 0.01
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


def neighbours(counts: IntArray) -> tuple[IntArray, IntArray]:
    """The next and the previous node of the chain for every node (..., K+1), 0 for the CU.

    An idle device's neighbours are the nodes between which it would stand; the CU's are the chain's ends.

    Args:
        counts: Blocks of the devices (..., K).
    """
    K = counts.shape[-1]
    nodes = np.where(counts > 0, np.arange(1, K + 1), 0)
    behind = np.zeros((*counts.shape[:-1], K + 1), np.int64)
    ahead = np.zeros_like(behind)
    # The last active device up to k, and the first one from k on; 0 where there is none.
    last = np.maximum.accumulate(nodes, axis=-1)
    first = np.minimum.accumulate(np.where(nodes > 0, nodes, K + 1)[..., ::-1], axis=-1)[..., ::-1] % (K + 1)
    behind[..., 2:], behind[..., 0] = last[..., :-1], last[..., -1]
    ahead[..., :-1] = first
    return ahead, behind


def plan_inputs(inputs: NetInputs, counts: IntArray) -> PlanInputs:
    """Second inputs of the net.

    Args:
        inputs: The net's first inputs (...).
        counts: Blocks of the devices (..., N, K).
    """

    def hop_to(nodes: IntArray) -> tuple[FloatArray, FloatArray]:
        """The net's inputs for the time and for the SNR of each node's hop to another (..., N, K+1)."""
        found = np.take_along_axis(inputs.hop, nodes[..., None, None], axis=-2)[..., 0, :]
        return found[..., 0], found[..., 1]

    ahead, behind = neighbours(counts)
    (time_ahead, snr_ahead), (time_behind, snr_behind) = hop_to(ahead), hop_to(behind)
    active = counts > 0
    stage = counts * np.exp(inputs.device[..., 1])
    hops = np.exp(time_ahead - HOP_SHIFT)
    hops[..., 1:] *= active
    longest_stage, longest_hop = stage.max(axis=-1), hops.max(axis=-1)
    all_stages, all_hops = stage.sum(axis=-1), hops.sum(axis=-1)
    # Time of the pipeline, from its elements' times for the whole mini-batch.
    total, longest, M = all_stages + all_hops, np.maximum(longest_stage, longest_hop), _USUAL_MICRO_BATCHES
    chain_s = np.log((total + (M - 1.0) * longest) / M)
    slower = chain_s - chain_s.mean(axis=-1, keepdims=True)
    stages = np.log(active.sum(axis=-1))
    stage_times, hop_times = np.log((longest_stage, all_stages)), np.log((longest_hop, all_hops))
    node = (
        counts / inputs.mean_blocks[..., None],
        np.log(stage + _LEAST_STAGE),
        *(hop[..., 1:] for hop in (time_ahead, time_behind, snr_ahead, snr_behind)),
        *(x[..., None] for x in (*stage_times, stages)),
        stage / longest_stage[..., None],
        *(x[..., None] for x in (*hop_times, slower)),
    )
    ends = (time_ahead[..., 0], time_behind[..., 0], snr_ahead[..., 0])
    chain = (*stage_times, stages, *hop_times, *ends, slower)
    return PlanInputs(as_columns(counts.shape, node), as_columns(slower.shape, chain))
