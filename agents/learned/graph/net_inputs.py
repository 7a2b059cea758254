"""Inputs of the graph net: dimensionless features of the graph observation, relative to the system itself.

A system in which every time is twice as long and V half as large needs the same plans. Times therefore enter
relative to the time that an ideal split of the encoder would take; the price of that time enters once, in the
context. Energies are over budgets, and queues are relative to the price of a cluster's second, ``V / N``.

The column functions take numbers or arrays: compiled decisions also call them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from collapipe_env.envs.graph_features import CONTEXT, CU, DEVICE, HOP, LARGEST_SNR
from collapipe_env.envs.graph_observation import GraphArrays
from collapipe_env.ground.arrays import Array, at_least, at_most, exp, log, log1p, namespace
from collapipe_env.ground.compiled import jitable
from collapipe_env.kernels.graph_rows import LOG_BOUND

DEVICE_INPUTS, CU_INPUTS, HOP_INPUTS = 11, 31, 4
HOP_SHIFT = 1.5
"""Added to the log of a hop's time."""
OWN_CU_INPUTS = 10
"""Inputs of a control unit that are its own; the rest are the system's."""
INTERFERENCE = CU.place("log_interference")
BLOCK_S = DEVICE.place("log_block_s")
HOP_S, HOP_SNR = HOP.place("log_hop_s"), HOP.place("log_hop_snr")
"""Places of features in their arrays."""
LARGEST_LOG_SNR = math.log(LARGEST_SNR) - 1e-6


class NetInputs(NamedTuple):
    """Inputs of the net; leading batch axes ``...``.

    Attributes:
        cu: (..., N, CU_INPUTS).
        device: (..., N, K, DEVICE_INPUTS).
        hop: (..., N, K+1, K+1, HOP_INPUTS).
        present: (..., N, K), 0 or 1.
        mean_blocks: Encoder blocks per present device (..., N).
    """

    cu: Array
    device: Array
    hop: Array
    present: Array
    mean_blocks: Array


@jitable
def device_columns(
    log_block_s: Array,
    log_launch_s: Array,
    log_update_s: Array,
    log_block_load: Array,
    log_radio_load: Array,
    log_backlog: Array,
    capacity: Array,
    previous_blocks: Array,
    scale: Array,
    log_worth: Array,
    mean_blocks: Array,
) -> tuple[Array, ...]:
    """Inputs of a present device, except its presence.

    Args:
        log_block_s: This and the next seven: features of the device.
        log_launch_s: See above.
        log_update_s: See above.
        log_block_load: See above.
        log_radio_load: See above.
        log_backlog: See above.
        capacity: See above.
        previous_blocks: See above.
        scale: Log of the system's ideal time [s].
        log_worth: Log of the worth of a cluster's second, ``V / N`` [1/s].
        mean_blocks: Blocks of a device of its cluster on average.
    """
    # Price of a block's energy over the price of its time.
    dear = log1p((exp(log_backlog) - 1.0) * exp(log_block_load - log_block_s - log_worth))
    return (
        log_block_s - scale,
        0.5 * (log_launch_s - log_block_s) + 2.0,
        0.5 * (log_update_s - log_block_s) + 2.5,
        log_block_load + 1.5,
        0.5 * (log_radio_load + scale) + 2.0,
        log_backlog,
        dear,
        0.5 * capacity / mean_blocks - 1.0,
        log1p(capacity) - 1.5,
        previous_blocks / mean_blocks,
    )


@jitable
def cu_columns(
    log_upload_s: Array,
    log_uplink_s: Array,
    log_downlink_s: Array,
    log_uplink_snr: Array,
    log_radio_load: Array,
    log_backlog: Array,
    log_interference: Array,
    log_server_s: Array,
    ideal: Array,
    scale: Array,
    log_worth: Array,
) -> tuple[Array, ...]:
    """A control unit's own inputs.

    Args:
        log_upload_s: This and the next seven: features of the control unit.
        log_uplink_s: See above.
        log_downlink_s: See above.
        log_uplink_snr: See above.
        log_radio_load: See above.
        log_backlog: See above.
        log_interference: See above.
        log_server_s: See above.
        ideal: Log of its cluster's ideal time [s].
        scale: Log of the system's ideal time [s].
        log_worth: Log of the worth of a cluster's second, ``V / N`` [1/s].
    """
    return (
        ideal - scale,
        log_upload_s - scale,
        log_uplink_s - scale,
        log_downlink_s - scale,
        log_uplink_snr / 3.0 - 1.0,
        log_radio_load + log_upload_s + 1.5,
        log_backlog,
        log1p((exp(log_backlog) - 1.0) * exp(log_radio_load - log_worth)),
        log_interference - 1.5,
        0.25 * (log_server_s - scale) + 2.0,
    )


@jitable
def log_longer(log_snr: Array, log_other: Array, log_cap: Array) -> Array:
    """Log of the time of a bit at another SNR over that at a given one.

    Args:
        log_cap: Log of the greatest SNR that rates use.
    """
    here, there = exp(at_most(log_snr, log_cap)), exp(at_most(log_other, log_cap))
    longer: Array = log(log1p(here) / log1p(there))
    return longer


@jitable
def hop_columns(
    log_hop_s: Array,
    log_hop_snr: Array,
    log_interference: Array,
    log_cap: Array,
    ahead: Array,
    scale: Array,
) -> tuple[Array, ...]:
    """Inputs of a hop, under the interference of all other clusters at the reference power.

    With many clusters, interference is tens of times the noise: a net that saw few clusters would have to
    guess its effect on a hop's time.

    Args:
        log_hop_s: Feature of the hop.
        log_hop_snr: Feature of the hop.
        log_interference: Feature of its control unit.
        log_cap: Log of the greatest SNR that rates use.
        ahead: Index of the receiver less that of the sender: the chain visits devices by their indices.
        scale: Log of the system's ideal time [s].
    """
    far = 0.25 * ahead
    log_sinr = at_least(log_hop_snr - log_interference, -LOG_BOUND)
    longer = log_longer(log_hop_snr, log_sinr, log_cap)
    return (log_hop_s + longer - scale + HOP_SHIFT, 0.25 * log_sinr - 1.5, far, far * far)


_TIMES = {
    "log_message_s": (-8.5, 2.0),
    "log_latency_s": (-7.5, 2.0),
    "log_edge_message_s": (-8.5, 2.0),
    "log_edge_latency_s": (-6.0, 2.0),
    "log_server_launch_s": (-8.0, 2.0),
}
"""Centre and half-width of times of the system, relative to its ideal time."""
_SHARED = {
    "log_clusters": (1.5, 1.0),
    "log_blocks": (2.3, 1.0),
    "log_local_steps": (0.0, 1.0),
    "log_batch_size": (4.0, 1.0),
    "log_micro_batches": (4.0, 1.0),
    "log_power_min": (-6.0, 2.0),
    "log_power_max": (-1.5, 2.0),
    "log_collect_ratio": (-1.6, 2.0),
    "log_moments_ratio": (-3.5, 3.5),
    "log_relay_ratio": (-3.5, 3.5),
    "log_circuit": (0.0, 2.0),
    "log_receiver": (0.0, 2.0),
    "log_snr_cap": (8.0, 2.0),
    "through_cu": (0.0, 1.0),
    "repeat": (0.0, 1.0),
}
"""Centre and half-width of the other features of the system that control units see.

Three are left out: ``floor``, which the net's own shares obey exactly; ``drop``, under which lost packets
cost learning, not time; and ``common_head``, since the training prices single clusters as if each had a head
of its own, as DSSRA does.
"""
_AT = {feature.name: i for i, feature in enumerate(CONTEXT.features)}


def feature_of_system(context: Array, name: str) -> Array:
    """One feature of the system (...), from all of them (..., features)."""
    return context[..., _AT[name]]


def shared_columns(context: Array, scale: Array) -> tuple[Array, ...]:
    """Inputs that all control units of a system have in common.

    Args:
        context: Features of the system (..., features).
        scale: Log of the system's ideal time (...) [s].
    """
    level = feature_of_system(context, "log_tradeoff_v") + scale  # price of the ideal time
    times = (
        (feature_of_system(context, name) - scale - centre) / half for name, (centre, half) in _TIMES.items()
    )
    rest = ((feature_of_system(context, name) - centre) / half for name, (centre, half) in _SHARED.items())
    return ((level - 2.0) / 1.5, *times, *rest)


def scale_slopes() -> tuple[float, ...]:
    """Slopes of the first of :func:`shared_columns` in ``scale``; those of the others are 0."""
    return (1.0 / 1.5, *(-1.0 / half for _, half in _TIMES.values()))


def log_snr_cap(context: Array) -> Array:
    """Log of the greatest SNR that rates use (...), from the features of the system (..., features).

    The greatest value of the feature means that there is no cap.
    """
    shown = feature_of_system(context, "log_snr_cap")
    return namespace(shown).where(shown >= LARGEST_LOG_SNR, LOG_BOUND, shown)


def _split(features: Array) -> list[Array]:
    """Features (..., F) one by one."""
    return [features[..., i] for i in range(features.shape[-1])]


def net_inputs(graph: GraphArrays) -> NetInputs:
    """Inputs of the net from a graph observation, in any array library.

    Args:
        graph: The observation (..., ).
    """
    xp = namespace(graph.cu)
    here, context = graph.present, graph.context
    log_blocks = feature_of_system(context, "log_blocks")
    log_worth = feature_of_system(context, "log_tradeoff_v") - feature_of_system(context, "log_clusters")
    # Ideal time of a cluster: all its devices at work all the time.
    rate = xp.sum(here * xp.exp(-graph.device[..., BLOCK_S]), axis=-1)
    ideal = log_blocks[..., None] - xp.log(rate)
    scale = xp.mean(ideal, axis=-1)
    mean_blocks = xp.exp(log_blocks)[..., None] / xp.sum(here, axis=-1)
    each, all_devices = (..., None), (..., None, None)
    terms = [*_split(graph.device), scale[all_devices], log_worth[all_devices], mean_blocks[each]]
    device = device_columns(*terms)
    terms = [*_split(graph.cu), ideal, scale[each], log_worth[each]]
    cu = cu_columns(*terms)
    system = xp.stack(shared_columns(context, scale), axis=-1)[..., None, :]
    nodes = xp.astype(xp.arange(here.shape[-1] + 1), here.dtype)
    there = xp.concat((xp.ones_like(here[..., :1]), here), axis=-1)
    ahead = nodes - nodes[:, None]
    used = there[..., :, None] * there[..., None, :] * xp.astype(ahead != 0.0, here.dtype)
    hop = hop_columns(
        graph.hop[..., HOP_S],
        graph.hop[..., HOP_SNR],
        graph.cu[..., None, None, INTERFERENCE],
        log_snr_cap(context)[..., None, None, None],
        xp.broadcast_to(ahead, used.shape),
        scale[..., None, None, None],
    )
    return NetInputs(
        cu=xp.concat(
            (xp.stack(cu, axis=-1), xp.broadcast_to(system, (*ideal.shape, system.shape[-1]))), axis=-1
        ),
        device=xp.stack((here, *device), axis=-1) * here[..., None],
        hop=xp.stack(hop, axis=-1) * used[..., None],
        present=here,
        mean_blocks=mean_blocks,
    )
