"""Arrays of the graph observation and their features, in order."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from collapipe_env.ground.arrays import Array, FloatArray, at_least, at_most, exp, expm1, log, log1p
from collapipe_env.kernels.graph_rows import LEAST_SECONDS, LOG_BOUND, PASSES, hop_bits, reference_w
from collapipe_env.physics.parameters import Parameters

LEAST_RATIO = 1e-3
"""Added to ratios that may be zero before their logarithm."""
LARGEST_SNR = math.exp(10.0)
"""SNR that the context shows where a scenario has no cap (43 dB)."""


class Form(NamedTuple):
    """Form in which features hold a quantity ``q``.

    Attributes:
        low: Lower bound.
        high: Upper bound.
        added: Constant added before the logarithm.
        log: True for ``log(q + added)``, False for ``q`` itself.
        flag: Whether ``q`` is 0 or 1.
    """

    low: float
    high: float
    added: float = 0.0
    log: bool = False
    flag: bool = False

    def of(self, quantity: Array) -> Array:
        """Numbers of a quantity, within the bounds."""
        if self.log:
            quantity = log1p(quantity) if self.added == 1.0 else log(quantity + self.added)
        return at_least(at_most(quantity, self.high), self.low)

    def about(self, quantity: str, unit: str) -> str:
        """Meaning of a feature, from that of its quantity."""
        if not self.log:
            return quantity
        if self.added == 1.0:
            return f"log of 1 plus {quantity}"
        added = f", plus {self.added:g}{'' if unit == '1' else f' {unit}'}" if self.added else ""
        return f"log of {quantity}{added}"

    def quantity(self, numbers: Array) -> Array:
        """Quantity of float64 numbers: the inverse of :meth:`of`; bool for flags."""
        if self.flag:
            return numbers > 0.5
        if not self.log:
            return numbers
        if self.added == 1.0:
            return expm1(numbers)
        # Rounding must not make a time negative.
        return at_least(exp(numbers) - self.added, 0.0)


LOG = Form(-LOG_BOUND, LOG_BOUND, log=True)
SECONDS = Form(-10.0, LOG_BOUND, LEAST_SECONDS, log=True)
RATIO = Form(-10.0, LOG_BOUND, LEAST_RATIO, log=True)
ONE_PLUS = Form(0.0, LOG_BOUND, 1.0, log=True)
BLOCKS = Form(0.0, math.inf)
"""The number of blocks of the encoder is the upper bound."""
SHARE = Form(0.0, 1.0)
FLAG = Form(0.0, 1.0, flag=True)


class GraphFeature(NamedTuple):
    """One feature of the graph observation.

    Attributes:
        quantity: Name of the quantity that it holds.
        about: Meaning of the quantity.
        unit: Unit of the quantity.
        form: Relation to the quantity.
        value: The quantity in a state, or in the context of a system's parameters; ``None`` for those of
            :mod:`collapipe_env.kernels.graph_rows`.
    """

    quantity: str
    about: str
    unit: str
    form: Form
    value: Callable[[Any], Array] | None = None

    @property
    def name(self) -> str:
        """Name of the feature: that of the quantity, after ``log_`` if it is a logarithm."""
        return f"log_{self.quantity}" if self.form.log else self.quantity

    @property
    def description(self) -> str:
        """Meaning of the feature."""
        return self.form.about(self.about, self.unit)


@dataclass(frozen=True)
class GraphArray:
    """One array of the graph observation.

    Attributes:
        name: Its name.
        description: Meaning of its leading axes.
        axes: Its leading axes in letters, such as ``N K``.
        features: Features on its last axis, in order; none where the entries themselves are 0 or 1.
        shape: Its shape in one environment, once the sizes are known: see :meth:`sized`.
    """

    name: str
    description: str
    axes: str
    features: tuple[GraphFeature, ...]
    shape: tuple[int, ...] = ()

    def sized(self, clusters: int, devices: int, blocks: int = 1) -> GraphArray:
        """The array of a system of ``N`` clusters of up to ``K`` devices and ``L`` blocks, without values."""
        sizes = {"N": clusters, "K": devices, "K+1": devices + 1}
        last = (len(self.features),) if self.features else ()
        limit = Form(0.0, float(blocks))
        return replace(
            self,
            # Functions of the context could not be pickled with a layout.
            features=tuple(
                f._replace(form=limit if f.form is BLOCKS else f.form, value=None) for f in self.features
            ),
            shape=tuple(sizes[letter] for letter in self.axes.split()) + last,
        )

    def place(self, name: str) -> int:
        """Place of a feature on the last axis.

        Raises:
            ValueError: If no feature has this name.
        """
        return [feature.name for feature in self.features].index(name)

    def space(self) -> spaces.Box:
        """Values that the array may have."""
        if not self.features:
            return spaces.Box(0.0, 1.0, self.shape, np.float32)
        bounds = np.array([(f.form.low, f.form.high) for f in self.features], dtype=np.float32)
        low, high = (np.broadcast_to(ends, self.shape).copy() for ends in bounds.T)
        return spaces.Box(low, high, dtype=np.float32)


def _array(name: str, description: str, axes: str, *rows: tuple[Any, ...]) -> GraphArray:
    """An array from the fields of its features."""
    return GraphArray(name, description, axes, tuple(GraphFeature(*row) for row in rows))


DEVICE = _array(
    "device",
    "devices, 0 for absent ones",
    "N K",
    ("block_s", "the time of one block's passes over the mini-batch", "s", LOG),
    ("launch_s", "the time of one block's launches for one micro-batch", "s", SECONDS),
    ("update_s", "the time of one block's optimiser updates", "s", SECONDS),
    ("block_load", "the energy of one block's passes, over the energy budget", "1", LOG),
    ("radio_load", "the energy of one second of sending, over the energy budget", "1/s", LOG),
    ("backlog", "the energy queue z", "budgets", ONE_PLUS),
    ("capacity", "blocks that the memory holds, at most L", "blocks", BLOCKS),
    ("previous_blocks", "blocks held in the previous round, 0 if migration is free", "blocks", BLOCKS),
)
CU = _array(
    "cu",
    "control units",
    "N",
    ("upload_s", "the time of the update's upload at a share of 1/N", "s", LOG),
    ("uplink_s", "the time of the activations on the uplink at a share of 1/N", "s", LOG),
    ("downlink_s", "the time of the gradients on the downlink at a share of 1/N", "s", LOG),
    ("uplink_snr", "the uplink's signal to noise ratio at a share of 1/N", "1", LOG),
    ("radio_load", "the energy of one second of sending on the uplink, over the budget", "1/s", LOG),
    ("backlog", "the energy queue z", "budgets", ONE_PLUS),
    ("interference", "interference over noise, with all other clusters sending", "1", ONE_PLUS),
    ("server_s", "the server's time for the mini-batch", "s", SECONDS),
)
HOP = _array(
    "hop",
    "hops from node to node of a cluster, node 0 the control unit; 0 for a node itself and for absent "
    "devices",
    "N K+1 K+1",
    ("hop_s", "the time of activations and gradients on the hop, without interference", "s", LOG),
    ("hop_snr", "the hop's signal to noise ratio, without interference", "1", LOG),
)
BETWEEN = _array(
    "between",
    "two clusters; 0 for a cluster and itself",
    "N N",
    ("interference", "interference over noise at the second cluster from the first one alone", "1", ONE_PLUS),
)
PRESENT = _array("present", "1 if the device is present", "N K")
CONTEXT = _array(
    "context", "the system; the same in every round", "",
    ("clusters", "N", "1", LOG, lambda p: p.clusters),
    ("blocks", "L", "blocks", LOG, lambda p: p.costs.blocks),
    ("tradeoff_v", "V", "1/s", LOG, lambda p: max(p.tradeoff_v, math.exp(-LOG_BOUND))),
    ("local_steps", "H", "1", LOG, lambda p: p.costs.local_steps),
    ("batch_size", "B", "samples", LOG, lambda p: p.costs.batch_size),
    ("micro_batches", "the largest number of micro-batches", "1", LOG, lambda p: p.micro_batch_choices[-1]),
    ("power_min", "the smallest transmit power", "W", LOG, lambda p: p.power_min_w),
    ("power_max", "the largest transmit power", "W", LOG, lambda p: p.power_max_w),
    ("message_s", "the fixed time of a device-to-device message", "s", SECONDS,
     lambda p: p.costs.local_steps * p.overheads.message_s),
    ("latency_s", "the latency of a device-to-device message", "s", SECONDS,
     lambda p: p.costs.local_steps * p.overheads.latency_s),
    ("edge_message_s", "the fixed time of a message on uplink or downlink", "s", SECONDS,
     lambda p: p.costs.local_steps * p.overheads.edge_message_s),
    ("edge_latency_s", "the latency of a message on uplink or downlink", "s", SECONDS,
     lambda p: p.costs.local_steps * p.overheads.edge_latency_s),
    ("server_launch_s", "the server's launches for one micro-batch", "s", SECONDS,
     lambda p: p.costs.local_steps * PASSES * p.overheads.server_s),
    ("collect_ratio", "the bits of a block's update, over the bits of a hop in a round", "1", LOG,
     lambda p: p.costs.block_payload_bits / hop_bits(p.numbers)),
    ("moments_ratio", "the bits of a moved block over the bits of a hop", "1", RATIO,
     lambda p: p.numbers.moment_bits / hop_bits(p.numbers)),
    ("relay_ratio", "the bits of a block's new state over the bits of a hop", "1", RATIO,
     lambda p: p.numbers.relay_bits / hop_bits(p.numbers)),
    ("circuit", "the circuit power of a device-to-device sender over the reference power", "1", ONE_PLUS,
     lambda p: p.radio_power.d2d_circuit_w / reference_w(p.numbers)),
    ("receiver", "the power of a receiver over the reference power", "1", ONE_PLUS,
     lambda p: p.radio_power.receive_w / reference_w(p.numbers)),
    ("idle", "the power of an idle radio over the reference power", "1", ONE_PLUS,
     lambda p: p.radio_power.idle_w / reference_w(p.numbers)),
    ("snr_cap", "the SNR from which on rates no longer grow, at most exp(10)", "1", LOG,
     lambda p: min(p.link.most_snr, LARGEST_SNR)),
    ("floor", "smallest share of the uplink for a cluster, times N", "1", SHARE,
     lambda p: p.bandwidth_floor * p.clusters),
    ("through_cu", "1 if moments of moved blocks travel over the CU", "1", FLAG,
     lambda p: p.numbers.through_cu),
    ("repeat", "1 if lost packets are sent again", "1", FLAG, lambda p: p.link.transmissions > 1.0),
    ("drop", "1 if lost packets are dropped", "1", FLAG, lambda p: p.lossy and p.link.transmissions == 1.0),
    ("common_head", "1 if local steps wait for the slowest cluster", "1", FLAG, lambda p: p.numbers.barrier),
)  # fmt: skip
"""Times are those of a whole round."""
CORE = (CU, DEVICE, HOP, BETWEEN, PRESENT, CONTEXT)
"""Arrays that every scenario has."""


def context_of(parameters: Parameters) -> FloatArray:
    """Features of a system (len(CONTEXT.features),)."""
    return np.array([f.form.of(f.value(parameters)) for f in CONTEXT.features if f.value])
