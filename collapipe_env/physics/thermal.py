"""Heat of a device: one node with a resistance and a capacity, and governors that cap its clock ([X]).

Power ``P`` flows into a capacity ``C`` and out over a resistance ``R`` to the surroundings at ``Theta_a``:
``C dTheta/dt = P - (Theta - Theta_a) / R``. A round has a busy phase and an idle one, of constant power each,
so its end is known exactly. The formulas hold for one device or for arrays of any library and of any shapes
that can be broadcast together.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from collapipe_env.ground.arrays import (
    Array,
    at_least,
    at_most,
    exp,
    expm1,
    floor,
    namespace,
    sqrt,
    where,
    whole,
)
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.delay import stage_time
from collapipe_env.physics.energy import RadioPower, compute_time, radio_power
from collapipe_env.physics.overheads import cycles_time
from collapipe_env.physics.parameters import Parameters
from collapipe_env.physics.recomputation import recomputation_terms

ROOM_C = 25.0
"""Temperature at which the thermal headroom is 0 [C]."""
MOST_HEADROOM = 1.5
"""Largest thermal headroom."""
IPA_RISE = 2.0
"""Power beyond the sustainable one that the allocator grants where it begins, in sustainable powers."""


class HeatNumbers(NamedTuple):
    """Numbers that decide how a device warms up and slows down; the names give the units.

    Attributes:
        resistance_k_per_w: ``R`` from the device to its surroundings [K/W].
        capacity_j_per_k: ``C`` [J/K].
        die_resistance_k_per_w: ``R_die`` from the chip to the device [K/W]; 0 where the governor reads the
            device's own temperature.
        idle_w: ``P_id``, drawn all the time and in no energy budget [W].
        on_c: ``Theta_on``, where ``ipa`` begins [C].
        set_c: ``Theta_set`` [C].
        critical_c: ``Theta_crit``, above which the device has its slowest clock until it is cool [C].
        hysteresis_k: ``h``: cool means below ``Theta_set - h`` [K].
        levels: Shares of the full clock that ``step`` and ``pause`` choose from, 1 first, descending.
        period_s: Seconds between two moves of a level [s].
        sustainable_w: ``P_s`` of ``ipa`` [W].
        least_w: Least power that ``ipa`` grants [W].
    """

    resistance_k_per_w: float
    capacity_j_per_k: float
    die_resistance_k_per_w: float
    idle_w: float
    on_c: float
    set_c: float
    critical_c: float
    hysteresis_k: float
    levels: Array
    period_s: float
    sustainable_w: float
    least_w: float


class Busy(NamedTuple):
    """Busy phase of devices in a round.

    Attributes:
        seconds: Its length ``t_b`` (..., N, K) [s], at most the round's.
        power: Mean power in it ``P_b`` (..., N, K) [W], idle power not included.
    """

    seconds: Array
    power: Array


def temperature_after(
    temperature: Array, ambient: Array, power: Array, seconds: Array, resistance: float, capacity: float
) -> Array:
    """Temperature after some time at a constant power [C], the exact solution.

    ``Theta' = Theta_a + R P + (Theta - Theta_a - R P) exp(-t / (R C))``

    Args:
        temperature: ``Theta`` [C].
        ambient: ``Theta_a`` [C].
        power: ``P`` [W], >= 0.
        seconds: ``t`` [s], >= 0.
        resistance: ``R`` [K/W], >= 0; with 0 the device is as warm as its surroundings.
        capacity: ``C`` [J/K], > 0.
    """
    if resistance == 0.0:
        return ambient + 0.0 * (temperature + power + seconds)
    steady = ambient + resistance * power
    # Written with expm1, so that short times keep their digits, and a time of 0 changes nothing.
    return temperature - (steady - temperature) * expm1(-seconds / (resistance * capacity))


def ambient_after(
    ambient: Array, mean: Array, seconds: Array, tau_s: float, deviation_k: float, normals: Array
) -> Array:
    """Temperature of surroundings after some time [C]: an Ornstein-Uhlenbeck process, its exact law.

    ``Theta_a' = mu + (Theta_a - mu) exp(-t / tau) + sd sqrt(1 - exp(-2 t / tau)) n``, which ends in the
    stationary law ``mu + sd n`` after an infinite time. Two successive times have the law of their sum.

    Args:
        ambient: ``Theta_a`` [C].
        mean: ``mu`` [C].
        seconds: ``t`` [s], >= 0.
        tau_s: ``tau`` [s], > 0.
        deviation_k: ``sd`` [K], >= 0.
        normals: ``n``, standard normal numbers.
    """
    kept = exp(-seconds / tau_s)
    spread = deviation_k * sqrt(-expm1(-2.0 * seconds / tau_s))
    return mean + (ambient - mean) * kept + spread * normals


def computing_seconds(parameters: Parameters, allocation: Allocation, speed: Array, clock: Array) -> Array:
    """Seconds for which every device computes in a round (..., N, K), launches and updates included.

    Args:
        allocation: Any plan (...); clusters that sit out count as if they took part.
        speed: ``v`` (..., N, K) [FLOP/s].
        clock: ``f`` (..., N, K) [Hz].
    """
    costs, extra, xp = parameters.costs, parameters.overheads, namespace(speed)
    micro_batches = xp.astype(allocation.micro_batches, speed.dtype)
    blocks = xp.astype(allocation.device_blocks, speed.dtype)
    samples = (costs.batch_size / micro_batches)[..., None]
    maths = stage_time(samples, blocks, costs.block_forward_flops, speed)
    work = allocation.of_share(maths) + cycles_time(blocks, extra.block_cycles, clock)
    steps = allocation.real_steps(costs.local_steps)
    ratio = recomputation_terms(parameters, allocation).backward_over_forward
    updates = cycles_time(blocks, extra.update_cycles, clock)
    return compute_time((steps * micro_batches)[..., None], work, ratio) + steps[..., None] * updates


def busy_phase(
    radio: RadioPower,
    device_power: Array,
    energy: Array,
    computing: Array,
    computing_power: Array,
    seconds: Array,
) -> Busy:
    """Busy phase of every device: it computes and its radio is on, ``t_b = min(compute + airtime, Delta)``.

    The radio's time is its share of the energy over the power with which it sends: exact where receivers
    draw nothing. All of the energy is heat, ``P_b = E / t_b``, so that none is lost, whatever ``t_b`` is.

    Args:
        device_power: Its transmit power [W].
        energy: Energy of every device in the round [J], idle power not included.
        computing: Seconds for which it computes; :func:`computing_seconds`.
        computing_power: ``P_act`` [W].
        seconds: ``Delta`` [s].
    """
    drawn = radio_power(device_power, radio.d2d_circuit_w, radio.efficiency)
    length = computing + at_least(energy - computing_power * computing, 0.0) / drawn
    length = where(energy > 0.0, where(length < seconds, length, seconds), 0.0)
    # A round of no length heats nothing.
    return Busy(length, where(length > 0.0, energy / where(length > 0.0, length, 1.0), 0.0))


def headroom_after(reading: Array, set_c: float) -> Array:
    """Thermal headroom at a reading: 0 in a room, 1 at the set point ``Theta_set`` [C]."""
    return at_most(at_least((reading - ROOM_C) / (set_c - ROOM_C), 0.0), MOST_HEADROOM)


def warmed(
    own: HeatNumbers,
    radio: RadioPower,
    temperature: Array,
    ambient: Array,
    device_power: Array,
    energy: Array,
    computing: Array,
    computing_power: Array,
    idle: Array,
    seconds: Array,
) -> tuple[Array, Array]:
    """Temperature after a round, the busy phase first, then the idle one, and the governor's reading [C].

    Args:
        temperature: ``Theta`` [C].
        ambient: ``Theta_a`` [C].
        idle: ``P_id`` [W], >= 0, all the time.
    """
    resistance, capacity = own.resistance_k_per_w, own.capacity_j_per_k
    busy = busy_phase(radio, device_power, energy, computing, computing_power, seconds)
    power = busy.power + idle
    warm = temperature_after(temperature, ambient, power, busy.seconds, resistance, capacity)
    rest_s = seconds - busy.seconds
    cooled = temperature_after(warm, ambient, idle, rest_s, resistance, capacity)
    return cooled, cooled + own.die_resistance_k_per_w * power


def held_back(own: HeatNumbers, reading: Array, paused: Array) -> Array:
    """Whether a device pauses: from a reading above the critical temperature until it is cool.

    Args:
        reading: Temperature that the governor reads [C].
        paused: Whether the device paused before.
    """
    return (reading > own.critical_c) | (paused & (reading >= own.set_c - own.hysteresis_k))


def allocated_power(
    temperature: Array, on_c: float, set_c: float, sustainable_w: float, least_w: float
) -> Array:
    """Power that the intelligent power allocator of Linux grants at a temperature [W], without its integral.

    It grants three times the sustainable power where it begins and the sustainable power at its set point;
    beyond, it falls half as steeply.

    Args:
        temperature: ``Theta`` [C].
        on_c: ``Theta_on``, where it begins [C].
        set_c: ``Theta_set`` [C], > ``Theta_on``.
        sustainable_w: ``P_s`` [W], > 0.
        least_w: Least power that it grants [W], > 0.
    """
    room = (set_c - temperature) / (set_c - on_c)
    share = where(room >= 0.0, 1.0 + IPA_RISE * room, 1.0 + room)
    return at_least(sustainable_w * share, least_w)


def clock_share(power: Array, full_power: Array, cubic: Array) -> Array:
    """Share of the full clock at which a device draws no more than a given power, in (0, 1].

    Args:
        power: The power [W], > 0.
        full_power: Power at the full clock [W], >= 0.
        cubic: Whether the power grows with the cube of the clock (``kappa f^3``) or in proportion, bool.
    """
    some = full_power > 0.0
    ratio = at_most(power / where(some, full_power, 1.0), 1.0)
    return where(some, where(cubic, ratio ** (1.0 / 3.0), ratio), 1.0)


def governor_moves(remainder: Array, seconds: Array, period_s: float) -> tuple[Array, Array]:
    """Moves that a governor makes in a round, at most one a period, and the time left over.

    Args:
        remainder: Seconds left over from earlier rounds (...), in [0, period).
        seconds: ``Delta`` (...) [s].
        period_s: Seconds between two moves [s], > 0.

    Returns:
        Whole number of moves (...), real; seconds left over (...), in [0, period).
    """
    passed = remainder + seconds
    moves = floor(passed / period_s)
    left = at_least(passed - moves * period_s, 0.0)
    # Rounding may leave a whole period.
    return moves, at_most(left, math.nextafter(period_s, 0.0))


def moved_level(
    level: Array, temperature: Array, moves: Array, last: int, set_c: float, hysteresis_k: float
) -> Array:
    """Level of a step governor after some moves: a slower clock above the set point, a faster one when cool.

    Args:
        level: ``j``, int, 0 for the full clock.
        temperature: Temperature that the governor reads [C].
        moves: Moves that it makes, whole real numbers >= 0.
        last: ``J``, number of the slowest level.
        set_c: ``Theta_set`` [C].
        hysteresis_k: ``h`` [K]: it moves back only below ``Theta_set - h``.
    """
    # Moves beyond the number of levels do not count, and might not fit an integer.
    most = whole(at_most(moves, float(last)))
    slower, faster = at_most(level + most, last), at_least(level - most, 0)
    return where(temperature > set_c, slower, where(temperature < set_c - hysteresis_k, faster, level))
