"""The workload section of a scenario: the priced Transformer and how one round trains it."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic.dataclasses import dataclass

from collapipe_env.ground.errors import nearest_name, shown
from collapipe_env.scenario.decision_names import STEP_CHOICES
from collapipe_env.scenario.fields import (
    SPEC_CONFIG,
    Count,
    described,
    real,
    require_ordered,
    whole,
)
from collapipe_env.scenario.style_fields import CAUSAL, LANGUAGE_FIELDS, owners_of, require_heads
from collapipe_env.scenario.task_registry import SHIPPED_TRAITS, task_names
from collapipe_env.scenario.validation_errors import refuse_clearly

Bits = Literal[16, 32]
_FOLLOWING = ("stored_activation_bits", "activation_bits", "gradient_bits")
"""Bits of the numbers that a model in bfloat16 produces."""
Steps = Annotated[int, Field(strict=True, ge=1, le=1024)]


def _known_task(name: str) -> str:
    if name not in task_names():
        raise ValueError(f"there is no task {shown(name)}; {nearest_name(name, task_names())}")
    return name


@refuse_clearly
@dataclass(frozen=True, kw_only=True, config=SPEC_CONFIG)
class WorkloadSpec:
    """The priced Transformer and its training in one round: all delays and energies are computed for it."""

    task: Annotated[
        str,
        AfterValidator(_known_task),
        described(
            "the learning task; no unit, one of classification, language-modelling, ner, translation, or a "
            "registered one"
        ),
    ] = "classification"
    blocks: Annotated[int, whole("Transformer encoder blocks L of the encoder", 1, 1024)] = 12
    width: Annotated[int, whole("model width d", 1, 65536)] = 256
    feedforward: Annotated[int, whole("feed-forward width d_ff", 1, 1048576)] = 1024
    heads: Annotated[int, whole("attention heads a, a divisor of the width", 1, 1024)] = 4
    sequence_length: Annotated[int, whole("tokens per sample q", 1, 65536)] = 64
    vocabulary: Annotated[
        int, whole("tokens in the CU's embedding, up to 4 that stand for no text among them", 4, 10_000_000)
    ] = 8000
    style: Annotated[
        Literal["pre-ln", "transformer", "bert", "gpt2", "llama"],
        described("style of blocks and embedding; no unit, one of pre-ln, transformer, bert, gpt2, llama"),
    ] = "pre-ln"
    learned_positions: Annotated[
        int,
        whole(
            "rows of the table of learned positions, at least q with style bert or gpt2, otherwise 0",
            0,
            65536,
        ),
    ] = 0
    token_types: Annotated[int, whole("rows of the table of token types, style bert only", 0, 1024)] = 0
    kv_heads: Annotated[
        int, whole("heads of keys and values, a divisor of heads, style llama only; 0 for all", 0, 1024)
    ] = 0
    qkv_bias: Annotated[
        bool,
        Field(
            strict=True,
            description="biases of queries, keys and values (Qwen2), style llama; no unit, true or false",
        ),
    ] = False
    rope_theta: Annotated[
        float, real("base of the rotary frequencies, style llama only", "1", gt=1.0, le=1e12)
    ] = 10_000.0
    rope_factor: Annotated[
        float,
        real("factor by which slow rotations are stretched (Llama 3), style llama", "1", ge=1.0, le=1e6),
    ] = 1.0
    rope_original_length: Annotated[
        int, whole("tokens that rotations were trained for before they were stretched", 1, 10_000_000)
    ] = 8192
    norm_epsilon: Annotated[
        float, real("number added to variances in norms, styles gpt2 and llama", "1", gt=0.0, le=1e-2)
    ] = 1e-5
    tied_head: Annotated[
        bool,
        Field(
            strict=True,
            description="the embedding table also serves as the language model's head, styles gpt2 and "
            "llama only; no unit, true or false",
        ),
    ] = False
    decoder_blocks: Annotated[
        int, whole("decoder blocks L_dec on the server, 0 for a bare task head", 0, 1024)
    ] = 0
    outputs: Annotated[int, whole("classes, tags or target vocabulary V_out", 1, 10_000_000)] = 2
    batch_size: Annotated[int, whole("samples of a cluster's mini-batch B", 1, 65536)] = 64
    local_steps: Annotated[int, whole("local optimiser steps per round H", 1, 1024)] = 1
    local_steps_choices: Annotated[
        tuple[Steps, ...],
        described(
            "numbers of local steps that a cluster may take where decisions list local_steps, in ascending "
            "order; range 1 to 1024 each, at least one"
        ),
    ] = STEP_CHOICES
    micro_batches: Annotated[
        tuple[Count, ...],
        described(
            "allowed numbers of micro-batches M_n, divisors of batch_size in ascending order; "
            "range 1 to batch_size each, empty for all divisors"
        ),
    ] = ()
    activation_bits: Annotated[
        Bits, described("precision of the activations sent over a hop; bits per number, one of 16, 32")
    ] = 32
    gradient_bits: Annotated[
        Bits, described("precision of the gradients sent over a hop; bits per number, one of 16, 32")
    ] = 32
    weight_bits: Annotated[
        Literal[8, 16, 32],
        described(
            "precision to which model updates are quantised and sent; bits per number, one of 8, 16, 32"
        ),
    ] = 16
    update_compression: Annotated[
        Literal["none", "top-k", "lora"],
        described(
            "part of an update that is sent: all of it, the largest entries with error feedback, or low-rank "
            "adapters; no unit, one of none, top-k, lora"
        ),
    ] = "none"
    top_k_share: Annotated[float, real("share of a block's update that top-k sends", "1", gt=0.0, le=1.0)] = (
        0.1
    )
    lora_rank: Annotated[int, whole("rank of the adapters of lora", 1, 4096)] = 8
    lora_alpha: Annotated[
        float, real("scale of lora's adapters: their product counts alpha / rank", "1", gt=0.0, le=1e6)
    ] = 16.0
    distribution: Annotated[
        Literal["cu", "relay"],
        described(
            "way of new weights to the devices: free once a CU has them, or sent on by the CU; no unit, one "
            "of cu, relay"
        ),
    ] = "cu"
    head: Annotated[
        Literal["copies", "common"],
        described(
            "server's head within a round of several local steps: a copy for each cluster, or one for all "
            "that every local step waits for; no unit, one of copies, common"
        ),
    ] = "copies"
    stored_activation_bits: Annotated[
        Bits,
        described("precision of the activations kept for the backward pass; bits per number, one of 16, 32"),
    ] = 32

    train_bits: Annotated[
        Bits,
        described("precision of the weights and gradients that devices keep; bits per number, one of 16, 32"),
    ] = 32
    moment_bits: Annotated[
        Literal[8, 32],
        described("precision of the optimiser moments that devices keep; bits per number, one of 8, 32"),
    ] = 32
    recompute: Annotated[
        bool,
        Field(
            strict=True,
            description="devices store the input of each block only and run it forward once more in its "
            "backward pass; no unit, true or false",
        ),
    ] = False

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"heads = {self.heads} does not divide width = {self.width}")
        require_ordered("micro_batches", self.micro_batches)
        if not self.local_steps_choices:
            raise ValueError("local_steps_choices must hold at least one number, [1] for instance")
        require_ordered("local_steps_choices", self.local_steps_choices)
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
        for name, neutral in {"learned_positions": 0, "token_types": 0, **LANGUAGE_FIELDS}.items():
            value, owners = getattr(w, name), owners_of(name)
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
        if w.style == "llama":
            require_heads(w.width, w.heads, w.kv_heads)
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
