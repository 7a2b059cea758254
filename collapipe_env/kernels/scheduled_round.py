"""Schedules of plain plans, cluster by cluster: steps, delays and memory in place of GPipe's ([R], [X]).

:func:`~collapipe_env.kernels.plain_round.plain_round` has priced the same plans as GPipe before. Everything
else in its rows, busy energy among it, depends on no schedule.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled
from collapipe_env.kernels.cluster_chain import System
from collapipe_env.kernels.plain_round import bytes_of, end_round, rows_of, setting_of, steps_of, takes_part
from collapipe_env.kernels.round_rows import CLUSTER, DEVICE, NODE, ROUND, PlainPlan
from collapipe_env.physics.allocation import ASYNC, GPIPE, ZERO_BUBBLE
from collapipe_env.physics.delay import cluster_delay
from collapipe_env.physics.memory import device_memory
from collapipe_env.physics.overheads import cycles_time
from collapipe_env.physics.parameters import Numbers
from collapipe_env.physics.schedules.makespans import run_chain
from collapipe_env.physics.schedules.orders import ONE
from collapipe_env.physics.schedules.simulation import ChainTimes
from collapipe_env.physics.schedules.storage import stored_in_stage


class WeightRows(NamedTuple):
    """Rows written for each cluster, by the names of ``PipelineElements``; hops between chunks are zero."""

    server_weight: int
    wrap_forward: int
    wrap_backward: int


WEIGHTS = WeightRows(*range(3))


@compiled
def scheduled_round(
    numbers: Any,
    block: FloatArray,
    weights: FloatArray,
    compute_weight: FloatArray,
    schedules: IntArray,
    caps: IntArray,
    *arrays: Any,
) -> None:
    """Let each cluster of plain plans run its own schedule.

    Args:
        numbers: The scenario's numbers as a record (1,).
        block: Rows of the plans as GPipe, as ``plain_round`` has written them, changed in place.
        weights: Written, the rows of :data:`WEIGHTS` (3, E, N).
        compute_weight: Written, weight gradients of each stage (E, N, K) [s].
        schedules: Places in ``SCHEDULES`` (E, N); one chunk a stage.
        caps: Caps of the slots (E, N, K).
        arrays: As for ``plain_round``.
    """
    c: Numbers = numbers[0]
    system, present, plan = System(*arrays[:8]), arrays[8], PlainPlan(*arrays[9:15])
    E, N, K = plan.blocks.shape
    rounds, clusters, nodes, devices, _ = rows_of(block, E, N, K)
    forward, backward, weight = np.zeros(K + 1), np.zeros(K + 1), np.zeros(K + 1)
    ahead, back = np.zeros(K + 3), np.zeros(K + 3)
    slot_caps, nothing, latency = np.zeros(K, dtype=np.int64), np.zeros((0, 6)), np.zeros(K + 3)
    chain = ChainTimes(forward, backward, weight, ahead, back, latency, np.ones((K + 1, 1)))
    weights[WEIGHTS.wrap_forward] = weights[WEIGHTS.wrap_backward] = 0.0
    extra, ratio = c.overheads, c.block_weight_flops / c.block_forward_flops
    for e in range(E):
        for n in range(N):
            kind, M = schedules[e, n], plan.micro_batches[e, n]
            if not takes_part(plan, e, n):
                weights[WEIGHTS.server_weight, e, n] = 0.0
                compute_weight[e, n] = 0.0
                continue
            steps, samples = steps_of(c, plan, e, n), c.batch_size / M
            activation_bytes, working_bytes = bytes_of(c, setting_of(plan, e, n))
            state_bytes = c.block_state_bytes + (c.block_copy_bytes if kind == ASYNC else 0.0)
            on_server = samples * c.server_weight_seconds / system.server_share[e] + extra.server_s
            weights[WEIGHTS.server_weight, e, n] = on_server
            S, least, split = 0, caps[e, n].max(), kind == ZERO_BUBBLE
            ahead[0] = nodes[NODE.hop_forward, e, n, 0]
            for k in range(K):
                blocks = plan.blocks[e, n, k]
                compute_weight[e, n, k] = 0.0
                if blocks == 0:
                    continue
                launch = cycles_time(blocks, extra.block_cycles, system.clock[e, n, k])
                forward[S] = devices[DEVICE.compute_forward, e, n, k]
                compute_weight[e, n, k] = weight[S] = ratio * (forward[S] - launch) + launch
                backward[S] = devices[DEVICE.compute_backward, e, n, k] - (weight[S] if split else 0.0)
                ahead[S + 1] = nodes[NODE.hop_forward, e, n, k + 1]
                back[S] = nodes[NODE.hop_backward, e, n, k + 1]
                slot_caps[S], least, latency[S] = caps[e, n, k], min(least, caps[e, n, k]), extra.latency_s
                S += 1
                # Under GPipe memory is known.
                if kind == GPIPE:
                    continue
                cap = caps[e, n, k] if split else least
                in_flight = samples * stored_in_stage(kind, cap, blocks, ONE, M, steps)
                # Weight gradients of every micro-batch in flight need what its backward pass recomputed.
                working = working_bytes * (blocks * in_flight if split else samples)
                devices[DEVICE.memory, e, n, k] = device_memory(
                    blocks, in_flight, state_bytes, activation_bytes, working
                )
            if kind != GPIPE:
                forward[S], weight[S] = clusters[CLUSTER.server_forward, e, n], on_server
                backward[S] = clusters[CLUSTER.server_backward, e, n] - (on_server if split else 0.0)
                back[S] = nodes[NODE.hop_backward, e, n, 0]
                ahead[S + 1] = back[S + 1] = 0.0
                ahead[S + 2], back[S + 2] = clusters[CLUSTER.uplink, e, n], clusters[CLUSTER.downlink, e, n]
                latency[S] = latency[S + 1] = extra.latency_s
                latency[S + 2] = extra.edge_latency_s
                runs = int(steps) if kind == ASYNC else 1
                length = run_chain(chain, kind, slot_caps[:S], ONE, M * runs, c.half_duplex, nothing)
                step = length / runs + clusters[CLUSTER.update, e, n]
                clusters[CLUSTER.local_step, e, n] = step
                delay = cluster_delay(
                    steps, step, clusters[CLUSTER.collect, e, n], clusters[CLUSTER.upload, e, n]
                )
                clusters[CLUSTER.cluster_delay, e, n] = clusters[CLUSTER.relay, e, n] + delay
        end_round(c, system, present, plan, e, rounds[ROUND.broadcast, e], rounds, clusters, nodes)
