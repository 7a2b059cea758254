"""A length that no round of a system is shorter than, for the energy of radios that are on all the time."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.physics.delay import message_time
from collapipe_env.physics.parameters import Parameters
from collapipe_env.physics.rates import full_band_rate, link_rate, uplink_snr
from collapipe_env.simulator.state import SystemState


def shortest_round(parameters: Parameters, state: SystemState) -> FloatArray:
    """Bound of the round delay ``T`` from below (...) [s], whatever CollaPipe's plans for it.

    A local step is no shorter than if all devices that hold blocks computed all the time, or than its
    messages on the uplink. Uplinks share the band: each has full power, and the rate per share of the least
    share. Hops, the downlink, launches, updates and the fill of the pipeline count for nothing, so real
    rounds last half as long again, or longer.

    Args:
        state: The systems, with clocks as fast as they run (...).
    """
    p, costs = parameters, parameters.costs
    floor, gain = max(p.bandwidth_floor, 1e-3), state.uplink_gain
    passes = costs.local_steps * costs.batch_size
    work = passes * (1.0 + costs.backward_over_forward) * costs.blocks * costs.block_forward_flops
    speed = np.where(state.memory_cap > 0, state.speed, 0.0).sum(axis=-1)
    computing = work / np.maximum(speed, 1e-300)
    snr = uplink_snr(floor, p.power_max_w, gain, p.uplink_noise_w)
    rate = link_rate(p.link, floor * p.uplink_bandwidth_hz, snr) / floor
    upload, uplink = (
        (bits / rate).sum(axis=-1) for bits in (costs.update_payload_bits, passes * costs.activation_bits)
    )
    weakest = gain.min(axis=-1)
    down = full_band_rate(p.link, p.bs_power_w, weakest, p.downlink_noise_w, p.downlink_bandwidth_hz)
    # Some cluster is no sooner done than the least that all compute, and an upload that shares the band.
    longest = np.maximum(computing.max(axis=-1), computing.min(axis=-1) + upload)
    bound: FloatArray = np.maximum(longest, uplink + upload) + message_time(p.numbers.broadcast_bits, down)
    return bound
