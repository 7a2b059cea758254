"""The graph net: attention among a cluster's nodes, pooling across clusters, then one decision after another.

Tokens of all nodes give the distribution of the segments. Once the segments are chosen, powers and
micro-batches follow from the tokens and from each cluster's chain under these segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn

from .graph_parameters import GraphParameters
from .net_inputs import CU_INPUTS, DEVICE_INPUTS, HOP_INPUTS, NetInputs
from .plan_inputs import CHAIN_INPUTS, NODE_INPUTS, PlanInputs
from .process_inputs import HEAT_INPUTS, RISK_INPUTS

CHAIN_OUTPUTS = 3
"""Numbers of a cluster's head: power, micro-batches and their sharpness."""
OFFSETS = 9
"""Counts, from 0, whose logits have an offset of their own."""
STEEPEST = 8.0
"""Steepest slope of the logits around the wanted count."""
SHARE_UNITS = 24
"""Units of the layer before the share head."""


class NetAnswer(NamedTuple):
    """Answer of the net once the segments are known; leading batch axes ``...``.

    Attributes:
        power: Powers of CUs and devices, 0 for the least and 1 for the greatest in decibels (..., N, K+1).
        log2_micro_batches: Log2 of the wanted number of micro-batches (..., N).
        sharpness: Steepness of their logits (..., N).
        share_residual: Log of the factor by which a share of the uplink departs from the best one at the
            known gains, before shares are scaled to their sum (..., N); used only where gains are hidden.
    """

    power: torch.Tensor
    log2_micro_batches: torch.Tensor
    sharpness: torch.Tensor
    share_residual: torch.Tensor


class Layer(nn.Module):
    """Attention inside clusters, a feed-forward layer, and a message from all clusters to each.

    Args:
        sizes: Hyper-parameters, of which it reads sizes.
    """

    def __init__(self, sizes: GraphParameters) -> None:
        super().__init__()
        d = sizes.width
        self.heads = sizes.heads
        self.before = nn.LayerNorm(d)
        self.qkv = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)
        self.between = nn.LayerNorm(d)
        self.up, self.down = nn.Linear(d, sizes.hidden), nn.Linear(sizes.hidden, d)
        self.gate = nn.Linear(d, 1, bias=False)
        self.shared = nn.Linear(2 * d, d)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Tokens (..., N, K+1, d) after the layer; ``bias`` (..., N, heads, K+1, K+1) of the attention."""
        *lead, nodes, d = x.shape
        qkv = self.qkv(self.before(x)).reshape(*lead, nodes, 3, self.heads, d // self.heads)
        q, k, v = qkv.permute(*range(len(lead)), -3, -2, -4, -1).unbind(dim=-4)
        scores = q @ k.transpose(-1, -2) * (d // self.heads) ** -0.5 + bias
        mixed = (scores.softmax(dim=-1) @ v).transpose(-2, -3).reshape(*lead, nodes, d)
        x = x + self.out(mixed)
        x = x + self.down(torch.relu(self.up(self.between(x))))
        cu = x[..., 0, :]
        gate = self.gate(cu).softmax(dim=-2)
        told = self.shared(torch.cat((cu.mean(dim=-2), (gate * cu).sum(dim=-2)), dim=-1))
        after: torch.Tensor = x + told[..., None, None, :]
        return after


class GraphNet(nn.Module):
    """Decisions of a round from the graph observation; equivariant to the order of clusters.

    Its weights do not depend on numbers of clusters, devices or blocks. The order of devices matters, as the
    pipeline visits them by index; it enters only through the direction and the distance of hops.

    Args:
        sizes: Hyper-parameters, of which it reads sizes.
    """

    def __init__(self, sizes: GraphParameters) -> None:
        super().__init__()
        self.sizes = sizes
        d = sizes.width
        self.cu, self.device = nn.Linear(CU_INPUTS, d), nn.Linear(DEVICE_INPUTS, d)
        self.edge_in = nn.Linear(HOP_INPUTS, sizes.edge_hidden)
        self.edge_out = nn.Linear(sizes.edge_hidden, sizes.layers * sizes.heads)
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes.layers))
        self.after = nn.LayerNorm(d)
        self.count_head = nn.Linear(d, 2 + OFFSETS)
        self.node_in = nn.Linear(d + NODE_INPUTS, sizes.plan_hidden)
        self.node_head = nn.Linear(sizes.plan_hidden, 1)
        self.chain_in = nn.Linear(d + CHAIN_INPUTS, sizes.plan_hidden)
        self.chain_head = nn.Linear(sizes.plan_hidden, CHAIN_OUTPUTS)
        for head in (self.count_head, self.node_head, self.chain_head):
            if not head.weight.is_meta:  # on the meta device, this would import PyTorch's compiler
                nn.init.normal_(head.weight, std=0.02)
            nn.init.zeros_(head.bias)
        # Other weights of a seed do not depend on these.
        with torch.random.fork_rng(devices=[]):
            self.heat = nn.Linear(HEAT_INPUTS, d, bias=False)
            self.risk = nn.Linear(RISK_INPUTS, d, bias=False)
        with torch.random.fork_rng(devices=[]):
            self.share_in = nn.Linear(d + CHAIN_INPUTS, SHARE_UNITS)
            self.share_head = nn.Linear(SHARE_UNITS, 1)
        for weights in (self.heat.weight, self.risk.weight, *self.share_head.parameters()):
            nn.init.zeros_(weights)  # they begin without effect

    @property
    def has_share_head(self) -> bool:
        """Whether the net departs from the best shares."""
        return bool(self.share_head.weight.any() or self.share_head.bias.any())

    def leave_out(self, parts: Sequence[str]) -> None:
        """Set the weights of parts of the net to 0, for good: no gradient reaches them.

        Args:
            parts: ``edges``, ``pooling`` and ``plan``, as in
                :class:`~.graph_parameters.GraphParameters`.
        """
        d, silent = self.sizes.width, list[tuple[torch.Tensor, int]]()
        if "edges" in parts:
            silent += [(self.edge_out.weight, 0), (self.edge_out.bias, 0)]
        if "pooling" in parts:
            for name, values in self.named_parameters():
                silent += [(values, 0)] if ".shared." in name else []
        if "plan" in parts:
            silent += [(layer.weight, d) for layer in (self.node_in, self.chain_in, self.share_in)]
        for weights, first in silent:
            weights.data[..., first:] = 0.0
            known = torch.zeros_like(weights)
            known[..., :first] = 1.0
            weights.register_hook(known.mul)  # type: ignore[no-untyped-call]

    def tokens(self, inputs: NetInputs, processes: torch.Tensor | None = None) -> torch.Tensor:
        """Tokens of all nodes (..., N, K+1, d), CUs first.

        Args:
            inputs: Inputs that every system has, as tensors.
            processes: Inputs for what processes do to devices (..., N, K, PROCESS_INPUTS), or no rows.
        """
        there = torch.cat((torch.ones_like(inputs.present[..., :1]), inputs.present), dim=-1)
        edges = self.edge_out(torch.relu(self.edge_in(inputs.hop)))
        absent = (there[..., None, :] - 1.0) * 1e9
        bias = edges.movedim(-1, -3) + absent[..., None, :, :]
        devices = self.device(inputs.device)
        if processes is not None and len(processes):
            heat, risk = processes[..., :HEAT_INPUTS], processes[..., HEAT_INPUTS:]
            devices = devices + self.heat(heat) + self.risk(risk)
        x = torch.cat((self.cu(inputs.cu)[..., None, :], devices), dim=-2)
        for i, layer in enumerate(self.layers):
            x = layer(x, bias[..., i * self.sizes.heads : (i + 1) * self.sizes.heads, :, :])
        tokens: torch.Tensor = self.after(x)
        return tokens

    def count_logits(self, tokens: torch.Tensor, inputs: NetInputs, blocks: int) -> torch.Tensor:
        """Logits of each device's count of blocks (..., N, K, L+1)."""
        return count_logits(self.count_head(tokens[..., 1:, :]), inputs.mean_blocks, blocks)

    def forward(self, tokens: torch.Tensor, plan: PlanInputs) -> NetAnswer:
        """Everything except the segments, from the tokens and from the chains under the segments."""
        devices = torch.relu(self.node_in(torch.cat((tokens[..., 1:, :], plan.node), dim=-1)))
        chain = torch.cat((tokens[..., 0, :], plan.chain), dim=-1)
        cu = self.chain_head(torch.relu(self.chain_in(chain)))
        return NetAnswer(
            power=torch.sigmoid(torch.cat((cu[..., :1], self.node_head(devices)[..., 0]), dim=-1)),
            log2_micro_batches=4.0 + 2.0 * cu[..., 1],
            sharpness=torch.nn.functional.softplus(cu[..., 2]) + 0.05,
            share_residual=self.share_head(torch.relu(self.share_in(chain)))[..., 0],
        )


def count_logits(raw: torch.Tensor, mean_blocks: torch.Tensor, blocks: int) -> torch.Tensor:
    """Logits of counts 0..L (..., N, K, L+1): a bell around a wanted count, and offsets of small counts.

    Far from the middle of the bell they are straight lines, so that gradients stay bounded.

    Args:
        raw: The head's numbers (..., N, K, 2 + OFFSETS).
        mean_blocks: Blocks of a device on average (..., N).
        blocks: ``L``.
    """
    counts = torch.arange(blocks + 1, dtype=raw.dtype, device=raw.device)
    wanted = torch.log1p(torch.exp(raw[..., :1] + 0.5413)) * mean_blocks[..., None, None]
    steep = STEEPEST * torch.sigmoid(raw[..., 1:2] - 1.5)
    bell = -steep * ((1.0 + (counts - wanted) ** 2) ** 0.5 - 1.0)
    some = min(OFFSETS, blocks + 1)
    return bell + torch.nn.functional.pad(raw[..., 2 : 2 + some], (0, blocks + 1 - some))
