"""Random systems and plans for the tests of the physics, and a scalar round to compare with."""

import dataclasses
import math
from itertools import pairwise

import numpy as np

from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.block_costs import (
    block_parameters,
    forward_flops,
    linear_maps,
    stored_activation_bytes,
    weight_flops,
)
from collapipe_env.physics.energy import RadioPower
from collapipe_env.physics.overheads import Overheads
from collapipe_env.physics.training_memory import TrainingMemory
from collapipe_env.physics.workload import WorkloadCosts, decoder_forward_flops, decoder_weight_flops
from collapipe_env.simulator.state import Parameters, SystemState

CHOICES = (1, 2, 4, 8, 16)
PRICED = {
    "overheads": Overheads(
        block_cycles=3e6,
        update_cycles=1e7,
        message_s=0.02,
        header_bits=2e4,
        latency_s=0.03,
        edge_message_s=0.05,
        edge_latency_s=0.07,
        server_s=0.011,
    ),
    "radio_power": RadioPower(d2d_circuit_w=1.0, edge_circuit_w=1.8, efficiency=0.35, receive_w=0.9),
    "d2d_snr_cap": 1e3,
}
"""Parameters with all overheads, and radios that draw more than they emit."""
RELAYED = {**PRICED, "distribution": "relay", "head": "common"}
"""New weights are sent on by the CUs, and local steps wait for each other."""
PRICES = {
    "free": {},
    "priced": PRICED,
    "relayed": RELAYED,
    "recomputed": {**PRICED, "recompute": True},
}
"""Forms of prices that every way of computing a round has to know."""


def make_parameters(clusters, *, blocks=6, steps=1, link_errors="drop", recompute=False, **changes):
    costs = WorkloadCosts(
        blocks=blocks,
        batch_size=16,
        local_steps=steps,
        block_forward_flops=forward_flops(linear_maps(64, 256), 64, 32),
        decoder_forward_flops=decoder_forward_flops(1, 64, 256, 32, 10, 32),
        block_weight_flops=weight_flops(linear_maps(64, 256), 32),
        decoder_weight_flops=decoder_weight_flops(1, 64, 256, 32, 10, 32),
        block_parameters=block_parameters(64, 256),
        embedding_parameters=64 * 1000,
        stored_activation_bytes=stored_activation_bytes(64, 4, 32, 32),
        activation_bits=32.0 * 64 * 32,
        gradient_bits=32.0 * 64 * 16,
        weight_bits=16,
    )
    if recompute:
        stored, whole = 4.0 * 64 * 32, costs.stored_activation_bytes
        costs = dataclasses.replace(
            costs,
            training_memory=TrainingMemory(recompute=True),
            stored_activation_bytes=stored,
            working_bytes=whole - stored,
        )
    values = {
        "costs": costs,
        "noise_density": 10 ** (-20.4),
        "d2d_bandwidth_hz": 10e6,
        "uplink_bandwidth_hz": 20e6,
        "downlink_bandwidth_hz": 15e6,
        "bs_power_w": 20.0,
        "external_interference_w": 1e-13,
        "link_errors": link_errors,
        "waterfall_threshold": 0.1,
        "server_flops": 1e12,
        "clusters": clusters,
        "power_min_w": 0.002,
        "power_max_w": 0.2,
        "tradeoff_v": 1.0,
        "micro_batch_choices": CHOICES,
        "bandwidth_floor": 0.01,
    }
    return Parameters(**{**values, **changes})


def make_state(rng, lead, clusters, devices, parameters, *, absent=0.0):
    """A random system: gains over four decades, every device with memory for the whole encoder."""
    shape = (*lead, clusters, devices)
    gain = 10 ** rng.uniform(-10, -6, (*lead, clusters, devices + 1, devices + 1))
    gain = np.triu(gain, 1)
    cross = 10 ** rng.uniform(-16, -12, (*lead, clusters, clusters))
    cross[..., range(clusters), range(clusters)] = 0.0
    present = rng.random(shape) >= absent
    present[..., 0] = True
    c = parameters.costs
    activations = c.stored_activation_bytes + c.working_bytes
    whole = c.blocks * (c.block_state_bytes + c.batch_size * activations)
    memory = np.where(present, whole * rng.uniform(1.0, 2.0, shape), 0.0)
    uplink_gain = 10 ** rng.uniform(-13, -9, (*lead, clusters))
    speed = rng.uniform(1e9, 3e10, shape)
    return SystemState(
        uplink_gain=uplink_gain,
        d2d_gain=gain + np.swapaxes(gain, -1, -2),
        cross_gain=cross,
        speed=speed,
        clock=speed / 16.0,
        full_speed=speed,
        cubic_power=np.zeros(shape, dtype=bool),
        compute_power=rng.uniform(0.5, 8.0, shape),
        memory_bytes=memory,
        memory_cap=np.where(present, c.blocks, 0),
        present=present,
        budget=rng.uniform(1.0, 10.0, (*lead, clusters, devices + 1)),
        backlog=rng.uniform(0.0, 3.0, (*lead, clusters, devices + 1)),
        round_index=np.zeros(lead, dtype=np.int64),
        loss=np.zeros(lead),
        server_share=np.ones(lead),
    )


def make_allocation(rng, state, parameters, *, groups=False):
    """A random feasible plan; with groups, some stages have several devices with uneven shares."""
    shape = state.present.shape
    L = parameters.costs.blocks
    blocks = np.zeros(shape, dtype=np.int64)
    stage = np.full(shape, -1)
    share = np.zeros(shape)
    for place in np.ndindex(shape[:-1]):
        there = np.flatnonzero(state.present[place])
        if groups:
            members = rng.permutation(there)[: rng.integers(1, len(there) + 1)]
            slots = rng.integers(0, len(members), len(members))
            for slot in np.unique(slots):
                inside = members[slots == slot]
                stage[place][inside] = slot
                share[place][inside] = rng.dirichlet(np.full(len(inside), 3.0))
            used = np.unique(slots)
        else:
            used = there
        weights = rng.dirichlet(np.full(len(used), 0.7))
        blocks[place][used] = rng.multinomial(L, weights)
        if groups and not blocks[place][used].all():  # every stage of a plan with groups holds a block
            blocks[place][used] = 1
            blocks[place][used[0]] += L - len(used)
    power = np.exp(rng.uniform(np.log(0.002), np.log(0.2), shape))
    return Allocation(
        blocks=blocks,
        micro_batches=rng.choice(CHOICES, shape[:-1]),
        bandwidth=rng.dirichlet(np.full(shape[-2], 2.0), shape[:-2]) * 0.96 + 0.01,
        device_power=power,
        cu_power=np.exp(rng.uniform(np.log(0.002), np.log(0.2), shape[:-1])),
        stage=stage if groups else None,
        sample_share=share if groups else None,
    )


def make_case(seed, *, lead=(2,), clusters=3, devices=4, groups=False, absent=0.0, **options):
    rng = np.random.default_rng(seed)
    parameters = make_parameters(clusters, **options)
    state = make_state(rng, lead, clusters, devices, parameters, absent=absent)
    return parameters, state, make_allocation(rng, state, parameters, groups=groups)


def scalar_round(p, s, a):
    """One round of one environment, in plain scalar Python, for plans with one device in a stage.

    Follows `system_model.md` word by word and shares nothing with the package but the workload's figures.
    """
    c, N, o, radio = p.costs, p.clusters, p.overheads, p.radio_power
    K = s.present.shape[-1]
    mean_power = []
    for n in range(N):
        on = [a.cu_power[n]] + [a.device_power[n, k] for k in range(K) if a.blocks[n, k] > 0]
        mean_power.append(sum(on) / len(on))
    names = ("interference", "step", "collect", "upload", "relay", "energy", "survival", "memory")
    rho = 3.0 if c.training_memory.recompute else 2.0
    out = {key: [] for key in names}
    for n in range(N):
        I = sum(s.cross_gain[m, n] * mean_power[m] for m in range(N) if m != n)  # noqa: E741
        noise = p.noise_density * p.d2d_bandwidth_hz + I
        power = [a.cu_power[n], *a.device_power[n]]

        def snr(i, j, n=n, power=power, noise=noise):
            return power[i] * s.d2d_gain[n, i, j] / noise

        def rate(i, j, snr=snr):
            return p.d2d_bandwidth_hz * math.log2(1.0 + min(snr(i, j), p.d2d_snr_cap))

        def drawn(i, circuit_w, power=power):
            return circuit_w + power[i] / radio.efficiency

        def transmissions(ratio):
            """Expected transmissions of a packet, and the probability that one of them succeeds."""
            success = math.exp(-p.waterfall_threshold / ratio)
            most = p.max_transmissions if p.link_errors == "arq" else 1
            tries = sum((1.0 - success) ** k for k in range(most))
            return tries, tries * success

        M = int(a.micro_batches[n])
        b = c.batch_size / M
        beta, P, h = a.bandwidth[n], a.cu_power[n], s.uplink_gain[n]
        up_noise = p.noise_density * p.uplink_bandwidth_hz + p.external_interference_w
        down_noise = p.noise_density * p.downlink_bandwidth_hz + p.external_interference_w
        up_ratio = P * h / (beta * up_noise)
        up = beta * p.uplink_bandwidth_hz * math.log2(1.0 + up_ratio)
        down = beta * p.downlink_bandwidth_hz * math.log2(1.0 + p.bs_power_w * h / down_noise)
        chain = [0, *(k + 1 for k in range(K) if a.blocks[n, k] > 0), 0]
        forward, backward, updates, energy, success = [], [], [], [0.0] * (K + 1), 1.0
        for i, j in pairwise(chain):
            (tries_f, ok_f), (tries_b, ok_b) = transmissions(snr(i, j)), transmissions(snr(j, i))
            success *= ok_f * ok_b
            t_f, t_b = b * c.activation_bits + o.header_bits, b * c.gradient_bits + o.header_bits
            t_f, t_b = tries_f * t_f / rate(i, j), tries_b * t_b / rate(j, i)
            t_f, t_b = t_f + o.message_s, t_b + o.message_s
            forward.append(t_f)
            backward.append(t_b)
            energy[i] += c.local_steps * M * (drawn(i, radio.d2d_circuit_w) * t_f + radio.receive_w * t_b)
            energy[j] += c.local_steps * M * (drawn(j, radio.d2d_circuit_w) * t_b + radio.receive_w * t_f)
        for k in chain[1:-1]:
            held, f = a.blocks[n, k - 1], s.clock[n, k - 1]
            t = b * held * c.block_forward_flops / s.speed[n, k - 1] + held * o.block_cycles / f
            updates.append(held * o.update_cycles / f)
            forward.append(t)
            backward.append(rho * t)
            energy[k] += s.compute_power[n, k - 1] * c.local_steps * (M * (1.0 + rho) * t + updates[-1])
        alpha, omega = c.stored_activation_bytes, c.working_bytes
        held = [int(blocks) for blocks in a.blocks[n]]
        out["memory"].append(
            [d * (c.block_state_bytes + c.batch_size * alpha) + (b * omega if d else 0.0) for d in held]
        )
        tries, ok = transmissions(up_ratio)
        success *= ok
        t_up = tries * b * c.activation_bits / up
        t_up += o.edge_message_s
        server = b * c.decoder_forward_flops / (p.server_flops / N) + o.server_s
        forward += [t_up, server]
        backward += [b * c.gradient_bits / down + o.edge_message_s, 2.0 * server]
        energy[0] += c.local_steps * M * drawn(0, radio.edge_circuit_w) * t_up
        step = sum(forward) + (M - 1) * max(forward) + sum(backward) + (M - 1) * max(backward)
        step += 2.0 * ((len(chain) - 1) * o.latency_s + o.edge_latency_s) + max(updates)
        collect = 0.0
        for k in chain[1:-1]:
            t = a.blocks[n, k - 1] * c.block_parameters * c.weight_bits / rate(k, 0)
            energy[k] += drawn(k, radio.d2d_circuit_w) * t
            energy[0] += radio.receive_w * t
            collect = max(collect, t)
        relay = 0.0
        for k in chain[1:-1] if p.distribution == "relay" else ():
            t = a.blocks[n, k - 1] * c.block_parameters * c.weight_bits / rate(0, k)
            relay += t
            energy[0] += drawn(0, radio.d2d_circuit_w) * t
            energy[k] += radio.receive_w * t
        payload = (c.blocks * c.block_parameters + c.embedding_parameters) * c.weight_bits
        upload = payload / up
        energy[0] += drawn(0, radio.edge_circuit_w) * upload
        out["interference"].append(I)
        out["step"].append(step)
        out["collect"].append(collect)
        out["upload"].append(upload)
        out["relay"].append(relay)
        out["energy"].append(energy)
        out["survival"].append(1.0 if p.link_errors == "none" else success)
    paced = out["step"]
    if p.head == "common" and c.local_steps > 1:
        paced = [max(paced)] * N
    parts = zip(out["relay"], paced, out["collect"], out["upload"], strict=True)
    out["delay"] = [relay + c.local_steps * step + col + up for relay, step, col, up in parts]
    worst = p.bs_power_w * min(s.uplink_gain) / down_noise
    broadcast = payload / (p.downlink_bandwidth_hz * math.log2(1.0 + worst))
    return {**out, "broadcast": broadcast, "total": max(out["delay"]) + broadcast}
