"""Places of the parameters of GPT-2, Llama and Qwen2 in a checkpoint in Hugging Face format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from collapipe_env.models.architecture import Architecture

STEMS = {"gpt2": ("transformer.", ""), "llama": ("model.", "")}
"""Beginnings of the tensors' names, by style; the first is used in files that are written."""
TABLES = {"gpt2": "wte.weight", "llama": "embed_tokens.weight"}
"""Table of tokens, by style, without the stem."""
HEAD = "lm_head.weight"
"""Matrix of a head that is not tied; its name has no stem."""

_GPT2_MAPS = {"qkv": "attn.c_attn", "out": "attn.c_proj", "up": "mlp.c_fc", "down": "mlp.c_proj"}


@dataclass(frozen=True)
class Place:
    """Tensors that a parameter consists of.

    Attributes:
        ours: Name of the parameter in the cluster's model, or in the head.
        sources: Names of the checkpoint's tensors without the stem, stacked in this order, and their numbers
            of rows; 0 for all rows.
        transposed: Whether the checkpoint has the matrix transposed.
    """

    ours: str
    sources: tuple[tuple[str, int], ...]
    transposed: bool = False


def model_places(architecture: Architecture) -> Iterator[Place]:
    """Yield the places of a cluster's model.

    Args:
        architecture: Sizes; style ``gpt2`` or ``llama``.
    """
    yield Place("embedding.weight", ((TABLES[architecture.style], 0),))
    if architecture.style == "gpt2":
        yield Place("embedding.positions", (("wpe.weight", 0),))
        for i in range(architecture.blocks):
            yield from _gpt2_block(i)
        return
    for i in range(architecture.blocks):
        yield from _llama_block(architecture, i)


def head_places(architecture: Architecture) -> Iterator[Place]:
    """Yield the places of a language model's head, except its matrix.

    Args:
        architecture: Sizes; style ``gpt2`` or ``llama``.
    """
    if architecture.style == "gpt2":
        yield Place("norm_gain", (("ln_f.weight", 0),))
        yield Place("norm_bias", (("ln_f.bias", 0),))
    else:
        yield Place("norm_gain", (("norm.weight", 0),))


def _gpt2_block(i: int) -> Iterator[Place]:
    for ours, theirs in _GPT2_MAPS.items():
        yield Place(f"blocks.{i}.{ours}_weight", ((f"h.{i}.{theirs}.weight", 0),), transposed=True)
        yield Place(f"blocks.{i}.{ours}_bias", ((f"h.{i}.{theirs}.bias", 0),))
    for number in (1, 2):
        yield Place(f"blocks.{i}.norm{number}_gain", ((f"h.{i}.ln_{number}.weight", 0),))
        yield Place(f"blocks.{i}.norm{number}_bias", ((f"h.{i}.ln_{number}.bias", 0),))


def _llama_block(architecture: Architecture, i: int) -> Iterator[Place]:
    d, f, kv = architecture.width, architecture.feedforward, architecture.kv_width
    layer, block = f"layers.{i}", f"blocks.{i}"
    parts = tuple(zip(("q_proj", "k_proj", "v_proj"), (d, kv, kv), strict=True))
    for kind in ("weight", "bias") if architecture.qkv_bias else ("weight",):
        sources = tuple((f"{layer}.self_attn.{name}.{kind}", rows) for name, rows in parts)
        yield Place(f"{block}.qkv_{kind}", sources)
    yield Place(f"{block}.out_weight", ((f"{layer}.self_attn.o_proj.weight", 0),))
    gates = tuple((f"{layer}.mlp.{name}.weight", f) for name in ("gate_proj", "up_proj"))
    yield Place(f"{block}.up_weight", gates)
    yield Place(f"{block}.down_weight", ((f"{layer}.mlp.down_proj.weight", 0),))
    yield Place(f"{block}.norm1_gain", ((f"{layer}.input_layernorm.weight", 0),))
    yield Place(f"{block}.norm2_gain", ((f"{layer}.post_attention_layernorm.weight", 0),))
