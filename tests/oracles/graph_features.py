"""Every feature of graph observations by formulas for numbers."""

import math

import numpy as np

from collapipe_env.simulator.build import reference_delay, system_parameters
from oracles.links import efficiency


def decibel(value):
    return 10.0 ** (value / 10.0)


def expected_graph(env, costs, row=0):
    """Features of a row of an environment, from its scenario, costs of its workload, and its state."""
    s, sc = env.state, env.scenario
    radio, over, c = sc.radio, sc.overheads, sc.cluster
    N, K, L = sc.clusters, sc.max_devices, sc.blocks
    H, B = sc.workload.local_steps, sc.workload.batch_size
    p = math.sqrt(sc.devices.power_min_w * sc.devices.power_max_w)
    law = system_parameters(sc).link
    hop_hz = radio.d2d_total_hz / (K + 1)
    density = decibel(radio.noise_dbm_per_hz + radio.device_noise_figure_db) / 1000.0
    bs_density = decibel(radio.noise_dbm_per_hz + radio.bs_noise_figure_db) / 1000.0
    noise = density * hop_hz
    up_noise = bs_density * radio.uplink_bandwidth_hz + radio.external_interference_w
    down_noise = density * radio.downlink_bandwidth_hz + radio.external_interference_w
    sent_w = radio.d2d_circuit_w + p / radio.amplifier_efficiency
    cu_sent_w = radio.edge_circuit_w + p / radio.amplifier_efficiency
    bits = H * B * (costs.activation_bits + costs.gradient_bits)
    migration = dict(sc.dynamics.processes).get("migration")
    moved = 0.0
    if migration is not None and migration.moments == "move":
        moved = 2.0 * migration.moment_bits * costs.trained_block_parameters
    trained = costs.trained_block_parameters / 1e6

    cu, device = np.zeros((N, 8)), np.zeros((N, K, 8))
    hop, present = np.zeros((N, K + 1, K + 1, 2)), np.zeros((N, K))
    between = np.zeros((N, N, 1))
    for n in range(N):
        h = s.uplink_gain[row, n]
        # The whole power in an N-th of the band, of which the noise is an N-th.
        snr = p * h / (up_noise / N)
        up = radio.uplink_bandwidth_hz / N * efficiency(law, snr)
        # The base station spreads its power over the band.
        down = radio.downlink_bandwidth_hz / N * efficiency(law, radio.bs_power_w * h / down_noise)
        heard = sum(s.cross_gain[row, m, n] * p for m in range(N) if m != n)
        for m in range(N):
            between[m, n, 0] = math.log(1.0 + s.cross_gain[row, m, n] * p / noise) if m != n else 0.0
        server_s = 3.0 * H * B * costs.decoder_forward_flops * N / c.server_flops
        cu[n] = [
            math.log(costs.update_payload_bits / up),
            math.log(H * B * costs.activation_bits / up),
            math.log(H * B * costs.gradient_bits / down),
            math.log(snr),
            math.log(cu_sent_w / sc.budgets.cu_energy_j),
            math.log(1.0 + s.backlog[row, n, 0]),
            math.log(1.0 + heard / noise),
            math.log(server_s + 1e-4),
        ]
        for k in range(K):
            if not s.present[row, n, k]:
                continue
            present[n, k] = 1.0
            block_s = 3.0 * H * B * costs.block_forward_flops / s.speed[row, n, k]
            ghz = s.clock[row, n, k] / 1e9
            held = s.processes["migration"]["blocks"][row, n, k] if moved else 0
            device[n, k] = [
                math.log(block_s),
                math.log(3.0 * H * over.block_s / ghz + 1e-4),
                math.log(H * over.update_s * trained / ghz + 1e-4),
                math.log(s.compute_power[row, n, k] * block_s / sc.budgets.device_energy_j),
                math.log(sent_w / sc.budgets.device_energy_j),
                math.log(1.0 + s.backlog[row, n, k + 1]),
                min(s.memory_cap[row, n, k], L),
                held,
            ]
        there = [True, *s.present[row, n]]
        for i in range(K + 1):
            for j in range(K + 1):
                if i != j and there[i] and there[j]:
                    snr = p * s.d2d_gain[row, n, i, j] / noise
                    # The only radio serves both neighbours in turn.
                    seconds = bits / (hop_hz * efficiency(law, snr)) * (3 - radio.d2d_radios)
                    hop[n, i, j] = math.log(seconds), math.log(snr)
    relayed = costs.block_broadcast_bits(N) if sc.workload.distribution == "relay" else 0.0
    ceiling = (radio.rate_ceiling or 0.0) / radio.rate_attenuation
    context = [
        math.log(N),
        math.log(L),
        math.log(sc.budgets.tradeoff / reference_delay(sc)),
        math.log(H),
        math.log(B),
        math.log(max(sc.workload.micro_batch_choices)),
        math.log(sc.devices.power_min_w),
        math.log(sc.devices.power_max_w),
        math.log(H * over.message_s + 1e-4),
        math.log(H * over.latency_s + 1e-4),
        math.log(H * over.edge_message_s + 1e-4),
        math.log(H * over.edge_latency_s + 1e-4),
        math.log(3.0 * H * over.server_s + 1e-4),
        math.log(costs.block_payload_bits / bits),
        math.log(moved / bits + 1e-3),
        math.log(relayed / bits + 1e-3),
        math.log(1.0 + radio.d2d_circuit_w / p),
        math.log(1.0 + radio.receive_w / p),
        math.log(1.0 + radio.idle_w / p),
        10.0 if radio.rate_ceiling is None else min(math.log(2.0**ceiling - 1.0), 10.0),
        sc.budgets.bandwidth_floor * N,
        migration is not None and migration.route == "cu",
        radio.link_errors in ("arq", "harq"),
        radio.link_errors == "drop",
        sc.workload.head == "common" and H > 1,
    ]
    arrays = {"cu": cu, "device": device, "hop": hop, "between": between, "present": present}
    return {**arrays, "context": np.array(context, float)}
