"""The trained Transformer: what sits on a control unit and on its cluster's devices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from collapipe_env.learners.architecture import Architecture
from collapipe_env.tasks.tokenization import PADDING


class Embedding(nn.Module):
    """Token embedding plus fixed sinusoidal positions, on the control unit; vocabulary x d parameters."""

    def __init__(self, architecture: Architecture, generator: Generator) -> None:
        super().__init__()
        q, d = architecture.sequence_length, architecture.width
        self.weight = nn.Parameter(torch.randn(architecture.vocabulary, d, generator=generator))
        angles = torch.arange(q)[:, None] * torch.exp(torch.arange(0, d, 2) * (-math.log(10_000.0) / d))
        self.positions: Tensor
        self.register_buffer(
            "positions", torch.stack((angles.sin(), angles.cos()), dim=-1).view(q, -1)[:, :d]
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """Map token ids (samples, q) to activations (samples, q, d)."""
        return functional.embedding(tokens, self.weight) + self.positions


class EncoderBlock(nn.Module):
    """One pre-LN Transformer encoder block with 4 d^2 + 2 d d_ff + 9 d + d_ff parameters.

    Query, key, value and output maps and both feed-forward maps have biases; the two layer norms have gain
    and bias. Forward it takes 2 q (4 d^2 + 2 d d_ff) + 4 q^2 d FLOPs per sample, backward twice that.
    """

    def __init__(self, architecture: Architecture, generator: Generator) -> None:
        super().__init__()
        d, f = architecture.width, architecture.feedforward
        self.heads = architecture.heads
        # Both branches start small, so that the residual stream of L blocks keeps the scale of its input.
        branch = 1 / math.sqrt(2 * architecture.blocks)

        def matrix(rows: int, columns: int, scale: float = 1.0) -> nn.Parameter:
            return nn.Parameter(
                torch.randn(rows, columns, generator=generator) * (scale / math.sqrt(columns))
            )

        self.norm1_gain, self.norm1_bias = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))
        self.qkv_weight, self.qkv_bias = matrix(3 * d, d), nn.Parameter(torch.zeros(3 * d))
        self.out_weight, self.out_bias = matrix(d, d, branch), nn.Parameter(torch.zeros(d))
        self.norm2_gain, self.norm2_bias = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))
        self.up_weight, self.up_bias = matrix(f, d), nn.Parameter(torch.zeros(f))
        self.down_weight, self.down_bias = matrix(d, f, branch), nn.Parameter(torch.zeros(d))

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        """Map activations (samples, q, d) to activations of the same shape.

        Args:
            x: The block's input.
            attention_mask: 0 at real tokens and -inf at padding, shape (samples, 1, 1, q).
        """
        samples, q, d = x.shape
        h = functional.layer_norm(x, (d,), self.norm1_gain, self.norm1_bias)
        qkv = functional.linear(h, self.qkv_weight, self.qkv_bias)
        by_head = qkv.view(samples, q, 3, self.heads, d // self.heads)
        query, key, value = by_head.permute(2, 0, 3, 1, 4).unbind(0)
        h = functional.scaled_dot_product_attention(query, key, value, attn_mask=attention_mask)
        h = h.transpose(1, 2).reshape(samples, q, d)
        x = x + functional.linear(h, self.out_weight, self.out_bias)
        h = functional.layer_norm(x, (d,), self.norm2_gain, self.norm2_bias)
        h = functional.gelu(functional.linear(h, self.up_weight, self.up_bias))
        return x + functional.linear(h, self.down_weight, self.down_bias)


class ClusterModel(nn.Module):
    """A cluster's replica of the federated part: the embedding on its CU and the blocks on its devices."""

    def __init__(self, architecture: Architecture, generator: Generator) -> None:
        super().__init__()
        self.embedding = Embedding(architecture, generator)
        self.blocks = nn.ModuleList(EncoderBlock(architecture, generator) for _ in range(architecture.blocks))

    def segments(self, sizes: Sequence[int]) -> Iterator[list[nn.Module]]:
        """Cut the blocks into contiguous segments.

        Args:
            sizes: Blocks per segment, each at least 1, summing to L at most.

        Yields:
            The blocks of each segment in pipeline order.
        """
        blocks = list(self.blocks)
        start = 0
        for size in sizes:
            yield blocks[start : start + size]
            start += size

    def forward(self, tokens: Tensor) -> Tensor:
        """Run the uncut model: token ids (samples, q) to encoder outputs (samples, q, d)."""
        x: Tensor = self.embedding(tokens)
        attention_mask = additive_mask(tokens)
        for block in self.blocks:
            x = block(x, attention_mask)
        return x


def additive_mask(tokens: Tensor) -> Tensor:
    """Return 0 where a token is real and -inf where it is padding, shape (samples, 1, 1, q)."""
    mask = torch.zeros(tokens.shape, device=tokens.device)
    return mask.masked_fill_(tokens == PADDING, -math.inf)[:, None, None, :]


class FlatParameters:
    """One contiguous vector that holds all parameters of a module, and one that holds their gradients.

    The module's parameters become views, so that an optimiser step, an average over clusters or a reset of
    the gradients is one operation on a vector instead of one on each of hundreds of small tensors. Matrices
    come first, vectors (biases, norms) after them: only the former are decayed.

    Attributes:
        values: The parameters, shape (P,).
        gradients: Their gradients, shape (P,).
    """

    def __init__(self, module: nn.Module, values: Tensor, gradients: Tensor) -> None:
        self.values, self.gradients = values, gradients
        ordered = sorted(module.parameters(), key=lambda parameter: parameter.ndim < 2)  # the sort is stable
        self._matrices = sum(parameter.numel() for parameter in ordered if parameter.ndim >= 2)
        self._places: dict[nn.Parameter, slice] = {}
        start = 0
        for parameter in ordered:
            place = self._places[parameter] = slice(start, start + parameter.numel())
            values[place].copy_(parameter.detach().view(-1))
            parameter.data = values[place].view(parameter.shape)
            parameter.grad = gradients[place].view(parameter.shape)
            start += parameter.numel()

    def slices(self, modules: Iterable[nn.Module]) -> list[slice]:
        """Return where parts of the module lie in the vectors, in ascending order, neighbours joined.

        Args:
            modules: Parts of the module, each at most once. Blocks in a row take two slices: all their
                matrices and all their vectors.
        """
        places = [self._places[parameter] for module in modules for parameter in module.parameters()]
        joined: list[slice] = []
        for place in sorted(places, key=lambda place: int(place.start)):
            if joined and joined[-1].stop == place.start:
                joined[-1] = slice(joined[-1].start, place.stop)
            else:
                joined.append(place)
        return joined

    def optimizer(self, name: str, learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
        """Return a PyTorch optimiser of these parameters.

        Args:
            name: ``"adamw"`` or ``"sgd"`` (no momentum).
            learning_rate: Step size.
            weight_decay: Weight decay of the matrices.
        """
        groups = []
        for place, decay in ((slice(0, self._matrices), weight_decay), (slice(self._matrices, None), 0.0)):
            part = nn.Parameter(self.values[place])
            part.grad = self.gradients[place]
            groups.append({"params": [part], "weight_decay": decay})
        if name == "adamw":
            # The original Transformer's betas; with PyTorch's 0.999 the steps grow too long as gradients
            # sharpen.
            return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.98), fused=True)
        return torch.optim.SGD(groups, lr=learning_rate, fused=True)


def parameter_count(module: nn.Module) -> int:
    """Return how many numbers a module trains."""
    return sum(parameter.numel() for parameter in module.parameters())
