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
from collapipe_env.physics.schedules.orders import YES, ZERO, fill_orders
from collapipe_env.physics.schedules.recurrence import ordered_step
from collapipe_env.physics.schedules.simulation import ChainTimes, simulate_chain

ZERO_BUBBLE_VARIANTS = 4
"""Orders tried under ``zb-h1``: short or long warm-up, weight gradients in fixed places or in gaps."""


class Chains(NamedTuple):
    """``R`` chains of all stage slots in pipeline order, the server last; slots without blocks are skipped.

    Attributes:
        blocks: Blocks of each slot (R, K).
        forward: Compute time of a micro-batch in slots and server (R, K+1) [s].
        backward: The same backward, weight gradients included (R, K+1) [s].
        weight: Weight gradients alone (R, K+1) [s].
        link_forward: Hop out of the CU, then out of each slot; last slot to the first; uplink (R, K+3) [s].
        link_backward: The same for gradients, each hop by its own sender; first slot to the last; downlink
            (R, K+3) [s].
        latency: Latencies of these links (K+3,) [s].
    """

    blocks: IntArray
    forward: FloatArray
    backward: FloatArray
    weight: FloatArray
    link_forward: FloatArray
    link_backward: FloatArray
    latency: FloatArray


class Orders(NamedTuple):
    """Schedules of ``R`` chains.

    Attributes:
        schedule: Places in ``SCHEDULES`` (R,).
        caps: Caps of the slots (R, K).
        chunks: ``v`` (R,).
        micro_batches: ``M`` (R,).
        mini_batches: ``H`` (R,); ``async`` runs them without a flush and gets ``1 / H`` of the whole.
    """

    schedule: IntArray
    caps: IntArray
    chunks: IntArray
    micro_batches: IntArray
    mini_batches: IntArray


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
    S, K = len(slots), chains.blocks.shape[1]
    used = np.append(slots, K)
    forward, backward, weight = chains.forward[r][used], chains.backward[r][used], chains.weight[r][used]
    if schedule == ZERO_BUBBLE:
        backward = backward - weight
    share = np.ones((S + 1, chunks))
    for s in range(S):
        held = chains.blocks[r, slots[s]]
        for c in range(chunks):
            share[s, c] = (held // chunks + (1 if c < held % chunks else 0)) / held
    # The CU sends on the first link forward, and on the last one of the hops backward.
    there = np.concatenate((np.array([0]), slots + 1, np.array([K + 1, K + 2])))
    back = np.concatenate((slots + 1, np.array([0, K + 1, K + 2])))
    links = chains.link_forward[r][there], chains.link_backward[r][back]
    return ChainTimes(forward, backward, weight, *links, chains.latency[there], share), slots


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
        return ordered_step(times, schedule, caps, YES, micro_batches)
    S = len(caps)
    orders = np.zeros((S + 1, 3 * micro_batches * chunks, 3), dtype=np.int64)
    counts = np.zeros(S + 1, dtype=np.int64)
    limits = np.full(S + 1, micro_batches)
    limits[:S] = np.minimum(caps, micro_batches)
    nothing = np.zeros((0, 6))
    variants = ZERO_BUBBLE_VARIANTS if schedule == ZERO_BUBBLE else 1
    best, chosen = np.inf, ZERO
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
def local_step_times(chains: Chains, orders: Orders, half_duplex: bool, times: FloatArray) -> None:
    """Replace the local step of every chain that does not run GPipe.

    Args:
        times: Seconds of a local step (R,), written where the schedule is not GPipe; infinite where the
            orders wait for each other.
    """
    nothing = np.zeros((0, 6))
    for r in range(len(times)):
        schedule = orders.schedule[r]
        if schedule == GPIPE:
            continue
        chunks = orders.chunks[r] if schedule == INTERLEAVED else 1
        runs = orders.mini_batches[r] if schedule == ASYNC else 1
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
