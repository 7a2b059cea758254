"""The segment problem of one cluster in a round: costs of blocks and hops at given powers and share.

Times are for the whole mini-batch, including the overheads of all ``M`` micro-batches. Every element adds
``1 / M`` of its time to the delay; the slowest adds ``1 - 1 / M`` more.
"""

from __future__ import annotations

import numpy as np

# Registers the formulas for compiled code.
import collapipe_env.kernels.formulas  # noqa: F401
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.compiled import compiled_inner
from collapipe_env.kernels.cluster_times import cluster_times
from collapipe_env.physics.energy import radio_power
from collapipe_env.physics.parameters import Numbers
from collapipe_env.physics.radio import failure_exponent, loss_exponent

from .cluster_costs import node_drift
from .moving import FIRST, lead_of, moments_airtime
from .options import (
    micro_batches_of,
    server_blocks_of,
    setting_of,
)
from .round_input import ClusterTerms, RoundInput
from .segment_plan import SegmentProblem


@compiled_inner
def segment_problem(
    n: int, power: FloatArray, terms: ClusterTerms, inputs: RoundInput, parameters: Numbers
) -> SegmentProblem:
    """Price a cluster's plans at given powers, share and interference.

    Args:
        power: Powers of the CU and the devices (K+1,) [W].
        terms: Terms left by the rest of the plan; the price of interference is not used.

    Returns:
        A problem whose objective is ``w_n T_n + C_n`` without the terms that no plan changes.
    """
    delay_weight, noise_w, option = terms.delay_weight, terms.noise_w, terms.option
    M, setting = micro_batches_of(option, inputs), setting_of(option, inputs)
    cap = inputs.cap[setting, n]
    radio, steps, price = parameters.radio_power, parameters.local_steps, inputs.price[n]
    kept = server_blocks_of(option, inputs)
    times = cluster_times(
        parameters, inputs.system, n, cap, power, noise_w, terms.share, M, setting, float(kept)
    )
    devices = cap.shape[0]
    nodes = devices + 1
    fill = delay_weight * steps / M
    latency = 2.0 * delay_weight * steps * parameters.overheads.latency_s
    hop_cost, sender = np.zeros((nodes, nodes)), np.empty(nodes)
    for i in range(nodes):
        sender[i] = price[i] * radio_power(power[i], radio.d2d_circuit_w, radio.efficiency)
    loss_price = inputs.common[0].loss_price
    for i in range(nodes):
        for j in range(nodes):
            forward, backward = times.hop_forward[i, j], times.hop_backward[i, j]
            if forward == 0.0:
                continue
            hop_cost[i, j] = (
                fill * (forward + backward)
                + latency
                + steps * (sender[i] + price[j] * radio.receive_w) * forward
                + steps * (sender[j] + price[i] * radio.receive_w) * backward
            )
            if loss_price > 0.0:
                snr = inputs.system.d2d_gain[n, i, j] / noise_w
                for watts in (power[i], power[j]):
                    exponent = failure_exponent(snr * watts, parameters.waterfall_threshold)
                    hop_cost[i, j] += loss_price * loss_exponent(exponent, parameters.transmissions)
    total = parameters.blocks - kept
    block_cost = np.zeros((devices, total + 1))
    exact = inputs.common[0].exact > 0.0
    for k in range(devices):
        busy = steps * (times.block_forward[k] + times.block_backward[k] + times.block_update[k])
        joules = inputs.system.compute_power[n, k] * busy
        each = (
            fill * (times.block_forward[k] + times.block_backward[k])
            + (sender[k + 1] + price[0] * radio.receive_w) * times.block_collect[k]
        )
        relay = parameters.relay_bits * times.link_bit[0, k + 1]
        each += (delay_weight + sender[0] + price[k + 1] * radio.receive_w) * relay
        z, budget = inputs.backlog[n, k + 1], inputs.system.budget[n, k + 1]
        for blocks in range(1, cap[k] + 1):
            if blocks > total:
                break
            # Computing takes most of a device's energy, so its drift is exact; transmissions are priced.
            drift = blocks * price[k + 1] * joules
            if exact:
                drift = node_drift(z, blocks * joules / budget, inputs.common[0].allowance)
                drift += blocks * inputs.extra_price[n, k + 1] * joules
            block_cost[k, blocks] = inputs.use_price[n, k] + blocks * each + drift
    moments_out, moments_in, moments_cost = _moments(n, power, inputs, parameters)
    sending = price[0] * radio_power(power[0], radio.edge_circuit_w, radio.efficiency)
    constant = fill * (times.server_forward + times.server_backward) + kept * inputs.common[0].server_price
    constant += (delay_weight + sending) * times.upload
    return SegmentProblem(
        total,
        cap,
        times,
        block_cost,
        hop_cost,
        delay_weight * steps - fill,
        delay_weight,
        delay_weight * steps,
        inputs.lead[n],
        moments_out,
        moments_in,
        moments_cost,
        parameters.through_cu,
        delay_weight,
        max(times.uplink, times.server_forward),
        max(times.downlink, times.server_backward),
        constant,
    )


@compiled_inner
def _moments(
    n: int, power: FloatArray, inputs: RoundInput, parameters: Numbers
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Airtimes of blocks' moments at sender and receiver, and their cumulative costs, by device."""
    blocks, devices, radio = inputs.held.shape[1], inputs.held.shape[2], parameters.radio_power
    out, into = np.zeros((devices, blocks)), np.zeros((devices, blocks))
    cost, price = np.zeros((devices, blocks + 1)), inputs.price[n]
    through_cu = parameters.through_cu
    for k in range(devices):
        for block in range(blocks):
            cost[k, block + 1] = cost[k, block]
            lead = lead_of(n, block, k, inputs)
            if lead < 0:
                continue
            sender, receiver = lead + 1, 0 if through_cu else k + 1
            out[k, block] = into[k, block] = moments_airtime(n, sender, receiver, power, inputs, parameters)
            drawn = price[sender] * radio_power(power[sender], radio.d2d_circuit_w, radio.efficiency)
            spent = (drawn + price[receiver] * radio.receive_w) * out[k, block]
            if through_cu:
                into[k, block] = moments_airtime(n, FIRST, k + 1, power, inputs, parameters)
                drawn = price[0] * radio_power(power[0], radio.d2d_circuit_w, radio.efficiency)
                spent += (drawn + price[k + 1] * radio.receive_w) * into[k, block]
            cost[k, block + 1] += spent
    return out, into, cost
