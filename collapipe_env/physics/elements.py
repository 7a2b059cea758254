"""Pipeline elements: times of one micro-batch along a cluster's chain (`system_model.md` section 4).

Every hop is a pipeline element of its own, like the compute stages, the CU's uplink and the server. A group
of several devices counts with its slowest member.
"""

from __future__ import annotations

from dataclasses import dataclass

from collapipe_env.ground.arrays import Array, namespace
from collapipe_env.ground.records import mapped
from collapipe_env.physics.delay import gpipe_step, message_time
from collapipe_env.physics.links import PlanGraph


@dataclass(frozen=True, eq=False)
class PipelineElements:
    """Times of one micro-batch on every element of each cluster's chain [s].

    Attributes:
        hop_forward: Forward hop out of each node's group, at the group's leader (..., N, K+1).
        hop_backward: Backward hop out of each node's group, at the group's leader (..., N, K+1).
        compute_forward: Forward time of each stage, at its leader (..., N, K).
        compute_backward: Backward time of each stage, at its leader (..., N, K).
        uplink: Activations from the CU to the base station (..., N).
        downlink: Gradients from the base station to the CU (..., N).
        server_forward: Decoder or head, forward (..., N).
        server_backward: Decoder or head, backward (..., N).
        latency: Latency of all links in one direction (..., N); it occupies no element.
        hop_latency: Latency of a single hop, a number.
        edge_latency: Latency of uplink or downlink, a number.
        compute_weight: Weight gradients' part of ``compute_backward`` (..., N, K); like the following ones 0
            where the plan names no schedule.
        server_weight: Weight gradients' part of ``server_backward`` (..., N).
        wrap_forward: Forward hop from the last stage to the first, between chunks (..., N).
        wrap_backward: The same hop backward (..., N).
    """

    hop_forward: Array
    hop_backward: Array
    compute_forward: Array
    compute_backward: Array
    uplink: Array
    downlink: Array
    server_forward: Array
    server_backward: Array
    latency: Array
    hop_latency: float
    edge_latency: float
    compute_weight: Array = 0.0
    server_weight: Array = 0.0
    wrap_forward: Array = 0.0
    wrap_backward: Array = 0.0

    def where(self, plays: Array) -> PipelineElements:
        """Return a copy with zero times on the elements of clusters that sit the round out.

        Args:
            plays: Clusters that take part (..., N), bool.
        """
        xp = namespace(plays)

        def kept(times: Array) -> Array:
            chosen = plays[..., None] if times.ndim > plays.ndim else plays
            return xp.where(chosen, times, xp.zeros_like(times))

        return mapped(self, kept)


def gpipe_makespan(elements: PipelineElements, micro_batches: Array) -> Array:
    """Makespan of one local step under GPipe, exact: :func:`~.delay.gpipe_step` of all elements.

    Args:
        micro_batches: ``M_n`` (..., N).

    Returns:
        ``T_step`` (..., N) [s].
    """
    e = elements
    summed, longest = _sum_and_longest(e.hop_forward, e.compute_forward, e.uplink, e.server_forward)
    forward = gpipe_step(summed + e.latency, longest, 0.0, 0.0, micro_batches)
    summed, longest = _sum_and_longest(e.hop_backward, e.compute_backward, e.downlink, e.server_backward)
    # Both directions in one call would round differently: reference delays would change in the last digit.
    return gpipe_step(forward + summed + e.latency, longest, 0.0, 0.0, micro_batches)


def _sum_and_longest(hop: Array, compute: Array, edge: Array, server: Array) -> tuple[Array, Array]:
    xp = namespace(edge)
    summed = xp.sum(hop, axis=-1) + xp.sum(compute, axis=-1) + edge + server
    slowest = xp.maximum(xp.max(hop, axis=-1), xp.max(compute, axis=-1))
    return summed, xp.maximum(slowest, xp.maximum(edge, server))


def allreduce_times(graph: PlanGraph, rates: Array, device_payload_bits: Array) -> Array:
    """Ring all-reduce of a stage's gradients inside a group of several devices ([X]).

    ``2 (|g| - 1) / |g| * delta w bits / (lowest rate between two members)``, once per local step.

    Args:
        graph: A plan with groups.
        rates: Device-to-device rates (..., N, K+1, K+1) [bit/s].
        device_payload_bits: Bits of the parameters of each device's stage (..., N, K).

    Returns:
        Time of each device's group (..., N, K) [s], zero for groups of one.
    """
    xp = namespace(rates)
    size = xp.sum(xp.astype(graph.same_stage, rates.dtype), axis=-1)
    itself = xp.eye(size.shape[-1], dtype=xp.bool, device=getattr(size, "device", None))
    pairs = graph.same_stage & ~itself
    slowest_of_row = xp.min(xp.where(pairs, rates[..., 1:, 1:], xp.inf), axis=-1)
    slowest = xp.min(xp.where(graph.same_stage, slowest_of_row[..., None, :], xp.inf), axis=-1)
    factor = xp.where(size > 1, 2.0 * (size - 1.0) / xp.where(size > 1, size, 1.0), 0.0)
    return factor * device_payload_bits / slowest


def collection_times(graph: PlanGraph, rates_to_cu: Array, device_payload_bits: Array) -> Array:
    """Time to send each stage's segment from its lead device to the CU at the end of a round.

    Args:
        rates_to_cu: Rates device -> CU (..., N, K) [bit/s].
        device_payload_bits: Bits of the parameters of each device's stage (..., N, K).

    Returns:
        Times (..., N, K) [s], zero for devices that lead no stage.
    """
    xp = namespace(rates_to_cu)
    return message_time(device_payload_bits, xp.where(graph.leader, rates_to_cu, xp.inf))
