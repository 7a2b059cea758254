"""Costs of plain plans, row by row: one device a stage, GPipe, only the decoder on the server.

The loop walks a plan's chain hop by hop, whereas the general form
(:mod:`collapipe_env.simulator.general_costs`) looks at all pairs of nodes. Both use the same formulas
(:mod:`collapipe_env.kernels.formulas`).
"""

from __future__ import annotations

import math
from typing import Any

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.compiled import compiled, inlined
from collapipe_env.kernels.round_rows import CLUSTER, DEVICE, NODE, OPENED, ROUND, PlainPlan, System
from collapipe_env.physics.delay import (
    cluster_delay,
    gpipe_step,
    hop_time,
    message_time,
    stage_time,
)
from collapipe_env.physics.energy import (
    circuit_energy,
    compute_time,
    cu_airtime,
    cu_energy,
    device_airtime,
    device_energy,
    radio_power,
)
from collapipe_env.physics.memory import device_memory
from collapipe_env.physics.overheads import cycles_time, latency_of_chain
from collapipe_env.physics.parameters import Numbers
from collapipe_env.physics.radio import (
    d2d_noise,
    d2d_rate,
    downlink_rate,
    expected_transmissions,
    failure_exponent,
    full_band_rate,
    loss_exponent,
    seconds_per_bit,
    survival,
    uplink_failure_exponent,
    uplink_rate,
)
from collapipe_env.physics.workload import BACKWARD_OVER_FORWARD


@compiled
def plain_round(numbers: Any, block: FloatArray, *arrays: Any) -> None:
    """Compute the costs of plain plans.

    Args:
        numbers: The scenario's numbers as a record (1,).
        block: Written: the rows of :data:`ROUND` (2, E), :data:`CLUSTER` (15, E, N), :data:`NODE` (4, E, N,
            K+1) and :data:`DEVICE` (3, E, N, K), one after the other, and space for workings.
        arrays: Those of :class:`System` and :class:`PlainPlan`, in their order; they are not given as two
            named tuples, because Numba would take twice as long to unpack them. Then the interference (E, N)
            [W] to use instead of the plan's own, or nothing (0, 0).
    """
    c: Numbers = numbers[0]
    system, plan, fixed = System(*arrays[:8]), PlainPlan(*arrays[8:14]), arrays[14]
    E, N, K = plan.blocks.shape
    clusters_at = len(ROUND) * E
    nodes_at = clusters_at + len(CLUSTER) * E * N
    devices_at = nodes_at + len(NODE) * E * N * (K + 1)
    spare_at = devices_at + len(DEVICE) * E * N * K
    rounds = block[:clusters_at].reshape(len(ROUND), E)
    clusters = block[clusters_at:nodes_at].reshape(len(CLUSTER), E, N)
    nodes = block[nodes_at:devices_at].reshape(len(NODE), E, N, K + 1)
    devices = block[devices_at:spare_at].reshape(len(DEVICE), E, N, K)
    spare = block[spare_at:]
    mean_power, work = spare[:N], spare[N : N + K]
    forward = spare[N + K : N + 2 * K + 1]
    backward = spare[N + 2 * K + 1 : N + 3 * K + 2]
    received = spare[N + 3 * K + 2 :]
    for e in range(E):
        weakest = math.inf
        anybody = False
        for n in range(N):
            weakest = min(weakest, system.uplink_gain[e, n])
            mean_power[n] = 0.0
            if not _plays(plan, e, n):
                continue
            anybody = True
            power, active = plan.cu_power[e, n], 1.0
            for k in range(K):
                if plan.blocks[e, n, k] > 0:
                    power += plan.device_power[e, n, k]
                    active += 1.0
            mean_power[n] = power / active
        slowest = 0.0
        for n in range(N):
            interference = 0.0
            if fixed.shape[0] > 0:
                interference = fixed[e, n]
            else:
                for m in range(N):
                    interference += system.cross_gain[e, m, n] * mean_power[m]
            if _plays(plan, e, n):
                clusters[CLUSTER.interference, e, n] = interference
                _cluster(c, system, plan, e, n, clusters, nodes, devices, forward, backward, received, work)
            else:
                _sits_out(plan, e, n, clusters, nodes, devices)
                clusters[CLUSTER.interference, e, n] = interference
            slowest = max(slowest, clusters[CLUSTER.cluster_delay, e, n])
        if c.barrier:
            slowest = _pace(c, plan, e, clusters)
        rate = full_band_rate(c.bs_power_w, weakest, c.downlink_noise_w, c.downlink_bandwidth_hz)
        broadcast = message_time(c.broadcast_bits, rate)
        rounds[ROUND.delay, e] = slowest + broadcast if anybody else c.idle_round_s
        rounds[ROUND.broadcast, e] = broadcast if anybody else 0.0


@inlined
def _plays(plan: PlainPlan, e: int, n: int) -> bool:
    """Whether a cluster takes part."""
    return bool(plan.opened.shape[0] == 0 or plan.opened[OPENED.counted, e, n] < 0.0)


@inlined
def _steps(c: Numbers, plan: PlainPlan, e: int, n: int) -> float:
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
def _pace(c: Numbers, plan: PlainPlan, e: int, clusters: FloatArray) -> float:
    """Let local steps wait for all clusters that still take one, and return the longest ``T_n`` [s]."""
    N = clusters.shape[2]
    most = slowest = 0.0
    for n in range(N):
        clusters[CLUSTER.barrier, e, n] = 0.0
        if _plays(plan, e, n):
            most = max(most, _steps(c, plan, e, n))
    if most > 1.0:
        for h in range(int(most)):
            longest = 0.0
            for n in range(N):
                if _plays(plan, e, n) and _steps(c, plan, e, n) > h:
                    longest = max(longest, clusters[CLUSTER.local_step, e, n])
            for n in range(N):
                if _plays(plan, e, n) and _steps(c, plan, e, n) > h:
                    wait = longest - clusters[CLUSTER.local_step, e, n]
                    clusters[CLUSTER.barrier, e, n] += wait / _steps(c, plan, e, n)
    for n in range(N):
        if _plays(plan, e, n):
            paced = clusters[CLUSTER.local_step, e, n] + clusters[CLUSTER.barrier, e, n]
            collect, upload = clusters[CLUSTER.collect, e, n], clusters[CLUSTER.upload, e, n]
            delay = cluster_delay(_steps(c, plan, e, n), paced, collect, upload)
            clusters[CLUSTER.cluster_delay, e, n] = clusters[CLUSTER.relay, e, n] + delay
        slowest = max(slowest, clusters[CLUSTER.cluster_delay, e, n])
    return slowest


@inlined
def _cluster(
    c: Numbers,
    system: System,
    plan: PlainPlan,
    e: int,
    n: int,
    clusters: FloatArray,
    nodes: FloatArray,
    devices: FloatArray,
    forward: FloatArray,
    backward: FloatArray,
    received: FloatArray,
    work: FloatArray,
) -> None:
    """Compute the costs of one cluster, whose interference is known; the last four arrays are workspace."""
    K = plan.blocks.shape[2]
    extra, radio = c.overheads, c.radio_power
    ratio, activation_bytes, working_bytes = c.backward_over_forward, c.activation_bytes, c.working_bytes
    if plan.opened.shape[0] > 0 and plan.opened[OPENED.other_setting, e, n] > 0.0:
        ratio, activation_bytes = c.other_backward_over_forward, c.other_activation_bytes
        working_bytes = c.other_working_bytes
    M = float(plan.micro_batches[e, n])
    samples = c.batch_size / M
    steps = _steps(c, plan, e, n)
    passes = steps * M
    noise = d2d_noise(c.noise_density, c.d2d_bandwidth_hz, clusters[CLUSTER.interference, e, n])
    uplink_gain, beta, cu_power = system.uplink_gain[e, n], plan.bandwidth[e, n], plan.cu_power[e, n]
    gain = system.d2d_gain
    cu_over_noise = cu_power / noise
    hop_power = cu_over_noise
    to_cu = 0.0
    for node in range(K + 1):
        forward[node] = backward[node] = received[node] = 0.0

    # The chain, hop by hop: from the CU (node 0) over the devices that hold blocks back to the CU.
    previous, exponent, collect, collected, update, stages = 0, 0.0, 0.0, 0.0, 0.0, 0.0
    relay = 0.0
    longest_forward = longest_backward = sum_forward = sum_backward = 0.0
    for k in range(K):
        node = k + 1
        blocks = plan.blocks[e, n, k]
        working = samples * working_bytes if blocks > 0 else 0.0
        devices[DEVICE.memory, e, n, k] = device_memory(
            blocks, c.batch_size, c.block_state_bytes, activation_bytes, working
        )
        if blocks == 0:
            work[k] = nodes[NODE.energy, e, n, node] = nodes[NODE.energy_ratio, e, n, node] = 0.0
            continue
        own = plan.device_power[e, n, k] / noise
        snr = hop_power * gain[e, n, previous, node]
        ahead, failed_ahead = _hop(c, snr, d2d_rate(c, snr))
        to_cu = d2d_rate(c, own * gain[e, n, node, 0])
        snr = own * gain[e, n, node, previous]
        # The first device's gradients go to the CU, as its segment does after the round.
        back, failed_back = _hop(c, snr, to_cu if previous == 0 else d2d_rate(c, snr))
        message = hop_time(ahead * samples, c.activation_bits) + _message(c, ahead)
        forward[previous] += message
        received[node] += message
        message = hop_time(back * samples, c.gradient_bits) + _message(c, back)
        backward[node] += message
        received[previous] += message
        exponent += failed_ahead + failed_back
        work[k] = stage_time(samples, blocks, c.block_forward_flops, system.speed[e, n, k])
        work[k] += cycles_time(blocks, extra.block_cycles, system.clock[e, n, k])
        update = max(update, cycles_time(blocks, extra.update_cycles, system.clock[e, n, k]))
        stages += 1.0
        sum_forward += work[k]
        longest_forward = max(longest_forward, work[k])
        collection = message_time(blocks * c.block_payload_bits, to_cu)
        collect = max(collect, collection)
        collected += collection
        sent = 0.0
        if c.relay_bits > 0.0:
            sent = message_time(blocks * c.relay_bits, d2d_rate(c, cu_over_noise * gain[e, n, 0, node]))
            relay += sent
        # Airtimes of the collection and of the relay; the hops' are added when the chain is complete.
        nodes[NODE.energy, e, n, node], nodes[NODE.energy_ratio, e, n, node] = collection, sent
        previous, hop_power = node, own
    ahead, failed_ahead = _hop(c, hop_power * gain[e, n, previous, 0], to_cu)
    snr = cu_over_noise * gain[e, n, 0, previous]
    back, failed_back = _hop(c, snr, d2d_rate(c, snr))
    message = hop_time(ahead * samples, c.activation_bits) + _message(c, ahead)
    forward[previous] += message
    received[0] += message
    message = hop_time(back * samples, c.gradient_bits) + _message(c, back)
    backward[0] += message
    received[previous] += message
    exponent += failed_ahead + failed_back

    rate = uplink_rate(beta, cu_power, uplink_gain, c.uplink_noise_w, c.uplink_bandwidth_hz)
    down = downlink_rate(beta, c.bs_power_w, uplink_gain, c.downlink_noise_w, c.downlink_bandwidth_hz)
    failed = uplink_failure_exponent(beta, cu_power, uplink_gain, c.uplink_noise_w, c.waterfall_threshold)
    uplink = message_time(samples * c.activation_bits, rate)
    if c.transmissions > 1.0:
        uplink = uplink * expected_transmissions(failed, c.transmissions)
    uplink += extra.edge_message_s
    downlink = message_time(samples * c.gradient_bits, down) + extra.edge_message_s
    server_forward = samples * c.server_seconds / system.server_share[e] + extra.server_s
    server_backward = BACKWARD_OVER_FORWARD * server_forward
    sum_backward = ratio * sum_forward + downlink + server_backward
    longest_backward = max(ratio * longest_forward, downlink, server_backward)
    sum_forward += uplink + server_forward
    longest_forward = max(longest_forward, uplink, server_forward)
    for node in range(K + 1):
        sum_forward += forward[node]
        sum_backward += backward[node]
        longest_forward = max(longest_forward, forward[node])
        longest_backward = max(longest_backward, backward[node])
    latency = latency_of_chain(stages, extra)
    step = gpipe_step(sum_forward + latency, longest_forward, sum_backward + latency, longest_backward, M)
    step += update
    upload = message_time(c.update_bits, rate)

    for node in range(K + 1):
        nodes[NODE.hop_forward, e, n, node] = forward[node]
        nodes[NODE.hop_backward, e, n, node] = backward[node]
    for k in range(K):
        node = k + 1
        devices[DEVICE.compute_forward, e, n, k] = work[k]
        devices[DEVICE.compute_backward, e, n, k] = ratio * work[k]
        blocks = plan.blocks[e, n, k]
        if blocks > 0:
            collection, sent = nodes[NODE.energy, e, n, node], nodes[NODE.energy_ratio, e, n, node]
            joules = device_energy(
                system.compute_power[e, n, k],
                compute_time(passes, work[k], ratio)
                + steps * cycles_time(blocks, extra.update_cycles, system.clock[e, n, k]),
                radio_power(plan.device_power[e, n, k], radio.d2d_circuit_w, radio.efficiency),
                device_airtime(passes, forward[node] + backward[node], collection),
                radio.receive_w * (passes * received[node] + sent),
            )
            nodes[NODE.energy, e, n, node] = joules
            nodes[NODE.energy_ratio, e, n, node] = joules / system.budget[e, n, node]
    hops = forward[0] + backward[0]
    airtime = cu_airtime(passes, hops, uplink, upload)
    hops = passes * hops + relay
    airtime += relay
    circuits = circuit_energy(radio, hops, airtime - hops, passes * received[0] + collected)
    joules = cu_energy(cu_power / radio.efficiency, airtime, circuits)
    nodes[NODE.energy, e, n, 0] = joules
    nodes[NODE.energy_ratio, e, n, 0] = joules / system.budget[e, n, 0]
    clusters[CLUSTER.cluster_delay, e, n] = relay + cluster_delay(steps, step, collect, upload)
    clusters[CLUSTER.relay, e, n] = relay
    clusters[CLUSTER.barrier, e, n] = 0.0
    clusters[CLUSTER.local_step, e, n] = step
    clusters[CLUSTER.allreduce, e, n] = 0.0
    clusters[CLUSTER.update, e, n] = update
    clusters[CLUSTER.latency, e, n] = latency
    clusters[CLUSTER.collect, e, n] = collect
    clusters[CLUSTER.upload, e, n] = upload
    lost = exponent + loss_exponent(failed, c.transmissions)
    clusters[CLUSTER.survival, e, n] = survival(lost) if c.lossy else 1.0
    clusters[CLUSTER.uplink, e, n] = uplink
    clusters[CLUSTER.downlink, e, n] = downlink
    clusters[CLUSTER.server_forward, e, n] = server_forward
    clusters[CLUSTER.server_backward, e, n] = server_backward


@inlined
def _hop(c: Numbers, snr: float, rate: float) -> tuple[float, float]:
    """Return a device-to-device link's seconds per bit, repeats included, and its loss exponent."""
    exponent = failure_exponent(snr, c.waterfall_threshold)
    return seconds_per_bit(rate, exponent, c.transmissions), loss_exponent(exponent, c.transmissions)


@inlined
def _message(c: Numbers, seconds_per_bit: float) -> float:
    """Return the overhead of one message on a device-to-device link [s]."""
    return c.overheads.message_s + c.overheads.header_bits * seconds_per_bit
