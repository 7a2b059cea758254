"""The workload section of a scenario: the priced Transformer and how one round trains it."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from collapipe_env.ground.errors import nearest_name, shown
from collapipe_env.models.style_fields import CAUSAL, OWNERS, Style, require_heads
from collapipe_env.scenario.fields import Count, Text, field, real, require_ordered, spec, switch, whole
from collapipe_env.scenario.task_registry import SHIPPED_TRAITS, task_names

Bits = Literal[16, 32]
_FOLLOWING = ("stored_activation_bits", "activation_bits", "gradient_bits")
"""Bits of the numbers that a model in bfloat16 produces."""
Steps = Annotated[int, Field(strict=True, ge=1, le=1024)]


def _known_task(name: str) -> str:
    if name not in task_names():
        raise ValueError(f"there is no task {shown(name)}; {nearest_name(name, task_names())}")
    return name


@spec
class WorkloadSpec:
    """The priced Transformer and its training in one round: all delays and energies are computed for it."""

    task: Annotated[Text, AfterValidator(_known_task)] = field(
        "classification",
        f"the learning task; no unit, one of {', '.join(SHIPPED_TRAITS)}, or a registered one",
    )
    blocks: int = whole(12, "Transformer encoder blocks L of the encoder", 1, 1024)
    width: int = whole(256, "model width d", 1, 65536)
    feedforward: int = whole(1024, "feed-forward width d_ff", 1, 1048576)
    heads: int = whole(4, "attention heads a, a divisor of the width", 1, 1024)
    sequence_length: int = whole(64, "tokens per sample q", 1, 65536)
    vocabulary: int = whole(
        8000, "tokens in the CU's embedding, with those that stand for no text", 4, 10_000_000
    )
    style: Style = field("pre-ln", "style of blocks and embedding")
    learned_positions: int = whole(
        0, "rows of the table of learned positions, at least q with style bert or gpt2, otherwise 0", 0, 65536
    )
    token_types: int = whole(0, "rows of the table of token types, style bert only", 0, 1024)
    kv_heads: int = whole(0, "heads of keys and values, a divisor of heads, style llama; 0 for all", 0, 1024)
    qkv_bias: bool = switch(False, "biases of queries, keys and values (Qwen2), style llama")
    rope_theta: float = real(10_000.0, "base of the rotary frequencies, style llama only", "(1, 1e12]")
    rope_factor: float = real(1.0, "factor that stretches slow rotations (Llama 3), style llama", "[1, 1e6]")
    rope_original_length: int = whole(
        8192, "tokens that unstretched rotations were trained for", 1, 10_000_000
    )
    norm_epsilon: float = real(1e-5, "number added to variances in norms, styles gpt2 and llama", "(0, 1e-2]")
    tied_head: bool = switch(False, "the embedding is also the language model's head, styles gpt2 and llama")
    decoder_blocks: int = whole(0, "decoder blocks L_dec on the server, 0 for a bare task head", 0, 1024)
    outputs: int = whole(2, "classes, tags or target vocabulary V_out", 1, 10_000_000)
    batch_size: int = whole(64, "samples of a cluster's mini-batch B", 1, 65536)
    local_steps: int = whole(1, "local optimiser steps per round H", 1, 1024)
    local_steps_choices: tuple[Steps, ...] = field(
        (1, 2, 4, 8, 16),
        "numbers of local steps that a cluster may take where decisions list local_steps, in ascending "
        "order; range 1 to 1024 each, at least one",
    )
    micro_batches: tuple[Count, ...] = field(
        (),
        "allowed numbers of micro-batches M_n, divisors of batch_size in ascending order; range 1 to "
        "batch_size each, empty for all divisors",
    )
    activation_bits: Bits = field(32, "precision of the activations sent over a hop; bits per number")
    gradient_bits: Bits = field(32, "precision of the gradients sent over a hop; bits per number")
    weight_bits: Literal[8, 16, 32] = field(16, "precision in which updates are sent; bits per number")
    update_compression: Literal["none", "top-k", "lora"] = field(
        "none",
        "part of an update that is sent: all of it, the largest entries with error feedback, or low-rank "
        "adapters",
    )
    top_k_share: float = real(0.1, "share of a block's update that top-k sends", "(0, 1]")
    lora_rank: int = whole(8, "rank of the adapters of lora", 1, 4096)
    lora_alpha: float = real(16.0, "scale of lora's adapters: their product counts alpha / rank", "(0, 1e6]")
    distribution: Literal["cu", "relay"] = field(
        "cu", "way of new weights to the devices: free once a CU has them, or sent on by the CU"
    )
    head: Literal["copies", "common"] = field(
        "copies",
        "server's head within a round of several local steps: a copy for each cluster, or one for all that "
        "every local step waits for",
    )
    stored_activation_bits: Bits = field(32, "precision of activations that are kept; bits per number")
    train_bits: Bits = field(32, "precision of weights and gradients on devices; bits per number")
    moment_bits: Literal[8, 32] = field(32, "precision of optimiser moments on devices; bits per number")
    recompute: bool = switch(
        False, "devices store the input of each block only and run it forward once more in its backward pass"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        require_heads(self.style, self.width, self.heads, self.kv_heads)
        require_ordered("micro_batches", self.micro_batches)
        require_ordered("local_steps_choices", self.local_steps_choices, least="number, [1] for instance")
        for count in self.micro_batches:
            if self.batch_size % count:
                raise ValueError(
                    f"micro_batches holds {count}, which does not divide batch_size = {self.batch_size}; "
                    f"its divisors are {', '.join(map(str, _divisors(self.batch_size)))}"
                )
        # Registered tasks are checked when the scenario is priced: reading a file does not import their code.
        traits = SHIPPED_TRAITS.get(self.task)
        if traits is not None and traits.decoder and self.decoder_blocks == 0:
            raise ValueError(f"task = {self.task!r} needs decoder_blocks of at least 1, not 0")
        self._require_style_fields()
        self._require_half_precision()
        if traits is not None and traits.causal and self.outputs != self.vocabulary:
            raise ValueError(
                f"task = {self.task!r} predicts its own tokens, but outputs = {self.outputs} differs from "
                f"vocabulary = {self.vocabulary}; make them equal"
            )
        if self.update_compression == "lora" and self.lora_rank > min(self.width, self.feedforward):
            raise ValueError(
                f"lora_rank = {self.lora_rank} is above the smaller of width = {self.width} and "
                f"feedforward = {self.feedforward}; adapters of that rank save nothing"
            )
        return self

    def _require_style_fields(self) -> None:
        """Refuse fields of which the style needs another value, or which it does not read."""
        w = self
        if w.style in ("bert", "gpt2") and w.learned_positions < w.sequence_length:
            raise ValueError(
                f"style = {w.style!r} needs learned_positions of at least sequence_length = "
                f"{w.sequence_length}, not {w.learned_positions}"
            )
        for name, owners in OWNERS.items():
            value, neutral = getattr(w, name), getattr(WorkloadSpec, name)
            if w.style not in owners and value != neutral:
                raise ValueError(
                    f"{name} = {value} needs style = {' or '.join(map(repr, owners))}, but style is "
                    f"{w.style!r}; set it to {neutral}"
                )
        if w.style in CAUSAL and w.decoder_blocks:
            raise ValueError(
                f"decoder_blocks = {w.decoder_blocks}, but style = {w.style!r} is a decoder itself and has "
                "none that reads it; set decoder_blocks to 0"
            )
        if w.tied_head and w.update_compression == "top-k":
            raise ValueError(
                "tied_head = True moves every row of the table in every round, but update_compression = "
                "'top-k' sends some entries only; set tied_head to False or choose another compression"
            )

    def _require_half_precision(self) -> None:
        """Refuse 32-bit activations in a 16-bit model."""
        wide = [name for name in _FOLLOWING if getattr(self, name) != 16]
        if self.train_bits == 16 and wide:
            raise ValueError(
                f"train_bits = 16 makes activations of 16 bits, but {' and '.join(wide)} "
                f"{'is' if len(wide) == 1 else 'are'} 32; set {'it' if len(wide) == 1 else 'them'} to 16"
            )

    @property
    def micro_batch_choices(self) -> tuple[int, ...]:
        """Allowed numbers of micro-batches in ascending order, with the empty default spelt out."""
        return self.micro_batches or _divisors(self.batch_size)

    @property
    def kv_width(self) -> int:
        """Size of a token's keys, and of its values: the width unless groups of heads share them."""
        return self.width // self.heads * (self.kv_heads or self.heads)

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the CU's embedding: its tables and, with style bert, its layer norm."""
        rows = self.vocabulary + self.learned_positions + self.token_types
        return (rows + (2 if self.style == "bert" else 0)) * self.width


def _divisors(number: int) -> tuple[int, ...]:
    """Return all divisors in ascending order."""
    small = [k for k in range(1, math.isqrt(number) + 1) if number % k == 0]
    return tuple(sorted({*small, *(number // k for k in small)}))
