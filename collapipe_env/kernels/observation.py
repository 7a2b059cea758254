"""Observations, row by row, in the layout of :class:`~collapipe_env.envs.observation.ObservationBuilder`."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.ground.compiled import compiled


class Scales(NamedTuple):
    """Scales of the features; gains in dB by a centre and a half-width."""

    backlog_cap: float
    top_speed: float
    blocks: float
    d2d_centre: float
    d2d_half: float
    d2e_centre: float
    d2e_half: float
    rounds: float
    loss: float
    bound: float


class Seen(NamedTuple):
    """Arrays that are observed, as :class:`~collapipe_env.simulator.state.SystemState` names them."""

    backlog: FloatArray
    speed: FloatArray
    memory_cap: IntArray
    d2d_gain: FloatArray
    present: BoolArray
    uplink_gain: FloatArray
    round_index: IntArray
    loss: FloatArray


@compiled
def observe_rows(scales: Scales, state: Seen, out: npt.NDArray[np.float32]) -> None:
    """Write observations with the gains unscaled; :func:`scale_gains` takes their logarithms.

    Args:
        scales: Constants of the scenario.
        state: Arrays (E, ...).
        out: (E, 6 N K + 2 N + 2), written.
    """
    E, N, K = state.present.shape
    devices = N * K
    per_backlog, per_speed, per_block = 1.0 / scales.backlog_cap, 2.0 / scales.top_speed, 2.0 / scales.blocks
    for e in range(E):
        i = 0
        for n in range(N):
            for k in range(K):
                here = 1.0 if state.present[e, n, k] else 0.0
                held = min(float(state.memory_cap[e, n, k]), scales.blocks)
                out[e, i] = min(state.backlog[e, n, k + 1] * per_backlog, 1.0) * here
                out[e, i + devices] = (state.speed[e, n, k] * per_speed - 1.0) * here
                out[e, i + 2 * devices] = (held * per_block - 1.0) * here
                out[e, i + 3 * devices] = state.d2d_gain[e, n, k, k + 1]
                out[e, i + 4 * devices] = state.d2d_gain[e, n, 0, k + 1]
                out[e, i + 5 * devices] = here
                i += 1
        i = 6 * devices
        for n in range(N):
            out[e, i + n] = state.uplink_gain[e, n]
            out[e, i + N + n] = min(state.backlog[e, n, 0] * per_backlog, 1.0)
        i += 2 * N
        out[e, i] = min(state.round_index[e] / scales.rounds, 1.0)
        out[e, i + 1] = min(max(state.loss[e] / scales.loss - 1.0, -1.0), scales.bound)


@compiled
def show_rows(
    values: FloatArray | IntArray,
    offset: float,
    scale: float,
    bounds: tuple[float, float],
    first: int,
    out: npt.NDArray[np.float32],
) -> None:
    """Write a feature, ``(values - offset) / scale``, clipped to bounds.

    Args:
        values: The numbers (E, C).
        offset: Offset of the feature.
        scale: Scale of the feature.
        bounds: Least and greatest number shown.
        first: Column of the first number.
        out: Observations (E, at least first + C), written.
    """
    E, C = values.shape
    low, high = bounds
    for e in range(E):
        for i in range(C):
            out[e, first + i] = min(max((values[e, i] - offset) / scale, low), high)


@compiled
def scale_gains(scales: Scales, clusters: int, devices: int, out: npt.NDArray[np.float32]) -> None:
    """Turn logarithms of gains into scaled and clipped dB, 0 for absent devices; single precision is enough.

    Args:
        scales: Constants of the scenario.
        clusters: ``N``.
        devices: ``N K``.
        out: Observations with the logarithms in place of the gains (E, 6 N K + 2 N + 2), written.
    """
    per_d2d, d2d_shift = 10.0 / math.log(10.0) / scales.d2d_half, scales.d2d_centre / scales.d2d_half
    per_d2e, d2e_shift = 10.0 / math.log(10.0) / scales.d2e_half, scales.d2e_centre / scales.d2e_half
    for e in range(len(out)):
        for i in range(devices):
            here = out[e, i + 5 * devices]
            for j in (i + 3 * devices, i + 4 * devices):
                out[e, j] = min(max(out[e, j] * per_d2d - d2d_shift, -scales.bound), scales.bound) * here
        for i in range(6 * devices, 6 * devices + clusters):
            out[e, i] = min(max(out[e, i] * per_d2e - d2e_shift, -scales.bound), scales.bound)
