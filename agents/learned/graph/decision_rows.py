"""Decisions of the graph net for a batch of systems, in one compiled call."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

# Registers the formulas for compiled code.
import collapipe_env.kernels.formulas  # noqa: F401
from collapipe_env.agents.dssra.moving import sends_moments
from collapipe_env.agents.dssra.round_input import RoundInput, environment_row
from collapipe_env.agents.dssra.round_plan import evaluate
from collapipe_env.arrays import FloatArray, IntArray
from collapipe_env.compiled import compiled, compiled_inner
from collapipe_env.kernels.graph_rows import GraphScales, GraphSystem, write_row
from collapipe_env.physics.parameters import Parameters

from .compiled_net import NetWeights, Single, forward
from .counts import likeliest
from .net_inputs import (
    CU_INPUTS,
    DEVICE_INPUTS,
    HOP_INPUTS,
    OWN_CU_INPUTS,
    cu_columns,
    device_columns,
    hop_columns,
)
from .net_outputs import OFFSETS, bell, busy_of, power_of, wanted_micro_batches, weight_of
from .shares import write_deadline_shares

OUTPUTS = 5


class Fixed(NamedTuple):
    """Part of the net's inputs and choices that a scenario fixes.

    Attributes:
        shared: Inputs that all control units have in common, the first at a scale of 0 (CU_INPUTS - 10,).
        log_worth: Log of ``V / N``.
        heads: Heads of attention.
        exact_shares: 1 for exact shares of the uplink, 0 for the net's own.
    """

    shared: FloatArray
    log_worth: float
    heads: int
    exact_shares: int


@compiled_inner
def _write_inputs(
    device_features: Single,
    cu_features: Single,
    hop_features: Single,
    present: Single,
    blocks: int,
    fixed: Fixed,
    cu: Single,
    device: Single,
    hop: Single,
    mean_blocks: FloatArray,
) -> float:
    """Write the net's inputs of one system; returns the log of its ideal time."""
    N, K = present.shape
    ideal = np.empty(N)
    scale = 0.0
    for n in range(N):
        rate, devices = 0.0, 0.0
        for k in range(K):
            if present[n, k] > 0.0:
                rate += math.exp(-device_features[n, k, 0])
                devices += 1.0
        ideal[n] = math.log(blocks) - math.log(rate)
        mean_blocks[n] = blocks / devices
        scale += ideal[n] / N
    for n in range(N):
        f = cu_features[n].astype(np.float64)
        own = cu_columns(f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7], ideal[n], scale, fixed.log_worth)
        for i in range(OWN_CU_INPUTS):
            cu[n, i] = own[i]
        for i in range(len(fixed.shared)):
            cu[n, OWN_CU_INPUTS + i] = fixed.shared[i]
        cu[n, OWN_CU_INPUTS] += scale / 1.5
        for k in range(K):
            if present[n, k] == 0.0:
                for i in range(DEVICE_INPUTS):
                    device[n, k, i] = 0.0
                continue
            f = device_features[n, k].astype(np.float64)
            columns = device_columns(
                f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7], scale, fixed.log_worth, mean_blocks[n]
            )
            device[n, k, 0] = 1.0
            for i in range(DEVICE_INPUTS - 1):
                device[n, k, i + 1] = columns[i]
        for i in range(K + 1):
            for j in range(K + 1):
                row = (n * (K + 1) + i) * (K + 1) + j
                if (i > 0 and present[n, i - 1] == 0.0) or (j > 0 and present[n, j - 1] == 0.0):
                    for c in range(HOP_INPUTS):
                        hop[row, c] = 0.0
                    continue
                seconds, snr = np.float64(hop_features[n, i, j, 0]), np.float64(hop_features[n, i, j, 1])
                hops = hop_columns(seconds, snr, float(j - i), scale)
                for c in range(HOP_INPUTS):
                    hop[row, c] = hops[c]
    return scale


@compiled
def decide_rows(
    first: int,
    last: int,
    scales: GraphScales,
    system: GraphSystem,
    inputs: RoundInput,
    parameters: Parameters,
    fixed: Fixed,
    weights: NetWeights,
    segments: IntArray,
    power: FloatArray,
    share: FloatArray,
    micro_batches: FloatArray,
) -> None:
    """Decide the rounds of environments ``first`` to ``last``.

    Args:
        first: First environment.
        last: One after the last environment.
        scales: Numbers of the graph observer.
        system: The systems that are observed.
        inputs: The same as DSSRA's arrays, of the exact drift.
        parameters: The scenario.
        fixed: What it fixes of the net's inputs.
        weights: The net's weights.
        segments: Receives the blocks (E, N, K).
        power: Receives the powers (E, N, K+1) [W].
        share: Receives the shares (E, N).
        micro_batches: Receives ``M`` (E, N).
    """
    N, K = segments.shape[1:]
    blocks = parameters.blocks
    # An array for each: they are filled anew for every environment.
    cu_features, device_features = np.empty((N, 8), np.float32), np.empty((N, K, 8), np.float32)
    hop_features, present = np.empty((N, K + 1, K + 1, 2), np.float32), np.empty((N, K), np.float32)
    cu, device = np.empty((N, CU_INPUTS), np.float32), np.empty((N, K, DEVICE_INPUTS), np.float32)
    hop = np.empty((N * (K + 1) * (K + 1), HOP_INPUTS), np.float32)
    mean_blocks, logits = np.empty(N), np.empty((K, blocks + 1))
    busy, weight = np.empty(N), np.empty(N)
    low, high = math.log(parameters.power_min_w), math.log(parameters.power_max_w)
    for e in range(first, last):
        row = environment_row(inputs, e)
        write_row(e, scales, parameters, system, cu_features, device_features, hop_features, present)
        _write_inputs(
            device_features, cu_features, hop_features, present, blocks, fixed, cu, device, hop, mean_blocks
        )
        units, devices = forward(cu, device, hop, present, fixed.heads, weights)
        for n in range(N):
            power[e, n, 0] = math.exp(low + (high - low) * power_of(np.float64(units[n, 0])))
            wanted = wanted_micro_batches(np.float64(units[n, 1]))
            nearest, distance = row.choices[0], math.inf
            for choice in row.choices:
                apart = abs(math.log2(choice) - wanted)
                if apart < distance:
                    nearest, distance = choice, apart
            micro_batches[e, n] = nearest
            busy[n], weight[n] = (
                busy_of(float(units[n, 3]), cu[n, 0]),
                weight_of(float(units[n, 4]), cu[n, 1]),
            )
            for k in range(K):
                raw = devices[n * (K + 1) + 1 + k].astype(np.float64)
                for count in range(blocks + 1):
                    logits[k, count] = bell(float(count), raw[1], raw[2], mean_blocks[n])
                    if count < OFFSETS:
                        logits[k, count] += raw[3 + count]
            likeliest(logits, row.cap[n], blocks, segments[e, n])
            moves = row.held.shape[1] > 0
            for k in range(K):
                power[e, n, k + 1] = parameters.power_min_w
                # One that gives its blocks away still sends their moments.
                if segments[e, n, k] > 0 or (moves and sends_moments(n, k, segments[e, n], row)):
                    share_of_range = power_of(np.float64(devices[n * (K + 1) + 1 + k, 0]))
                    power[e, n, k + 1] = math.exp(low + (high - low) * share_of_range)
        write_deadline_shares(busy, weight, parameters.bandwidth_floor, share[e])
        if fixed.exact_shares:
            _, plan = evaluate(segments[e], power[e], micro_batches[e], share[e], row, parameters)
            for n in range(N):
                share[e, n] = plan.share[n]
