"""Inputs of the graph net: dimensionless features of the graph observation, relative to the system itself.

A system in which every time is twice as long and V half as large needs the same plans. Times therefore enter
relative to the time that an ideal split of the encoder would take; the price of that time enters once, in the
context. Energies are over budgets, and queues are relative to the price of a cluster's second, ``V / N``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from collapipe_env.envs.graph_features import CONTEXT, CU, DEVICE, HOP, LARGEST_SNR, GraphArray
from collapipe_env.envs.graph_observation import GraphArrays
from collapipe_env.ground.arrays import Array, FloatArray
from collapipe_env.kernels.graph_rows import LOG_BOUND

DEVICE_INPUTS, CU_INPUTS, HOP_INPUTS = 11, 32, 4
HOP_SHIFT = 1.5
"""Added to the log of a hop's time."""
OWN_CU_INPUTS = 10
"""Inputs of a control unit that are its own; the rest are the system's."""
_NO_CAP = math.log(LARGEST_SNR) - 1e-6
"""Log of the greatest SNR that rates use from which there is no cap."""
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
    "log_idle": (0.0, 2.0),
    "log_snr_cap": (8.0, 2.0),
    "through_cu": (0.0, 1.0),
    "repeat": (0.0, 1.0),
}
"""Centre and half-width of the other features of the system that control units see.

Three are left out: ``floor``, which shares of the uplink obey exactly; ``drop``, under which lost packets
cost learning, not time; and ``common_head``, since the training prices single clusters as if each had a head
of its own, as DSSRA does.
"""


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


def net_inputs(graph: GraphArrays) -> NetInputs:
    """Inputs of the net in double precision from a graph observation in NumPy arrays (..., )."""
    here = np.asarray(graph.present, np.float64)
    system = _features(CONTEXT, graph.context)
    device = _features(DEVICE, graph.device)
    # Ideal time of a cluster: all its devices at work all the time.
    ideal = system["log_blocks"][..., None] - np.log((here * np.exp(-device["log_block_s"])).sum(axis=-1))
    scale = ideal.mean(axis=-1, keepdims=True)
    # Log of the worth of a cluster's second, V / N.
    log_worth = (system["log_tradeoff_v"] - system["log_clusters"])[..., None]
    mean_blocks = np.exp(system["log_blocks"])[..., None] / here.sum(axis=-1)
    return NetInputs(
        cu=_cu_inputs(_features(CU, graph.cu), system, ideal, scale, log_worth),
        device=_device_inputs(device, here, scale[..., None], log_worth[..., None], mean_blocks[..., None]),
        hop=_hop_inputs(graph, system, here, scale[..., None, None]),
        present=here,
        mean_blocks=mean_blocks,
    )


def _features(kind: GraphArray, values: Array) -> dict[str, FloatArray]:
    """Features by name (...), from an array of them (..., features)."""
    values = values.astype(np.float64)
    return {feature.name: values[..., i] for i, feature in enumerate(kind.features)}


def as_columns(shape: tuple[int, ...], columns: Sequence[Array | float]) -> FloatArray:
    """Columns that broadcast to a shape (...), as one array (..., columns)."""
    found = np.empty((*shape, len(columns)))
    for i, column in enumerate(columns):
        found[..., i] = column
    return found


def _device_inputs(
    of: dict[str, FloatArray],
    here: FloatArray,
    scale: FloatArray,
    log_worth: FloatArray,
    mean_blocks: FloatArray,
) -> FloatArray:
    """Inputs of devices (..., N, K, DEVICE_INPUTS), 0 for absent ones.

    Args:
        of: Their features (..., N, K).
        here: 1 for those present (..., N, K).
        scale: Log of the system's ideal time (..., 1, 1) [s].
        log_worth: Log of ``V / N`` (..., 1, 1) [1/s].
        mean_blocks: Blocks of a device of its cluster on average (..., N, 1).
    """
    block = of["log_block_s"]
    # Price of a block's energy over the price of its time.
    dear = np.log1p(np.expm1(of["log_backlog"]) * np.exp(of["log_block_load"] - block - log_worth))
    columns = (
        here,
        block - scale,
        0.5 * (of["log_launch_s"] - block) + 2.0,
        0.5 * (of["log_update_s"] - block) + 2.5,
        of["log_block_load"] + 1.5,
        0.5 * (of["log_radio_load"] + scale) + 2.0,
        of["log_backlog"],
        dear,
        0.5 * of["capacity"] / mean_blocks - 1.0,
        np.log1p(of["capacity"]) - 1.5,
        of["previous_blocks"] / mean_blocks,
    )
    return as_columns(here.shape, columns) * here[..., None]


def _cu_inputs(
    of: dict[str, FloatArray],
    system: dict[str, FloatArray],
    ideal: FloatArray,
    scale: FloatArray,
    log_worth: FloatArray,
) -> FloatArray:
    """Inputs of control units (..., N, CU_INPUTS): their own, and those that all have in common.

    Args:
        of: Their features (..., N).
        system: Features of the system (...).
        ideal: Log of the cluster's ideal time (..., N) [s].
        scale: Log of the system's ideal time (..., 1) [s].
        log_worth: Log of ``V / N`` (..., 1) [1/s].
    """
    own = (
        ideal - scale,
        of["log_upload_s"] - scale,
        of["log_uplink_s"] - scale,
        of["log_downlink_s"] - scale,
        of["log_uplink_snr"] / 3.0 - 1.0,
        of["log_radio_load"] + of["log_upload_s"] + 1.5,
        of["log_backlog"],
        np.log1p(np.expm1(of["log_backlog"]) * np.exp(of["log_radio_load"] - log_worth)),
        of["log_interference"] - 1.5,
        0.25 * (of["log_server_s"] - scale) + 2.0,
    )
    seen = {name: value[..., None] for name, value in system.items()}
    level = seen["log_tradeoff_v"] + scale  # price of the ideal time
    shared = (
        (level - 2.0) / 1.5,
        *((seen[name] - scale - centre) / half for name, (centre, half) in _TIMES.items()),
        *((seen[name] - centre) / half for name, (centre, half) in _SHARED.items()),
    )
    return as_columns(ideal.shape, (*own, *shared))


def _hop_inputs(
    graph: GraphArrays, system: dict[str, FloatArray], here: FloatArray, scale: FloatArray
) -> FloatArray:
    """Inputs of hops (..., N, K+1, K+1, HOP_INPUTS), under the interference of all others' reference powers.

    With many clusters, interference is tens of times the noise: a net that saw few clusters would have to
    guess its effect on a hop's time.

    Args:
        here: 1 for the devices present (..., N, K).
        scale: Log of the system's ideal time (..., 1, 1, 1) [s].
    """
    of, heard = _features(HOP, graph.hop), _features(CU, graph.cu)["log_interference"]
    snr, sinr = of["log_hop_snr"], np.maximum(of["log_hop_snr"] - heard[..., None, None], -LOG_BOUND)
    cap = np.where(system["log_snr_cap"] >= _NO_CAP, LOG_BOUND, system["log_snr_cap"])[..., None, None, None]
    # Log of the time of a bit under interference over that without.
    longer = np.log(_spectral_efficiency(snr, cap) / _spectral_efficiency(sinr, cap))
    nodes = np.arange(snr.shape[-1])
    ahead = nodes - nodes[:, None]  # the chain visits devices by their indices
    there = np.concatenate((np.ones_like(here[..., :1]), here), axis=-1)
    used = there[..., :, None] * there[..., None, :] * (ahead != 0)
    columns = (
        of["log_hop_s"] + longer - scale + HOP_SHIFT,
        0.25 * sinr - 1.5,
        0.25 * ahead,
        (0.25 * ahead) ** 2,
    )
    found: FloatArray = as_columns(snr.shape, columns) * used[..., None]
    return found


def _spectral_efficiency(log_snr: FloatArray, log_cap: FloatArray) -> FloatArray:
    """``ln(1 + SNR)`` with the SNR up to a cap."""
    found: FloatArray = np.log1p(np.exp(np.minimum(log_snr, log_cap)))
    return found
