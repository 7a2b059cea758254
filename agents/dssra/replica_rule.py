"""Rule by which DSSRA+ places the replicas of a cluster's trained parts ([X]).

Replicas cost airtime after every local step, and save local steps when a device fails. The rule prices both
for a plan whose other decisions are settled. It works to first order in the failure probabilities, takes
failures as equally likely at any time of the round, and assumes a replay in which the remaining devices share
the work by their speeds.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from collapipe_env.allocation import Allocation
from collapipe_env.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.physics.participation import steps_or
from collapipe_env.physics.recovery import TOLERANCE, BlockBits, RecoveryTerms
from collapipe_env.physics.replication import NO_REPLICAS, REPLICATION_KINDS
from collapipe_env.simulator.costs import RoundCosts, round_costs
from collapipe_env.simulator.migration_costs import seconds_per_bit
from collapipe_env.simulator.running import running_state
from collapipe_env.simulator.state import SystemParameters, SystemState


def best_replicas(
    parameters: SystemParameters,
    state: SystemState,
    plan: Allocation,
    risk: FloatArray,
    *,
    terms: RecoveryTerms,
    bits: BlockBits,
    tradeoff_v: float,
    extra_price: FloatArray | None,
) -> IntArray:
    """Cheapest replicas of each cluster (E, N), as places in ``REPLICATION_KINDS``; the first if equal.

    Every cluster is priced as if the round waited for it: by its expected delay with failures, and by the
    energy of its nodes at the price that the queues before the round give it.

    Args:
        parameters: Scalars of the scenario, in which replicas are open.
        state: The system before the round (E, ...).
        plan: The plan, without replicas (E, ...).
        risk: Probability that each device fails within ``T_ref`` (E, N, K).
        terms: Terms of recovery.
        bits: Bits of the parts of a block.
        tradeoff_v: Lyapunov ``V`` [1/s], > 0.
        extra_price: Price of every node's energy on top of its queue's (E, N, K+1) [1/J]; ``None`` for none.
    """
    worth = []
    for kind in range(len(REPLICATION_KINDS)):
        asked = replace(plan, replication=np.full(plan.micro_batches.shape, kind))
        costs = round_costs(parameters, state, asked)
        lost = expected_loss(parameters, state, costs, risk, terms=terms, bits=bits)
        energy = state.live_backlog * costs.energy_ratio
        if extra_price is not None:
            energy = energy + extra_price * costs.energy
        worth.append(tradeoff_v * (costs.cluster_delay + lost) + energy.sum(axis=-1))
    best: IntArray = np.argmin(np.stack(worth), axis=0)
    return np.where(costs.plays, best, NO_REPLICAS) if costs.plays is not None else best


def expected_loss(
    parameters: SystemParameters,
    state: SystemState,
    costs: RoundCosts,
    risk: FloatArray,
    *,
    terms: RecoveryTerms,
    bits: BlockBits,
) -> FloatArray:
    """Seconds by which failures inside a round prolong each cluster's delay on average (E, N) [s].

    A failure at ``t`` costs ``t + T_rec + (H - done(t)) T'_step + T_col + T_up - T_n``. The mean is over
    ``t`` from 0 to ``T_n``; failures after the collection cost nothing. ``T'_step`` is ``T_step`` without
    replicas, scaled by the blocks of the slowest stage over its speed, after the failure relative to before.

    Args:
        parameters: Scalars of the scenario.
        state: The system before the round (E, ...).
        costs: Costs of the plan without failures, with its replicas (E, ...).
        risk: Probability that each device fails within ``T_ref`` (E, N, K).
        terms: Terms of recovery.
        bits: Bits of the parts of a block.
    """
    plan = costs.allocation
    blocks = np.asarray(plan.device_blocks, dtype=np.float64)
    at_work = blocks > 0.0
    alone = at_work
    if costs.graph.same_stage is not None:
        alone = at_work & (np.asarray(costs.graph.same_stage).sum(axis=-1) == 1)
    hosts = np.zeros((*alone.shape, alone.shape[-1] + 1), dtype=np.bool_)
    own_step = step = costs.local_step + costs.barrier
    if costs.replica_hosts is not None and costs.replication is not None:
        hosts, step = np.asarray(costs.replica_hosts), step + costs.replication
    kept = ~alone | hosts.any(axis=-1)

    begun = costs.relay if costs.migration is None else costs.relay + costs.migration
    whole, ends = costs.cluster_delay, costs.cluster_delay - costs.upload
    steps = np.broadcast_to(steps_or(plan, parameters.costs.local_steps), whole.shape)
    # Integral, over the time of the failure, of the local steps that are complete by then.
    places = np.arange(1, int(steps.max(initial=1)) + 1)
    complete = np.maximum(ends[..., None] - begun[..., None] - places * step[..., None], 0.0)
    done = np.where(places <= steps[..., None], complete, 0.0).sum(axis=-1)

    running = running_state(state, plan)
    slower = _slower(blocks, np.asarray(running.speed))
    moves = _moving_s(
        parameters, running, costs, blocks, hosts, alone, heavy=terms.kind == "heavy", bits=bits
    )
    recovery = terms.detection_s + terms.planning_s + moves
    rest = (costs.collect + costs.upload - whole)[..., None]
    repeated = (
        own_step[..., None]
        * slower
        * (steps[..., None] * ends[..., None] - np.where(kept, done[..., None], 0.0))
    )
    integral = 0.5 * ends[..., None] ** 2 + ends[..., None] * (recovery + rest) + repeated
    each = np.divide(integral, whole[..., None], out=np.zeros_like(integral), where=whole[..., None] > 0.0)
    loss: FloatArray = np.where(at_work, risk * each, 0.0).sum(axis=-1)
    return loss


def _slower(blocks: FloatArray, speed: FloatArray) -> FloatArray:
    """Time of a micro-batch on the slowest stage once a device has failed, over that before (E, N, K)."""
    at_work, K = blocks > 0.0, blocks.shape[-1]
    before = np.divide(blocks, speed, out=np.zeros_like(blocks), where=at_work).max(axis=-1)[..., None]
    left = np.where(at_work[..., None, :] & ~np.eye(K, dtype=np.bool_), speed[..., None, :], 0.0)
    total = left.sum(axis=-1, keepdims=True)
    share = np.divide(np.cumsum(left, axis=-1), total, out=np.zeros_like(left), where=total > 0.0)
    ends = np.ceil(blocks.sum(axis=-1)[..., None, None] * share - TOLERANCE)
    held = np.diff(ends, axis=-1, prepend=0.0)
    after = np.divide(held, left, out=np.zeros_like(held), where=left > 0.0).max(axis=-1)
    # If only one device holds blocks, they go to others, which are assumed to be as fast.
    slower: FloatArray = np.divide(
        after, before, out=np.ones_like(after), where=(after > 0.0) & (before > 0.0)
    )
    return slower


def _moving_s(
    parameters: SystemParameters,
    state: SystemState,
    costs: RoundCosts,
    blocks: FloatArray,
    hosts: BoolArray,
    alone: BoolArray,
    *,
    heavy: bool,
    bits: BlockBits,
) -> FloatArray:
    """``T_move`` (E, N, K) [s] if that device fails, over average links to the remaining devices.

    The lightweight replay moves the lost blocks; those with a replica come from its host. Rescheduling moves
    everything that remains to the CU, one device after the other, and hands out all blocks.
    """
    power = costs.allocation.node_power
    seconds = np.asarray(seconds_per_bit(parameters, state, power, costs.interference))
    at_work, myself = blocks > 0.0, np.eye(blocks.shape[-1], dtype=np.bool_)
    # A device's blocks go to the others that hold blocks, or to all present others if none does.
    others = at_work[..., None, :] & ~myself
    present = np.asarray(state.present)[..., None, :] & ~myself
    others = np.where(others.any(axis=-1, keepdims=True), others, present)
    kept = hosts.any(axis=-1)
    at_device = hosts[..., 1:].any(axis=-1)
    host = np.where(kept, hosts.argmax(axis=-1), 0)
    from_cu = _mean_over(others, seconds[..., :1, 1:])
    if heavy:
        whole = bits.weights + bits.moments
        each = whole * blocks * np.where(at_work, seconds[..., 1:, 0], 0.0)
        collected = each.sum(axis=-1, keepdims=True) - each
        replica = np.where(at_device, bits.replica * blocks, 0.0)
        to_cu = np.take_along_axis(seconds[..., 0], host, axis=-1)
        handed_out = whole * (blocks.sum(axis=-1, keepdims=True) - blocks)
        handed_out = handed_out + blocks * np.where(alone & ~kept, bits.weights, whole)
        collected = collected + np.where(at_device, replica * to_cu, 0.0)
        moved: FloatArray = collected + handed_out * from_cu
        return moved
    from_host = _mean_over(others, np.take_along_axis(seconds, host[..., None], axis=-2)[..., 1:])
    over_cu = np.where(at_device, bits.frozen, np.where(kept, bits.frozen + bits.replica, bits.weights))
    near = np.where(at_device, bits.replica * from_host, 0.0)
    longest: FloatArray = np.where(alone, blocks * np.maximum(over_cu * from_cu, near), 0.0)
    return longest


def _mean_over(chosen: BoolArray, values: FloatArray) -> FloatArray:
    """Mean of the chosen values along the last axis; 0 where none is chosen."""
    total, number = np.where(chosen, values, 0.0).sum(axis=-1), chosen.sum(axis=-1)
    mean: FloatArray = np.divide(total, number, out=np.zeros_like(total), where=number > 0)
    return mean
