"""Batteries of devices: charge of each round, eligibility, and blocks that a charge can pay for ([X]).

A battery supplies the energy ``E`` that a device spends in a round and its idle power, and is charged by a
source. Energy that it cannot supply is a deficit, energy that it cannot hold is spilled. Both are counted, so
the energy balance holds exactly:

    ``b' = b - E - P_id Delta + eta_c A Delta + deficit - spill``, in [0, B]

All functions take arrays of any library and any shapes that can be broadcast together.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from collapipe_env.arrays import Array, at_least, at_most, concatenate, namespace
from collapipe_env.physics.energy import radio_power
from collapipe_env.physics.overheads import launch_time, update_time
from collapipe_env.physics.parameters import SystemParameters
from collapipe_env.physics.radio import (
    d2d_noise,
    d2d_snr,
    failure_exponent,
    interference,
    seconds_per_bit,
    shannon_rate,
    usable_snr,
)
from collapipe_env.physics.workload import WorkloadCosts

DAY_S = 86400.0
"""Seconds of a day."""
LEAST_J = 1e-12
"""Smallest energy of a block [J], which avoids division by zero."""


class Charged(NamedTuple):
    """Battery after a round.

    Attributes:
        charge: ``b'`` (..., N, K) [J], in [0, B].
        deficit: Energy that it could not supply (..., N, K) [J], >= 0.
        spill: Energy that it could not hold (..., N, K) [J], >= 0.
    """

    charge: Array
    deficit: Array
    spill: Array


def charge_after(charge: Array, drawn: Array, gained: Array, capacity: float) -> Charged:
    """Charge after a round, ``clip(b - drawn + gained, 0, B)``, with the clipped amounts.

    Args:
        charge: ``b``, in [0, B] [J].
        drawn: Energy spent, idle power included, >= 0 [J].
        gained: Energy that reached the battery, >= 0 [J].
        capacity: ``B``, > 0 [J].
    """
    balance = charge - drawn + gained
    return Charged(
        charge=at_most(at_least(balance, 0.0), capacity),
        deficit=at_least(-balance, 0.0),
        spill=at_least(balance - capacity, 0.0),
    )


def eligible_after(eligible: Array, level: Array, off_below: float, on_above: float) -> Array:
    """Whether devices may take part, bool: off strictly below one level, on again strictly above another.

    Args:
        eligible: Whether they could before, bool.
        level: Charge over capacity, in [0, 1].
        off_below: Level below which a device is taken out.
        on_above: Level above which it returns, at least ``off_below``.
    """
    return namespace(level).where(eligible, level >= off_below, level > on_above)


def plugged_seconds(plugged: Array, residual: Array, seconds: Array) -> Array:
    """Seconds of a round in which devices are on their chargers, with at most one change in the round.

    Args:
        plugged: Whether the charger is on at the beginning of the round, bool.
        residual: Time until that changes, > 0 [s].
        seconds: Length of the round, >= 0 [s].
    """
    xp = namespace(residual)
    return xp.where(plugged, xp.minimum(residual, seconds), at_least(seconds - residual, 0.0))


def solar_power(panel_w: float, time_s: Array, cloud: Array) -> Array:
    """Power of a panel, ``A_0 max(0, sin(2 pi tau / 86400)) c`` [W]: sunrise at 0, noon at 21600 s.

    Args:
        panel_w: ``A_0``, at noon under a clear sky [W].
        time_s: ``tau``, time of the day [s].
        cloud: ``c``, the fraction that clouds let through; clipped to [0, 1].
    """
    xp = namespace(time_s)
    height = at_least(xp.sin((2.0 * math.pi / DAY_S) * time_s), 0.0)
    return panel_w * height * xp.clip(cloud, 0.0, 1.0)


class Demand(NamedTuple):
    """Largest energy that a round may take from a device.

    Attributes:
        fixed: Part that does not depend on the number of blocks, for a device with blocks: messages of
            activations and gradients (..., N, K) [J].
        block: Part per block: passes, launches, updates, and its weights on the radio (..., N, K) [J].
    """

    fixed: Array
    block: Array


def round_demand(
    parameters: SystemParameters,
    present: Array,
    speed: Array,
    clock: Array,
    compute_power: Array,
    d2d_gain: Array,
    cross_gain: Array,
) -> Demand:
    """Largest energy that a round of GPipe takes from devices when all nodes send at full power.

    A device's activations and gradients go to the node of its cluster with the worst link, and all clusters
    interfere at full power. Micro-batches and local steps are the largest numbers that the scenario allows.
    Sending below full power, groups of several devices, chunks, migration, replicas, and recovery from
    failures may cost more.

    Args:
        parameters: Scalars of the scenario.
        present: Present devices (..., N, K), bool.
        speed: Speeds now (..., N, K) [FLOP/s].
        clock: Clocks now (..., N, K) [Hz].
        compute_power: ``P_act`` now (..., N, K) [W].
        d2d_gain: Gains of pairs of nodes (..., N, K+1, K+1), node 0 the CU.
        cross_gain: Gains between clusters' centres (..., N, N).
    """
    xp, costs, extra = namespace(speed), parameters.costs, parameters.overheads
    steps, most = parameters.most_local_steps, parameters.micro_batch_choices[-1]
    seconds = _seconds_per_bit(parameters, d2d_gain, cross_gain)
    # Between nodes that are present; a node has no link to itself.
    nodes = concatenate((xp.ones_like(present[..., :1]), present))
    index = xp.arange(nodes.shape[-1], device=getattr(d2d_gain, "device", None))
    used = nodes[..., None, :] & nodes[..., :, None] & (index[:, None] != index)
    seconds = xp.where(used, seconds, 0.0)

    radio = parameters.radio_power
    sending = radio_power(parameters.power_max_w, radio.d2d_circuit_w, radio.efficiency)
    messages = 2 * steps * most
    bits = steps * costs.batch_size * (costs.activation_bits + costs.gradient_bits)
    bits += messages * extra.header_bits
    sent = bits * xp.max(seconds[..., 1:, :], axis=-1) + messages * extra.message_s
    heard = bits * xp.max(seconds[..., :, 1:], axis=-2) + messages * extra.message_s
    fixed = sending * sent + radio.receive_w * heard

    ratio = costs.backward_over_forward
    if parameters.other_costs is not None:
        ratio = max(ratio, parameters.other_costs.backward_over_forward)
    passes = costs.batch_size * costs.block_forward_flops / speed
    passes = passes + most * launch_time(1, extra.block_cycles, clock)
    busy = steps * ((1.0 + ratio) * passes + update_time(1, extra.update_cycles, clock))
    block = compute_power * busy + sending * costs.block_payload_bits * seconds[..., 1:, 0]
    if parameters.distribution == "relay":
        relayed = costs.block_broadcast_bits(parameters.clusters)
        block = block + radio.receive_w * relayed * seconds[..., 0, 1:]
    return Demand(fixed, block)


def _seconds_per_bit(parameters: SystemParameters, d2d_gain: Array, cross_gain: Array) -> Array:
    """Seconds per bit on every link at full power (..., N, K+1, K+1), sender first."""
    xp, p = namespace(d2d_gain), parameters
    power = xp.full_like(d2d_gain[..., 0], p.power_max_w)
    disturbed = interference(cross_gain, xp.full_like(d2d_gain[..., 0, 0], p.power_max_w))
    snr = d2d_snr(power, d2d_gain, d2d_noise(p.noise_density, p.d2d_bandwidth_hz, disturbed))
    snr = xp.where(snr > 0.0, snr, xp.inf)  # of pairs without a link
    rates = shannon_rate(usable_snr(snr, p.d2d_snr_cap), p.d2d_bandwidth_hz)
    exponents = failure_exponent(snr, p.waterfall_threshold)
    return seconds_per_bit(rates, exponents, p.transmissions)


def energy_caps(charge: Array, demand: Demand, idle_j: float, blocks: int) -> Array:
    """Blocks that a charge can pay for in the next round, ``floor((b - E_tx - P_id T_ref) / E_block)``.

    Args:
        charge: ``b`` (..., N, K) [J].
        demand: Largest energy that a round takes.
        idle_j: ``P_id T_ref`` [J].
        blocks: ``L``: no cap is larger.

    Returns:
        Whole numbers of the charge's floating type (..., N, K), 0 to ``L``.
    """
    xp = namespace(charge)
    caps = xp.floor((charge - demand.fixed - idle_j) / at_least(demand.block, LEAST_J))
    return xp.clip(caps, 0.0, float(blocks))


def memory_for(caps: Array, costs: WorkloadCosts) -> Array:
    """Memory in which a device holds at most the given blocks (..., N, K) [byte]; infinite for all blocks.

    The inverse of :func:`collapipe_env.physics.memory.memory_caps`, half a block above the step.

    Args:
        caps: Whole numbers (..., N, K), of a floating type.
        costs: Priced workload.
    """
    xp = namespace(caps)
    each = costs.block_state_bytes + costs.batch_size * costs.stored_activation_bytes
    beside = costs.batch_size / costs.fewest_micro_batches * costs.working_bytes
    room = beside + (caps + 0.5) * each
    return xp.where(caps >= costs.blocks, xp.inf, xp.where(caps > 0.0, room, 0.0))
