"""Input of DSSRA's search: the scalars of a scenario, and one environment's arrays with prices."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collapipe_env.compiled import compiled_inner
from collapipe_env.physics import radio
from collapipe_env.physics.workload import BACKWARD_OVER_FORWARD
from collapipe_env.simulator.state import SystemParameters, SystemState

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class RoundConstants(NamedTuple):
    """Scalars of a scenario that the search needs.

    Attributes:
        blocks: ``L``.
        steps: Local steps ``H``.
        activation_bits: Boundary activations of a mini-batch [bit].
        gradient_bits: Boundary gradients of a mini-batch [bit].
        collect_bits: One block's parameters on the air [bit].
        update_bits: A cluster's whole update on the air [bit].
        server_s: Server's forward time of a mini-batch [s].
        backward_over_forward: Backward time over forward time of computing.
        d2d_noise_w: Thermal noise in a device-to-device sub-channel [W].
        d2d_hz: Device-to-device bandwidth [Hz].
        uplink_noise_w: Noise and external interference over the whole uplink [W].
        uplink_hz: Uplink bandwidth [Hz].
        waterfall: Threshold ``m`` of the packet error.
        retransmit: Whether lost packets are sent again (``arq``).
        power_min_w: Smallest transmit power [W].
        power_max_w: Largest transmit power [W].
        share_floor: Smallest share of the uplink.
        tradeoff_v: ``V`` [1/s].
    """

    blocks: int
    steps: float
    activation_bits: float
    gradient_bits: float
    collect_bits: float
    update_bits: float
    server_s: float
    backward_over_forward: float
    d2d_noise_w: float
    d2d_hz: float
    uplink_noise_w: float
    uplink_hz: float
    waterfall: float
    retransmit: bool
    power_min_w: float
    power_max_w: float
    share_floor: float
    tradeoff_v: float


class RoundInput(NamedTuple):
    """One environment before a round, with prices in place of backlogs and budgets.

    Attributes:
        block_s: Forward time of one block for a mini-batch (N, K) [s].
        block_price: Energy of one block in the round times its price (N, K).
        price: Price of each node's energy, ``z / Ebar`` (N, K+1) [1/J].
        gain: Gains between nodes (N, K+1, K+1).
        uplink_gain: ``h`` (N,).
        downlink_rate: Downlink rate with the whole band (N,) [bit/s].
        cross_gain: ``X`` (N, N).
        cap: Blocks that each device can hold (N, K), 0 for absent ones.
        micro_batches: ``M``, settled before the search (N,).
        loss_price: Price of a unit of a cluster's failure exponent (N,), 0 unless ``drop``.
    """

    block_s: FloatArray
    block_price: FloatArray
    price: FloatArray
    gain: FloatArray
    uplink_gain: FloatArray
    downlink_rate: FloatArray
    cross_gain: FloatArray
    cap: IntArray
    micro_batches: FloatArray
    loss_price: FloatArray


def round_constants(parameters: SystemParameters, tradeoff_v: float) -> RoundConstants:
    """Scalars of the search.

    Args:
        parameters: Scalars of the scenario.
        tradeoff_v: ``V`` [1/s].
    """
    costs = parameters.costs
    batch = costs.batch_size
    return RoundConstants(
        blocks=costs.blocks,
        steps=float(costs.local_steps),
        activation_bits=float(batch * costs.activation_bits),
        gradient_bits=float(batch * costs.gradient_bits),
        collect_bits=float(costs.block_payload_bits),
        update_bits=float(costs.update_payload_bits),
        server_s=float(batch * costs.decoder_forward_flops / (parameters.server_flops / parameters.clusters)),
        backward_over_forward=float(BACKWARD_OVER_FORWARD),
        d2d_noise_w=float(parameters.noise_density * parameters.d2d_bandwidth_hz),
        d2d_hz=float(parameters.d2d_bandwidth_hz),
        uplink_noise_w=float(parameters.uplink_noise_w),
        uplink_hz=float(parameters.uplink_bandwidth_hz),
        waterfall=float(parameters.waterfall_threshold),
        retransmit=parameters.link_errors == "arq",
        power_min_w=float(parameters.power_min_w),
        power_max_w=float(parameters.power_max_w),
        share_floor=float(parameters.bandwidth_floor),
        tradeoff_v=float(tradeoff_v),
    )


def round_input(
    parameters: SystemParameters,
    state: SystemState,
    micro_batches: npt.ArrayLike | None = None,
    convergence_weight: float = 0.0,
) -> RoundInput:
    """Arrays of the search from a state with any leading axes.

    Under GPipe more micro-batches never hurt this system: a local step lasts
    ``max + (sum - max) / M`` of the mini-batch's element times in each direction, while energy, memory
    (all activations are kept until the flush) and losses do not depend on ``M``. Enumerating the choices
    with that as a bound leaves the largest, which is the default.

    Args:
        parameters: Scalars of the scenario.
        state: The system (..., ).
        micro_batches: ``M``, broadcastable to (..., N); by default the largest allowed number.
        convergence_weight: Price of a unit of failure exponent; only lossy links have any.
    """
    costs = parameters.costs
    clusters = state.uplink_gain.shape
    M = parameters.micro_batch_choices[-1] if micro_batches is None else micro_batches
    loss_price = convergence_weight if parameters.link_errors == "drop" else 0.0
    block_s = costs.batch_size * costs.block_forward_flops / state.speed
    price = state.backlog / state.budget
    seconds = (1.0 + BACKWARD_OVER_FORWARD) * costs.local_steps * block_s
    return RoundInput(
        block_s=np.ascontiguousarray(block_s, dtype=np.float64),
        block_price=np.ascontiguousarray(price[..., 1:] * state.compute_power * seconds, dtype=np.float64),
        price=np.ascontiguousarray(price, dtype=np.float64),
        gain=np.ascontiguousarray(state.d2d_gain, dtype=np.float64),
        uplink_gain=np.ascontiguousarray(state.uplink_gain, dtype=np.float64),
        downlink_rate=np.ascontiguousarray(
            radio.downlink_rate(
                np.ones_like(state.uplink_gain),
                parameters.bs_power_w,
                state.uplink_gain,
                parameters.downlink_noise_w,
                parameters.downlink_bandwidth_hz,
            )
        ),
        cross_gain=np.ascontiguousarray(state.cross_gain, dtype=np.float64),
        cap=np.ascontiguousarray(np.where(state.present, state.memory_cap, 0), dtype=np.int64),
        micro_batches=np.broadcast_to(np.asarray(M, dtype=np.float64), clusters).copy(),
        loss_price=np.full(clusters, loss_price, dtype=np.float64),
    )


@compiled_inner
def environment_row(inputs: RoundInput, e: int) -> RoundInput:
    """One environment of a batch.

    Args:
        inputs: All environments, with a leading axis E.
        e: Which one.
    """
    return RoundInput(
        inputs.block_s[e],
        inputs.block_price[e],
        inputs.price[e],
        inputs.gain[e],
        inputs.uplink_gain[e],
        inputs.downlink_rate[e],
        inputs.cross_gain[e],
        inputs.cap[e],
        inputs.micro_batches[e],
        inputs.loss_price[e],
    )
