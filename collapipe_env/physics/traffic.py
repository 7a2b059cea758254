"""Traffic of a plan: airtimes and failures of the hops between groups (`system_model.md` section 4).

Under an interleaved plan each hop between devices is passed once for every chunk, and one more hop leads from
the last stage to the first, between two chunks ([X]).
"""

from __future__ import annotations

from dataclasses import dataclass

from collapipe_env.ground.arrays import Array, concatenate, namespace
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.delay import hop_time
from collapipe_env.physics.links import PlanGraph
from collapipe_env.physics.packet_errors import failure_exponent, loss_exponent, seconds_per_bit
from collapipe_env.physics.parameters import Parameters


@dataclass(frozen=True, eq=False)
class HopTimes:
    """Airtimes of one micro-batch that crosses every hop once.

    Attributes:
        forward: Time node ``i`` sends activations (..., N, K+1) [s].
        backward: Time node ``i`` sends gradients back (..., N, K+1) [s].
        received_forward: Time of the activations that node ``j`` receives (..., N, K+1) [s]; 0 where
            receivers draw no power.
        received_backward: The same for gradients.
        loss_exponent: Sum over all links and crossings, both directions (..., N): a micro-batch crosses all
            of them with probability ``exp(-loss_exponent)``.
    """

    forward: Array
    backward: Array
    received_forward: Array
    received_backward: Array
    loss_exponent: Array


@dataclass(frozen=True, eq=False)
class Traffic:
    """Traffic of one micro-batch with all crossings.

    Attributes:
        hops: Each hop once.
        airtime: Airtime of each node, both directions (..., N, K+1) [s].
        received: Airtime that each node receives (..., N, K+1) [s]; 0 where receivers draw no power.
        loss_exponent: Sum of the exponents of all hops and crossings (..., N).
        wrap_forward: Hop from the last stage to the first (..., N) [s], 0 without chunks.
        wrap_backward: Hop from the first stage to the last (..., N) [s].
    """

    hops: HopTimes
    airtime: Array
    received: Array
    loss_exponent: Array
    wrap_forward: Array
    wrap_backward: Array


def plan_traffic(
    parameters: Parameters, allocation: Allocation, graph: PlanGraph, snr: Array, rates: Array, samples: Array
) -> Traffic:
    """Traffic of one micro-batch under a plan.

    Args:
        snr: Signal to noise ratios (..., N, K+1, K+1), sender first.
        rates: Rates (..., N, K+1, K+1) [bit/s], sender first.
        samples: Samples of a micro-batch ``b`` (..., N).
    """
    xp = namespace(samples)
    if not (allocation.is_scheduled and xp.any(allocation.schedules.chunks > 1)):
        hops = _hop_times(parameters, graph, snr, rates, samples)
        nothing = xp.zeros_like(samples)
        sent, received = hops.forward + hops.backward, hops.received_forward + hops.received_backward
        return Traffic(hops, sent, received, hops.loss_exponent, nothing, nothing)
    v = xp.astype(allocation.schedules.chunks, samples.dtype)
    hops = _hop_times(parameters, graph, snr, rates, samples, v)
    wraps = _hop_times(parameters, graph.wrap_around(), snr, rates, samples)
    between = graph.successor[..., 1:, 1:]
    once = xp.ones_like(v)[..., None]

    def repeated(towards_device: Array) -> Array:
        return concatenate((once, xp.where(towards_device, v[..., None], 1.0)))

    again = v - 1.0
    senders, receivers = repeated(xp.any(between, axis=-1)), repeated(xp.any(between, axis=-2))
    return Traffic(
        hops,
        airtime=hops.forward * senders
        + hops.backward * receivers
        + again[..., None] * (wraps.forward + wraps.backward),
        received=hops.received_forward * receivers
        + hops.received_backward * senders
        + again[..., None] * (wraps.received_forward + wraps.received_backward),
        loss_exponent=hops.loss_exponent + again * wraps.loss_exponent,
        wrap_forward=xp.max(wraps.forward, axis=-1),
        wrap_backward=xp.max(wraps.backward, axis=-1),
    )


def _hop_times(
    parameters: Parameters,
    graph: PlanGraph,
    snr: Array,
    rates: Array,
    samples: Array,
    crossings_between_devices: Array | None = None,
) -> HopTimes:
    """Airtimes and failures of the hops between consecutive groups.

    Sender ``i`` sends each receiver ``j`` its part ``y_i y_j b A`` at rate ``r[i, j]``, one after another;
    backward the roles are reversed and the sender uses its own power. A packet is lost with probability ``q =
    1 - exp(-m / SNR)`` (`system_model.md` section 7); between groups of several devices every link must
    succeed ([X]).

    Args:
        crossings_between_devices: Number of times that a micro-batch passes the hops between devices
            (..., N), real; ``None`` for once. It enters only the failures: times are those of one crossing.
    """
    xp, p, overheads = namespace(rates), parameters, parameters.overheads
    forward_links = graph.successor
    backward_links = xp.matrix_transpose(forward_links)
    used = forward_links | backward_links
    # Links that carry nothing get an infinite rate, hence times and exponents of exactly zero.
    exponents = xp.where(used, failure_exponent(p.link, xp.where(used, snr, 1.0)), 0.0)
    seconds = seconds_per_bit(xp.where(used, rates, xp.inf), exponents, p.link.transmissions)
    exponents = loss_exponent(exponents, p.link.transmissions)
    forward, backward = xp.where(forward_links, seconds, 0.0), xp.where(backward_links, seconds, 0.0)
    if graph.share is not None:
        parts = graph.share[..., :, None] * graph.share[..., None, :]
        forward, backward = forward * parts, backward * parts
    # In a chain of one stage the same link carries a forward and a backward hop: each counts.
    crossings = xp.astype(forward_links, exponents.dtype) + xp.astype(backward_links, exponents.dtype)
    if crossings_between_devices is not None:
        nodes = xp.arange(crossings.shape[-1], device=getattr(crossings, "device", None))
        both_devices = (nodes[:, None] > 0) & (nodes > 0)
        crossings = crossings * xp.where(both_devices, crossings_between_devices[..., None, None], 1.0)
    each = None
    if overheads.message_s or overheads.header_bits:
        each = overheads.message_s + overheads.header_bits * seconds

    def summed(seconds_per_bit: Array, links: Array, bits: Array, axis: int) -> Array:
        airtime = hop_time(xp.sum(seconds_per_bit, axis=axis), bits[..., None])
        return airtime if each is None else airtime + xp.sum(xp.where(links, each, 0.0), axis=axis)

    ahead = forward, forward_links, samples * p.costs.activation_bits
    back = backward, backward_links, samples * p.costs.gradient_bits
    sent = summed(*ahead, -1)
    counts, nothing = p.radio_power.receive_w > 0.0, xp.zeros_like(sent)
    return HopTimes(
        forward=sent,
        backward=summed(*back, -1),
        received_forward=summed(*ahead, -2) if counts else nothing,
        received_backward=summed(*back, -2) if counts else nothing,
        loss_exponent=xp.sum(exponents * crossings, axis=(-2, -1)),
    )
