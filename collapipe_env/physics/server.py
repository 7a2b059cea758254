"""The edge server under the scenario's terms: its shared speed, its memory and its energy ([X]).

A server that costs nothing, has room for everything and serves no other tenants lets split training win on
physics alone. Terms make it a machine like the others: other tenants take a share ``rho`` of it, the states
and activations of the blocks that it trains must fit its memory, and its computations draw energy. The
budgeted part of that is ``PUE e_flop`` times the encoder's FLOPs; idle power and radio are reported only, as
no scheduler decides about them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from collapipe_env.ground.arrays import Array, namespace
from collapipe_env.physics.allocation import SEQUENTIAL, Allocation
from collapipe_env.physics.workload import BACKWARD_OVER_FORWARD, WorkloadCosts


class ServerTerms(NamedTuple):
    """Terms on which schedulers use the server.

    Attributes:
        tenants: ``rho``, share of the server that others always use, 0 where a process varies it.
        memory_bytes: Memory for blocks of the encoder [byte].
        joules_per_flop: ``e_flop`` [J/FLOP].
        pue: Energy of the building over that of its machines, >= 1.
        idle_w: Power of the idle server [W].
        amplifier_efficiency: Emitted over drawn power of the base station's amplifier, ``eta_bs``.
        budget_j: ``Ebar_BS``, energy budget of a round [J]; infinite where energy is free.
        block_state_bytes: State of one block on the server, ``16 w`` in 32 bits [byte].
        block_activation_bytes: Activations of a mini-batch in one block, ``B alpha`` [byte]; the server
            recomputes nothing.
    """

    tenants: float = 0.0
    memory_bytes: float = math.inf
    joules_per_flop: float = 0.0
    pue: float = 1.0
    idle_w: float = 0.0
    amplifier_efficiency: float = 1.0
    budget_j: float = math.inf
    block_state_bytes: float = 0.0
    block_activation_bytes: float = 0.0


FREE_SERVER = ServerTerms()
"""A server without limits whose energy nobody counts."""


class ServerEnergy(NamedTuple):
    """Energy of the server in a round [J].

    Attributes:
        encoder: Energy of encoder blocks, by cluster (..., N), which the budget counts.
        head: Energy of heads, by cluster (..., N).
        idle: Energy of the idle machine (...).
        radio: Energy of the base station's sender (...): gradients to the CUs and the broadcast.
    """

    encoder: Array
    head: Array
    idle: Array
    radio: Array


def passes_flops(
    costs: WorkloadCosts, forward_flops: Array | float, steps: Array | int | None = None
) -> Array | float:
    """FLOPs of the forward and backward passes of all mini-batches of a round [FLOP].

    Args:
        steps: ``H`` of the clusters; ``None`` for the workload's.
    """
    taken = costs.local_steps if steps is None else steps
    return (1.0 + BACKWARD_OVER_FORWARD) * taken * costs.batch_size * forward_flops


def _of_players(allocation: Allocation, values: Array) -> Array:
    """Numbers of clusters (..., N), 0 for those that sit the round out."""
    return namespace(values).where(allocation.plays, values, namespace(values).zeros_like(values))


def encoder_energy(terms: ServerTerms, costs: WorkloadCosts, allocation: Allocation) -> Array:
    """Energy of the encoder blocks that the server trains for each cluster (..., N) [J], the budgeted part.

    ``PUE e_flop 3 H_n B s_n Phi_F``, and nothing for a cluster that sits the round out.
    """
    if not allocation.is_split:
        return namespace(allocation.bandwidth).zeros_like(allocation.bandwidth)
    kept = namespace(allocation.bandwidth).astype(allocation.server.server_blocks, allocation.bandwidth.dtype)
    steps = allocation.real_steps(costs.local_steps)
    each = terms.pue * terms.joules_per_flop * passes_flops(costs, costs.block_forward_flops, steps)
    return _of_players(allocation, kept * each)


def server_energy(
    terms: ServerTerms,
    costs: WorkloadCosts,
    bs_power_w: float,
    plan: Allocation,
    seconds: tuple[Array, Array, Array],
) -> ServerEnergy:
    """All energy of the server in a round, including the parts that no budget counts.

    The head costs as much per FLOP as the encoder, idling costs ``PUE P_idle T``, and the sender draws
    ``P_bs / eta_bs`` while it sends: the broadcast in the whole band, gradients in the part ``beta_n`` of
    band and power. Clusters that sit the round out use neither head nor sender.

    Args:
        bs_power_w: ``P_bs`` [W].
        plan: The plan of the round (...).
        seconds: Times of the round [s]: one micro-batch's gradients to each CU (..., N), the broadcast (...)
            and the round's delay (...).
    """
    downlink, broadcast, delay = seconds
    xp = namespace(plan.bandwidth)
    real = plan.bandwidth.dtype
    steps = plan.real_steps(costs.local_steps)
    passes = steps * xp.astype(plan.micro_batches, real)
    gradients = _of_players(plan, plan.bandwidth * passes * downlink)
    sending = xp.sum(gradients, axis=-1) + broadcast
    each = terms.pue * terms.joules_per_flop * passes_flops(costs, costs.decoder_forward_flops, steps)
    return ServerEnergy(
        encoder=encoder_energy(terms, costs, plan),
        head=_of_players(plan, xp.zeros_like(plan.bandwidth) + each),
        idle=terms.pue * terms.idle_w * delay,
        radio=bs_power_w / terms.amplifier_efficiency * sending,
    )


def server_memory(terms: ServerTerms, allocation: Allocation) -> Array:
    """Memory that the server needs for encoder blocks (...) [byte].

    With a copy for every cluster ``sum_n s_n (16 w + B alpha)``: all micro-batches are in flight, as under
    GPipe. A sequential server has one model and the activations of the one cluster that it serves. Clusters
    that sit the round out need none.
    """
    xp, server = namespace(allocation.bandwidth), allocation.server
    kept = _of_players(allocation, xp.astype(server.server_blocks, allocation.bandwidth.dtype))
    each = terms.block_state_bytes + terms.block_activation_bytes
    sequential = xp.asarray(server.server_mode == SEQUENTIAL)
    blocks = xp.where(sequential, xp.max(kept, axis=-1), xp.sum(kept, axis=-1))
    return blocks * each


def most_server_blocks(terms: ServerTerms, costs: WorkloadCosts, clusters: int) -> int:
    """Most blocks that the server can train for all clusters together, with a copy for each of them.

    A sequential server, which has one model for all, can hold the same number of blocks.

    Args:
        clusters: ``N``.

    Returns:
        At most ``N (L - 1)``: each cluster's devices hold at least one block.
    """
    most = clusters * (costs.blocks - 1)
    each = terms.block_state_bytes + terms.block_activation_bytes
    if most * each <= terms.memory_bytes:
        return most
    return int(terms.memory_bytes // each)
