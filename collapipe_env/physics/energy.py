"""Energy of every node: ``E_k``, ``E_CU`` (`system_model.md` section 5; [S]: long-term limits, [R]: forms).

A device's energy ``E_k`` is :func:`device_energy` of its :func:`compute_time` and :func:`device_airtime`, a
CU's ``E_CU`` is :func:`cu_energy` of its :func:`cu_airtime`. All take arrays of any library, and numbers in
compiled loops.
"""

from __future__ import annotations

from collapipe_env.arrays import Array
from collapipe_env.physics.workload import BACKWARD_OVER_FORWARD


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


def compute_time(passes: Array, forward_time: Array) -> Array:
    """Compute time of a device in a round, ``(1 + 2) H M`` times its forward time [s].

    Args:
        passes: Micro-batches that pass in a round, ``H M``.
        forward_time: Forward time of its own part of one micro-batch [s].
    """
    return (1.0 + BACKWARD_OVER_FORWARD) * passes * forward_time


def device_airtime(passes: Array, hops: Array, collection: Array) -> Array:
    """Airtime of a device in a round: its hops for every micro-batch, and the collection [s].

    Args:
        passes: Micro-batches that pass in a round, ``H M``.
        hops: Airtime of its hops for one micro-batch, forward and backward [s].
        collection: Time in which it sends its segment to the CU [s].
    """
    return passes * hops + collection


def cu_airtime(passes: Array, hops: Array, uplink: Array, upload: Array) -> Array:
    """Airtime of a CU in a round: its hops and its uplink for every micro-batch, and the upload [s].

    Args:
        passes: Micro-batches that pass in a round, ``H M``.
        hops: Airtime of its hops for one micro-batch, forward and backward [s].
        uplink: Airtime of one micro-batch on the uplink [s].
        upload: ``T_up`` [s].
    """
    return passes * hops + passes * uplink + upload


def device_energy(
    compute_power_w: Array, compute_time: Array, transmit_power: Array, airtime: Array
) -> Array:
    """Energy of a device, ``E_k = P_act * compute time + transmit power * airtime`` (..., N, K) [J].

    Args:
        compute_power_w: ``P_act`` (..., N, K) [W].
        compute_time: Compute time in the round (..., N, K) [s].
        transmit_power: Transmit power (..., N, K) [W].
        airtime: Airtime in the round: activations, gradients, all-reduce and collection (..., N, K) [s].
    """
    return compute_power_w * compute_time + transmit_power * airtime


def cu_energy(transmit_power: Array, airtime: Array) -> Array:
    """Energy of a CU, ``E_CU = P_n * airtime``: its device-to-device hops and its uplink (..., N) [J].

    Args:
        transmit_power: ``P_n`` (..., N) [W].
        airtime: Airtime in the round (..., N) [s].
    """
    return transmit_power * airtime
