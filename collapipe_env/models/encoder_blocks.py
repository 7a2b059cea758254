"""Transformer encoder blocks in styles that cost the same, and their base."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from collapipe_env.models.architecture import Architecture
from collapipe_env.models.norms import norm
from collapipe_env.models.style_fields import CAUSAL, Style

DEVIATION = 0.02
"""Standard deviation of the initial weights of BERT, GPT-2 and Llama, embeddings included."""

BERT_EPSILON = 1e-12
"""Number that BERT adds to the variance in its layer norms (Devlin et al., 2019)."""

_ACTIVATIONS: dict[Style, Callable[[Tensor], Tensor]] = {
    "pre-ln": functional.gelu,
    "transformer": functional.relu,
    "bert": functional.gelu,
    "gpt2": partial(functional.gelu, approximate="tanh"),
    "llama": functional.silu,
}


class ResidualBlock(nn.Module):
    """Branches that are each added to their input, with dropout, heads, norms and activation of a style.

    Maps have biases, and layer norms gain and bias; ``llama`` has RMS norms, and no biases but Qwen2's. With
    ``pre-ln``, ``gpt2`` and ``llama`` a norm opens each branch, otherwise it follows the sum of a branch and
    its input. In ``training`` mode, dropout applies to attention weights and to the branches' outputs. Its
    masks come from PyTorch's global generator; see :mod:`collapipe_env.models.dropout`.

    A linear map called ``name`` has the parameters ``{name}_weight``, shape (rows, columns), and
    ``{name}_bias``, ``None`` where the style has none. All blocks have ``"qkv"``, ``"out"``, ``"up"`` and
    ``"down"``.

    Attributes:
        adapters: Modules by the name of a map, called with the map's input; their results are added to its
            output. Empty unless adapters were added (:mod:`collapipe_env.models.lora`).
    """

    def __init__(
        self,
        architecture: Architecture,
        drawn_as: Style,
        blocks: int,
        branches: Sequence[Mapping[str, tuple[int, int]]],
        generator: Generator,
    ) -> None:
        """Draw the weights.

        Args:
            architecture: Width, heads, style and dropout.
            drawn_as: Style whose initial weights the maps get.
            blocks: Blocks that the residual stream runs through.
            branches: Rows and columns of each branch's maps by their names; the last map ends the branch.
        """
        super().__init__()
        d, style = architecture.width, architecture.style
        biased, self.adapters = style != "llama", nn.ModuleDict()
        self.heads, self.dropout = architecture.heads, architecture.dropout
        self.norm_first, self.activation = style in ("pre-ln", *CAUSAL), _ACTIVATIONS[style]
        fixed = {"pre-ln": 1e-5, "transformer": 1e-5, "bert": BERT_EPSILON}
        self.epsilon = fixed.get(style, architecture.norm_epsilon)
        for number, maps in enumerate(branches, start=1):
            self.register_parameter(f"norm{number}_gain", nn.Parameter(torch.ones(d)))
            self.register_parameter(f"norm{number}_bias", nn.Parameter(torch.zeros(d)) if biased else None)
            for name, (rows, columns) in maps.items():
                summed = blocks * len(branches) if name == [*maps][-1] else 1
                weight = _initial(drawn_as, rows, columns, summed, generator)
                self.register_parameter(f"{name}_weight", nn.Parameter(weight))
                has_bias = biased or (name == "qkv" and architecture.qkv_bias)
                bias = nn.Parameter(torch.zeros(rows)) if has_bias else None
                self.register_parameter(f"{name}_bias", bias)

    def linear(self, name: str, h: Tensor) -> Tensor:
        """Map ``h``, shape (samples, q, columns), to (samples, q, rows), with the map's adapter if any."""
        # Straight from the dictionaries: nn.Module's look-ups take a tenth of a small map's time.
        parameters: Any = self._parameters
        adapters: Any = self._modules["adapters"]
        out: Tensor = functional.linear(h, parameters[f"{name}_weight"], parameters[f"{name}_bias"])
        return out + adapters[name](h) if name in adapters else out

    def _residual(self, x: Tensor, number: int, branch: Callable[[Tensor], Tensor]) -> Tensor:
        """Add a branch, with its norm before or after it."""
        own: Any = self._parameters
        gain, bias = own[f"norm{number}_gain"], own[f"norm{number}_bias"]
        if self.norm_first:
            h = branch(norm(x, gain, bias, self.epsilon))
            return x + functional.dropout(h, self.dropout, self.training)
        h = functional.dropout(branch(x), self.dropout, self.training)
        return norm(x + h, gain, bias, self.epsilon)

    def _heads(self, x: Tensor, parts: int) -> tuple[Tensor, ...]:
        """Cut (samples, n, parts * d) into as many tensors (samples, heads, n, d / heads)."""
        samples, n, columns = x.shape
        by_head = x.view(samples, n, parts, self.heads, columns // parts // self.heads)
        return by_head.permute(2, 0, 3, 1, 4).unbind(0)

    def _attention(
        self, query: Tensor, key: Tensor, value: Tensor, *, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Scaled dot-product attention of all heads, joined: shape (samples, n, d); keys may have fewer."""
        p, grouped = self.dropout if self.training else 0.0, key.shape[1] < query.shape[1]
        h = functional.scaled_dot_product_attention(
            query, key, value, mask, p, is_causal=causal, enable_gqa=grouped
        )
        return h.transpose(1, 2).flatten(start_dim=2)

    def _transform(self, h: Tensor) -> Tensor:
        """Return the output of the feed-forward branch."""
        return self.linear("down", self.activation(self.linear("up", h)))


class EncoderBlock(ResidualBlock):
    """A Transformer encoder block with 4 d^2 + 2 d d_ff + 9 d + d_ff parameters, whatever its style.

    The forward pass takes 2 q (4 d^2 + 2 d d_ff) + 4 q^2 d FLOPs per sample, the backward pass twice that. In
    a causal architecture no position attends to a later one; the price is that of full attention.
    """

    def __init__(self, architecture: Architecture, generator: Generator) -> None:
        d, f, style = architecture.width, architecture.feedforward, architecture.style
        self.causal = architecture.causal or style in CAUSAL
        maps = {"qkv": (3 * d, d), "out": (d, d)}, {"up": (f, d), "down": (d, f)}
        super().__init__(architecture, style, architecture.blocks, maps, generator)

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        """Map activations (samples, q, d) to activations of the same shape.

        Args:
            attention_mask: 0 at real tokens and -inf at padding, shape (samples, 1, 1, q). A causal block
                does not need it: padding follows the real tokens, which see nothing after them.
        """

        def attend(h: Tensor) -> Tensor:
            heads = self._heads(self.linear("qkv", h), 3)
            mask = None if self.causal else attention_mask
            return self.linear("out", self._attention(*heads, mask=mask, causal=self.causal))

        return self._residual(self._residual(x, 1, attend), 2, self._transform)


def _initial(style: Style, rows: int, columns: int, summed: int, generator: Generator) -> Tensor:
    """Draw a matrix, shape (rows, columns), as its style's authors do.

    ``pre-ln`` keeps the variance of its input, but branches start small so that the residual stream, to which
    ``summed`` of them add, keeps the scale of its input. ``transformer`` is Xavier-uniform, ``bert`` and
    ``llama`` normal with a fixed deviation, and so is ``gpt2``, whose branches start smaller, too (Radford et
    al., 2019).
    """
    if style == "transformer":
        bound = math.sqrt(6 / (rows + columns))
        return (2 * torch.rand(rows, columns, generator=generator) - 1) * bound
    if style in ("bert", "llama"):
        return torch.randn(rows, columns, generator=generator) * DEVIATION
    scale = 1 / math.sqrt(summed)
    deviation = scale * DEVIATION if style == "gpt2" else scale / math.sqrt(columns)
    return torch.randn(rows, columns, generator=generator) * deviation
