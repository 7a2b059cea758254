"""Decisions of the graph net for a batch of systems, in one compiled call."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

# Registers the formulas for compiled code.
import collapipe_env.kernels.formulas  # noqa: F401
from collapipe_env.agents.dssra.moving import sends_moments
from collapipe_env.agents.dssra.round_input import RoundInput, environment_row, micro_batches_of
from collapipe_env.agents.dssra.round_plan import evaluate
from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled, compiled_inner
from collapipe_env.kernels.graph_rows import GraphSystem, write_row
from collapipe_env.physics.parameters import Numbers

from .cluster_needs import NEEDS, SystemTimes, write_needs, write_own_shares
from .compiled_net import NetWeights, Single, linear, tokens_of, with_second_inputs
from .counts import likeliest
from .net_inputs import (
    BLOCK_S,
    CU_INPUTS,
    DEVICE_INPUTS,
    HOP_INPUTS,
    HOP_S,
    HOP_SHIFT,
    HOP_SNR,
    INTERFERENCE,
    OWN_CU_INPUTS,
    cu_columns,
    device_columns,
    hop_columns,
)
from .net_outputs import OFFSETS, bell, power_of, wanted_micro_batches
from .plan_inputs import (
    CHAIN_INPUTS,
    NODE_INPUTS,
    USUAL_MICRO_BATCHES,
    chain_columns,
    neighbours,
    node_columns,
    pipeline_time,
)
from .shares import depart
from .staying import keep_what_pays, write_staying


class Fixed(NamedTuple):
    """Part of the net's inputs and choices that a scenario fixes.

    Attributes:
        shared: Inputs that all control units have in common, at a scale of 0 (CU_INPUTS - 10,).
        scale_slopes: Slopes of the first of these inputs in the scale.
        log_cap: Log of the greatest SNR that device-to-device rates use.
        log_worth: Log of ``V / N``.
        heads: Heads of attention.
        exact_shares: 1 for exact shares of the uplink, 0 for the net's own.
        departs: 1 where shares depart from the exact ones by the net's residual.
        times: Times of the system, for the net's own shares.
    """

    shared: FloatArray
    scale_slopes: FloatArray
    log_cap: float
    log_worth: float
    heads: int
    exact_shares: int
    departs: int
    times: SystemTimes


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
) -> None:
    """Write the net's inputs of one system."""
    N, K = present.shape
    ideal = np.empty(N)
    scale = 0.0
    for n in range(N):
        rate, devices = 0.0, 0.0
        for k in range(K):
            if present[n, k] > 0.0:
                rate += math.exp(-device_features[n, k, BLOCK_S])
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
        for i in range(len(fixed.scale_slopes)):
            cu[n, OWN_CU_INPUTS + i] += scale * fixed.scale_slopes[i]
        heard = float(cu_features[n, INTERFERENCE])
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
                absent = (i > 0 and present[n, i - 1] == 0.0) or (j > 0 and present[n, j - 1] == 0.0)
                if absent or i == j:
                    for c in range(HOP_INPUTS):
                        hop[row, c] = 0.0
                    continue
                if j < i:  # the same both ways, except for the direction
                    mirror = (n * (K + 1) + j) * (K + 1) + i
                    hop[row, 0], hop[row, 1], hop[row, 3] = hop[mirror, 0], hop[mirror, 1], hop[mirror, 3]
                    hop[row, 2] = -hop[mirror, 2]
                    continue
                seconds, snr = hop_features[n, i, j, HOP_S], hop_features[n, i, j, HOP_SNR]
                hops = hop_columns(
                    np.float64(seconds), np.float64(snr), heard, fixed.log_cap, float(j - i), scale
                )
                for c in range(HOP_INPUTS):
                    hop[row, c] = hops[c]


@compiled_inner
def _write_second_inputs(
    counts: IntArray,
    ahead: IntArray,
    behind: IntArray,
    n: int,
    device: Single,
    hop: Single,
    mean_blocks: float,
    node: Single,
    chain: Single,
    total: FloatArray,
    longest: FloatArray,
) -> None:
    """Write the second inputs that follow from a cluster's segments, except the last of each row."""
    K = len(counts)
    neighbours(counts, ahead, behind)
    stages, all_stages, longest_stage, all_hops, longest_hop = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(K + 1):
        if i > 0 and counts[i - 1] == 0:
            continue
        at = (n * (K + 1) + i) * (K + 1) + ahead[i]
        seconds = math.exp(np.float64(hop[at, 0]) - HOP_SHIFT)
        all_hops, longest_hop = all_hops + seconds, max(longest_hop, seconds)
        if i > 0:
            stage = counts[i - 1] * math.exp(np.float64(device[n, i - 1, 1]))
            stages += 1.0
            all_stages, longest_stage = all_stages + stage, max(longest_stage, stage)
    for k in range(K):
        at = (n * (K + 1) + k + 1) * (K + 1)
        forth, back = at + ahead[k + 1], at + behind[k + 1]
        columns = node_columns(
            float(counts[k]),
            counts[k] * math.exp(np.float64(device[n, k, 1])),
            np.float64(hop[forth, 0]),
            np.float64(hop[back, 0]),
            np.float64(hop[forth, 1]),
            np.float64(hop[back, 1]),
            longest_stage,
            all_stages,
            stages,
            mean_blocks,
            longest_hop,
            all_hops,
            0.0,
        )
        for c in range(NODE_INPUTS):
            node[n * K + k, c] = columns[c]
    at = n * (K + 1) * (K + 1)
    forth, back = at + ahead[0], at + behind[0]
    ends = chain_columns(
        longest_stage,
        all_stages,
        stages,
        longest_hop,
        all_hops,
        np.float64(hop[forth, 0]),
        np.float64(hop[back, 0]),
        np.float64(hop[forth, 1]),
        0.0,
    )
    for c in range(CHAIN_INPUTS):
        chain[n, c] = ends[c]
    total[n], longest[n] = all_stages + all_hops, max(longest_stage, longest_hop)


@compiled_inner
def _compare_chains(total: FloatArray, longest: FloatArray, node: Single, chain: Single) -> None:
    """Write the last of the second inputs: the time of each cluster's chain relative to the others'."""
    N = len(total)
    K = len(node) // N
    mean = 0.0
    for n in range(N):
        mean += math.log(pipeline_time(total[n], longest[n], USUAL_MICRO_BATCHES)) / N
    for n in range(N):
        slower = math.log(pipeline_time(total[n], longest[n], USUAL_MICRO_BATCHES)) - mean
        chain[n, CHAIN_INPUTS - 1] = slower
        for k in range(K):
            node[n * K + k, NODE_INPUTS - 1] = slower


@compiled_inner
def _second_inputs(
    segments: IntArray, device: Single, hop: Single, mean_blocks: FloatArray
) -> tuple[Single, Single]:
    """Second inputs of a system's devices (N K, NODE_INPUTS) and of its clusters (N, CHAIN_INPUTS)."""
    N, K = segments.shape
    node, chain = np.empty((N * K, NODE_INPUTS), np.float32), np.empty((N, CHAIN_INPUTS), np.float32)
    ahead, behind = np.empty(K + 1, np.int64), np.empty(K + 1, np.int64)
    total, longest = np.empty(N), np.empty(N)
    for n in range(N):
        _write_second_inputs(
            segments[n], ahead, behind, n, device, hop, mean_blocks[n], node, chain, total, longest
        )
    _compare_chains(total, longest, node, chain)
    return node, chain


@compiled_inner
def _depart(
    segments: IntArray,
    tokens: Single,
    device: Single,
    hop: Single,
    mean_blocks: FloatArray,
    floor: float,
    weights: NetWeights,
    share: FloatArray,
) -> None:
    """Turn the exact shares of a system's final segments (N,) into the net's departures from them."""
    _, chain = _second_inputs(segments, device, hop, mean_blocks)
    nodes = 1 + segments.shape[1]
    units = with_second_inputs(tokens, nodes, True, chain, weights.share_in_w, weights.share_in_b)
    residual = linear(units, weights.share_head_w, weights.share_head_b)[:, 0].astype(np.float64)
    depart(share, residual, floor)


@compiled_inner
def _complete(
    segments: IntArray,
    tokens: Single,
    cu_features: Single,
    device_features: Single,
    hop_features: Single,
    between: Single,
    device: Single,
    hop: Single,
    mean_blocks: FloatArray,
    row: RoundInput,
    parameters: Numbers,
    times: SystemTimes,
    weights: NetWeights,
    power: FloatArray,
    share: FloatArray,
    option: IntArray,
) -> None:
    """Write powers (N, K+1), own shares (N,) and options (N,) for the segments of a system."""
    N, K = segments.shape
    micro_batches = np.empty(N)
    node, chain = _second_inputs(segments, device, hop, mean_blocks)
    low, high = math.log(parameters.power_min_w), math.log(parameters.power_max_w)
    units = with_second_inputs(tokens, K + 1, True, chain, weights.chain_in_w, weights.chain_in_b)
    units = linear(units, weights.chain_head_w, weights.chain_head_b)
    second = with_second_inputs(tokens, K + 1, False, node, weights.node_in_w, weights.node_in_b)
    levels = linear(second, weights.node_head_w, weights.node_head_b)
    moves = row.held.shape[1] > 0
    for n in range(N):
        power[n, 0] = math.exp(low + (high - low) * power_of(np.float64(units[n, 0])))
        wanted = wanted_micro_batches(np.float64(units[n, 1]))
        distance = math.inf
        for choice in row.choices:
            M = micro_batches_of(choice, row)
            apart = abs(math.log2(M) - wanted)
            if apart < distance:
                option[n], micro_batches[n], distance = choice, M, apart
        for k in range(K):
            power[n, k + 1] = parameters.power_min_w
            # A device that gives its blocks away still sends their moments.
            if segments[n, k] > 0 or (moves and sends_moments(n, k, segments[n], row)):
                level = power_of(np.float64(levels[n * K + k, 0]))
                power[n, k + 1] = math.exp(low + (high - low) * level)
    needs = np.empty((N, NEEDS))
    write_needs(
        segments, power, micro_batches, cu_features, device_features, hop_features, between, times, needs
    )
    write_own_shares(needs, parameters.bandwidth_floor, times.edge_message_s, share)


@compiled
def decide_rows(
    system: GraphSystem,
    inputs: RoundInput,
    parameters: Numbers,
    fixed: Fixed,
    weights: NetWeights,
    processes: Single,
    segments: IntArray,
    power: FloatArray,
    share: FloatArray,
    option: IntArray,
) -> None:
    """Decide a round of every environment.

    Where a change of plan has a price and shares are exact, each cluster keeps the previous round's segments
    if that costs less, with the powers and micro-batches that suit them. Where gains are hidden, the net's
    shares may depart from those that are exact at the known gains.

    Args:
        system: The systems that are observed.
        inputs: The same systems as DSSRA's arrays, with the exact drift.
        fixed: Part of the net's inputs that the scenario fixes.
        weights: The net's weights.
        processes: Inputs for what processes do to devices (E, N, K, PROCESS_INPUTS), or no rows.
        segments: Receives the blocks (E, N, K).
        power: Receives the powers (E, N, K+1) [W].
        share: Receives the shares (E, N).
        option: Receives the options (E, N).
    """
    E, N, K = segments.shape
    blocks = parameters.blocks
    # One array of each kind, refilled for every environment.
    cu_features, device_features = np.empty((N, 8), np.float32), np.empty((N, K, 8), np.float32)
    hop_features, present = np.empty((N, K + 1, K + 1, 2), np.float32), np.empty((N, K), np.float32)
    between = np.empty((N, N, 1), np.float32)
    cu, device = np.empty((N, CU_INPUTS), np.float32), np.empty((N, K, DEVICE_INPUTS), np.float32)
    hop = np.empty((N * (K + 1) * (K + 1), HOP_INPUTS), np.float32)
    mean_blocks, logits = np.empty(N), np.empty((K, blocks + 1))
    stay, own_power = np.empty((N, K), np.int64), np.empty((N, K + 1))
    own_share, own_option = np.empty(N), np.empty(N, np.int64)
    nothing = np.empty((0, processes.shape[3]), np.float32)
    for e in range(E):
        row = environment_row(inputs, e)
        write_row(e, parameters, system, cu_features, device_features, hop_features, between, present)
        _write_inputs(
            device_features, cu_features, hop_features, present, blocks, fixed, cu, device, hop, mean_blocks
        )
        added = processes[e].reshape((N * K, processes.shape[3])) if len(processes) > 0 else nothing
        tokens = tokens_of(cu, device, hop, present, added, fixed.heads, weights)
        raw = linear(tokens, weights.count_head_w, weights.count_head_b)
        for n in range(N):
            for k in range(K):
                own = raw[n * (K + 1) + 1 + k].astype(np.float64)
                for count in range(blocks + 1):
                    logits[k, count] = bell(float(count), own[0], own[1], mean_blocks[n])
                    if count < OFFSETS:
                        logits[k, count] += own[2 + count]
            likeliest(logits, row.cap[0, n], blocks, segments[e, n])
        features = (cu_features, device_features, hop_features, between)
        known = (tokens, *features, device, hop, mean_blocks, row, parameters, fixed.times, weights)
        _complete(segments[e], *known, power[e], share[e], option[e])
        if not fixed.exact_shares:
            continue
        moves = len(system.previous_blocks) > 0
        if moves and write_staying(system.previous_blocks[e], segments[e], row, blocks, stay):
            _complete(stay, *known, own_power, own_share, own_option)
            keep_what_pays(
                segments[e], power[e], option[e], share[e],
                stay, own_power, own_option, row, parameters,
            )  # fmt: skip
        else:
            _, plan = evaluate(segments[e], power[e], option[e], share[e], row, parameters)
            for n in range(N):
                share[e, n] = plan.share[n]
        if fixed.departs:
            floor = parameters.bandwidth_floor
            _depart(segments[e], tokens, device, hop, mean_blocks, floor, weights, share[e])
