"""Links of a pipeline plan: senders, receivers and airtimes (`system_model.md` section 4).

Nodes of a cluster are the CU (node 0) and its devices (1..K). A plan's stages are visited in slot order;
stages without blocks are skipped. The CU is the group of one before the first stage and after the last. Every
hop between consecutive groups is a pipeline element of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from collapipe_env.ground.arrays import Array, namespace
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.delay import hop_time
from collapipe_env.physics.overheads import NO_OVERHEADS, Overheads
from collapipe_env.physics.radio import failure_exponent, loss_exponent, seconds_per_bit


@dataclass(frozen=True, eq=False)
class PlanGraph:
    """The chain of groups that a plan forms.

    Attributes:
        active: Devices that hold a segment (..., N, K), bool.
        successor: ``successor[i, j]`` is True where node ``i`` sends activations to node ``j``
            (..., N, K+1, K+1); column 0 is the CU at the end of the chain.
        same_stage: True where two devices share a stage (..., N, K, K); ``None`` for groups of one.
        leader: The lowest-indexed device of each stage (..., N, K), bool.
        share: Sample shares with the CU's 1 in front (..., N, K+1); ``None`` for groups of one.
    """

    active: Array
    successor: Array
    same_stage: Array | None
    leader: Array
    share: Array | None

    def wrap_around(self) -> PlanGraph:
        """Return the same groups joined by one hop, from the last stage to the first (interleaved chunks)."""
        first = self.successor[..., 0, 1:]  # receivers of the CU
        last = self.successor[..., 1:, 0]  # senders to the CU
        xp = namespace(first)
        # In a chain of one stage nothing leaves the device between chunks.
        several = xp.any(first != last, axis=-1)[..., None, None]
        pairs = last[..., :, None] & first[..., None, :] & several
        concatenate = np.concatenate if xp is np else xp.concat
        row = xp.zeros_like(pairs[..., :1, :])
        below = concatenate((row, pairs), axis=-2)
        successor = concatenate((xp.zeros_like(below[..., :1]), below), axis=-1)
        return replace(self, successor=successor)

    def group_max(self, values: Array) -> Array:
        """Largest value among the members of each device's group (..., N, K)."""
        if self.same_stage is None:
            return values
        xp = namespace(values)
        return xp.max(xp.where(self.same_stage, values[..., None, :], 0.0), axis=-1)

    def per_stage(self, values: Array) -> Array:
        """Group maximum at each stage's leader, zero elsewhere (..., N, K): ready for sums over stages."""
        if self.same_stage is None:
            return values
        xp = namespace(values)
        return xp.where(self.leader, self.group_max(values), 0.0)


def plan_graph(allocation: Allocation) -> PlanGraph:
    """Build the chain of groups of an allocation.

    Args:
        allocation: Any feasible allocation with leading axes ``...``.
    """
    blocks = allocation.blocks
    xp = namespace(blocks)
    occupied = blocks > 0
    cumulative = np.cumsum if xp is np else xp.cumulative_sum
    # Rank 1..S of each occupied slot among the occupied ones; the CU is rank 0 and rank S + 1.
    rank = cumulative(xp.astype(occupied, xp.int64), axis=-1)
    stages = rank[..., -1:]
    active, device_rank = occupied, rank
    if allocation.is_grouped:
        stage, share = allocation.groups
        slot = xp.where(stage < 0, 0, stage)
        active = (stage >= 0) & xp.take_along_axis(occupied, slot, axis=-1)
        device_rank = xp.take_along_axis(rank, slot, axis=-1)
    device_rank = xp.where(active, device_rank, -2)
    concatenate = np.concatenate if xp is np else xp.concat
    receiver = concatenate((stages + 1, device_rank), axis=-1)
    sender = concatenate((xp.zeros_like(stages), device_rank), axis=-1)
    successor = receiver[..., None, :] == sender[..., :, None] + 1
    if not allocation.is_grouped:
        return PlanGraph(active, successor, None, active, None)
    same = (device_rank[..., :, None] == device_rank[..., None, :]) & active[..., :, None]
    # A device leads its stage when no member of the stage comes before it.
    device = getattr(active, "device", None)
    places = xp.arange(active.shape[-1], device=device)
    leader = active & (xp.argmax(xp.astype(same, xp.int8), axis=-1) == places)
    ones = xp.ones(stages.shape, dtype=share.dtype, device=device)
    return PlanGraph(active, successor, same, leader, concatenate((ones, share), axis=-1))


@dataclass(frozen=True, eq=False)
class HopTimes:
    """Airtimes of one micro-batch, by sender.

    Attributes:
        forward: Time node ``i`` sends activations (..., N, K+1) [s].
        backward: Time node ``i`` sends gradients back (..., N, K+1) [s].
        loss_exponent: Sum over all links, both directions (..., N): a micro-batch crosses all of them with
            probability ``exp(-loss_exponent)``.
        received_forward: Time of the activations that node ``j`` receives (..., N, K+1) [s]; ``None`` where
            receivers draw no power.
        received_backward: The same for gradients.
    """

    forward: Array
    backward: Array
    loss_exponent: Array
    received_forward: Array | None = None
    received_backward: Array | None = None


def hop_times(
    graph: PlanGraph,
    snr: Array,
    rates: Array,
    activation_bits: Array,
    gradient_bits: Array,
    *,
    waterfall_threshold: float,
    transmissions: float,
    overheads: Overheads = NO_OVERHEADS,
    receivers: bool = False,
    crossings_between_devices: Array | None = None,
) -> HopTimes:
    """Airtimes and failures of the hops between consecutive groups.

    Sender ``i`` sends each receiver ``j`` its part ``y_i y_j b A`` at rate ``r[i, j]``, one after another;
    backward the roles are reversed and the sender uses its own power. A packet is lost with probability ``q =
    1 - exp(-m / SNR)`` (`system_model.md` section 7); between groups of several devices every link must
    succeed ([X]).

    Args:
        snr: Signal to noise ratios (..., N, K+1, K+1), sender first.
        rates: Rates (..., N, K+1, K+1) [bit/s], sender first.
        activation_bits: Boundary activations of one micro-batch, ``b A`` (..., N) [bit].
        gradient_bits: The same for gradients (..., N) [bit].
        waterfall_threshold: ``m`` of the packet error.
        transmissions: Most transmissions of a packet ``R``, 1 unless lost ones are sent again (``arq``).
        overheads: Overheads of the scenario: a sender pays for each of its receivers.
        receivers: Whether to return the times of received messages too.
        crossings_between_devices: Number of times that a micro-batch passes the hops between devices
            (..., N), the number of chunks under an interleaved schedule; ``None`` for once. It enters only
            the failures: times are those of one crossing.
    """
    xp = namespace(rates)
    forward_links = graph.successor
    backward_links = xp.matrix_transpose(forward_links)
    used = forward_links | backward_links
    # Links that carry nothing get an infinite rate and SNR, hence times and exponents of exactly zero.
    exponents = failure_exponent(xp.where(used, snr, xp.inf), waterfall_threshold)
    seconds = seconds_per_bit(xp.where(used, rates, xp.inf), exponents, transmissions)
    exponents = loss_exponent(exponents, transmissions)
    forward, backward = xp.where(forward_links, seconds, 0.0), xp.where(backward_links, seconds, 0.0)
    if graph.share is not None:
        parts = graph.share[..., :, None] * graph.share[..., None, :]
        forward, backward = forward * parts, backward * parts
    # In a chain of one stage the same link carries a forward and a backward hop: each counts.
    crossings = xp.astype(forward_links, exponents.dtype) + xp.astype(backward_links, exponents.dtype)
    if crossings_between_devices is not None:
        nodes = xp.arange(crossings.shape[-1], device=getattr(crossings, "device", None))
        both_devices = (nodes[:, None] > 0) & (nodes > 0)
        often = xp.astype(crossings_between_devices, crossings.dtype)[..., None, None]
        crossings = crossings * xp.where(both_devices, often, 1.0)
    each = None
    if overheads.message_s or overheads.header_bits:
        each = overheads.message_s + overheads.header_bits * seconds

    def summed(seconds_per_bit: Array, links: Array, bits: Array, axis: int) -> Array:
        airtime = hop_time(xp.sum(seconds_per_bit, axis=axis), bits[..., None])
        return airtime if each is None else airtime + xp.sum(xp.where(links, each, 0.0), axis=axis)

    ahead, back = (forward, forward_links, activation_bits), (backward, backward_links, gradient_bits)
    return HopTimes(
        forward=summed(*ahead, -1),
        backward=summed(*back, -1),
        loss_exponent=xp.sum(exponents * crossings, axis=(-2, -1)),
        received_forward=summed(*ahead, -2) if receivers else None,
        received_backward=summed(*back, -2) if receivers else None,
    )
