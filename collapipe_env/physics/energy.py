"""Energy of every node in a round (`system_model.md` section 5; [S]: long-term limits, [R]: forms)."""

from __future__ import annotations

from collapipe_env.arrays import Array


def compute_power(
    speed: Array, flops_per_cycle: Array, switched_capacitance: Array, active_power: Array, full_speed: Array
) -> Array:
    """Power of a computing device: its profile's active power scaled by load, or ``kappa f^3``.

    Args:
        speed: Effective speed now (..., N, K) [FLOP/s].
        flops_per_cycle: FLOPs per clock cycle (..., N, K).
        switched_capacitance: ``kappa`` (..., N, K) [W s^3]; zero where the profile states a power.
        active_power: Power at full speed (..., N, K) [W]; zero where the profile gives only a clock.
        full_speed: Speed without load (..., N, K) [FLOP/s].

    Returns:
        ``P_act`` (..., N, K) [W]. Exactly one of the two terms is non-zero for each device.
    """
    clock = speed / flops_per_cycle
    return switched_capacitance * clock * clock * clock + active_power * (speed / full_speed)


def device_energy(
    compute_power_w: Array, compute_time: Array, transmit_power: Array, airtime: Array
) -> Array:
    """``P_act * compute time + transmit power * airtime`` (..., N, K) [J].

    Args:
        compute_power_w: ``P_act`` (..., N, K) [W].
        compute_time: Compute time in the round (..., N, K) [s].
        transmit_power: Transmit power (..., N, K) [W].
        airtime: Airtime in the round: activations, gradients, all-reduce and collection (..., N, K) [s].
    """
    return compute_power_w * compute_time + transmit_power * airtime


def cu_energy(transmit_power: Array, airtime: Array) -> Array:
    """Transmit energy of the CUs over device-to-device and uplink airtime (..., N) [J].

    Args:
        transmit_power: ``P_n`` (..., N) [W].
        airtime: Airtime in the round (..., N) [s].
    """
    return transmit_power * airtime
