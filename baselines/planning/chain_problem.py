"""One cluster's pipeline as the planners of the published systems see it: what a plan would take.

Planners that choose partition, placement and schedule leave powers and bandwidth open and get the common
defaults: full power and equal shares. At full power the interference depends on no plan, so all times of a
cluster are known before the round and a plan is priced exactly, without the other clusters.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# Registers the formulas for compiled code.
import collapipe_env.kernels.formulas  # noqa: F401
from collapipe_env.allocation import ASYNC, ZERO_BUBBLE
from collapipe_env.arrays import FloatArray, IntArray
from collapipe_env.compiled import called_from_python, compiled
from collapipe_env.physics import radio
from collapipe_env.physics.cluster_times import ClusterTimes, cluster_times
from collapipe_env.physics.memory import device_memory, fits
from collapipe_env.physics.parameters import Parameters, SystemParameters
from collapipe_env.physics.schedules.makespans import run_chain
from collapipe_env.physics.schedules.recurrence import ordered_step
from collapipe_env.physics.schedules.simulation import ChainTimes
from collapipe_env.physics.schedules.storage import stored_by_stage
from collapipe_env.simulator.state import SystemState


class ChainProblem(NamedTuple):
    """One cluster's round at full power and an equal share of the band.

    Attributes:
        numbers: Parameters of the scenario.
        times: Times of its blocks, hops, uplink and server; devices by index, node 0 is the CU.
        memory_bytes: Memory of each device (K,), 0 for absent ones.
    """

    numbers: Parameters
    times: ClusterTimes
    memory_bytes: FloatArray


_cluster_times = called_from_python(cluster_times)


def chain_problems(parameters: SystemParameters, state: SystemState) -> dict[tuple[int, int], ChainProblem]:
    """The problem of every environment and cluster.

    Args:
        parameters: Parameters of the scenario.
        state: The system before the round (E, ...).

    Returns:
        By environment and cluster.
    """
    *clusters, K = state.present.shape
    power = np.full(K + 1, parameters.power_max_w)
    disturbance = radio.interference(state.cross_gain, np.full(clusters, parameters.power_max_w))
    noise = radio.d2d_noise(parameters.noise_density, parameters.d2d_bandwidth_hz, disturbance)
    speed, gain = (np.ascontiguousarray(a, dtype=np.float64) for a in (state.speed, state.d2d_gain))
    present = np.ascontiguousarray(state.present, dtype=np.int64)
    memory = np.ascontiguousarray(np.where(state.present, state.memory_bytes, 0.0), dtype=np.float64)
    return {
        at: ChainProblem(
            parameters.numbers,
            _cluster_times(
                parameters.numbers,
                speed[at],
                present[at],
                gain[at],
                float(state.uplink_gain[at]),
                power,
                float(noise[at]),
                1.0 / parameters.clusters,
            ),
            memory[at],
        )
        for at in np.ndindex(*clusters)
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
        forward[s] = part * count * problem.times.block_forward[k]
        backward[s] = part * count * problem.times.block_backward[k]
        if split_backward:
            weight[s] = part * count * problem.times.block_weight[k]
            backward[s] -= weight[s]
        for c in range(chunks):
            share[s, c] = (count // chunks + (1 if c < count % chunks else 0)) / count
        before = 0 if s == 0 else devices[s - 1] + 1
        there[s] = part * problem.times.hop_forward[before, k + 1]
        back[s] = part * problem.times.hop_backward[before, k + 1]
    first, last = devices[0] + 1, devices[S - 1] + 1
    there[S] = part * problem.times.hop_forward[last, 0]
    back[S] = part * problem.times.hop_backward[last, 0]
    if S > 1:
        there[S + 1] = part * problem.times.hop_forward[last, first]
        back[S + 1] = part * problem.times.hop_backward[last, first]
    there[S + 2], back[S + 2] = part * problem.times.uplink, part * problem.times.downlink
    forward[S] = part * problem.times.server_forward
    backward[S] = part * problem.times.server_backward
    if split_backward:
        weight[S] = part * problem.times.server_weight
        backward[S] -= weight[S]
    return ChainTimes(forward, backward, weight, there, back, share)


@compiled
def stage_bytes(problem: ChainProblem, schedule: int, held: int, stored: float, micro_batches: int) -> float:
    """Memory that a stage needs [byte].

    Args:
        problem: The cluster.
        schedule: Place in ``SCHEDULES``; ``async`` keeps a second copy of the weights.
        held: Blocks.
        stored: Micro-batches whose activations it keeps.
        micro_batches: ``M``.
    """
    c = problem.numbers
    state = c.block_state_bytes + (c.block_copy_bytes if schedule == ASYNC else 0.0)
    needed: float = device_memory(held, stored * (c.batch_size / micro_batches), state, c.activation_bytes)
    return needed


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
    stored = stored_by_stage(schedule, caps, held, chunks, micro_batches, int(problem.numbers.local_steps))
    for s in range(len(devices)):
        needed = stage_bytes(problem, schedule, held[s], stored[s], micro_batches)
        if not fits(needed, problem.memory_bytes[devices[s]]):
            return False
    return True


@compiled
def collection(problem: ChainProblem, devices: IntArray, held: IntArray) -> float:
    """Time until the CU has all blocks of a plan (S stages) [s]."""
    longest = 0.0
    for s in range(len(devices)):
        longest = max(longest, float(held[s] * problem.times.block_collect[devices[s]]))
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
    runs = int(problem.numbers.local_steps) if schedule == ASYNC else 1
    times = plan_times(problem, devices, held, schedule == ZERO_BUBBLE, chunks, micro_batches)
    nothing = np.zeros((0, 6))
    step = run_chain(
        times, schedule, caps, chunks, micro_batches * runs, problem.numbers.half_duplex, nothing
    )
    return step * problem.numbers.local_steps / runs + collection(problem, devices, held)


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
    return step * problem.numbers.local_steps + collection(problem, devices, held)
