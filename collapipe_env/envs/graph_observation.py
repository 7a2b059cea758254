"""The graph observation: control units, devices and hops of any system, in features independent of its size.

Every number is a physical quantity in SI units, mostly as a natural logarithm, or a count; nothing is scaled
by constants of a scenario. One policy can therefore read systems of any size, layout, budget and workload.
Times are those of a whole round. Powers are unknown before the decision: radio features hold at the reference
power, the geometric mean of the least and the greatest. Logarithms are held within :data:`LOG_BOUND`, far
beyond any system, so that a dead link or ``V = 0`` is a finite number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from collapipe_env.ground.arrays import Array, Constant, at_most, log1p, loop_array, namespace
from collapipe_env.kernels.graph_rows import LOG_BOUND, GraphScales, GraphSystem, graph_rows
from collapipe_env.physics import radio
from collapipe_env.physics.delay import message_time, stage_time
from collapipe_env.physics.energy import radio_power
from collapipe_env.physics.parameters import Parameters
from collapipe_env.physics.workload import BACKWARD_OVER_FORWARD
from collapipe_env.simulator.state import SystemState

LEAST_SECONDS = 1e-4
"""Added to times that may be zero before their logarithm [s]."""
LEAST_RATIO = 1e-3
"""Added to ratios that may be zero before their logarithm."""
LARGEST_SNR = math.exp(10.0)
"""SNR that the context shows where a scenario has no cap (43 dB)."""
PASSES = 1.0 + BACKWARD_OVER_FORWARD
"""Work of a forward and a backward pass, in forward passes."""


class Form(NamedTuple):
    """Form in which features hold a quantity ``q``.

    Attributes:
        log: True for ``log(q + added)``, False for ``q`` itself.
        added: Constant added before the logarithm.
        low: Lower bound.
        high: Upper bound; ``None`` for ``L``.
        flag: Whether ``q`` is 0 or 1.
    """

    log: bool
    added: float
    low: float
    high: float | None
    flag: bool = False


LOG = Form(True, 0.0, -LOG_BOUND, LOG_BOUND)
SECONDS = Form(True, LEAST_SECONDS, -10.0, LOG_BOUND)
RATIO = Form(True, LEAST_RATIO, -10.0, LOG_BOUND)
ONE_PLUS = Form(True, 1.0, 0.0, LOG_BOUND)
BLOCKS = Form(False, 0.0, 0.0, None)
SHARE = Form(False, 0.0, 0.0, 1.0)
FLAG = Form(False, 0.0, 0.0, 1.0, flag=True)


@dataclass(frozen=True)
class GraphFeature:
    """One feature of the graph observation.

    Attributes:
        name: Name of the quantity, after ``log_`` where the feature is a logarithm.
        description: Meaning.
        unit: Unit of the quantity.
        form: Relation to the quantity.
    """

    name: str
    description: str
    unit: str
    form: Form

    @property
    def quantity(self) -> str:
        """Name of the quantity that the feature holds."""
        return self.name.removeprefix("log_")

    def high(self, blocks: int) -> float:
        """Upper bound, with ``blocks`` in the encoder."""
        return float(blocks) if self.form.high is None else self.form.high


def graph_features(*rows: tuple[str, str, str, Form]) -> tuple[GraphFeature, ...]:
    """Features from their names, descriptions, units and forms."""
    return tuple(GraphFeature(*row) for row in rows)


DEVICE_FEATURES = graph_features(
    ("log_block_s", "log of the time of one block's passes over the mini-batch", "s", LOG),
    (
        "log_launch_s",
        "log of the time of one block's launches for one micro-batch, plus 0.1 ms",
        "s",
        SECONDS,
    ),
    ("log_update_s", "log of the time of one block's optimiser updates, plus 0.1 ms", "s", SECONDS),
    ("log_block_load", "log of the energy of one block's passes, over the energy budget", "1", LOG),
    ("log_radio_load", "log of the energy of one second of sending, over the energy budget", "1/s", LOG),
    ("log_backlog", "log of 1 plus the energy queue z", "budgets", ONE_PLUS),
    ("capacity", "blocks that the memory holds, at most L", "blocks", BLOCKS),
    ("previous_blocks", "blocks held in the previous round, 0 if migration is free", "blocks", BLOCKS),
)
CU_FEATURES = graph_features(
    ("log_upload_s", "log of the time of the update's upload at a share of 1/N", "s", LOG),
    ("log_uplink_s", "log of the time of the activations on the uplink at a share of 1/N", "s", LOG),
    ("log_downlink_s", "log of the time of the gradients on the downlink at a share of 1/N", "s", LOG),
    ("log_uplink_snr", "log of the uplink's signal to noise ratio at a share of 1/N", "1", LOG),
    (
        "log_radio_load",
        "log of the energy of one second of sending on the uplink, over the budget",
        "1/s",
        LOG,
    ),
    ("log_backlog", "log of 1 plus the energy queue z", "budgets", ONE_PLUS),
    (
        "log_interference",
        "log of 1 plus interference over noise, with all other clusters sending",
        "1",
        ONE_PLUS,
    ),
    ("log_server_s", "log of the server's time for the mini-batch, plus 0.1 ms", "s", SECONDS),
)
HOP_FEATURES = graph_features(
    ("log_hop_s", "log of the time of activations and gradients on the hop, without interference", "s", LOG),
    ("log_hop_snr", "log of the hop's signal to noise ratio, without interference", "1", LOG),
)
BETWEEN_FEATURES = graph_features(
    (
        "log_interference",
        "log of 1 plus interference over noise at the second cluster, with only the first one sending",
        "1",
        ONE_PLUS,
    ),
)
CONTEXT_FEATURES = graph_features(
    ("log_clusters", "log of N", "1", LOG),
    ("log_blocks", "log of L", "blocks", LOG),
    ("log_tradeoff_v", "log of V", "1/s", LOG),
    ("log_local_steps", "log of H", "1", LOG),
    ("log_batch_size", "log of B", "samples", LOG),
    ("log_micro_batches", "log of the largest number of micro-batches", "1", LOG),
    ("log_power_min", "log of the smallest transmit power", "W", LOG),
    ("log_power_max", "log of the largest transmit power", "W", LOG),
    (
        "log_message_s",
        "log of the fixed time of a device-to-device message, plus 0.1 ms",
        "s",
        SECONDS,
    ),
    ("log_latency_s", "log of the latency of a device-to-device message, plus 0.1 ms", "s", SECONDS),
    ("log_edge_message_s", "the same as log_message_s on uplink and downlink", "s", SECONDS),
    ("log_edge_latency_s", "the same as log_latency_s on uplink and downlink", "s", SECONDS),
    ("log_server_launch_s", "log of the server's launches for one micro-batch, plus 0.1 ms", "s", SECONDS),
    ("log_collect_ratio", "log of the bits of a block's update, over the bits of a hop in a round", "1", LOG),
    ("log_moments_ratio", "log of the bits of a moved block over the bits of a hop, plus 0.001", "1", RATIO),
    (
        "log_relay_ratio",
        "log of the bits of a block's new state over the bits of a hop, plus 0.001",
        "1",
        RATIO,
    ),
    (
        "log_circuit",
        "log of 1 plus the circuit power of a device-to-device sender over the reference power",
        "1",
        ONE_PLUS,
    ),
    ("log_receiver", "log of 1 plus the power of a receiver over the reference power", "1", ONE_PLUS),
    ("log_snr_cap", "log of the largest SNR that device-to-device rates use, at most 10", "1", LOG),
    ("floor", "smallest share of the uplink for a cluster, times N", "1", SHARE),
    ("through_cu", "1 if moments of moved blocks travel over the CU", "1", FLAG),
    ("repeat", "1 if lost packets are sent again", "1", FLAG),
    ("drop", "1 if lost packets are dropped", "1", FLAG),
    ("common_head", "1 if local steps wait for the slowest cluster", "1", FLAG),
)


class GraphArrays(NamedTuple):
    """A graph observation; leading batch axes ``...``.

    Attributes:
        cu: Features of control units (..., N, len(CU_FEATURES)).
        device: Features of devices (..., N, K, len(DEVICE_FEATURES)), 0 for absent ones.
        hop: Features of hops from node to node (..., N, K+1, K+1, len(HOP_FEATURES)), node 0 the CU; 0 for a
            node itself and for absent devices.
        between: Features of two clusters (..., N, N, len(BETWEEN_FEATURES)), 0 for a cluster and itself.
        present: 1 if the device is present (..., N, K).
        context: Features of the system (..., len(CONTEXT_FEATURES)).
    """

    cu: Array
    device: Array
    hop: Array
    between: Array
    present: Array
    context: Array


class GraphObserver:
    """Builds graph observations of states on any array library."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        costs = parameters.costs
        self.reference_w = math.sqrt(parameters.power_min_w * parameters.power_max_w)
        self._hop_bits = costs.local_steps * costs.batch_size * (costs.activation_bits + costs.gradient_bits)

    @cached_property
    def context(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Features of the system (len(CONTEXT_FEATURES),)."""
        p, costs = self.parameters, self.parameters.costs
        numbers, extra, reference = p.numbers, p.overheads, self.reference_w
        H = costs.local_steps

        def seconds(value: float) -> float:
            return math.log(H * value + LEAST_SECONDS)

        def ratio(bits: float) -> float:
            return math.log(bits / self._hop_bits + LEAST_RATIO)

        values = {
            "log_clusters": math.log(p.clusters),
            "log_blocks": math.log(costs.blocks),
            "log_tradeoff_v": math.log(max(p.tradeoff_v, math.exp(-LOG_BOUND))),
            "log_local_steps": math.log(H),
            "log_batch_size": math.log(costs.batch_size),
            "log_micro_batches": math.log(p.micro_batch_choices[-1]),
            "log_power_min": math.log(p.power_min_w),
            "log_power_max": math.log(p.power_max_w),
            "log_message_s": seconds(extra.message_s),
            "log_latency_s": seconds(extra.latency_s),
            "log_edge_message_s": seconds(extra.edge_message_s),
            "log_edge_latency_s": seconds(extra.edge_latency_s),
            "log_server_launch_s": seconds(PASSES * extra.server_s),
            "log_collect_ratio": math.log(costs.block_payload_bits / self._hop_bits),
            "log_moments_ratio": ratio(numbers.moment_bits),
            "log_relay_ratio": ratio(numbers.relay_bits),
            "log_circuit": math.log1p(p.radio_power.d2d_circuit_w / reference),
            "log_receiver": math.log1p(p.radio_power.receive_w / reference),
            "log_snr_cap": math.log(min(p.d2d_snr_cap, LARGEST_SNR)),
            "floor": p.bandwidth_floor * p.clusters,
            "through_cu": float(numbers.through_cu),
            "repeat": float(p.link_errors == "arq"),
            "drop": float(p.link_errors == "drop"),
            "common_head": float(numbers.barrier),
        }
        return np.array([min(max(values[f.name], -LOG_BOUND), LOG_BOUND) for f in CONTEXT_FEATURES])

    @cached_property
    def _context(self) -> Constant:
        return Constant(self.context)

    @cached_property
    def scales(self) -> GraphScales:
        """Numbers for compiled loops."""
        return GraphScales(self.reference_w, PASSES, self._hop_bits, LEAST_SECONDS)

    def build(self, state: SystemState) -> GraphArrays:
        """Graph observations of states in NumPy arrays, by a compiled loop.

        Args:
            state: The system (E, ...).

        Returns:
            Fresh arrays, float32.
        """
        E, N, K = state.present.shape
        single = np.float32
        graph = GraphArrays(
            cu=np.empty((E, N, len(CU_FEATURES)), single),
            device=np.empty((E, N, K, len(DEVICE_FEATURES)), single),
            hop=np.empty((E, N, K + 1, K + 1, len(HOP_FEATURES)), single),
            between=np.empty((E, N, N, len(BETWEEN_FEATURES)), single),
            present=np.empty((E, N, K), single),
            context=np.empty((E, len(CONTEXT_FEATURES)), single),
        )
        graph.context[:] = self.context
        numbers = self.parameters.numbers
        nodes = (graph.cu, graph.device, graph.hop, graph.between, graph.present)
        graph_rows(self.scales, numbers, self.system(state), *nodes)
        return graph

    def system(self, state: SystemState) -> GraphSystem:
        """Arrays of a state (E, ...) that the compiled loop reads."""
        previous = state.processes.get("migration")
        free = previous is None or self.parameters.numbers.moment_bits == 0.0
        arrays = (
            state.uplink_gain,
            state.d2d_gain,
            state.cross_gain,
            state.speed,
            state.clock,
            state.compute_power,
            state.memory_cap,
            state.present,
            state.budget,
            state.backlog,
            np.empty((0, 0, 0), np.int64) if previous is None or free else previous["blocks"],
            state.server_share,
        )
        return GraphSystem(*(loop_array(array, array.dtype) for array in arrays))

    def build_generic(self, state: SystemState) -> GraphArrays:
        """Graph observations of states of any array library.

        Args:
            state: The system (..., ).

        Returns:
            Arrays of the state's library and real type.
        """
        xp = namespace(state.backlog)
        present = xp.astype(state.present, state.speed.dtype)
        lead = tuple(state.uplink_gain.shape[:-1])
        context = self._context.like(state.backlog)
        return GraphArrays(
            cu=self._control_units(state),
            device=xp.stack(self._devices(state), axis=-1) * present[..., None],
            hop=self._hops(state),
            between=self._between(state),
            present=present,
            context=xp.broadcast_to(context, (*lead, context.shape[0])),
        )

    def _devices(self, state: SystemState) -> tuple[Array, ...]:
        p, costs = self.parameters, self.parameters.costs
        xp, real, H = namespace(state.backlog), state.speed.dtype, costs.local_steps
        passes = 1.0 + costs.backward_over_forward
        block_s = (passes * H) * stage_time(costs.batch_size, 1.0, costs.block_forward_flops, state.speed)
        budget = state.budget[..., 1:]
        drawn = radio_power(self.reference_w, p.radio_power.d2d_circuit_w, p.radio_power.efficiency)
        previous = state.processes.get("migration")
        kept = xp.zeros_like(block_s)
        if previous is not None and p.numbers.moment_bits > 0.0:
            kept = xp.astype(previous["blocks"], real)
        return (
            _log(block_s),
            _log((passes * H * p.overheads.block_cycles) / state.clock + LEAST_SECONDS),
            _log((H * p.overheads.update_cycles) / state.clock + LEAST_SECONDS),
            _log(state.compute_power * block_s / budget),
            _log(drawn / budget),
            held(log1p(state.backlog[..., 1:])),
            at_most(xp.astype(state.memory_cap, real), costs.blocks),
            kept,
        )

    def _control_units(self, state: SystemState) -> Array:
        p, costs = self.parameters, self.parameters.costs
        xp, H, N = namespace(state.backlog), costs.local_steps, p.clusters
        gain, share = state.uplink_gain, 1.0 / p.clusters
        power = xp.full_like(gain, self.reference_w)
        rate = radio.uplink_rate(
            xp.full_like(gain, share), power, gain, p.uplink_noise_w, p.uplink_bandwidth_hz
        )
        downlink = radio.downlink_rate(share, p.bs_power_w, gain, p.downlink_noise_w, p.downlink_bandwidth_hz)
        drawn = radio_power(self.reference_w, p.radio_power.edge_circuit_w, p.radio_power.efficiency)
        noise = p.noise_density * p.d2d_bandwidth_hz
        heard = radio.interference(state.cross_gain, power) / noise
        server_s = (PASSES * H * costs.batch_size) * p.numbers.server_seconds
        server = xp.zeros_like(gain) + _log(server_s / state.server_share + LEAST_SECONDS)[..., None]
        columns = (
            _log(costs.update_payload_bits / rate),
            _log(H * message_time(costs.batch_size * costs.activation_bits, rate)),
            _log(H * message_time(costs.batch_size * costs.gradient_bits, downlink)),
            _log((self.reference_w * N / p.uplink_noise_w) * gain),
            _log(drawn / state.budget[..., 0]),
            held(log1p(state.backlog[..., 0])),
            held(log1p(heard)),
            server,
        )
        return xp.stack(columns, axis=-1)

    def _hops(self, state: SystemState) -> Array:
        p, xp = self.parameters, namespace(state.d2d_gain)
        snr = (self.reference_w / (p.noise_density * p.d2d_bandwidth_hz)) * state.d2d_gain
        used = hops_there(state.present)
        snr = xp.where(used, snr, 1.0)
        rate = radio.shannon_rate(radio.usable_snr(snr, p.d2d_snr_cap), p.d2d_bandwidth_hz)
        columns = (_log(self._hop_bits / rate), _log(snr))
        return xp.where(used[..., None], xp.stack(columns, axis=-1), 0.0)

    def _between(self, state: SystemState) -> Array:
        p = self.parameters
        noise = p.noise_density * p.d2d_bandwidth_hz
        return held(log1p((self.reference_w / noise) * state.cross_gain))[..., None]


def hops_there(present: Array) -> Array:
    """Hops between two nodes of a cluster that are both present.

    Args:
        present: Devices that are present (..., N, K), bool.

    Returns:
        (..., N, K+1, K+1), bool; False on the diagonal. Node 0, the CU, is always present.
    """
    xp = namespace(present)
    there = xp.concat((xp.ones_like(present[..., :1]), present), axis=-1)
    nodes = there.shape[-1]
    place = {} if xp is np else {"device": present.device}
    itself = xp.eye(nodes, dtype=xp.bool, **place)
    return there[..., :, None] & there[..., None, :] & ~itself


def _log(values: Array) -> Array:
    """Logarithms, held within their bounds."""
    return held(namespace(values).log(values))


def held(logarithms: Array) -> Array:
    """Logarithms within :data:`LOG_BOUND`."""
    return namespace(logarithms).clip(logarithms, -LOG_BOUND, LOG_BOUND)
