"""Places of a model's parameters in a checkpoint in Hugging Face format."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from collapipe_env.models.architecture import Architecture
from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.models.language_head import LanguageHead

STEMS = {"bert": ("bert.", ""), "gpt2": ("transformer.", ""), "llama": ("model.", "")}
"""Beginnings of the tensors' names, by style; the first is used in files that are written."""
HEAD = "lm_head.weight"
"""Matrix of a head; its name has no stem."""

_LAYERS = {"bert": "encoder.layer", "gpt2": "h", "llama": "layers"}

# Our names, without "blocks.i." and without what kind of parameter it is, and the tensors that are stacked.
_NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "bert": {
        "embedding.weight": ("embeddings.word_embeddings",),
        "embedding.positions": ("embeddings.position_embeddings",),
        "embedding.types": ("embeddings.token_type_embeddings",),
        "embedding.norm": ("embeddings.LayerNorm",),
        "qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
        "out": ("attention.output.dense",),
        "up": ("intermediate.dense",),
        "down": ("output.dense",),
        "norm1": ("attention.output.LayerNorm",),
        "norm2": ("output.LayerNorm",),
    },
    "gpt2": {
        "embedding.weight": ("wte",),
        "embedding.positions": ("wpe",),
        "qkv": ("attn.c_attn",),
        "out": ("attn.c_proj",),
        "up": ("mlp.c_fc",),
        "down": ("mlp.c_proj",),
        "norm1": ("ln_1",),
        "norm2": ("ln_2",),
        "norm": ("ln_f",),
    },
    "llama": {
        "embedding.weight": ("embed_tokens",),
        "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "out": ("self_attn.o_proj",),
        "up": ("mlp.gate_proj", "mlp.up_proj"),
        "down": ("mlp.down_proj",),
        "norm1": ("input_layernorm",),
        "norm2": ("post_attention_layernorm",),
        "norm": ("norm",),
    },
}


class Place(NamedTuple):
    """Tensors of a checkpoint that are stacked to a parameter: shapes by names, whether it is transposed."""

    sources: dict[str, tuple[int, ...]]
    transposed: bool = False

    def joined(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return the parameter's value from those of the tensors."""
        whole = torch.cat(list(tensors))
        return whole.T if self.transposed else whole

    def parted(self, value: Tensor) -> dict[str, Tensor]:
        """Return copies of the tensors, by their names, from the parameter's value."""
        whole = value.T if self.transposed else value
        parts = torch.split(whole, [shape[0] for shape in self.sources.values()])
        return {source: part.clone() for source, part in zip(self.sources, parts, strict=True)}


def places_of(
    model: ClusterModel, head: nn.Module | None, stem: str
) -> Iterator[tuple[nn.Module, str, Place]]:
    """Yield each parameter of a model that has a place of its own in a checkpoint: owner, name there, place.

    Adapters have none, nor has the matrix of a tied head, nor any head but a language model's.

    Args:
        stem: Beginning of the tensors' names, one of :data:`STEMS`.
    """
    for owner in (model, head) if isinstance(head, LanguageHead) else (model,):
        for name, parameter in owner.named_parameters():
            if ".adapters." in name or (name == "weight" and model.architecture.tied_head):
                continue
            yield owner, name, place_of(model.architecture, name, tuple(parameter.shape), stem)


def place_of(architecture: Architecture, name: str, shape: tuple[int, ...], stem: str = "") -> Place:
    """Return the place of a parameter of a cluster's model, or of a language model's head.

    Name and shape are those in its module; the style is ``bert``, ``gpt2`` or ``llama``.
    """
    if name == "weight":
        return Place({HEAD: shape})
    style = architecture.style
    match = re.fullmatch(r"(?:blocks\.(\d+)\.)?([^_]+)(?:_(\w+))?", name)
    assert match is not None
    layer, part, kind = match.groups()
    stem += "" if layer is None else f"{_LAYERS[style]}.{layer}."
    ending = "bias" if kind == "bias" else "weight"
    sources = [f"{stem}{source}.{ending}" for source in _NAMES[style][part]]
    # The Conv1D of GPT-2's authors keeps its matrices transposed.
    transposed = style == "gpt2" and layer is not None and kind == "weight"
    whole, *columns = reversed(shape) if transposed else shape
    rows = [whole // len(sources)] * len(sources)
    if part == "qkv" and style == "llama":
        rows = [architecture.width, architecture.kv_width, architecture.kv_width]
    return Place({k: (number, *columns) for k, number in zip(sources, rows, strict=True)}, transposed)
