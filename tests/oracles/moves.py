"""What travels between the devices of a cluster beside its micro-batches, for plans of one device a stage.

Moments that follow their blocks into a new plan, replicas after local steps, and what a device that fails
leaves behind. A block has weights of 32 bits and two moments of 32 bits for each of its parameters.
"""

from dataclasses import replace
from itertools import accumulate

from oracles.round import Hops, scalar_round, tries_and_success

NONE, NEXT_STAGE, AT_CU = range(3)
WEIGHTS, STATE = 32.0, 96.0
"""Bits of a parameter without and with its moments."""


def airtime_of(p, hops, i, j, bits):
    """Mean time of a message of moments or weights, packets that are sent again included."""
    tries, _ = tries_and_success(p, hops.snr(i, j))
    return tries * hops.seconds(i, j, bits)


def owners(blocks):
    """Device of each block."""
    return [k for k, held in enumerate(blocks) for _ in range(int(held))]


def migration_phase(p, s, a, before):
    """Duration (N,) and energy (N, K+1) of the phase in which moments follow their blocks."""
    N, K = a.blocks.shape
    pairs = [(owners(before.blocks[n]), owners(a.blocks[n])) for n in range(N)]
    mean = []
    for n, (old, new) in enumerate(pairs):
        used = {k for k in old if s.present[n, k]} | set(new)
        mean.append((a.cu_power[n] + sum(a.device_power[n, k] for k in used)) / (K + 1))
    durations, energies = [], []
    for n, pair in enumerate(pairs):
        hops = Hops(p, s, a, n, sum(s.cross_gain[m, n] * mean[m] for m in range(N) if m != n))
        out, into = [0.0] * (K + 1), [0.0] * (K + 1)
        for old, new in zip(*pair, strict=True):
            if old == new or not s.present[n, old]:
                continue
            ways = [(old + 1, 0), (0, new + 1)] if p.migration.through_cu else [(old + 1, new + 1)]
            for i, j in ways:
                seconds = airtime_of(p, hops, i, j, p.migration.block_bits)
                out[i] += seconds
                into[j] += seconds
        durations.append(max(*out, *into))
        energies.append([hops.drawn(i) * out[i] + p.radio_power.receive_w * into[i] for i in range(K + 1)])
    return durations, energies


def replica_hosts(blocks, kind):
    """Node that keeps the replica of each device with blocks."""
    chain = [k for k, held in enumerate(blocks) if held > 0]
    if kind == AT_CU or len(chain) == 1:
        return dict.fromkeys(chain, 0)
    return {k: (chain[i + 1] if k != chain[-1] else chain[i - 1]) + 1 for i, k in enumerate(chain)}


def replicas(p, s, a, n, interference):
    """After a local step: seconds, energy of each node, memory of each device, and the hosts."""
    K, hops = a.blocks.shape[-1], Hops(p, s, a, n, interference)
    joules, kept, longest = [0.0] * (K + 1), [0.0] * K, 0.0
    hosts = replica_hosts(a.blocks[n], p.replication.kind) if p.replication.kind != NONE else {}
    for k, host in hosts.items():
        bits = STATE * p.costs.block_parameters * int(a.blocks[n, k])
        seconds = airtime_of(p, hops, k + 1, host, bits)
        longest = max(longest, seconds)
        joules[k + 1] += hops.drawn(k + 1) * seconds
        joules[host] += p.radio_power.receive_w * seconds
        if host > 0:
            kept[host - 1] += bits / 8.0
    return longest, joules, kept, hosts


def speed_split(total, speeds):
    """Blocks of devices in proportion to their speeds: each boundary is the first that holds its share."""
    goals = [total * reached / sum(speeds) - 1e-9 for reached in accumulate(speeds)]
    ends = [next(cut for cut in range(total + 1) if cut >= goal) for goal in goals]
    return [end - start for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def failed_round(p, s, a, n, device, at_s, *, pause_s, blocks=None):
    """One cluster's round in which a device fails.

    Args:
        pause_s: Detection and planning.
        blocks: Blocks of the devices in a plan made anew, which travel over the CU one after another;
            by default the devices that are left divide them between them, and all send at once.
    """
    old, w, H = a.blocks[n].tolist(), p.costs.block_parameters, p.costs.local_steps
    before = scalar_round(p, s, a)
    kept_s, kept_j, _, hosts = replicas(p, s, a, n, before["interference"][n])
    step_s = before["local_step"][n] + kept_s
    done = int(at_s / step_s)
    host = hosts.get(device) if done else None
    anew, new = blocks is not None, blocks
    if not anew:
        left = [k for k, held in enumerate(old) if held > 0 and k != device]
        new = [0] * len(old)
        for k, held in zip(left, speed_split(sum(old), [float(s.speed[n, k]) for k in left]), strict=True):
            new[k] = held
    bits = {}

    def send(i, j, each):
        if i != j:
            bits[i, j] = bits.get((i, j), 0.0) + each * w

    for was, now in zip(owners(old), owners(new), strict=True):
        whole = STATE if was != device or host is not None else WEIGHTS
        if anew:
            send(was + 1 if was != device else host or 0, 0, STATE)
            send(0, now + 1, whole)
        elif was != now:
            send(was + 1 if was != device else host or 0, now + 1, whole)
    hops = Hops(p, s, a, n, before["interference"][n])
    airtime = {(i, j): airtime_of(p, hops, i, j, size) for (i, j), size in bits.items()}
    move_s = sum(airtime.values()) if anew else max(airtime.values(), default=0.0)

    credited = 0 if host is None else done
    plan_blocks, power = a.blocks.copy(), a.device_power.copy()
    power[n] = [p.power_max_w if b and not o else w_ for b, o, w_ in zip(new, old, power[n], strict=True)]
    plan_blocks[n] = new
    rest = replace(p, costs=replace(p.costs, local_steps=H - credited))
    after = scalar_round(rest, s, replace(a, blocks=plan_blocks, device_power=power))
    many = scalar_round(replace(p, costs=replace(p.costs, local_steps=H + 10)), s, a)
    steps = min(at_s / step_s, H)
    radio, energy = p.radio_power, []
    for i, joules in enumerate(after["energy"][n]):
        a_step = (many["energy"][n][i] - before["energy"][n][i]) / 10.0 + kept_j[i]
        sent = sum(seconds for (one, _), seconds in airtime.items() if one == i)
        heard = sum(seconds for (_, other), seconds in airtime.items() if other == i)
        energy.append(joules + steps * a_step + hops.drawn(i) * sent + radio.receive_w * heard)
    return {
        "delay": at_s + pause_s + move_s + after["cluster_delay"][n],
        "energy": energy,
        "blocks": new,
        "credited": credited,
        "move_s": move_s,
        "reset": [k == device and host is None for k in owners(old)],
    }
