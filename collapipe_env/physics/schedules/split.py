"""The server's side of a round: its head, and under split training the encoder's last blocks ([R], [X]).

SplitFed V1 and PiPar keep a server-side model for every cluster; SplitFed V2 has one, which serves the
clusters one after another (`algorithms.md` section 6). CollaPipe's own server keeps a head for every
cluster within a round, or one that steps once in each local step with the gradients of all clusters.
"""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import Array, namespace
from collapipe_env.physics.allocation import COMMON, SEQUENTIAL, Allocation
from collapipe_env.physics.elements import PipelineElements
from collapipe_env.physics.parameters import Parameters
from collapipe_env.physics.participation import waiting_steps
from collapipe_env.physics.workload import WorkloadCosts


def server_times(
    parameters: Parameters, allocation: Allocation, samples: Array, server_share: Array
) -> tuple[Array, Array]:
    """Forward pass and weight gradients of one micro-batch on the server, launches included (..., N) [s].

    Every cluster has its share of the speed that other tenants leave. A sequential server works for one
    cluster at a time, with all of that speed.

    Args:
        samples: Samples of a micro-batch ``b`` (..., N).
        server_share: Share of the server that tenants of varying load leave (...).
    """
    costs, launch = parameters.costs, parameters.overheads.server_s
    speed = parameters.server_share_flops * server_share[..., None]
    forward = samples * (costs.decoder_forward_flops / speed)
    weight = samples * (costs.decoder_weight_flops / speed)
    if not allocation.is_split:
        return forward + launch, weight + launch
    xp = namespace(samples)
    kept = xp.astype(allocation.server.server_blocks, samples.dtype)
    # Not a choice between two numbers: the array API standard requires an array among them.
    others = (1.0 - 1.0 / parameters.clusters) * xp.astype(
        allocation.server.server_mode == SEQUENTIAL, samples.dtype
    )
    alone = 1.0 - others[..., None]
    return (
        alone * (forward + samples * kept * (costs.block_forward_flops / speed)) + launch,
        alone * (weight + samples * kept * (costs.block_weight_flops / speed)) + launch,
    )


def update_payloads(costs: WorkloadCosts, allocation: Allocation) -> tuple[Array | float, Array | float]:
    """Bits that each cluster uploads (..., N) and that the base station broadcasts (...).

    Blocks that the server trains need no transfer; the broadcast carries the blocks that any cluster trains.
    A block that the server trains for some clusters only is broadcast densely: those clusters' updates of it
    were never compressed.
    """
    N = allocation.blocks.shape[-2]
    embedding, block = costs.embedding_broadcast_bits(N), costs.block_broadcast_bits(N)
    if not allocation.is_split:
        return costs.update_payload_bits, embedding + costs.blocks * block
    kept, most, least = _kept_and_extremes(allocation)
    return (
        costs.update_payload_bits - kept * costs.block_payload_bits,
        embedding + (costs.blocks - most) * block + (most - least) * costs.block_broadcast_bits(0),
    )


def _kept_and_extremes(allocation: Allocation) -> tuple[Array, Array, Array]:
    """Blocks that the server trains for each cluster (..., N), the most and the fewest of players (...)."""
    xp, plays = namespace(allocation.bandwidth), allocation.plays
    kept = xp.astype(allocation.server.server_blocks, allocation.bandwidth.dtype)
    most = xp.max(xp.where(plays, kept, xp.zeros_like(kept)), axis=-1)
    return kept, most, xp.min(xp.where(plays, kept, xp.zeros_like(kept) + most[..., None]), axis=-1)


def relay_payload(costs: WorkloadCosts, allocation: Allocation) -> Array:
    """Bits about a block's new state that a CU forwards to its owner (..., N, 1), a mean over its blocks.

    The mean matters only where the server trains a compressed block for some clusters and not for others:
    those blocks, the last ones of their owners, are broadcast densely.
    """
    block = costs.block_broadcast_bits(allocation.blocks.shape[-2])
    kept, most, _ = _kept_and_extremes(allocation)
    dense = (most[..., None] - kept) / (costs.blocks - kept)
    return (block + dense * (costs.block_broadcast_bits(0) - block))[..., None]


def paced_steps(allocation: Allocation, local_step: Array, steps: Array) -> Array:
    """Local steps that end together, when the slowest cluster's does (..., N) [s] ([X]).

    A common head steps with the gradients of all clusters, so no cluster begins the next local step earlier.
    Published split training has separate heads and does not wait.

    Args:
        local_step: ``T_step`` (..., N) [s].
        steps: Local steps of the clusters (..., N), real numbers.
    """
    xp = namespace(local_step)
    taken = xp.zeros_like(local_step) + steps
    taken = xp.where(allocation.plays, taken, xp.zeros_like(taken))
    # A mean of equal steps may round to less than one.
    longest = xp.maximum(waiting_steps(taken, local_step), local_step)
    return xp.where((allocation.server.server_mode == COMMON)[..., None], longest, local_step)


def split_steps(
    parameters: Parameters,
    allocation: Allocation,
    elements: PipelineElements,
    ending: Array,
    local_step: Array,
) -> Array:
    """Time of a local step where the server serves the clusters one after another (..., N) [s].

    Args:
        allocation: The plan, with split training; ``M = 1`` where the server is sequential.
        ending: All-reduce and update that end every local step (..., N) [s].
        local_step: The local step with the cluster's own server share, these included (..., N) [s].

    Returns:
        ``local_step``, replaced where the server is sequential.
    """
    xp, mode = namespace(local_step), allocation.server_mode
    if type(mode) is np.ndarray and not np.any(mode == SEQUENTIAL):
        return local_step  # the queue takes long to follow
    e = elements
    total = sequential_server_times(
        xp.sum(e.hop_forward, axis=-1) + xp.sum(e.compute_forward, axis=-1) + e.uplink + e.latency,
        e.server_forward + e.server_backward,
        xp.sum(e.hop_backward, axis=-1)
        + xp.sum(e.compute_backward, axis=-1)
        + e.downlink
        + e.latency
        + ending,
        parameters.costs.local_steps,
        allocation.plays,
    )
    sequential = xp.asarray(mode == SEQUENTIAL)[..., None]
    return xp.where(sequential, total / parameters.costs.local_steps, local_step)


def sequential_server_times(
    before: Array, service: Array, after: Array, local_steps: int, plays: Array
) -> Array:
    """Time in which each cluster does its local steps when all wait in one queue for the server.

    Each local step takes a cluster ``before`` to the server, where it is served first come, first served,
    and ``after`` back; then the next one begins (`algorithms.md` section 6).

    Args:
        before: Forward part of a local step on the devices and links (..., N) [s].
        service: Server's forward and backward pass, alone on the server (..., N) [s].
        after: Backward part of a local step (..., N) [s].
        local_steps: ``H`` >= 1.
        plays: Clusters that take part (..., N), bool. The others are never served.

    Returns:
        Time of all local steps (..., N) [s]; 0 for clusters that do not take part.
    """
    xp = namespace(before)
    N = before.shape[-1]
    device = getattr(before, "device", None)
    clusters = xp.arange(N, device=device)
    ready = before
    left = xp.astype(plays, xp.int64) * local_steps
    finished = xp.zeros_like(before)
    free = xp.zeros_like(before[..., :1])
    for _ in range(N * local_steps):
        waiting = xp.where(left > 0, ready, xp.inf)
        chosen = (clusters == xp.argmin(waiting, axis=-1, keepdims=True)) & (left > 0)
        arrival = xp.min(waiting, axis=-1, keepdims=True)
        taken = xp.sum(xp.where(chosen, service, 0.0), axis=-1, keepdims=True)
        free = xp.maximum(arrival, free) + taken
        finished = xp.where(chosen, free + after, finished)
        ready = xp.where(chosen, free + after + before, ready)
        left = left - xp.astype(chosen, left.dtype)
    return finished
