"""The graph net without PyTorch: one compiled pass for decisions, a system at a time.

It computes what :class:`~.net.GraphNet` does, in single precision. PyTorch takes over a millisecond to call
the layers of so small a net. Here BLAS multiplies the matrices, and the rest are loops.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collapipe_env.ground.compiled import compiled_inner, compiled_leaf

Single = npt.NDArray[np.float32]
LAYER_NORM_EPSILON = 1e-5  # PyTorch's


class NetWeights(NamedTuple):
    """Weights by the names of :class:`~.net.GraphNet`; matrices transposed (inputs first), layers stacked."""

    cu_w: Single
    cu_b: Single
    device_w: Single
    device_b: Single
    edge_in_w: Single
    edge_in_b: Single
    edge_out_w: Single
    edge_out_b: Single
    before_w: Single
    before_b: Single
    qkv_w: Single
    qkv_b: Single
    out_w: Single
    out_b: Single
    between_w: Single
    between_b: Single
    up_w: Single
    up_b: Single
    down_w: Single
    down_b: Single
    gate_w: Single
    shared_w: Single
    shared_b: Single
    after_w: Single
    after_b: Single
    count_head_w: Single
    count_head_b: Single
    node_in_w: Single
    node_in_b: Single
    node_head_w: Single
    node_head_b: Single
    chain_in_w: Single
    chain_in_b: Single
    chain_head_w: Single
    chain_head_b: Single
    process_w: Single
    share_in_w: Single
    share_in_b: Single
    share_head_w: Single
    share_head_b: Single


@compiled_inner
def linear(x: Single, weight: Single, bias: Single) -> Single:
    """``x W + b`` for rows ``x``."""
    y: Single = np.dot(x, weight)
    for i in range(y.shape[0]):
        for j in range(y.shape[1]):
            y[i, j] += bias[j]
    return y


@compiled_leaf
def normalise(x: Single, weight: Single, bias: Single, y: Single) -> None:
    """Write the layer norm of the rows of ``x`` to ``y``."""
    width = np.float32(x.shape[1])
    for i in range(x.shape[0]):
        mean = np.float32(0.0)
        for j in range(x.shape[1]):
            mean += x[i, j]
        mean /= width
        spread = np.float32(0.0)
        for j in range(x.shape[1]):
            spread += (x[i, j] - mean) * (x[i, j] - mean)
        scale = np.float32(1.0 / math.sqrt(spread / width + LAYER_NORM_EPSILON))
        for j in range(x.shape[1]):
            y[i, j] = (x[i, j] - mean) * scale * weight[j] + bias[j]


@compiled_leaf
def _attend(
    qkv: Single, bias: Single, first: int, present: Single, score: Single, keys: Single, mixed: Single
) -> None:
    """Attention inside every cluster.

    Args:
        qkv: Queries, keys and values of all tokens (N (K+1), 3 d).
        bias: Biases of the scores (N (K+1) (K+1), heads of all layers).
        first: First column of this layer's heads in ``bias``.
        present: 1 where a device is present (N, K).
        score: Workspace (K+1,).
        keys: Workspace (d / heads, K+1).
        mixed: Receives the mixed values (N (K+1), d).
    """
    size, nodes = keys.shape
    width = mixed.shape[1]
    scale = np.float32(1.0 / math.sqrt(size))
    for n in range(present.shape[0]):
        top = n * nodes
        for head in range(width // size):
            at = head * size
            for j in range(nodes):
                for c in range(size):
                    keys[c, j] = qkv[top + j, width + at + c] * scale
            for i in range(nodes):
                if i > 0 and present[n, i - 1] == 0.0:
                    continue
                row = (top + i) * nodes
                for j in range(nodes):
                    score[j] = bias[row + j, first + head]
                for c in range(size):
                    q = qkv[top + i, at + c]
                    for j in range(nodes):
                        score[j] += q * keys[c, j]
                highest = score[0]
                for j in range(1, nodes):
                    if present[n, j - 1] > 0.0:
                        highest = max(highest, score[j])
                total = np.float32(0.0)
                for j in range(nodes):
                    here = j == 0 or present[n, j - 1] > 0.0
                    score[j] = math.exp(score[j] - highest) if here else np.float32(0.0)
                    total += score[j]
                for c in range(size):
                    mixed[top + i, at + c] = np.float32(0.0)
                for j in range(nodes):
                    part = score[j] / total
                    for c in range(size):
                        mixed[top + i, at + c] += part * qkv[top + j, 2 * width + at + c]


@compiled_inner
def _tell(x: Single, nodes: int, weights: NetWeights, layer: int) -> None:
    """Add the control units' pooled message to all tokens."""
    clusters, width = x.shape[0] // nodes, x.shape[1]
    gate = np.empty(clusters, dtype=np.float32)
    highest = np.float32(-1e30)
    for n in range(clusters):
        value = np.float32(0.0)
        for c in range(width):
            value += x[n * nodes, c] * weights.gate_w[layer, c, 0]
        gate[n] = value
        highest = max(highest, value)
    total = np.float32(0.0)
    for n in range(clusters):
        gate[n] = math.exp(gate[n] - highest)
        total += gate[n]
    pooled = np.zeros((1, 2 * width), dtype=np.float32)
    for n in range(clusters):
        for c in range(width):
            pooled[0, c] += x[n * nodes, c] / np.float32(clusters)
            pooled[0, width + c] += gate[n] / total * x[n * nodes, c]
    told = linear(pooled, weights.shared_w[layer], weights.shared_b[layer])
    for i in range(x.shape[0]):
        for c in range(width):
            x[i, c] += told[0, c]


@compiled_leaf
def rectify(x: Single) -> None:
    """Set negative numbers to 0, in place."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            x[i, j] = max(x[i, j], np.float32(0.0))


@compiled_inner
def tokens_of(
    cu: Single,
    device: Single,
    hop: Single,
    present: Single,
    processes: Single,
    heads: int,
    weights: NetWeights,
) -> Single:
    """Tokens of all nodes of one system.

    Args:
        cu: Inputs of control units (N, CU_INPUTS).
        device: Inputs of devices (N, K, DEVICE_INPUTS).
        hop: Inputs of hops (N (K+1) (K+1), HOP_INPUTS).
        present: 1 where a device is present (N, K).
        processes: Inputs for what processes do to devices (N K, PROCESS_INPUTS), or no rows.
        heads: Heads of attention.
        weights: The net's weights.

    Returns:
        Tokens (N (K+1), d), each cluster's CU before its devices.
    """
    N, K = present.shape
    nodes, layers = K + 1, weights.qkv_w.shape[0]
    width = weights.cu_w.shape[1]
    edges = linear(hop, weights.edge_in_w, weights.edge_in_b)
    rectify(edges)
    bias = linear(edges, weights.edge_out_w, weights.edge_out_b)
    units = linear(cu, weights.cu_w, weights.cu_b)
    devices = linear(device.reshape((N * K, device.shape[2])), weights.device_w, weights.device_b)
    if len(processes) > 0:
        devices += np.dot(processes, weights.process_w)
    x = np.empty((N * nodes, width), dtype=np.float32)
    for n in range(N):
        for c in range(width):
            x[n * nodes, c] = units[n, c]
        for k in range(K):
            for c in range(width):
                x[n * nodes + 1 + k, c] = devices[n * K + k, c]
    y, mixed = np.empty_like(x), np.zeros_like(x)
    score = np.empty(nodes, dtype=np.float32)
    keys = np.empty((width // heads, nodes), dtype=np.float32)
    for layer in range(layers):
        normalise(x, weights.before_w[layer], weights.before_b[layer], y)
        qkv = linear(y, weights.qkv_w[layer], weights.qkv_b[layer])
        _attend(qkv, bias, layer * heads, present, score, keys, mixed)
        x += linear(mixed, weights.out_w[layer], weights.out_b[layer])
        normalise(x, weights.between_w[layer], weights.between_b[layer], y)
        hidden = linear(y, weights.up_w[layer], weights.up_b[layer])
        rectify(hidden)
        x += linear(hidden, weights.down_w[layer], weights.down_b[layer])
        _tell(x, nodes, weights, layer)
    normalise(x, weights.after_w, weights.after_b, y)
    return y


@compiled_inner
def with_second_inputs(
    tokens: Single, nodes: int, of_cus: bool, second: Single, w: Single, b: Single
) -> Single:
    """Hidden layer over tokens and second inputs.

    Args:
        tokens: Tokens of all nodes (N nodes, d), each cluster's CU before its devices.
        nodes: Nodes of a cluster, K + 1.
        of_cus: Whether CUs are read, rather than devices.
        second: Second inputs, of the CUs (N, F) or of the devices (N K, F).
        w: Weights (d + F, hidden).
        b: Biases (hidden,).

    Returns:
        Rectified units (N, hidden) or (N K, hidden).
    """
    rows, width = second.shape[0], tokens.shape[1]
    x = np.empty((rows, width + second.shape[1]), dtype=np.float32)
    for i in range(rows):
        # Device i comes after the CUs of its own cluster and of all earlier ones.
        at = i * nodes if of_cus else i + 1 + i // (nodes - 1)
        for c in range(width):
            x[i, c] = tokens[at, c]
        for c in range(second.shape[1]):
            x[i, width + c] = second[i, c]
    y = linear(x, w, b)
    rectify(y)
    return y
