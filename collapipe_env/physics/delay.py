"""Delays: ``T_step``, ``T_col``, ``T_up``, ``T_n``, ``T_bc`` and ``T`` (`system_model.md` section 4, [R]).

A micro-batch passes the elements of a cluster's chain: compute stages, hops between nodes, the CU's uplink
and downlink, and the server. Their times give, with one formula each,

=====================  ===============================================================================
``T_step``             :func:`gpipe_step`: a local step under GPipe
``T_col``              the largest :func:`message_time` of a cluster's devices to their CU
``T_up``, ``T_bc``     :func:`message_time` of a cluster's update and of the new model
``T_n``                :func:`cluster_delay`: ``H T_step + T_col + T_up``; where CUs forward new weights,
                       ``T_relay`` more, the sum of a cluster's :func:`message_time` to the devices
``T``                  ``max_n T_n + T_bc``
=====================  ===============================================================================

Each works on arrays of any library and any shapes that can be broadcast together; compiled loops call the
same functions on numbers (:mod:`collapipe_env.kernels.formulas`). Sums and maxima over a chain are taken by
the caller: :mod:`collapipe_env.physics.elements` for arrays.
"""

from __future__ import annotations

from collapipe_env.ground.arrays import Array


def stage_time(samples: Array, blocks: Array, block_forward_flops: float, speed: Array) -> Array:
    """Forward time of a device for one micro-batch, ``b delta Phi_F / v`` [s] ([R]).

    Args:
        samples: Samples ``b`` of a micro-batch, > 0.
        blocks: Blocks ``delta`` that the device holds, >= 0.
        block_forward_flops: ``Phi_F`` per sample and block [FLOP].
        speed: ``v`` [FLOP/s], > 0.
    """
    return samples * blocks * block_forward_flops / speed


def hop_time(seconds_per_bit: Array, bits: Array) -> Array:
    """Airtime of one micro-batch on a hop, ``b A`` bits one after another [s] ([R]).

    Args:
        seconds_per_bit: Time of a bit, repeats included [s]
            (:func:`~.packet_errors.seconds_per_bit`); ``b`` times as much if ``bits`` are those of a sample.
        bits: Boundary activations or gradients of a micro-batch [bit].
    """
    return seconds_per_bit * bits


def gpipe_step(
    sum_forward: Array,
    longest_forward: Array,
    sum_backward: Array,
    longest_backward: Array,
    micro_batches: Array,
) -> Array:
    """Local step under GPipe, ``T_step = sum a + sum c + (M - 1) (max a + max c)`` [s] ([R]).

    ``a`` are the forward times of all elements of the chain, ``c`` the backward times. Exact for all
    forwards, a flush, then all backwards, on full-duplex links.

    Args:
        sum_forward: ``sum a`` [s].
        longest_forward: ``max a`` [s].
        sum_backward: ``sum c`` [s].
        longest_backward: ``max c`` [s].
        micro_batches: ``M`` >= 1.
    """
    return sum_forward + sum_backward + (micro_batches - 1) * (longest_forward + longest_backward)


def message_time(bits: Array, rate: Array) -> Array:
    """Time of a message without repeats [s] ([R]; relay [X]).

    So long take a micro-batch between CU and base station, a device's segment to the CU (``T_col`` is the
    largest of a cluster), a segment's new state from the CU to its owner (``T_relay`` is their sum), a
    cluster's update to the base station (``T_up``), and the new model's broadcast (``T_bc``).

    Args:
        bits: The message [bit], >= 0.
        rate: Rate of the link, of a broadcast that to the weakest CU [bit/s], > 0; infinite where nothing is
            sent.
    """
    return bits / rate


def cluster_delay(local_steps: Array, step: Array, collect: Array, upload: Array) -> Array:
    """Delay of a cluster, ``T_n = H T_step + T_col + T_up`` [s] ([R]).

    Args:
        local_steps: ``H`` >= 1.
        step: ``T_step``, all-reduce included, and the wait for the slowest cluster where there is one [s].
        collect: ``T_col`` [s].
        upload: ``T_up`` [s].
    """
    return local_steps * step + collect + upload
