"""One cluster's round at given blocks and powers: its chain of devices and its link to the edge server.

This is the one price of a plain plan (one device a stage, GPipe) in compiled code: the loop over played plans
(:mod:`.plain_round`) and DSSRA's search call it. :func:`price_chain` writes all that does not depend on the
cluster's share of the uplink; :func:`edge_times` and :func:`delay_of` add what does.

Times are for the whole mini-batch, including the overheads of all ``M`` micro-batches. An element lasts
``1 / M`` of its time, so a local step is :func:`~collapipe_env.physics.delay.gpipe_step` of the times, over
``M``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

# Registers the formulas for compiled code.
import collapipe_env.kernels.formulas  # noqa: F401
from collapipe_env.ground.arrays import FloatArray, IntArray, loop_array
from collapipe_env.ground.compiled import compiled_inner, compiled_leaf, inlined, jitable
from collapipe_env.physics.delay import cluster_delay, gpipe_step, hop_time, message_time, stage_time
from collapipe_env.physics.energy import compute_time, device_energy, radio_power
from collapipe_env.physics.overheads import cycles_time, latency_of_chain
from collapipe_env.physics.packet_errors import (
    expected_transmissions,
    failure_exponent,
    loss_exponent,
)
from collapipe_env.physics.parameters import Numbers
from collapipe_env.physics.rates import full_band_rate, link_rate, spectral_efficiency
from collapipe_env.physics.workload import BACKWARD_OVER_FORWARD


class System(NamedTuple):
    """The state's arrays, as :class:`~collapipe_env.simulator.state.SystemState` names them.

    Loops over one environment read :func:`row_of_system`, without the leading axis; its ``server_share`` is a
    number.
    """

    uplink_gain: FloatArray
    d2d_gain: FloatArray
    cross_gain: FloatArray
    speed: FloatArray
    clock: FloatArray
    compute_power: FloatArray
    budget: FloatArray
    server_share: Any


# Columns of a cluster's price.
FORWARD_SUM = 0  # sum of the forward elements except the uplink [s]
BACKWARD_SUM = 1  # sum of the backward elements except the downlink [s]
FORWARD_MAX = 2  # slowest forward element except the uplink [s]
BACKWARD_MAX = 3  # slowest backward element except the downlink [s]
ONCE = 4  # relay, collection, and latencies and updates of all local steps [s]
COLLECT = 5  # longest collection [s]
RELAY = 6  # all relayed segments [s]
UPDATE = 7  # longest update of a local step [s]
LATENCY = 8  # latencies of one direction [s]
SERVER = 9  # forward pass of the server [s]
LOSSES = 10  # loss exponents of all hops
UPLINK_SNR = 11  # signal to noise ratio of the uplink if it had the whole band
DOWNLINK_RATE = 12  # downlink rate with the whole band [bit/s]
UPLINK_W = 13  # power that sending on the uplink draws [W]
UPDATE_BITS = 14  # the cluster's update [bit]
MICRO_BATCHES = 15  # M
LOCAL_STEPS = 16  # H
USUAL_REPEATS = 17  # transmissions of a packet above the SNR of the most robust format
USUAL_LOSS = 18  # loss exponent above it
# Columns that only schedulers write.
FIXED_COST = 19  # priced energy (and failures) without uplink and downlink
CU_PRICE = 20  # price of a joule of the CU's edge link in the present plan [1/J]
CU_LEAST = 21  # price of a joule that the CU's queue does not change [1/J]
CU_START = 22  # price by the CU's queue of the first joule of the edge link [1/J]; below 0 while it empties
CU_RISE = 23  # its rise with each joule [1/J^2]
LOSS_PRICE = 24  # price of a unit of the loss exponent
DELAY_PRICE = 25  # price of a second of the slowest cluster's delay [1/s], the same for all clusters
SUMMARY = 26
# Then four numbers of each node, row by row (4, K+1).
ENERGY, FORWARD, BACKWARD, WORK = range(4)
"""Energy of the round without the CU's edge link [J]; the forward and the backward message that it sends and,
of device k at k + 1, its forward pass [s]."""
NODE_ROWS = 4


def system_of(state: Any) -> System:
    """The arrays of a :class:`~collapipe_env.simulator.state.SystemState`, in the form that loops read."""
    return System(*(loop_array(getattr(state, name), np.float64) for name in System._fields))


@compiled_inner
def row_of_system(system: System, e: int) -> System:
    """One environment of a batch."""
    return System(
        system.uplink_gain[e],
        system.d2d_gain[e],
        system.cross_gain[e],
        system.speed[e],
        system.clock[e],
        system.compute_power[e],
        system.budget[e],
        system.server_share[e],
    )


@jitable
def chain_size(nodes: int) -> int:
    """Numbers that :func:`price_chain` writes for a cluster."""
    return SUMMARY + NODE_ROWS * nodes


@inlined
def backward_ratio(setting: int, c: Numbers) -> float:
    """``rho`` under a setting of recomputation: 0 for the workload's own, otherwise the other one."""
    ratio: float = c.other_backward_over_forward if setting else c.backward_over_forward
    return ratio


@inlined
def repeats_at(c: Numbers, exponent: float) -> tuple[float, float]:
    """Mean transmissions of a packet and its loss exponent, for the exponent of one transmission."""
    most = c.link.transmissions
    return expected_transmissions(exponent, most) if most > 1.0 else 1.0, loss_exponent(exponent, most)


@inlined
def usual_repeats(c: Numbers) -> tuple[float, float]:
    """:func:`repeats_at` of links that adapt, above the SNR of their most robust format."""
    return repeats_at(c, c.link.adapted_exponent)


@inlined
def repeats_of(c: Numbers, snr: float, usual: tuple[float, float]) -> tuple[float, float]:
    """:func:`repeats_at` an SNR; the usual ones save most of a link's arithmetic."""
    exponent = failure_exponent(c.link, snr)
    return usual if exponent == c.link.adapted_exponent else repeats_at(c, exponent)


@inlined
def link_of(c: Numbers, snr: float, rate: float, usual: tuple[float, float]) -> tuple[float, float]:
    """Airtime of a bit on a device-to-device link, repeats included [s], and the link's loss exponent."""
    repeats, loss = repeats_of(c, snr, usual)
    return 1.0 / rate * repeats, loss


@inlined
def message_overhead(c: Numbers, bit: float) -> float:
    """Time of one message on a hop beyond its bits [s], for the airtime of a bit [s]."""
    extra = c.overheads
    # Over a dead link a bit lasts for ever, but no header takes no time.
    header: float = extra.header_bits * bit if extra.header_bits > 0.0 else 0.0
    return extra.message_s + header


@inlined
def message_seconds(c: Numbers, bit: float, bits: float, M: float) -> float:
    """Airtime of a mini-batch's messages of one direction on a hop [s].

    Args:
        bit: Airtime of a bit [s].
        bits: Activations or gradients of a sample [bit].
        M: Number of messages.
    """
    return float(hop_time(bit * c.batch_size, bits) + M * message_overhead(c, bit))


@inlined
def block_pass(c: Numbers, blocks: float, speed: float, clock: float, M: float) -> float:
    """Forward pass of a mini-batch through a device's blocks [s]."""
    seconds = stage_time(c.batch_size, blocks, c.block_forward_flops, speed)
    return float(seconds + M * cycles_time(blocks, c.overheads.block_cycles, clock))


@inlined
def server_pass(c: Numbers, kept: float, share: float, M: float) -> float:
    """Forward pass of a mini-batch on the server [s].

    Args:
        kept: Encoder blocks that the server runs for the cluster.
        share: Share of the server that other tenants leave.
    """
    seconds = (c.server_seconds + kept * c.server_block_seconds) / share
    return c.batch_size * seconds + M * c.overheads.server_s


@inlined
def price_edge(c: Numbers, gain: float, power_w: float, M: float, kept: float, chain: FloatArray) -> None:
    """Write the columns that :func:`edge_times` reads, and the power that sending draws.

    Args:
        gain: ``h``.
        power_w: Power of the CU [W].
        kept: Encoder blocks that the server runs; they need no transfer.
        chain: Receives the columns.
    """
    radio = c.radio_power
    chain[UPLINK_SNR] = power_w * gain / c.uplink_noise_w
    chain[DOWNLINK_RATE] = full_band_rate(
        c.link, c.bs_power_w, gain, c.downlink_noise_w, c.downlink_bandwidth_hz
    )
    chain[UPLINK_W] = radio_power(power_w, radio.edge_circuit_w, radio.efficiency)
    chain[UPDATE_BITS] = c.update_bits - kept * c.block_payload_bits
    chain[MICRO_BATCHES], (chain[USUAL_REPEATS], chain[USUAL_LOSS]) = M, usual_repeats(c)


@compiled_leaf
def price_chain(
    c: Numbers,
    system: System,
    n: int,
    blocks: IntArray,
    power: FloatArray,
    noise_w: float,
    M: float,
    H: float,
    setting: int,
    kept: float,
    chain: FloatArray,
) -> None:
    """Write everything about a cluster's round that depends neither on its share of the uplink nor on prices.

    Args:
        system: One environment.
        n: The cluster.
        blocks: Blocks of each device (K,).
        power: Powers of the CU and the devices (K+1,) [W].
        noise_w: Noise plus interference of its device-to-device links [W].
        M: Micro-batches.
        H: Local steps.
        setting: Setting of recomputation (:func:`backward_ratio`).
        kept: Encoder blocks that the server runs.
        chain: Receives the columns and the nodes' numbers (SUMMARY + 4 (K+1),).
    """
    devices, nodes = blocks.shape[0], blocks.shape[0] + 1
    extra, radio, gain, duty = c.overheads, c.radio_power, system.d2d_gain, c.sharing.duty
    energy, forward = SUMMARY + nodes * ENERGY, SUMMARY + nodes * FORWARD
    backward, work = SUMMARY + nodes * BACKWARD, SUMMARY + nodes * WORK
    ratio, receive_w = backward_ratio(setting, c), radio.receive_w
    server = server_pass(c, kept, system.server_share, M)
    forward_sum, backward_sum = server, BACKWARD_OVER_FORWARD * server
    forward_max, backward_max = forward_sum, backward_sum
    collect, relay, update, losses, stages = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(SUMMARY, SUMMARY + NODE_ROWS * nodes):
        chain[i] = 0.0
    last, to_cu, usual = 0, 0.0, usual_repeats(c)
    own_w = cu_w = radio_power(power[0], radio.d2d_circuit_w, radio.efficiency)
    # Hop by hop: from the CU (node 0) over the devices that hold blocks back to the CU.
    for step in range(1, devices + 2):
        node = step if step <= devices else 0
        if node > 0 and blocks[node - 1] == 0:
            continue
        last_w, own_w = own_w, radio_power(power[node], radio.d2d_circuit_w, radio.efficiency)
        snr = power[last] / noise_w * gain[n, last, node]
        rate = link_rate(c.link, c.d2d_bandwidth_hz, snr) if node > 0 else to_cu
        there, lost_there = link_of(c, snr, rate, usual)
        if node > 0:
            to_cu = link_rate(c.link, c.d2d_bandwidth_hz, power[node] / noise_w * gain[n, node, 0])
        snr = power[node] / noise_w * gain[n, node, last]
        # The first device's gradients go to the CU, as its segment does after the round.
        rate = to_cu if last == 0 else link_rate(c.link, c.d2d_bandwidth_hz, snr)
        back, lost_back = link_of(c, snr, rate, usual)
        ahead = message_seconds(c, there, c.activation_bits, M)
        return_ = message_seconds(c, back, c.gradient_bits, M)
        chain[energy + last] += H * (last_w * ahead + receive_w * return_)
        chain[energy + node] += H * (own_w * return_ + receive_w * ahead)
        ahead, return_ = ahead / duty, return_ / duty  # a hop has the radio for this part of the time
        chain[forward + last], chain[backward + node] = ahead, return_
        forward_sum, backward_sum = forward_sum + ahead, backward_sum + return_
        forward_max, backward_max = max(forward_max, ahead), max(backward_max, return_)
        losses += lost_there + lost_back
        if node > 0:
            held, k = blocks[node - 1], node - 1
            compute = block_pass(c, held, system.speed[n, k], system.clock[n, k], M)
            updating = cycles_time(held, extra.update_cycles, system.clock[n, k])
            chain[work + node] = compute
            update, stages = max(update, updating), stages + 1.0
            forward_sum, backward_sum = forward_sum + compute, backward_sum + ratio * compute
            forward_max, backward_max = max(forward_max, compute), max(backward_max, ratio * compute)
            collection = message_time(held * c.block_payload_bits, to_cu)
            collect, sent = max(collect, collection), 0.0
            if c.relay_bits > 0.0:
                rate = link_rate(c.link, c.d2d_bandwidth_hz, power[0] / noise_w * gain[n, 0, node])
                sent = message_time(held * c.relay_bits, rate)
                relay += sent
            busy = compute_time(H, compute, ratio) + H * updating
            chain[energy + node] += device_energy(
                system.compute_power[n, k], busy, own_w, collection, receive_w * sent
            )
            chain[energy] += receive_w * collection + cu_w * sent
        last = node
    latency = latency_of_chain(stages, extra)
    chain[FORWARD_SUM], chain[BACKWARD_SUM] = forward_sum, backward_sum
    chain[FORWARD_MAX], chain[BACKWARD_MAX] = forward_max, backward_max
    chain[ONCE] = relay + collect + H * (2.0 * latency + update)
    chain[COLLECT], chain[RELAY], chain[UPDATE], chain[LATENCY] = collect, relay, update, latency
    chain[SERVER], chain[LOSSES], chain[LOCAL_STEPS] = server, losses, H
    price_edge(c, system.uplink_gain[n], power[0], M, kept, chain)


@inlined
def edge_times(c: Numbers, share: float, chain: FloatArray) -> tuple[float, float, float, float]:
    """Times of a mini-batch up, the update, and a mini-batch back [s]; the uplink's loss exponent."""
    return edge_times_at(c, share, spectral_efficiency(c.link, chain[UPLINK_SNR] / share), chain)


@inlined
def edge_times_at(
    c: Numbers, share: float, efficiency: float, chain: FloatArray
) -> tuple[float, float, float, float]:
    """:func:`edge_times` for the uplink's spectral efficiency with this share [bit/s/Hz]."""
    # The whole power in the share: `physics.rates.uplink_snr`.
    B, snr = c.batch_size, chain[UPLINK_SNR] / share
    rate = share * c.uplink_bandwidth_hz * efficiency
    repeats, loss = repeats_of(c, snr, (chain[USUAL_REPEATS], chain[USUAL_LOSS]))
    uplink = message_time(B * c.activation_bits, rate) * repeats
    messages = chain[MICRO_BATCHES] * c.overheads.edge_message_s
    upload = message_time(chain[UPDATE_BITS], rate)
    downlink = message_time(B * c.gradient_bits, share * chain[DOWNLINK_RATE])
    return uplink + messages, upload, downlink + messages, loss


@inlined
def passes_of(uplink: float, downlink: float, chain: FloatArray) -> float:
    """Passes of a local step [s] for given times of a mini-batch up and back, without latencies."""
    M = chain[MICRO_BATCHES]
    step = gpipe_step(
        chain[FORWARD_SUM] + uplink,
        max(chain[FORWARD_MAX], uplink),
        chain[BACKWARD_SUM] + downlink,
        max(chain[BACKWARD_MAX], downlink),
        M,
    )
    return float(step / M)


@inlined
def delay_of(uplink: float, upload: float, downlink: float, chain: FloatArray) -> float:
    """``T_n`` [s] for given times of a mini-batch up, the update and a mini-batch back."""
    step = passes_of(uplink, downlink, chain)
    delay: float = cluster_delay(chain[LOCAL_STEPS], step, chain[ONCE], upload)
    return delay


@inlined
def receiving_joules(c: Numbers, seconds: float) -> float:
    """Energy of a CU's receiver while the base station sends [J]."""
    power = c.radio_power.edge_receive_w
    # A receiver without power needs none over a dead link either.
    joules: float = power * seconds if power > 0.0 else 0.0
    return joules


@inlined
def link_joules(c: Numbers, uplink: float, upload: float, downlink: float, chain: FloatArray) -> float:
    """Energy of a CU's edge link in the round without the broadcast [J], for times of :func:`edge_times`."""
    H = chain[LOCAL_STEPS]
    joules: float = chain[UPLINK_W] * (H * uplink + upload) + receiving_joules(c, H * downlink)
    return joules


@compiled_leaf
def edge_joules(c: Numbers, share: float, chain: FloatArray) -> float:
    """:func:`link_joules` of a share of the uplink.

    Args:
        share: ``beta_n``.
    """
    uplink, upload, downlink, _ = edge_times(c, share, chain)
    return float(link_joules(c, uplink, upload, downlink, chain))
