"""A round of one environment in plain scalar Python, which follows `system_model.md` word by word.

It knows every decision: stages of several devices, schedules, blocks on the server, recomputation, sitting
out, local steps of a cluster's own, and caps on clocks. It shares the figures of the workload alone with the
package. Nodes of a cluster are the CU, 0, and its devices, 1 to K.
"""

from itertools import pairwise

from oracles.links import efficiency, tries_and_success
from oracles.schedules import (
    Chain,
    gpipe,
    interleaved,
    longest_path,
    one_f_one_b,
    served_in_turn,
    stored_micro_batches,
    usable_caps,
)

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1", "async")
COMMON, COPIES, SEQUENTIAL = -1, 0, 1
FIELDS = (
    *("interference", "local_step", "allreduce", "update", "collect", "upload", "relay", "barrier"),
    *("cluster_delay", "broadcast", "delay", "energy", "memory", "survival"),
)


class Hops:
    """Device-to-device links of a cluster, and what its nodes send and hear of a micro-batch [s]."""

    def __init__(self, p, s, a, n, interference):
        self.p, self.gain = p, s.d2d_gain[n]
        self.power = [float(a.cu_power[n]), *map(float, a.device_power[n])]
        self.noise = p.noise_density * p.d2d_bandwidth_hz + interference
        self.sent, self.heard = [0.0] * len(self.power), [0.0] * len(self.power)
        self.survival = 1.0

    def snr(self, i, j):
        return self.power[i] * self.gain[i, j] / self.noise

    def seconds(self, i, j, bits):
        """Time of a message without repeats."""
        return bits / (self.p.d2d_bandwidth_hz * efficiency(self.p.link, self.snr(i, j)))

    def drawn(self, i):
        """Power of a sender."""
        radio = self.p.radio_power
        return radio.d2d_circuit_w + self.power[i] / radio.efficiency

    def cross(self, senders, receivers, bits, times):
        """Time of a hop between groups; senders work in parallel, each serves one receiver after another."""
        longest, extra = 0.0, self.p.overheads
        for i, y in senders:
            busy = 0.0
            for j, x in receivers:
                tries, success = tries_and_success(self.p, self.snr(i, j))
                each = tries * self.seconds(i, j, y * x * bits + extra.header_bits) + extra.message_s
                self.heard[j] += times * each
                self.survival *= success**times
                busy += each
            self.sent[i] += times * busy
            longest = max(longest, busy)
        return longest / self.p.sharing.duty


def stages_of(a, n):
    """Stages with blocks in slot order: slot, blocks, and pairs of a node and its share of the samples."""
    blocks = a.blocks[n].tolist()
    if a.stage is None:
        return [(k, held, [(k + 1, 1.0)]) for k, held in enumerate(blocks) if held > 0]
    members = list(enumerate(zip(a.stage[n].tolist(), a.sample_share[n].tolist(), strict=True), 1))
    return [
        (slot, held, [(node, share) for node, (at, share) in members if at == slot])
        for slot, held in enumerate(blocks)
        if held > 0
    ]


def disturbances(p, s, a, plays):
    """Interference in each cluster [W], from the mean power of the active nodes of the others that play."""
    mean = []
    for n in range(p.clusters):
        active = [a.cu_power[n], *(a.device_power[n, k - 1] for _, _, g in stages_of(a, n) for k, _ in g)]
        loud = p.sharing.duty * sum(active) / p.sharing.channels
        mean.append(loud if plays[n] else 0.0)
    others = [[m for m in range(p.clusters) if m != n] for n in range(p.clusters)]
    return [sum(s.cross_gain[m, n] * mean[m] for m in others[n]) for n in range(p.clusters)]


def workload_of(p, a, n):
    """Priced workload of a cluster, and its local steps."""
    again = p.costs.training_memory.recompute
    wanted = again if a.recompute is None or a.recompute[n] < 0 else a.recompute[n] > 0
    H = p.costs.local_steps if a.local_steps is None or a.local_steps[n] < 0 else int(a.local_steps[n])
    return p.costs if wanted == again else p.other_costs, H


def running(s, a, n, node):
    """Speed, clock and power of a device under its cap."""
    at = n, node - 1
    speed, cap = float(s.speed[at]), 1.0 if a.clock_cap is None else float(a.clock_cap[at])
    ratio = min(speed, cap * float(s.full_speed[at])) / speed
    power = ratio**3 if s.cubic_power[at] else ratio
    return speed * ratio, float(s.clock[at]) * ratio, float(s.compute_power[at]) * power


def schedule_of(a, n):
    """Name, caps and chunks."""
    if a.schedule is None:
        return "gpipe", [1] * a.blocks.shape[-1], 1
    return SCHEDULES[int(a.schedule[n])], a.caps[n].tolist(), int(a.chunks[n])


def step_time(p, chain, name, caps, chunks, M, H):
    """Makespan of the passes of a local step; ``None`` where the order is greedy."""
    S, used = len(caps), [*range(len(caps) + 1), len(caps) + 2]
    if name == "gpipe":
        late = 2.0 * sum(chain.latency[i] for i in used)
        there = [*chain.forward, *(chain.link_forward[i] for i in used)]
        return late + gpipe(there, [*chain.backward, *(chain.link_backward[i] for i in used)], M)
    if name == "zb-h1" or p.half_duplex:
        return None
    runs = H if name == "async" else 1
    orders = [one_f_one_b(cap, M * runs) for cap in usable_caps(caps, M * runs)]
    if name == "interleaved":
        orders = interleaved(S, M, chunks)
    return longest_path(chain, [*orders, one_f_one_b(1, M * runs)], M * runs, chunks) / runs


def edge_links(p, s, a, n):
    """Rates of uplink and downlink [bit/s], and the uplink's SNR."""
    share, power, gain = float(a.bandwidth[n]), float(a.cu_power[n]), float(s.uplink_gain[n])
    noise = p.bs_noise_density * p.uplink_bandwidth_hz + p.external_interference_w
    ratio = power * gain / (share * noise)
    up = share * p.uplink_bandwidth_hz * efficiency(p.link, ratio)
    return up, share * full_band(p, gain), ratio


def full_band(p, gain):
    """Rate from the base station in the whole band [bit/s]."""
    noise = p.noise_density * p.downlink_bandwidth_hz + p.external_interference_w
    return p.downlink_bandwidth_hz * efficiency(p.link, p.bs_power_w * gain / noise)


def kept_blocks(a, n):
    return 0 if a.server_blocks is None else int(a.server_blocks[n])


def cluster_round(p, s, a, n, interference, most_kept, given):
    """One cluster that plays, as if no other waited for it."""
    c, H = workload_of(p, a, n)
    o, radio, rho = p.overheads, p.radio_power, 3.0 if c.training_memory.recompute else 2.0
    M, kept, K = int(a.micro_batches[n]), kept_blocks(a, n), s.present.shape[-1]
    b, passes, nodes = c.batch_size / M, H * M, range(1, K + 1)
    name, caps, v = schedule_of(a, n)
    stages, hops = stages_of(a, n), Hops(p, s, a, n, interference)
    S, mode = len(stages), COMMON if a.server_mode is None else int(a.server_mode)

    # The chain: a hop out of every group, the CU's first.
    groups = [[(0, 1.0)], *(members for *_, members in stages), [(0, 1.0)]]
    there, back = [], []
    for place, (one, other) in enumerate(pairwise(groups)):
        times = v if 0 < place < S else 1
        there.append(hops.cross(one, other, b * c.activation_bits, times))
        back.append(hops.cross(other, one, b * c.gradient_bits, times))
    wrap = v > 1 and S > 1
    there.append(hops.cross(groups[S], groups[1], b * c.activation_bits, v - 1) if wrap else 0.0)
    back.append(hops.cross(groups[1], groups[S], b * c.gradient_bits, v - 1) if wrap else 0.0)
    up, down, snr = edge_links(p, s, a, n)
    tries, success = tries_and_success(p, snr)
    there.append(tries * b * c.activation_bits / up + o.edge_message_s)
    back.append(b * c.gradient_bits / down + o.edge_message_s)

    work, updates, rings, collects = ([0.0] * (K + 1) for _ in range(4))
    forward, backward, weight, share = [], [], [], []
    for _, held, members in stages:
        bare = {}
        for node, y in members:
            speed, clock, _ = running(s, a, n, node)
            bare[node] = b * y * held * c.block_forward_flops / speed
            work[node] = bare[node] + held * o.block_cycles / clock
            updates[node] = held * o.update_cycles / clock
        forward.append(max(work[node] for node in bare))
        backward.append(rho * forward[-1])
        part = c.block_weight_flops / c.block_forward_flops
        weight.append(max(part * bare[node] + work[node] - bare[node] for node in bare))
        share.append([(held // v + (chunk < held % v)) / held for chunk in range(v)])
        trained = c.adapter_parameters or c.block_parameters
        if len(members) > 1:  # a ring all-reduce at the rate of its slowest link
            size = 2.0 * (len(members) - 1) / len(members) * held * trained * c.weight_bits
            ring = max(hops.seconds(i, j, size) for i in bare for j in bare if i != j)
            rings = [ring if node in bare else known for node, known in enumerate(rings)]
        collects[min(bare)] = hops.seconds(min(bare), 0, held * c.block_payload_bits)
    speed = p.server_flops * (1.0 - p.server.tenants) * float(s.server_share)
    speed /= 1 if mode == SEQUENTIAL else p.clusters
    server = b * (c.decoder_forward_flops + kept * c.block_forward_flops) / speed + o.server_s
    late = [o.latency_s] * (S + 2) + [o.edge_latency_s]
    shares = [*share, [1.0] * v]
    chain = Chain([*forward, server], [*backward, 2.0 * server], weight, there, back, late, shares)
    step = step_time(p, chain, name, [caps[slot] for slot, *_ in stages], v, M, H)
    ending = max(rings) + max(updates)

    # What is sent after the local steps, and new weights before them: densely where only some train a block.
    own = c.blocks - kept
    compressed = own - (most_kept - kept)
    new = compressed * c.block_broadcast_bits(p.clusters) + (own - compressed) * c.block_broadcast_bits(0)
    relays = [0.0] * (K + 1)
    for _, held, members in stages if p.distribution == "relay" else ():
        for node, _ in members:
            relays[node] = hops.seconds(0, node, held * new / own)
    upload = (c.update_payload_bits - kept * c.block_payload_bits) / up

    energy = [0.0] * (K + 1)
    for node in nodes:
        power = running(s, a, n, node)[2]
        energy[node] = power * (passes * (1.0 + rho) * work[node] + H * updates[node])
        energy[node] += hops.drawn(node) * (passes * hops.sent[node] + collects[node] + H * rings[node])
        energy[node] += radio.receive_w * (passes * hops.heard[node] + H * rings[node] + relays[node])
    energy[0] = hops.drawn(0) * (passes * hops.sent[0] + sum(relays))
    edge = passes * there[-1] + upload
    energy[0] += (radio.edge_circuit_w + hops.power[0] / radio.efficiency) * edge
    energy[0] += radio.receive_w * (passes * hops.heard[0] + sum(collects))
    energy[0] += radio.edge_receive_w * passes * back[-1]

    memory = [0.0] * K
    stored = stored_micro_batches(name, caps, a.blocks[n].tolist(), v, M, H)
    for slot, held, members in stages:
        for node, y in members:
            state = c.block_state_bytes + (c.block_copy_bytes if name == "async" else 0.0)
            samples, working = stored[slot] * b * y, b * y * c.working_bytes
            if name == "zb-h1":
                working = held * samples * c.working_bytes
            memory[node - 1] = held * (state + samples * c.stored_activation_bytes) + working
    return {
        "local_step": given[n] if step is None else step + ending,
        "allreduce": max(rings),
        "update": max(updates),
        "collect": max(collects),
        "upload": upload,
        "relay": sum(relays),
        "energy": energy,
        "memory": memory,
        "survival": hops.survival * success,
        "steps": H,
        # For a server that serves one cluster after another.
        "before": sum(there) + sum(forward) + (S + 1) * o.latency_s + o.edge_latency_s,
        "service": 3.0 * server,
        "after": sum(back) + sum(backward) + (S + 1) * o.latency_s + o.edge_latency_s + ending,
    }


def scalar_round(p, s, a, given=None):
    """Fields of ``RoundCosts`` by name, for one environment.

    Args:
        given: Local steps (N,) [s], for clusters whose orders are greedy: ZB-H1, and half duplex.
    """
    N, K = s.present.shape
    plays = [True] * N if a.participates is None else [bool(one) for one in a.participates]
    players = [n for n in range(N) if plays[n]]
    kept = [kept_blocks(a, n) for n in players] or [0]
    noise = disturbances(p, s, a, plays)
    found = {n: cluster_round(p, s, a, n, noise[n], max(kept), given) for n in players}
    mode = COMMON if a.server_mode is None else int(a.server_mode)
    if mode == SEQUENTIAL and found:
        columns = [[found[n][name] for n in players] for name in ("before", "service", "after")]
        H = p.costs.local_steps
        for n, time in zip(players, served_in_turn(*columns, H), strict=True):
            found[n]["local_step"] = time / H
    most = max((one["steps"] for one in found.values()), default=0)
    waits = p.head == "common" and mode == COMMON and most > 1
    for one in found.values():
        working = one["steps"] * one["local_step"]
        if waits:  # nobody begins a local step before all who take part in the one before are done
            each = [[o["local_step"] for o in found.values() if o["steps"] > h] for h in range(one["steps"])]
            working = sum(map(max, each))
        one["barrier"] = working / one["steps"] - one["local_step"]
        one["cluster_delay"] = one["relay"] + working + one["collect"] + one["upload"]
    out = {name: [found[n][name] if n in found else 0.0 for n in range(N)] for name in FIELDS[1:9]}
    out["energy"] = [found[n]["energy"] if n in found else [0.0] * (K + 1) for n in range(N)]
    out["memory"] = [found[n]["memory"] if n in found else [0.0] * K for n in range(N)]
    out["survival"] = [found[n]["survival"] if n in found else 1.0 for n in range(N)]
    for n in range(N):
        if n not in found and sum(s.memory_cap[n]) < p.costs.blocks:
            out["cluster_delay"][n] = p.idle_round_s
    c, several, whole = p.costs, max(kept) - min(kept), p.costs.blocks - max(kept)
    bits = c.embedding_broadcast_bits(N) + whole * c.block_broadcast_bits(N)
    bits += several * c.block_broadcast_bits(0)
    broadcast = bits / full_band(p, min(s.uplink_gain)) if players else 0.0
    delay = max(out["cluster_delay"]) + broadcast if players else p.idle_round_s
    for n in players:
        out["energy"][n][0] += p.radio_power.edge_receive_w * broadcast
        for node, on in enumerate([True, *s.present[n].tolist()]):
            out["energy"][n][node] += p.radio_power.idle_w * delay * on
    return {**out, "interference": noise, "broadcast": broadcast, "delay": delay}
