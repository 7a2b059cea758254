"""One cluster's pipeline as the planners of the published systems see it: the time of a plan.

Planners that choose partition, placement and schedule leave powers and bandwidth open and get the common
defaults: full power and equal shares. At full power the interference depends on no plan, so all times of a
cluster are known before the round, and a plan is priced exactly without the other clusters. The price
includes overheads of passes and messages, latencies of links and the update that ends a local step.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# Registers the formulas for compiled code.
import collapipe_env.kernels.formulas  # noqa: F401
from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import called_from_python, compiled, compiled_leaf
from collapipe_env.kernels.cluster_chain import System, system_of
from collapipe_env.kernels.cluster_times import ClusterTimes, cluster_times
from collapipe_env.physics import radio
from collapipe_env.physics.allocation import ASYNC, ZERO_BUBBLE
from collapipe_env.physics.memory import device_memory, fits
from collapipe_env.physics.parameters import Numbers, Parameters
from collapipe_env.physics.schedules.makespans import run_chain
from collapipe_env.physics.schedules.simulation import ChainTimes
from collapipe_env.physics.schedules.storage import stored_by_stage
from collapipe_env.physics.workload import BACKWARD_OVER_FORWARD
from collapipe_env.simulator.state import SystemState


class PlanArrays(NamedTuple):
    """A :class:`~.scheduled_plan.ScheduledPlan` as compiled code reads it; ``schedule`` by its place."""

    devices: IntArray
    held: IntArray
    schedule: int
    caps: IntArray
    chunks: int
    micro_batches: int


@compiled
def plan_of_row(row: IntArray) -> PlanArrays:
    """A draft as a row: stages, schedule, chunks, micro-batches; devices, blocks and caps, padded alike.

    Returns:
        Its plan, whose arrays are views. A 0 among its blocks asks for a balanced split.
    """
    S, parts = row[0], row[4:].reshape(3, -1)
    return PlanArrays(parts[0, :S], parts[1, :S], row[1], parts[2, :S], row[2], row[3])


class ChainProblem(NamedTuple):
    """One cluster's round at full power and an equal share of the band.

    Attributes:
        numbers: Parameters of the scenario.
        times: Times of its blocks, hops, uplink and server for a mini-batch without overheads, and the
            overheads by themselves; devices by index, node 0 is the CU.
        memory_bytes: Memory of each device (K,), 0 for absent ones.
    """

    numbers: Numbers
    times: ClusterTimes
    memory_bytes: FloatArray

    def both_ways(self, micro_batches: int) -> tuple[FloatArray, FloatArray]:
        """Times of a mini-batch, forward and backward together, with the overheads of ``M`` micro-batches.

        Returns:
            Times of a block on each device (K,) and of each hop (K+1, K+1) [s]; without a hop's latency,
            which occupies no resource.
        """
        times = self.times
        launches = micro_batches * ((1.0 + self.numbers.backward_over_forward) * times.block_launch)
        messages = micro_batches * (times.hop_overhead_forward + times.hop_overhead_backward)
        return (
            times.block_forward + times.block_backward + launches,
            times.hop_forward + times.hop_backward + messages,
        )


_cluster_times = called_from_python(cluster_times)


def chain_problems(parameters: Parameters, state: SystemState) -> dict[tuple[int, int], ChainProblem]:
    """The problem of every environment and cluster, from the system before the round (E, ...)."""
    *clusters, K = state.present.shape
    power = np.full(K + 1, parameters.power_max_w)
    # Every node at full power: this depends on no decision.
    loudest = parameters.sharing.duty * parameters.power_max_w
    disturbance = radio.interference(state.cross_gain, np.full(clusters, loudest))
    noise = radio.d2d_noise(parameters.noise_density, parameters.d2d_bandwidth_hz, disturbance)
    system = system_of(state)
    present = np.ascontiguousarray(state.present, dtype=np.int64)
    memory = np.ascontiguousarray(np.where(state.present, state.memory_bytes, 0.0), dtype=np.float64)
    numbers, share, problems = parameters.numbers, 1.0 / parameters.clusters, {}
    for at in np.ndindex(*clusters):
        row = System(*(a[at[:-1]] for a in system))
        terms = present[at], power, float(noise[at]), share, 0.0, 0, 0.0
        problems[at] = ChainProblem(numbers, _cluster_times(numbers, row, at[-1], *terms), memory[at])
    return problems


@compiled_leaf
def _hop_seconds(times: ClusterTimes, start: int, end: int, part: float) -> tuple[float, float]:
    """One micro-batch's activations and gradients on a hop [s], ``part`` of a mini-batch."""
    return (
        part * times.hop_forward[start, end] + times.hop_overhead_forward[start, end],
        part * times.hop_backward[start, end] + times.hop_overhead_backward[start, end],
    )


@compiled
def plan_times(problem: ChainProblem, plan: PlanArrays) -> ChainTimes:
    """Times of one micro-batch in a plan's chain [s]; weight gradients are separate under ``zb-h1`` only.

    Launches of a backward pass take ``rho`` times those of a forward pass; one part is for weight gradients.
    """
    times, S, chunks = problem.times, len(plan.devices), plan.chunks
    extra = problem.numbers.overheads
    forward, backward, weight = np.empty(S + 1), np.empty(S + 1), np.zeros(S + 1)
    there, back = np.zeros(S + 3), np.zeros(S + 3)
    share = np.ones((S + 1, chunks))
    part = 1.0 / plan.micro_batches
    before = 0
    for s in range(S):
        k, count = plan.devices[s], plan.held[s]
        launch = count * times.block_launch[k]
        forward[s] = part * count * times.block_forward[k] + launch
        backward[s] = part * count * times.block_backward[k] + problem.numbers.backward_over_forward * launch
        weight[s] = part * count * times.block_weight[k] + launch
        for c in range(chunks):
            share[s, c] = (count // chunks + (1 if c < count % chunks else 0)) / count
        there[s], back[s] = _hop_seconds(times, before, k + 1, part)
        before = k + 1
    there[S], back[S] = _hop_seconds(times, before, 0, part)
    if S > 1:
        there[S + 1], back[S + 1] = _hop_seconds(times, before, plan.devices[0] + 1, part)
    there[S + 2] = part * times.uplink + extra.edge_message_s
    back[S + 2] = part * times.downlink + extra.edge_message_s
    forward[S] = part * times.server_forward + extra.server_s
    backward[S] = part * times.server_backward + BACKWARD_OVER_FORWARD * extra.server_s
    weight[S] = part * times.server_weight + extra.server_s
    latency = np.full(S + 3, extra.latency_s)
    latency[S + 2] = extra.edge_latency_s
    if plan.schedule == ZERO_BUBBLE:
        backward -= weight
    else:
        weight[:] = 0.0
    return ChainTimes(forward, backward, weight, there, back, latency, share)


@compiled_leaf
def stage_bytes(problem: ChainProblem, schedule: int, held: int, stored: float, micro_batches: int) -> float:
    """Memory of a stage with the activations of some of its ``M`` micro-batches stored [byte].

    The schedule is given by its place; ``async`` keeps a second copy of the weights.
    """
    c = problem.numbers
    state = c.block_state_bytes + (c.block_copy_bytes if schedule == ASYNC else 0.0)
    samples = c.batch_size / micro_batches
    working = samples * c.working_bytes
    if schedule == ZERO_BUBBLE:
        working *= held * stored
    needed: float = device_memory(held, stored * samples, state, c.activation_bytes, working)
    return needed


def block_room(problem: ChainProblem, stored: int, micro_batches: int) -> IntArray:
    """Blocks that each device can hold with ``stored`` of ``M`` micro-batches (K,), at most ``L``."""
    c, samples = problem.numbers, problem.numbers.batch_size / micro_batches
    held, working = np.arange(1, c.blocks + 1), samples * c.working_bytes
    needed = device_memory(held, stored * samples, c.block_state_bytes, c.activation_bytes, working)
    room: IntArray = fits(needed, problem.memory_bytes[:, None]).sum(axis=-1)
    return room


@compiled
def fits_memory(problem: ChainProblem, plan: PlanArrays) -> bool:
    """Whether every device of a plan has the memory for it."""
    kind, M, chunks, steps = plan.schedule, plan.micro_batches, plan.chunks, problem.numbers.local_steps
    stored = stored_by_stage(kind, plan.caps, plan.held, chunks, M, steps)
    for s in range(len(plan.devices)):
        needed = stage_bytes(problem, kind, plan.held[s], stored[s], M)
        if not fits(needed, problem.memory_bytes[plan.devices[s]]):
            return False
    return True


@compiled
def round_seconds(problem: ChainProblem, plan: PlanArrays, step: float) -> float:
    """A plan's part of ``T_n`` [s]: relay, all local steps (given one step's passes) and collection.

    Every local step ends with the longest update; a wait for other clusters is not known here. Adding the
    upload, which no such plan changes, gives the simulator's ``T_n`` at full power and equal shares, except
    for that wait.
    """
    update, longest, relay = 0.0, 0.0, 0.0
    for s in range(len(plan.devices)):
        k, held = plan.devices[s], plan.held[s]
        update = max(update, float(held * problem.times.block_update[k]))
        longest = max(longest, float(held * problem.times.block_collect[k]))
        relay += held * problem.numbers.relay_bits * problem.times.link_bit[0, k + 1]
    return (step + update) * problem.numbers.local_steps + longest + relay


@compiled
def plan_seconds(problem: ChainProblem, plan: PlanArrays) -> float:
    """A plan's :func:`round_seconds` [s]; infinite if operations of the schedule wait for each other."""
    runs = int(problem.numbers.local_steps) if plan.schedule == ASYNC else 1
    times, M, nothing = plan_times(problem, plan), plan.micro_batches * runs, np.zeros((0, 6))
    duplex = problem.numbers.half_duplex
    step = run_chain(times, plan.schedule, plan.caps, plan.chunks, M, duplex, nothing)
    return round_seconds(problem, plan, step / runs)
