"""Costs of plain plans, row by row: one device a stage, GPipe, only the decoder on the server.

A cluster's chain is walked hop by hop (:mod:`.cluster_chain`), whereas the general form
(:mod:`collapipe_env.simulator.general_costs`) looks at all pairs of nodes. Both use the same formulas
(:mod:`collapipe_env.kernels.formulas`).
"""

from __future__ import annotations

import math
from typing import Any

from collapipe_env.ground.arrays import BoolArray, FloatArray
from collapipe_env.ground.compiled import compiled, compiled_inner, compiled_leaf, inlined
from collapipe_env.kernels.cluster_chain import (
    BACKWARD,
    COLLECT,
    ENERGY,
    FORWARD,
    LATENCY,
    LOSSES,
    RELAY,
    SERVER,
    SUMMARY,
    UPDATE,
    UPLINK_W,
    WORK,
    System,
    backward_ratio,
    edge_times,
    passes_of,
    price_chain,
    receiving_joules,
    row_of_system,
)
from collapipe_env.kernels.round_rows import CLUSTER, DEVICE, NODE, OPENED, ROUND, PlainPlan
from collapipe_env.physics.delay import cluster_delay, message_time
from collapipe_env.physics.memory import device_memory
from collapipe_env.physics.packet_errors import survival
from collapipe_env.physics.parameters import Numbers
from collapipe_env.physics.radio import d2d_noise, power_in_a_channel
from collapipe_env.physics.rates import full_band_rate
from collapipe_env.physics.workload import BACKWARD_OVER_FORWARD


@compiled
def plain_round(numbers: Any, block: FloatArray, *arrays: Any) -> None:
    """Compute the costs of plain plans.

    Args:
        numbers: The scenario's numbers as a record (1,).
        block: Written: the rows of :data:`ROUND` (2, E), :data:`CLUSTER` (15, E, N), :data:`NODE` (5, E, N,
            K+1) and :data:`DEVICE` (3, E, N, K), one after the other, and space for workings.
        arrays: Those of :class:`System`, present devices (E, N, K), those of :class:`PlainPlan`, in their
            order, and the interference (E, N) [W] to use instead of the plan's own, or nothing (0, 0). Numba
            would take twice as long to unpack named tuples.
    """
    c: Numbers = numbers[0]
    system, present, plan, fixed = System(*arrays[:8]), arrays[8], PlainPlan(*arrays[9:15]), arrays[15]
    E, N, K = plan.blocks.shape
    rounds, clusters, nodes, devices, spare = rows_of(block, E, N, K)
    mean_power, power_of, chain = spare[:N], spare[N : N + K + 1], spare[N + K + 1 :]
    for e in range(E):
        row = row_of_system(system, e)
        weakest = math.inf
        for n in range(N):
            weakest = min(weakest, row.uplink_gain[n])
            mean_power[n] = 0.0
            if not takes_part(plan, e, n):
                continue
            power = plan.cu_power[e, n]
            for k in range(K):
                if plan.blocks[e, n, k] > 0:
                    power += plan.device_power[e, n, k]
            mean_power[n] = power_in_a_channel(power, c.sharing)
        rate = full_band_rate(c.link, c.bs_power_w, weakest, c.downlink_noise_w, c.downlink_bandwidth_hz)
        broadcast = message_time(c.broadcast_bits, rate)
        for n in range(N):
            interference = 0.0
            if fixed.shape[0] > 0:
                interference = fixed[e, n]
            else:
                for m in range(N):
                    interference += row.cross_gain[m, n] * mean_power[m]
            if takes_part(plan, e, n):
                clusters[CLUSTER.interference, e, n] = interference
                _cluster(c, row, plan, e, n, broadcast, clusters, nodes, devices, power_of, chain)
            else:
                _sits_out(plan, e, n, clusters, nodes, devices)
                clusters[CLUSTER.interference, e, n] = interference
        end_round(c, system, present, plan, e, broadcast, rounds, clusters, nodes)


@compiled_leaf
def end_round(
    c: Numbers,
    system: System,
    present: BoolArray,
    plan: PlainPlan,
    e: int,
    broadcast: float,
    rounds: FloatArray,
    clusters: FloatArray,
    nodes: FloatArray,
) -> None:
    """Write what follows from the clusters' delays: the round's, and the energy of radios always on."""
    if c.barrier:
        _pace(c, plan, e, clusters)
    slowest, anybody = 0.0, False
    for n in range(nodes.shape[2]):
        slowest = max(slowest, clusters[CLUSTER.cluster_delay, e, n])
        anybody = anybody or takes_part(plan, e, n)
    rounds[ROUND.broadcast, e] = broadcast if anybody else 0.0
    rounds[ROUND.delay, e] = slowest + broadcast if anybody else c.idle_round_s
    # No radio that is off draws anything in a round without end.
    idle = c.radio_power.idle_w * rounds[ROUND.delay, e] if c.radio_power.idle_w > 0.0 else 0.0
    for n in range(nodes.shape[2]):
        for node in range(nodes.shape[3]):
            on = takes_part(plan, e, n) and (node == 0 or present[e, n, node - 1])
            joules = nodes[NODE.busy_energy, e, n, node] + (idle if on else 0.0)
            nodes[NODE.energy, e, n, node] = joules
            nodes[NODE.energy_ratio, e, n, node] = joules / system.budget[e, n, node]


@compiled_inner
def rows_of(
    block: FloatArray, E: int, N: int, K: int
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """Rows of rounds, clusters, nodes and devices in a block of :func:`plain_round`, and the rest of it."""
    clusters_at = len(ROUND) * E
    nodes_at = clusters_at + len(CLUSTER) * E * N
    devices_at = nodes_at + len(NODE) * E * N * (K + 1)
    spare_at = devices_at + len(DEVICE) * E * N * K
    rounds = block[:clusters_at].reshape(len(ROUND), E)
    clusters = block[clusters_at:nodes_at].reshape(len(CLUSTER), E, N)
    nodes = block[nodes_at:devices_at].reshape(len(NODE), E, N, K + 1)
    devices = block[devices_at:spare_at].reshape(len(DEVICE), E, N, K)
    return rounds, clusters, nodes, devices, block[spare_at:]


@inlined
def setting_of(plan: PlainPlan, e: int, n: int) -> int:
    """Setting of recomputation of a cluster, as for :func:`~.cluster_chain.backward_ratio`."""
    return 1 if plan.opened.shape[0] > 0 and plan.opened[OPENED.other_setting, e, n] > 0.0 else 0


@inlined
def bytes_of(c: Numbers, setting: int) -> tuple[float, float]:
    """Activations kept of a sample and block, and the working set, under a setting [byte]."""
    if setting:
        return c.other_activation_bytes, c.other_working_bytes
    return c.activation_bytes, c.working_bytes


@inlined
def takes_part(plan: PlainPlan, e: int, n: int) -> bool:
    """Whether a cluster takes part."""
    return bool(plan.opened.shape[0] == 0 or plan.opened[OPENED.counted, e, n] < 0.0)


@inlined
def steps_of(c: Numbers, plan: PlainPlan, e: int, n: int) -> float:
    """Return the local steps ``H_n`` of a cluster that takes part."""
    opened = plan.opened.shape[0] > 0
    steps: float = plan.opened[OPENED.local_steps, e, n] if opened else c.local_steps
    return steps


@inlined
def _sits_out(
    plan: PlainPlan, e: int, n: int, clusters: FloatArray, nodes: FloatArray, devices: FloatArray
) -> None:
    """Write the rows of a cluster that sits out: zeros, except the delay that counts and a survival of 1."""
    for row in range(clusters.shape[0]):
        clusters[row, e, n] = 0.0
    clusters[CLUSTER.cluster_delay, e, n] = plan.opened[OPENED.counted, e, n]
    clusters[CLUSTER.survival, e, n] = 1.0
    for row in range(nodes.shape[0]):
        for node in range(nodes.shape[3]):
            nodes[row, e, n, node] = 0.0
    for row in range(devices.shape[0]):
        for k in range(devices.shape[3]):
            devices[row, e, n, k] = 0.0


@inlined
def _pace(c: Numbers, plan: PlainPlan, e: int, clusters: FloatArray) -> None:
    """Let local steps wait for all clusters that still take one."""
    N, most = clusters.shape[2], 0.0
    for n in range(N):
        clusters[CLUSTER.barrier, e, n] = 0.0
        if takes_part(plan, e, n):
            most = max(most, steps_of(c, plan, e, n))
    if most > 1.0:
        for h in range(int(most)):
            longest = 0.0
            for n in range(N):
                if takes_part(plan, e, n) and steps_of(c, plan, e, n) > h:
                    longest = max(longest, clusters[CLUSTER.local_step, e, n])
            for n in range(N):
                if takes_part(plan, e, n) and steps_of(c, plan, e, n) > h:
                    wait = longest - clusters[CLUSTER.local_step, e, n]
                    clusters[CLUSTER.barrier, e, n] += wait / steps_of(c, plan, e, n)
    for n in range(N):
        if takes_part(plan, e, n):
            paced = clusters[CLUSTER.local_step, e, n] + clusters[CLUSTER.barrier, e, n]
            collect, upload = clusters[CLUSTER.collect, e, n], clusters[CLUSTER.upload, e, n]
            delay = cluster_delay(steps_of(c, plan, e, n), paced, collect, upload)
            clusters[CLUSTER.cluster_delay, e, n] = clusters[CLUSTER.relay, e, n] + delay


@inlined
def _cluster(
    c: Numbers,
    system: System,
    plan: PlainPlan,
    e: int,
    n: int,
    broadcast: float,
    clusters: FloatArray,
    nodes: FloatArray,
    devices: FloatArray,
    power: FloatArray,
    chain: FloatArray,
) -> None:
    """Write the costs of one cluster, whose interference is known; the last two arrays are workspace."""
    K, setting = plan.blocks.shape[2], setting_of(plan, e, n)
    activation_bytes, working_bytes = bytes_of(c, setting)
    M, H = float(plan.micro_batches[e, n]), steps_of(c, plan, e, n)
    power[0] = plan.cu_power[e, n]
    for k in range(K):
        power[k + 1] = plan.device_power[e, n, k]
    noise = d2d_noise(c.noise_density, c.d2d_bandwidth_hz, clusters[CLUSTER.interference, e, n])
    price_chain(c, system, n, plan.blocks[e, n], power, noise, M, H, setting, 0.0, chain)
    uplink, upload, downlink, lost = edge_times(c, plan.bandwidth[e, n], chain)
    ratio = backward_ratio(setting, c)
    for node in range(K + 1):
        at = SUMMARY + node
        joules = chain[at + ENERGY * (K + 1)]
        if node == 0:
            joules += chain[UPLINK_W] * (H * uplink + upload)
            joules += receiving_joules(c, H * downlink + broadcast)
        nodes[NODE.busy_energy, e, n, node] = joules
        nodes[NODE.hop_forward, e, n, node] = chain[at + FORWARD * (K + 1)] / M
        nodes[NODE.hop_backward, e, n, node] = chain[at + BACKWARD * (K + 1)] / M
        if node > 0:
            k, work = node - 1, chain[at + WORK * (K + 1)] / M
            devices[DEVICE.compute_forward, e, n, k] = work
            devices[DEVICE.compute_backward, e, n, k] = ratio * work
            blocks = plan.blocks[e, n, k]
            working = c.batch_size / M * working_bytes if blocks > 0 else 0.0
            devices[DEVICE.memory, e, n, k] = device_memory(
                blocks, c.batch_size, c.block_state_bytes, activation_bytes, working
            )
    step = passes_of(uplink, downlink, chain) + 2.0 * chain[LATENCY] + chain[UPDATE]
    delay = chain[RELAY] + cluster_delay(H, step, chain[COLLECT], upload)
    clusters[CLUSTER.cluster_delay, e, n] = delay
    clusters[CLUSTER.relay, e, n] = chain[RELAY]
    clusters[CLUSTER.barrier, e, n] = 0.0
    clusters[CLUSTER.local_step, e, n] = step
    clusters[CLUSTER.allreduce, e, n] = 0.0
    clusters[CLUSTER.update, e, n] = chain[UPDATE]
    clusters[CLUSTER.latency, e, n] = chain[LATENCY]
    clusters[CLUSTER.collect, e, n] = chain[COLLECT]
    clusters[CLUSTER.upload, e, n] = upload
    clusters[CLUSTER.survival, e, n] = survival(chain[LOSSES] + lost) if c.lossy else 1.0
    clusters[CLUSTER.uplink, e, n] = uplink / M
    clusters[CLUSTER.downlink, e, n] = downlink / M
    clusters[CLUSTER.server_forward, e, n] = chain[SERVER] / M
    clusters[CLUSTER.server_backward, e, n] = BACKWARD_OVER_FORWARD * chain[SERVER] / M
