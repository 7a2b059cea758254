"""Makespans of batches of chains under any schedule ([R], [X]).

GPipe has a closed form (:func:`~collapipe_env.physics.elements.gpipe_makespan`); the other schedules go
through the universal recurrence, chain by chain in compiled code: wave by wave where that is enough,
otherwise event by event.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled
from collapipe_env.physics.allocation import ASYNC, GPIPE, INTERLEAVED, ZERO_BUBBLE
from collapipe_env.physics.schedules.orders import fill_orders
from collapipe_env.physics.schedules.recurrence import ordered_step
from collapipe_env.physics.schedules.simulation import ChainTimes, simulate_chain

ZERO_BUBBLE_VARIANTS = 4
"""Orders tried under ``zb-h1``: short or long warm-up, weight gradients in fixed places or in gaps."""


class Chains(NamedTuple):
    """``R`` chains, stage slots in pipeline order; those without blocks are skipped.

    Attributes:
        blocks: Blocks of each slot (R, K).
        forward: Compute time of a micro-batch (R, K) [s].
        backward: The same backward, weight gradients included (R, K) [s].
        weight: Weight gradients alone (R, K) [s].
        hop_forward: Hop out of the CU, then out of each slot (R, K+1) [s].
        hop_backward: The same for gradients, each by its own sender (R, K+1) [s].
        wrap_forward: Last slot to the first (R,) [s].
        wrap_backward: First slot to the last (R,) [s].
        uplink: CU to the base station (R,) [s].
        downlink: Base station to the CU (R,) [s].
        server_forward: Server (R,) [s].
        server_backward: Server backward, weight gradients included (R,) [s].
        server_weight: The server's weight gradients alone (R,) [s].
        latency: Latency of every device-to-device hop [s].
        edge_latency: Latency of uplink and downlink [s].
    """

    blocks: IntArray
    forward: FloatArray
    backward: FloatArray
    weight: FloatArray
    hop_forward: FloatArray
    hop_backward: FloatArray
    wrap_forward: FloatArray
    wrap_backward: FloatArray
    uplink: FloatArray
    downlink: FloatArray
    server_forward: FloatArray
    server_backward: FloatArray
    server_weight: FloatArray
    latency: float
    edge_latency: float


class Orders(NamedTuple):
    """Schedules of ``R`` chains.

    Attributes:
        schedule: Places in ``SCHEDULES`` (R,).
        caps: Caps of the slots (R, K).
        chunks: ``v`` (R,).
        micro_batches: ``M`` (R,).
    """

    schedule: IntArray
    caps: IntArray
    chunks: IntArray
    micro_batches: IntArray


@compiled
def chain_times(chains: Chains, r: int, schedule: int, chunks: int) -> tuple[ChainTimes, IntArray]:
    """One chain as the simulation reads it.

    Args:
        schedule: Place in ``SCHEDULES``; ``zb-h1`` splits the weight gradients off.
        chunks: ``v``; a slot's blocks are dealt to its chunks as evenly as possible, the larger first.

    Returns:
        The times, and the slots that hold blocks (S,).
    """
    slots = np.flatnonzero(chains.blocks[r] > 0)
    S = len(slots)
    forward, backward, weight = np.empty(S + 1), np.empty(S + 1), np.zeros(S + 1)
    there, back = np.zeros(S + 3), np.zeros(S + 3)
    share = np.ones((S + 1, chunks))
    split = schedule == ZERO_BUBBLE
    for s in range(S):
        k = slots[s]
        forward[s], backward[s] = chains.forward[r, k], chains.backward[r, k]
        if split:
            weight[s] = chains.weight[r, k]
            backward[s] -= weight[s]
        for c in range(chunks):
            held = chains.blocks[r, k]
            share[s, c] = (held // chunks + (1 if c < held % chunks else 0)) / held
        there[s + 1] = chains.hop_forward[r, k + 1]
        back[s] = chains.hop_backward[r, k + 1]
    forward[S], backward[S] = chains.server_forward[r], chains.server_backward[r]
    if split:
        weight[S] = chains.server_weight[r]
        backward[S] -= weight[S]
    there[0], back[S] = chains.hop_forward[r, 0], chains.hop_backward[r, 0]
    there[S + 1], back[S + 1] = chains.wrap_forward[r], chains.wrap_backward[r]
    there[S + 2], back[S + 2] = chains.uplink[r], chains.downlink[r]
    latency = np.full(S + 3, chains.latency)
    latency[S + 2] = chains.edge_latency
    return ChainTimes(forward, backward, weight, there, back, latency, share), slots


@compiled
def run_chain(
    times: ChainTimes,
    schedule: int,
    caps: IntArray,
    chunks: int,
    micro_batches: int,
    half_duplex: bool,
    events: FloatArray,
) -> float:
    """Makespan of one chain; under ``zb-h1`` the best of the orders tried.

    If no events are requested and the schedule permits, the recurrence runs without an event queue.

    Args:
        schedule: Place in ``SCHEDULES``.
        caps: Caps of its stages (S,).
        chunks: ``v``.
        micro_batches: ``M``, of all mini-batches together under ``async``.
        events: See :func:`~.simulation.simulate_chain`; those of the best order.

    Returns:
        Seconds; infinite if the orders wait for each other.
    """
    if not half_duplex and schedule != INTERLEAVED and len(events) == 0:
        return ordered_step(times, schedule, caps, True, micro_batches)
    S = len(caps)
    orders = np.zeros((S + 1, 3 * micro_batches * chunks, 3), dtype=np.int64)
    counts = np.zeros(S + 1, dtype=np.int64)
    limits = np.full(S + 1, micro_batches)
    limits[:S] = np.minimum(caps, micro_batches)
    nothing = np.zeros((0, 6))
    variants = ZERO_BUBBLE_VARIANTS if schedule == ZERO_BUBBLE else 1
    best, chosen = np.inf, 0
    for variant in range(variants):
        last = variants == 1
        fill_orders(schedule, caps, micro_batches, chunks, variant, orders, counts)
        length = simulate_chain(
            times,
            orders,
            counts,
            limits,
            micro_batches,
            chunks,
            schedule == ZERO_BUBBLE and (variant & 1) != 0,
            half_duplex,
            events if last else nothing,
        )
        if length < best:
            best, chosen = length, variant
    if variants > 1 and len(events) > 0:
        fill_orders(schedule, caps, micro_batches, chunks, chosen, orders, counts)
        simulate_chain(
            times, orders, counts, limits, micro_batches, chunks, (chosen & 1) != 0, half_duplex, events
        )
    return best


@compiled
def local_step_times(
    chains: Chains, orders: Orders, mini_batches: int, half_duplex: bool, times: FloatArray
) -> None:
    """Replace the local step of every chain that does not run GPipe.

    Args:
        mini_batches: ``H``; ``async`` runs them without a flush and gets ``1 / H`` of the whole.
        times: Seconds of a local step (R,), written where the schedule is not GPipe; infinite where the
            orders wait for each other.
    """
    nothing = np.zeros((0, 6))
    for r in range(len(times)):
        schedule = orders.schedule[r]
        if schedule == GPIPE:
            continue
        chunks = orders.chunks[r] if schedule == INTERLEAVED else 1
        runs = mini_batches if schedule == ASYNC else 1
        chain, slots = chain_times(chains, r, schedule, chunks)
        length = run_chain(
            chain,
            schedule,
            orders.caps[r][slots],
            chunks,
            orders.micro_batches[r] * runs,
            half_duplex,
            nothing,
        )
        times[r] = length / runs
