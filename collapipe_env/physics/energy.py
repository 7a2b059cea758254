"""Energy of every node: ``E_k``, ``E_CU`` (`system_model.md` section 5; [S]: long-term limits, [R]: forms).

A device's energy ``E_k`` is :func:`device_energy` of its :func:`compute_time` and :func:`device_airtime`, a
CU's ``E_CU`` is :func:`cu_energy` of its :func:`cu_airtime` and :func:`circuit_energy`. While a radio sends,
it draws :func:`radio_power`. All take arrays of any library, and numbers in compiled loops. Radios that are
on for the whole round add :func:`idle_energy` to each.
"""

from __future__ import annotations

from typing import NamedTuple

from collapipe_env.ground.arrays import Array, concatenate, namespace


class RadioPower(NamedTuple):
    """Power that radios draw in addition to the emitted power; the paper's form has none ([X]).

    Attributes:
        d2d_circuit_w: Circuits of a device-to-device sender [W].
        edge_circuit_w: Circuits of a CU that sends on the uplink [W].
        efficiency: Emitted over drawn power of an amplifier, in (0, 1].
        receive_w: Power of the receiver of a device-to-device message [W].
        edge_receive_w: Power of a CU's receiver of what the base station sends [W].
        idle_w: Power of a radio that is on, for the whole round and on top of all others [W].
    """

    d2d_circuit_w: float
    edge_circuit_w: float
    efficiency: float
    receive_w: float
    edge_receive_w: float = 0.0
    idle_w: float = 0.0


IDEAL_RADIO = RadioPower(0.0, 0.0, 1.0, 0.0)
"""A radio that draws only its emitted power."""


def radio_power(transmit_power: Array, circuit_w: float, efficiency: float) -> Array:
    """Power that a radio draws while it sends, ``P_c + p / eta`` [W] ([X]).

    Args:
        transmit_power: ``p`` [W].
        circuit_w: ``P_c`` [W].
        efficiency: ``eta``, in (0, 1].
    """
    return circuit_w + transmit_power / efficiency


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


def compute_time(passes: Array, forward_time: Array, backward_over_forward: Array | float) -> Array:
    """Compute time of a device in a round, ``(1 + rho) H M`` times its forward time [s], without updates.

    Args:
        passes: Micro-batches that pass in a round, ``H M``.
        forward_time: Forward time of its own part of one micro-batch, launches included [s].
        backward_over_forward: ``rho``, cost of its backward pass over that of its forward pass.
    """
    return (1.0 + backward_over_forward) * passes * forward_time


def device_airtime(passes: Array, hops: Array, collection: Array) -> Array:
    """Airtime of a device in a round: its hops for every micro-batch, and the collection [s].

    Args:
        passes: Micro-batches that pass in a round, ``H M``.
        hops: Airtime of its hops for one micro-batch, forward and backward [s].
        collection: Time to send its segment to the CU [s].
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
    compute_power_w: Array,
    compute_time: Array,
    radio_power_w: Array,
    airtime: Array,
    receive_energy: Array = 0.0,
) -> Array:
    """Energy of a device, ``E_k = P_act * compute time + radio power * airtime`` (..., N, K) [J].

    Args:
        compute_power_w: ``P_act`` (..., N, K) [W].
        compute_time: Compute time in the round, updates included (..., N, K) [s].
        radio_power_w: Power that its radio draws while it sends (..., N, K) [W]; :func:`radio_power`.
        airtime: Airtime in the round: activations, gradients, all-reduce and collection (..., N, K) [s].
        receive_energy: Energy of its receiver (..., N, K) [J].
    """
    return compute_power_w * compute_time + radio_power_w * airtime + receive_energy


def cu_energy(amplifier_power_w: Array, airtime: Array, circuits: Array = 0.0) -> Array:
    """Energy of a CU, ``E_CU = P_n / eta * airtime`` and its circuits (..., N) [J].

    Args:
        amplifier_power_w: ``P_n / eta`` (..., N) [W].
        airtime: Airtime in the round: device-to-device hops and uplink (..., N) [s].
        circuits: Energy of circuits and receiver (..., N) [J]; :func:`circuit_energy`.
    """
    return amplifier_power_w * airtime + circuits


def circuit_energy(radio: RadioPower, hops: Array, edge: Array, received: Array, from_edge: Array) -> Array:
    """Energy of a CU's circuits and receivers [J] ([X]).

    Args:
        hops: Airtime of its device-to-device hops in the round [s].
        edge: Airtime of its uplink in the round, the upload included [s].
        received: Airtime of the device-to-device messages that it receives in the round [s].
        from_edge: Airtime of what the base station sends it: gradients and the new model [s].
    """
    circuits = radio.d2d_circuit_w * hops + radio.edge_circuit_w * edge
    return circuits + radio.receive_w * received + radio.edge_receive_w * from_edge


def idle_power(idle_w: float, present: Array, plays: Array, like: Array) -> Array:
    """Power of the nodes' radios that are on (..., N, K+1) [W] ([X]).

    Radios of devices that are away and of clusters that sit out are off.

    Args:
        idle_w: Power of a radio that is on [W].
        present: Devices that are there (..., N, K), bool.
        plays: Clusters that take part (..., N), bool.
        like: Numbers of the nodes, which give shape and type (..., N, K+1).
    """
    xp, off = namespace(like), namespace(like).zeros_like(like)
    on = concatenate((xp.ones_like(present[..., :1]), present)) & plays[..., None]
    return xp.where(on, off + idle_w, off)


def idle_energy(power: Array, delay: Array) -> Array:
    """Energy of radios that are on for a whole round (..., N, K+1) [J].

    Args:
        power: :func:`idle_power` (..., N, K+1) [W].
        delay: ``T`` (...) [s].
    """
    off = namespace(power).zeros_like(power)
    # No radio that is off draws anything in a round without end.
    return power * namespace(power).where(power > 0.0, off + delay[..., None, None], off)
