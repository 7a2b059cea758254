"""One cluster's pipeline as the planners of the published systems see it: what a plan would take.

Planners that choose partition, placement and schedule leave powers and bandwidth open and get the common
defaults: full power and equal shares. At full power the interference depends on no plan, so all times of a
cluster are known before the round and a plan is priced exactly, without the other clusters.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collapipe_env.allocation import ASYNC, GPIPE, INTERLEAVED, ZERO_BUBBLE
from collapipe_env.compiled import compiled
from collapipe_env.physics import radio
from collapipe_env.physics.schedules.makespans import run_chain
from collapipe_env.physics.schedules.recurrence import ordered_step
from collapipe_env.physics.schedules.simulation import ChainTimes
from collapipe_env.physics.workload import BACKWARD_OVER_FORWARD
from collapipe_env.simulator.state import SystemParameters, SystemState

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class ChainProblem(NamedTuple):
    """One cluster's round at full power and an equal share of the band; devices by index, node 0 is the CU.

    Attributes:
        blocks: ``L``.
        local_steps: ``H``.
        batch_size: ``B``.
        half_duplex: Whether hops between devices serve one direction at a time.
        block_forward: One block's forward pass of a whole mini-batch on each device (K,) [s].
        block_backward: The same backward, weight gradients in it (K,) [s].
        block_weight: The weight gradients alone (K,) [s].
        hop_forward: Activations of a mini-batch from node i to node j (K+1, K+1) [s].
        hop_backward: Gradients of a mini-batch from node i to node j (K+1, K+1) [s].
        uplink: Activations of a mini-batch from the CU to the base station [s].
        downlink: Its gradients back [s].
        server_forward: Server, forward pass of a mini-batch [s].
        server_backward: Server, backward pass [s].
        server_weight: Its weight gradients alone [s].
        block_collect: One block's parameters from each device to the CU (K,) [s].
        memory_bytes: Memory of each device (K,), 0 for absent ones.
        block_state_bytes: ``16 w`` of a block.
        block_copy_bytes: A second copy of a block's weights, which ``async`` keeps.
        activation_bytes: ``alpha``, per sample and block.
    """

    blocks: int
    local_steps: int
    batch_size: int
    half_duplex: bool
    block_forward: FloatArray
    block_backward: FloatArray
    block_weight: FloatArray
    hop_forward: FloatArray
    hop_backward: FloatArray
    uplink: float
    downlink: float
    server_forward: float
    server_backward: float
    server_weight: float
    block_collect: FloatArray
    memory_bytes: FloatArray
    block_state_bytes: float
    block_copy_bytes: float
    activation_bytes: float


def chain_problems(parameters: SystemParameters, state: SystemState) -> dict[tuple[int, int], ChainProblem]:
    """The problem of every environment and cluster.

    Args:
        parameters: Scalars of the scenario.
        state: The system before the round (E, ...).

    Returns:
        By environment and cluster.
    """
    costs, N = parameters.costs, parameters.clusters
    K = state.present.shape[-1]
    share = np.full(state.uplink_gain.shape, 1.0 / N)
    cu_power = np.full(state.uplink_gain.shape, parameters.power_max_w)
    power = np.full((*state.uplink_gain.shape, K + 1), parameters.power_max_w)
    disturbance = radio.interference(state.cross_gain, cu_power)
    noise = radio.d2d_noise(parameters.noise_density, parameters.d2d_bandwidth_hz, disturbance)
    snr = radio.d2d_snr(power, state.d2d_gain, noise)
    with np.errstate(divide="ignore"):  # nodes do not send to themselves
        bit_s = 1.0 / radio.shannon_rate(snr, parameters.d2d_bandwidth_hz)
        exponent = parameters.waterfall_threshold / snr
    up_s = (
        costs.batch_size
        * costs.activation_bits
        / radio.uplink_rate(
            share, cu_power, state.uplink_gain, parameters.uplink_noise_w, parameters.uplink_bandwidth_hz
        )
    )
    packet_s = bit_s
    if parameters.link_errors == "arq":
        packet_s = bit_s * radio.expected_transmissions(exponent)
        up_s = up_s * radio.expected_transmissions(
            radio.uplink_failure_exponent(
                share,
                cu_power,
                state.uplink_gain,
                parameters.uplink_noise_w,
                parameters.waterfall_threshold,
            )
        )
    down_s = (
        costs.batch_size
        * costs.gradient_bits
        / radio.downlink_rate(
            share,
            parameters.bs_power_w,
            state.uplink_gain,
            parameters.downlink_noise_w,
            parameters.downlink_bandwidth_hz,
        )
    )
    sample_s = costs.batch_size / state.speed
    server = costs.batch_size / (parameters.server_flops / N)
    memory = np.where(state.present, state.memory_bytes, 0.0)
    return {
        (e, n): ChainProblem(
            blocks=costs.blocks,
            local_steps=costs.local_steps,
            batch_size=costs.batch_size,
            half_duplex=parameters.half_duplex,
            block_forward=np.ascontiguousarray(costs.block_forward_flops * sample_s[e, n]),
            block_backward=np.ascontiguousarray(
                BACKWARD_OVER_FORWARD * costs.block_forward_flops * sample_s[e, n]
            ),
            block_weight=np.ascontiguousarray(costs.block_weight_flops * sample_s[e, n]),
            hop_forward=np.ascontiguousarray(costs.batch_size * costs.activation_bits * packet_s[e, n]),
            hop_backward=np.ascontiguousarray(costs.batch_size * costs.gradient_bits * packet_s[e, n]),
            uplink=float(up_s[e, n]),
            downlink=float(down_s[e, n]),
            server_forward=server * costs.decoder_forward_flops,
            server_backward=server * BACKWARD_OVER_FORWARD * costs.decoder_forward_flops,
            server_weight=server * costs.decoder_weight_flops,
            block_collect=np.ascontiguousarray(costs.block_payload_bits * bit_s[e, n, 1:, 0]),
            memory_bytes=np.ascontiguousarray(memory[e, n], dtype=np.float64),
            block_state_bytes=costs.block_state_bytes,
            block_copy_bytes=costs.block_copy_bytes,
            activation_bytes=costs.stored_activation_bytes,
        )
        for e, n in np.ndindex(*state.uplink_gain.shape)
    }


@compiled
def plan_times(
    problem: ChainProblem,
    devices: IntArray,
    held: IntArray,
    split_backward: bool,
    chunks: int,
    micro_batches: int,
) -> ChainTimes:
    """A plan's chain, seconds of one micro-batch.

    Args:
        problem: The cluster.
        devices: Device of each stage in pipeline order (S,), all different.
        held: Blocks of each stage (S,), >= 1.
        split_backward: Whether weight gradients run by themselves (``zb-h1``).
        chunks: ``v``.
        micro_batches: ``M``.
    """
    S = len(devices)
    forward, backward, weight = np.empty(S + 1), np.empty(S + 1), np.zeros(S + 1)
    there, back = np.zeros(S + 3), np.zeros(S + 3)
    share = np.ones((S + 1, chunks))
    part = 1.0 / micro_batches
    for s in range(S):
        k, count = devices[s], held[s]
        forward[s] = part * count * problem.block_forward[k]
        backward[s] = part * count * problem.block_backward[k]
        if split_backward:
            weight[s] = part * count * problem.block_weight[k]
            backward[s] -= weight[s]
        for c in range(chunks):
            share[s, c] = (count // chunks + (1 if c < count % chunks else 0)) / count
        before = 0 if s == 0 else devices[s - 1] + 1
        there[s] = part * problem.hop_forward[before, k + 1]
        back[s] = part * problem.hop_backward[k + 1, before]
    first, last = devices[0] + 1, devices[S - 1] + 1
    there[S] = part * problem.hop_forward[last, 0]
    back[S] = part * problem.hop_backward[0, last]
    if S > 1:
        there[S + 1] = part * problem.hop_forward[last, first]
        back[S + 1] = part * problem.hop_backward[first, last]
    there[S + 2], back[S + 2] = part * problem.uplink, part * problem.downlink
    forward[S] = part * problem.server_forward
    backward[S] = part * problem.server_backward
    if split_backward:
        weight[S] = part * problem.server_weight
        backward[S] -= weight[S]
    return ChainTimes(forward, backward, weight, there, back, share)


@compiled
def stored_by_stage(
    schedule: int, caps: IntArray, held: IntArray, chunks: int, micro_batches: int, local_steps: int
) -> FloatArray:
    """Micro-batches whose activations each stage keeps (S,); the rules of the simulator.

    Args:
        schedule: Place in ``SCHEDULES``.
        caps: Caps (S,).
        held: Blocks (S,).
        chunks: ``v``.
        micro_batches: ``M``.
        local_steps: ``H``.
    """
    S = len(caps)
    stored = np.empty(S)
    least = caps[0]
    for s in range(S):
        least = min(least, caps[s])
        if schedule == GPIPE:
            stored[s] = micro_batches
        elif schedule == ASYNC:
            stored[s] = min(least, local_steps * micro_batches)
        elif schedule == ZERO_BUBBLE:
            stored[s] = min(caps[s], micro_batches)
        elif schedule == INTERLEAVED:
            largest = -(-held[s] // chunks)
            stored[s] = min(least, micro_batches * chunks) * largest / held[s]
        else:
            stored[s] = min(least, micro_batches)
    return stored


@compiled
def fits_memory(
    problem: ChainProblem,
    devices: IntArray,
    held: IntArray,
    schedule: int,
    caps: IntArray,
    chunks: int,
    micro_batches: int,
) -> bool:
    """Whether every device of a plan has the memory for it; arguments as for :func:`plan_seconds`."""
    stored = stored_by_stage(schedule, caps, held, chunks, micro_batches, problem.local_steps)
    state = problem.block_state_bytes
    if schedule == ASYNC:
        state += problem.block_copy_bytes
    samples = problem.batch_size / micro_batches
    for s in range(len(devices)):
        needed = held[s] * (state + stored[s] * samples * problem.activation_bytes)
        if needed > problem.memory_bytes[devices[s]]:
            return False
    return True


@compiled
def collection(problem: ChainProblem, devices: IntArray, held: IntArray) -> float:
    """Time until the CU has all blocks of a plan (S stages) [s]."""
    longest = 0.0
    for s in range(len(devices)):
        longest = max(longest, float(held[s] * problem.block_collect[devices[s]]))
    return longest


@compiled
def plan_seconds(
    problem: ChainProblem,
    devices: IntArray,
    held: IntArray,
    schedule: int,
    caps: IntArray,
    chunks: int,
    micro_batches: int,
) -> float:
    """The part of a cluster's round delay that a plan decides: all local steps and the collection.

    Adding the upload, which no such plan changes, gives the simulator's ``T_n`` at full power and equal
    shares.

    Args:
        problem: The cluster.
        devices: Device of each stage in pipeline order (S,), all different.
        held: Blocks of each stage (S,), >= 1.
        schedule: Place in ``SCHEDULES``.
        caps: Caps of the stages (S,).
        chunks: ``v``, 1 unless interleaved.
        micro_batches: ``M``.

    Returns:
        Seconds; infinite if the schedule's orders wait for each other.
    """
    runs = problem.local_steps if schedule == ASYNC else 1
    times = plan_times(problem, devices, held, schedule == ZERO_BUBBLE, chunks, micro_batches)
    nothing = np.zeros((0, 6))
    step = run_chain(times, schedule, caps, chunks, micro_batches * runs, problem.half_duplex, nothing)
    return step * problem.local_steps / runs + collection(problem, devices, held)


@compiled
def full_duplex_seconds(
    problem: ChainProblem,
    devices: IntArray,
    held: IntArray,
    schedule: int,
    caps: IntArray,
    micro_batches: int,
) -> float:
    """A close bound from below for a plan on half-duplex links, at the cost of one on full-duplex links.

    Every order that half-duplex links allow is possible on full-duplex ones without weight gradients, and
    the recurrence runs it as early as possible.

    Args:
        problem: The cluster.
        devices: Device of each stage (S,).
        held: Blocks of each stage (S,).
        schedule: Place in ``SCHEDULES``: ``gpipe``, ``1f1b`` or ``zb-h1``.
        caps: Caps (S,).
        micro_batches: ``M``.
    """
    times = plan_times(problem, devices, held, schedule == ZERO_BUBBLE, 1, micro_batches)
    step = ordered_step(times, schedule, caps, False, micro_batches)
    return step * problem.local_steps + collection(problem, devices, held)
