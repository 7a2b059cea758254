"""What schedules and split training change in the costs of a round.

CollaPipe's own plans run GPipe and need none of this; see :mod:`collapipe_env.simulator.costs`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapipe_env.allocation import ASYNC, GPIPE, INTERLEAVED, SEQUENTIAL, ZERO_BUBBLE, Allocation
from collapipe_env.arrays import Array, namespace
from collapipe_env.physics.elements import PipelineElements
from collapipe_env.physics.links import HopTimes, PlanGraph
from collapipe_env.physics.schedules.sequential_server import sequential_server_times
from collapipe_env.physics.workload import WorkloadCosts
from collapipe_env.simulator.state import SystemParameters

IntArray = npt.NDArray[np.int64]

if TYPE_CHECKING:
    from collapipe_env.physics.schedules.makespans import Chains, Orders


def stored_micro_batches(allocation: Allocation, local_steps: int) -> npt.NDArray[np.float64]:
    """Micro-batches whose activations each stage slot has room for (..., N, K).

    GPipe ``M``; 1F1B ``min(K_s, M)``; async ``min(K_s, H M)``; ZB-H1 its limit; interleaved the chunks in
    flight, each counted as the largest of the stage (`algorithms.md` section 5.2). 0 in slots without blocks.

    Args:
        allocation: A plan that names schedules.
        local_steps: ``H``.
    """
    blocks, caps = np.asarray(allocation.blocks), np.asarray(allocation.caps)
    kind = np.asarray(allocation.schedule)[..., None]
    M = np.asarray(allocation.micro_batches)[..., None]
    v = np.asarray(allocation.chunks)[..., None]
    occupied = blocks > 0
    # What is in flight at a stage is in flight at every stage before it.
    running = np.minimum.accumulate(np.where(occupied, caps, np.iinfo(np.int64).max), axis=-1)
    chunk = np.where(occupied, -(-blocks // v) / np.maximum(blocks, 1), 0.0)
    stored = np.select(
        [kind == GPIPE, kind == ASYNC, kind == ZERO_BUBBLE, kind == INTERLEAVED],
        [
            M + 0.0 * blocks,
            np.minimum(running, local_steps * M),
            np.minimum(caps, M),
            np.minimum(running, M * v) * chunk,
        ],
        np.minimum(running, M),
    )
    return np.where(occupied, stored, 0.0)


def memory_terms(costs: WorkloadCosts, allocation: Allocation) -> tuple[Array | float, Array | float]:
    """Samples in flight at each device and bytes of a block's state there: what memory depends on.

    Args:
        costs: Priced workload.
        allocation: Any plan (...).

    Returns:
        ``m_s y_k b`` (..., N, K) or a number, and ``16 w`` per block, with a second copy of the weights
        under ``async`` (..., N, 1) or a number.
    """
    samples: Array | float = costs.batch_size
    state: Array | float = costs.block_state_bytes
    if allocation.schedule is not None:
        xp = namespace(allocation.device_power)
        stored = stored_micro_batches(allocation, costs.local_steps)
        samples_each = costs.batch_size / np.asarray(allocation.micro_batches, dtype=np.float64)
        samples = allocation.per_device(xp.asarray(stored * samples_each[..., None]))
        extra = np.where(np.asarray(allocation.schedule) == ASYNC, costs.block_copy_bytes, 0.0)
        state = xp.asarray(costs.block_state_bytes + extra)[..., None]
    if allocation.share is not None:
        samples = samples * allocation.share
    return samples, state


@dataclass(frozen=True, eq=False)
class Crossings:
    """How often a micro-batch passes the hops of an interleaved plan, and the hop between its chunks.

    Attributes:
        airtime: Airtime of each node for one micro-batch, both directions (..., N, K+1) [s].
        failure_exponent: Of all hops and crossings (..., N).
        wrap_forward: Last stage to the first (..., N) [s].
        wrap_backward: First stage to the last (..., N) [s].
    """

    airtime: Array
    failure_exponent: Array
    wrap_forward: Array
    wrap_backward: Array


def interleaved_crossings(graph: PlanGraph, hops: HopTimes, wraps: HopTimes, chunks: Array) -> Crossings:
    """Combine the plain hops, ``v`` times between devices, and ``v - 1`` passes of the hop between chunks.

    Args:
        graph: The plan's chain.
        hops: Its hops; failures count ``v`` crossings between devices already.
        wraps: The hop between chunks.
        chunks: ``v`` (..., N).
    """
    xp = namespace(hops.forward)
    v = xp.astype(chunks, hops.forward.dtype)
    concatenate = np.concatenate if xp is np else xp.concat
    between = graph.successor[..., 1:, 1:]
    once = xp.ones_like(v)[..., None]

    def repeated(towards_device: Array) -> Array:
        return concatenate((once, xp.where(towards_device, v[..., None], 1.0)), axis=-1)

    again = v - 1.0
    return Crossings(
        airtime=hops.forward * repeated(xp.any(between, axis=-1))
        + hops.backward * repeated(xp.any(between, axis=-2))
        + again[..., None] * (wraps.forward + wraps.backward),
        failure_exponent=hops.failure_exponent + again * wraps.failure_exponent,
        wrap_forward=xp.max(wraps.forward, axis=-1),
        wrap_backward=xp.max(wraps.backward, axis=-1),
    )


def scheduled_steps(
    parameters: SystemParameters,
    allocation: Allocation,
    graph: PlanGraph,
    elements: PipelineElements,
    gpipe: Array,
) -> Array:
    """Time of a local step under each cluster's own schedule (..., N) [s].

    Args:
        parameters: Scalars of the scenario.
        allocation: The plan, with schedules.
        graph: Its chain.
        elements: Times of one micro-batch.
        gpipe: The local step under GPipe (..., N) [s].
    """
    # Imported late: compiling and loading Numba is not for those who play GPipe.
    from collapipe_env.physics.schedules.makespans import local_step_times

    xp = namespace(gpipe)
    chains, orders = flat_chains(allocation, graph, elements, gpipe.shape)
    times = np.array(gpipe, dtype=np.float64).reshape(-1)
    local_step_times(chains, orders, parameters.costs.local_steps, parameters.half_duplex, times)
    return xp.asarray(times.reshape(gpipe.shape))


def flat_chains(
    allocation: Allocation, graph: PlanGraph, elements: PipelineElements, shape: tuple[int, ...]
) -> tuple[Chains, Orders]:
    """Chains and schedules as rows of contiguous arrays in slot order.

    Args:
        allocation: The plan, with schedules.
        graph: Its chain.
        elements: Times of one micro-batch.
        shape: Common leading axes and clusters (..., N).
    """
    from collapipe_env.physics.schedules.makespans import Chains, Orders

    K = allocation.blocks.shape[-1]
    rows = int(np.prod(shape))

    def flat(values: Array, *last: int, kind: type = np.float64) -> npt.NDArray[Any]:
        array = np.broadcast_to(np.asarray(values), (*shape, *last))
        return np.ascontiguousarray(array.reshape(rows, *last), dtype=kind)

    def slots(values: Array) -> npt.NDArray[Any]:
        """From each stage's leader to its slot."""
        if allocation.stage is None:
            return flat(values, K)
        leads = np.asarray(graph.leader)[..., None, :] & (
            np.asarray(allocation.stage)[..., None, :] == np.arange(K)[:, None]
        )
        place = np.broadcast_to(leads.argmax(axis=-1), (*shape, K))
        return flat(np.take_along_axis(np.broadcast_to(np.asarray(values), (*shape, K)), place, -1), K)

    def hops(values: Array) -> npt.NDArray[Any]:
        return np.concatenate((flat(values[..., :1], 1), slots(values[..., 1:])), axis=-1)

    e = elements
    chains = Chains(
        blocks=flat(allocation.blocks, K, kind=np.int64),
        forward=slots(e.compute_forward),
        backward=slots(e.compute_backward),
        weight=slots(e.compute_weight),
        hop_forward=hops(e.hop_forward),
        hop_backward=hops(e.hop_backward),
        wrap_forward=flat(e.wrap_forward),
        wrap_backward=flat(e.wrap_backward),
        uplink=flat(e.uplink),
        downlink=flat(e.downlink),
        server_forward=flat(e.server_forward),
        server_backward=flat(e.server_backward),
        server_weight=flat(e.server_weight),
    )
    orders = Orders(
        schedule=flat(allocation.schedule, kind=np.int64),
        caps=flat(allocation.caps, K, kind=np.int64),
        chunks=flat(allocation.chunks, kind=np.int64),
        micro_batches=flat(allocation.micro_batches, kind=np.int64),
    )
    return chains, orders


def server_times(parameters: SystemParameters, allocation: Allocation, samples: Array) -> tuple[Array, Array]:
    """Forward pass and weight gradients of one micro-batch on the server (..., N) [s].

    Every cluster has its share of the server, except under a sequential server, which works for one cluster
    at a time with all its speed.

    Args:
        parameters: Scalars of the scenario.
        allocation: The plan.
        samples: Samples of a micro-batch ``b`` (..., N).
    """
    costs = parameters.costs
    speed = parameters.server_flops / parameters.clusters
    forward = samples * (costs.decoder_forward_flops / speed)
    weight = samples * (costs.decoder_weight_flops / speed)
    if allocation.server_mode is None:
        return forward, weight
    xp = namespace(samples)
    kept = xp.astype(allocation.server_blocks, samples.dtype)
    # Not a choice between two numbers: the array API standard wants an array among them.
    others = (1.0 - 1.0 / parameters.clusters) * xp.astype(
        allocation.server_mode == SEQUENTIAL, samples.dtype
    )
    alone = 1.0 - others[..., None]
    return (
        alone * (forward + samples * kept * (costs.block_forward_flops / speed)),
        alone * (weight + samples * kept * (costs.block_weight_flops / speed)),
    )


def update_payloads(costs: WorkloadCosts, allocation: Allocation) -> tuple[Array | float, Array | float]:
    """Bits that each cluster uploads (..., N) and that the base station broadcasts (...).

    Blocks that the server trains need no transfer; the broadcast carries what any cluster trains. A block
    that the server trains for some clusters only is broadcast densely: those clusters' updates of it were
    never compressed.
    """
    N = allocation.blocks.shape[-2]
    embedding, block = costs.embedding_broadcast_bits(N), costs.block_broadcast_bits(N)
    if allocation.server_blocks is None:
        return costs.update_payload_bits, embedding + costs.blocks * block
    xp = namespace(allocation.bandwidth)
    kept = xp.astype(allocation.server_blocks, allocation.bandwidth.dtype)
    most, least = xp.max(kept, axis=-1), xp.min(kept, axis=-1)
    return (
        costs.update_payload_bits - kept * costs.block_payload_bits,
        embedding + (costs.blocks - most) * block + (most - least) * costs.block_broadcast_bits(0),
    )


def split_steps(
    parameters: SystemParameters,
    allocation: Allocation,
    elements: PipelineElements,
    allreduce: Array,
    local_step: Array,
) -> Array:
    """Time of a local step where the server serves the clusters one after the other (..., N) [s].

    Args:
        parameters: Scalars of the scenario.
        allocation: The plan, with split training; ``M = 1`` where the server is sequential.
        elements: Times of the one micro-batch.
        allreduce: All-reduce that ends every local step (..., N) [s].
        local_step: The local step with a server share of one's own, all-reduce included (..., N) [s].

    Returns:
        ``local_step``, replaced where the server is sequential.
    """
    xp = namespace(local_step)
    e = elements
    total = sequential_server_times(
        xp.sum(e.hop_forward, axis=-1) + xp.sum(e.compute_forward, axis=-1) + e.uplink,
        e.server_forward + e.server_backward,
        xp.sum(e.hop_backward, axis=-1) + xp.sum(e.compute_backward, axis=-1) + e.downlink + allreduce,
        parameters.costs.local_steps,
    )
    sequential = xp.asarray(allocation.server_mode == SEQUENTIAL)[..., None]
    return xp.where(sequential, total / parameters.costs.local_steps, local_step)


def with_weight_gradients(
    elements: PipelineElements, costs: WorkloadCosts, server_weight: Array, crossings: Crossings | None
) -> PipelineElements:
    """Add what only schedules need: weight gradients and the hop between chunks."""
    ratio = costs.block_weight_flops / costs.block_forward_flops
    xp = namespace(elements.uplink)
    nothing = xp.zeros_like(elements.uplink)
    return replace(
        elements,
        compute_weight=ratio * elements.compute_forward,
        server_weight=server_weight,
        wrap_forward=nothing if crossings is None else crossings.wrap_forward,
        wrap_backward=nothing if crossings is None else crossings.wrap_backward,
    )


def pipeline_blocks(allocation: Allocation) -> Array:
    """Blocks of each segment in the order in which micro-batches pass them (..., N, slots), 0 to be skipped.

    With chunks a stage holds several segments: chunk by chunk, one of each stage.
    """
    if allocation.chunks is None or not np.any(np.asarray(allocation.chunks) > 1):
        return allocation.blocks
    blocks, v = np.asarray(allocation.blocks), np.asarray(allocation.chunks)[..., None]
    parts = [
        np.where(chunk < v, blocks // v + (chunk < blocks % v), 0)
        for chunk in range(int(np.max(allocation.chunks)))
    ]
    return np.concatenate(parts, axis=-1)


def version_gaps(allocation: Allocation) -> IntArray | None:
    """Optimiser steps by which each slot computes with weights too old, ``ceil((K_s - 1) / M)`` ([R]).

    Args:
        allocation: Any plan (..., N).

    Returns:
        Gaps in the slots of :func:`pipeline_blocks`, 0 where the schedule is synchronous; ``None`` where no
        cluster's plan is asynchronous.
    """
    if allocation.schedule is None or not np.any(np.asarray(allocation.schedule) == ASYNC):
        return None
    M = np.asarray(allocation.micro_batches)[..., None]
    blocks, caps = np.asarray(allocation.blocks), np.asarray(allocation.caps)
    occupied = blocks > 0
    running = np.minimum.accumulate(np.where(occupied, caps, np.iinfo(np.int64).max), axis=-1)
    stale = occupied & (np.asarray(allocation.schedule) == ASYNC)[..., None]
    gaps = np.where(stale, -((1 - np.where(occupied, running, 1)) // M), 0)
    slots = pipeline_blocks(allocation).shape[-1]
    padded: IntArray = np.zeros((*gaps.shape[:-1], slots), dtype=np.int64)
    padded[..., : gaps.shape[-1]] = gaps
    return padded
