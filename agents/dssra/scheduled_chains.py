"""Local steps of a cluster's plan under 1F1B and ZB-H1, in place of GPipe's closed form ([X]).

The search knows only GPipe's local step, in closed form. Other schedules are simulated for the present plan.
The search then continues with the seconds that the best of them saves for each number of micro-batches, as if
the savings stayed the same for other segments and powers (:mod:`.open_rounds`).
"""

from __future__ import annotations

import numpy as np

# Registers the formulas for compiled code.
import collapipe_env.kernels.formulas  # noqa: F401
from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled, compiled_inner, compiled_leaf
from collapipe_env.physics.allocation import GPIPE, ONE_F_ONE_B, ZERO_BUBBLE
from collapipe_env.physics.cluster_times import ClusterTimes, cluster_times
from collapipe_env.physics.delay import gpipe_step
from collapipe_env.physics.parameters import Numbers
from collapipe_env.physics.schedules.makespans import run_chain
from collapipe_env.physics.schedules.simulation import ChainTimes
from collapipe_env.physics.workload import BACKWARD_OVER_FORWARD

from .link_noise import noise_of
from .options import (
    micro_batches_of,
    server_blocks_of,
    server_seconds_of,
    setting_of,
    with_server_blocks,
)
from .round_input import RoundInput, environment_row


@compiled_leaf
def most_in_flight(
    n: int, k: int, blocks: int, option: int, schedule: int, inputs: RoundInput, parameters: Numbers
) -> int:
    """Micro-batches, at most ``M``, that a device has room for beside its blocks; 0 if there is no room.

    Args:
        k: The device.
        blocks: Its blocks, >= 1.
        option: The cluster's option.
        schedule: Place in ``SCHEDULES``; ZB-H1 needs the working memory once per micro-batch.
    """
    M = micro_batches_of(option, inputs)
    samples = parameters.batch_size / M
    activation, working = parameters.activation_bytes, parameters.working_bytes
    if setting_of(option, inputs) == 1:
        activation, working = parameters.other_activation_bytes, parameters.other_working_bytes
    room = inputs.memory_bytes[n, k]
    if schedule == ZERO_BUBBLE:
        activation += working
    else:
        room -= samples * working
    beside = (room / blocks - parameters.block_state_bytes) / (samples * activation)
    return int(max(min(np.floor(beside), M), 0.0))


@compiled_inner
def chain_of(
    segments: IntArray, option: int, times: ClusterTimes, inputs: RoundInput, parameters: Numbers
) -> ChainTimes:
    """Times of one micro-batch along a cluster's chain, with weight gradients split off.

    Args:
        segments: Blocks of each device (K,).
        times: Times of the cluster for the option's micro-batches.
    """
    M, extra = micro_batches_of(option, inputs), parameters.overheads
    ratio = inputs.ratio[setting_of(option, inputs)]
    S = 0
    for k in range(segments.shape[0]):
        S += 1 if segments[k] > 0 else 0
    forward, backward, weight = np.empty(S + 1), np.empty(S + 1), np.empty(S + 1)
    there, back, latency = np.zeros(S + 3), np.zeros(S + 3), np.empty(S + 3)
    s, last = 0, 0
    for k in range(segments.shape[0]):
        if segments[k] == 0:
            continue
        forward[s] = segments[k] * times.block_forward[k] / M
        weight[s] = segments[k] * times.block_weight[k] / M
        backward[s] = ratio * forward[s] - weight[s]
        there[s], back[s] = times.hop_forward[last, k + 1] / M, times.hop_backward[last, k + 1] / M
        last, s = k + 1, s + 1
    there[S], back[S] = times.hop_forward[last, 0] / M, times.hop_backward[last, 0] / M
    there[S + 2], back[S + 2] = times.uplink / M, times.downlink / M
    samples = parameters.batch_size / M
    kept = server_blocks_of(option, inputs) * parameters.server_block_seconds
    kept *= parameters.block_weight_flops / parameters.block_forward_flops
    forward[S] = samples * server_seconds_of(option, inputs, parameters) + extra.server_s
    weight[S] = samples * (parameters.server_weight_seconds + kept) / inputs.server_share[0] + extra.server_s
    backward[S] = BACKWARD_OVER_FORWARD * forward[S] - weight[S]
    for link in range(S + 3):
        latency[link] = extra.latency_s
    latency[S + 2] = extra.edge_latency_s
    return ChainTimes(forward, backward, weight, there, back, latency, np.ones((S + 1, 1)))


@compiled_inner
def gpipe_seconds(chain: ChainTimes, micro_batches: float) -> float:
    """Local step of a chain under GPipe [s], in closed form."""
    S = chain.forward.shape[0] - 1
    forward = backward = slow_forward = slow_backward = latency = 0.0
    for s in range(S + 1):
        whole = chain.backward[s] + chain.weight[s]
        forward, backward = forward + chain.forward[s], backward + whole
        slow_forward, slow_backward = max(slow_forward, chain.forward[s]), max(slow_backward, whole)
    for link in range(S + 3):
        there, back = chain.link_forward[link], chain.link_backward[link]
        forward, backward = forward + there, backward + back
        slow_forward, slow_backward = max(slow_forward, there), max(slow_backward, back)
        latency += 0.0 if link == S + 1 else chain.latency[link]
    seconds: float = gpipe_step(forward, slow_forward, backward, slow_backward, micro_batches)
    return seconds + 2.0 * latency


@compiled_inner
def best_schedule(
    n: int,
    segments: IntArray,
    option: int,
    times: ClusterTimes,
    caps: IntArray,
    inputs: RoundInput,
    parameters: Numbers,
) -> tuple[int, float]:
    """Schedule with the shortest local step, and how much shorter than GPipe's it is.

    Args:
        segments: Blocks of each device (K,).
        times: Times of the cluster for the option's micro-batches.
        caps: Receives the most micro-batches that each device has in flight (K,); 0 under GPipe or without
            blocks.

    Returns:
        Place in ``SCHEDULES``, and the seconds saved; minus infinity where no schedule's memory fits.
    """
    M = int(micro_batches_of(option, inputs))
    chain = chain_of(segments, option, times, inputs, parameters)
    S = chain.forward.shape[0] - 1
    gpipe = gpipe_seconds(chain, float(M))
    schedule, shortest, room = GPIPE, gpipe, inputs.cap[setting_of(option, inputs), n]
    for k in range(segments.shape[0]):
        caps[k] = 0
        if segments[k] > room[k]:
            shortest = np.inf
    limits, nothing = np.empty(S, dtype=np.int64), np.empty((0, 6))
    whole = ChainTimes(
        chain.forward,
        chain.backward + chain.weight,
        np.zeros(S + 1),
        chain.link_forward,
        chain.link_backward,
        chain.latency,
        chain.chunk_share,
    )
    for kind in (ONE_F_ONE_B, ZERO_BUBBLE):
        s, least = 0, M
        for k in range(segments.shape[0]):
            if segments[k] > 0:
                limits[s] = most_in_flight(n, k, segments[k], option, kind, inputs, parameters)
                least = min(least, limits[s])
                s += 1
        if least < 1:
            continue
        split = chain if kind == ZERO_BUBBLE else whole
        seconds = run_chain(split, kind, limits, 1, M, parameters.half_duplex, nothing)
        if seconds < shortest * (1.0 - 1e-12):
            schedule, shortest, s = kind, seconds, 0
            for k in range(segments.shape[0]):
                if segments[k] > 0:
                    caps[k] = limits[s]
                    s += 1
    return schedule, gpipe - shortest


@compiled
def schedule_rows(
    inputs: RoundInput,
    parameters: Numbers,
    segments: IntArray,
    power: FloatArray,
    share: FloatArray,
    option: IntArray,
    all_choices: bool,
    schedule: IntArray,
    caps: IntArray,
) -> None:
    """Choose the schedules of plans, and write their savings over GPipe into the input of the search.

    Args:
        inputs: The environments (E, ...); receives ``saving``, seconds of a local step for each choice.
        segments: Blocks (E, N, K).
        power: Powers (E, N, K+1) [W].
        share: Shares (E, N).
        option: Options (E, N).
        all_choices: Whether to do so for all choices of an option rather than the present one only.
        schedule: Receives the schedules (E, N), places in ``SCHEDULES``.
        caps: Receives the caps (E, N, K).
    """
    E, clusters, devices = segments.shape
    others = np.empty(devices, dtype=np.int64)
    for e in range(E):
        row = environment_row(inputs, e)
        noise = noise_of(segments[e], power[e], row, parameters)
        for n in range(clusters):
            kept = server_blocks_of(option[e, n], row)
            for choice in row.choices:
                candidate = with_server_blocks(choice, kept, row)
                present = candidate == option[e, n]
                if not (present or all_choices):
                    continue
                held = np.empty(devices, dtype=np.int64)
                for k in range(devices):
                    held[k] = 1 if row.memory_bytes[n, k] > 0.0 else 0
                times = cluster_times(
                    parameters,
                    row.speed[n],
                    row.clock[n],
                    held,
                    row.gain[n],
                    row.uplink_gain[n],
                    power[e, n],
                    noise[n],
                    share[e, n],
                    micro_batches_of(candidate, row),
                    row.server_share[0],
                )
                kind, seconds = best_schedule(n, segments[e, n], candidate, times, others, row, parameters)
                inputs.saving[e, n, choice] = max(seconds, -1e9)
                if present:
                    schedule[e, n] = kind
                    for k in range(devices):
                        caps[e, n, k] = others[k]
