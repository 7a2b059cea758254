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
from collapipe_env.physics.memory import device_memory, fits, memory_cap_blocks
from collapipe_env.physics.parameters import Parameters, SystemParameters
from collapipe_env.physics.schedules.makespans import run_chain
from collapipe_env.physics.schedules.simulation import ChainTimes
from collapipe_env.physics.schedules.storage import stored_by_stage
from collapipe_env.simulator.state import SystemState


class PlanArrays(NamedTuple):
    """One cluster's pipeline as compiled code reads it; see :class:`~.scheduled_plan.ScheduledPlan`.

    Attributes:
        devices: Device of each stage in pipeline order (S,), all different.
        held: Blocks of each stage (S,), >= 1.
        schedule: Place in ``SCHEDULES``.
        caps: Caps of the stages (S,).
        chunks: ``v``, 1 unless interleaved.
        micro_batches: ``M``.
    """

    devices: IntArray
    held: IntArray
    schedule: int
    caps: IntArray
    chunks: int
    micro_batches: int


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

    def both_ways(self) -> tuple[FloatArray, FloatArray]:
        """Forward and backward together: of a block on each device (K,), of each hop (K+1, K+1) [s]."""
        times = self.times
        return times.block_forward + times.block_backward, times.hop_forward + times.hop_backward


_cluster_times = called_from_python(cluster_times)


def full_power_noise(parameters: SystemParameters, state: SystemState) -> FloatArray:
    """Noise plus interference of each cluster's links with every active node at full power (E, N) [W].

    It depends on no decision, so it is exact.
    """
    disturbance = radio.interference(
        state.cross_gain, np.full_like(state.uplink_gain, parameters.power_max_w)
    )
    noise: FloatArray = radio.d2d_noise(parameters.noise_density, parameters.d2d_bandwidth_hz, disturbance)
    return noise


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
    noise = full_power_noise(parameters, state)
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
def plan_times(problem: ChainProblem, plan: PlanArrays) -> ChainTimes:
    """A plan's chain, seconds of one micro-batch; weight gradients run by themselves under ``zb-h1`` only.

    Args:
        problem: The cluster.
        plan: The plan; its caps are not read.
    """
    times, S, chunks = problem.times, len(plan.devices), plan.chunks
    forward, backward, weight = np.empty(S + 1), np.empty(S + 1), np.zeros(S + 1)
    there, back = np.zeros(S + 3), np.zeros(S + 3)
    share = np.ones((S + 1, chunks))
    part = 1.0 / plan.micro_batches
    before = 0
    for s in range(S):
        k, count = plan.devices[s], plan.held[s]
        forward[s] = part * count * times.block_forward[k]
        backward[s] = part * count * times.block_backward[k]
        weight[s] = part * count * times.block_weight[k]
        for c in range(chunks):
            share[s, c] = (count // chunks + (1 if c < count % chunks else 0)) / count
        there[s] = part * times.hop_forward[before, k + 1]
        back[s] = part * times.hop_backward[before, k + 1]
        before = k + 1
    there[S], back[S] = part * times.hop_forward[before, 0], part * times.hop_backward[before, 0]
    if S > 1:
        first = plan.devices[0] + 1
        there[S + 1] = part * times.hop_forward[before, first]
        back[S + 1] = part * times.hop_backward[before, first]
    there[S + 2], back[S + 2] = part * times.uplink, part * times.downlink
    forward[S], backward[S] = part * times.server_forward, part * times.server_backward
    weight[S] = part * times.server_weight
    if plan.schedule == ZERO_BUBBLE:
        backward -= weight
    else:
        weight[:] = 0.0
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


def block_room(problem: ChainProblem, stored: int, micro_batches: int) -> IntArray:
    """Blocks that each device can hold with so many of ``M`` micro-batches stored (K,), at most ``L``."""
    c, memory = problem.numbers, problem.memory_bytes
    samples = stored * c.batch_size / micro_batches
    most = memory_cap_blocks(memory, samples, c.block_state_bytes, c.activation_bytes)
    # What fits only by rounding does not fit.
    most -= ~fits(device_memory(most, samples, c.block_state_bytes, c.activation_bytes), memory)
    room: IntArray = np.minimum(most, c.blocks).astype(np.int64)
    return room


@compiled
def fits_memory(problem: ChainProblem, plan: PlanArrays) -> bool:
    """Whether every device of a plan has the memory for it."""
    schedule, M, steps = plan.schedule, plan.micro_batches, int(problem.numbers.local_steps)
    stored = stored_by_stage(schedule, plan.caps, plan.held, plan.chunks, M, steps)
    for s in range(len(plan.devices)):
        needed = stage_bytes(problem, schedule, plan.held[s], stored[s], M)
        if not fits(needed, problem.memory_bytes[plan.devices[s]]):
            return False
    return True


@compiled
def round_seconds(problem: ChainProblem, plan: PlanArrays, step: float) -> float:
    """All local steps of a plan, given one, and the collection [s]: what a plan decides of ``T_n``.

    Adding the upload, which no such plan changes, gives the simulator's ``T_n`` at full power and equal
    shares.
    """
    longest = 0.0
    for s in range(len(plan.devices)):
        longest = max(longest, float(plan.held[s] * problem.times.block_collect[plan.devices[s]]))
    return step * problem.numbers.local_steps + longest


@compiled
def plan_seconds(problem: ChainProblem, plan: PlanArrays) -> float:
    """The part of a cluster's round delay that a plan decides, see :func:`round_seconds`.

    Args:
        problem: The cluster.
        plan: The plan.

    Returns:
        Seconds; infinite if the schedule's orders wait for each other.
    """
    runs = int(problem.numbers.local_steps) if plan.schedule == ASYNC else 1
    times, M, nothing = plan_times(problem, plan), plan.micro_batches * runs, np.zeros((0, 6))
    duplex = problem.numbers.half_duplex
    step = run_chain(times, plan.schedule, plan.caps, plan.chunks, M, duplex, nothing)
    return round_seconds(problem, plan, step / runs)
