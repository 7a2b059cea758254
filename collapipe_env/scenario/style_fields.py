"""Workload fields that only some styles of blocks have."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

CAUSAL = ("gpt2", "llama")
"""Styles of language models."""

LANGUAGE_FIELDS: Mapping[str, object] = MappingProxyType(
    {
        "kv_heads": 0,
        "qkv_bias": False,
        "rope_theta": 10_000.0,
        "rope_factor": 1.0,
        "rope_original_length": 8192,
        "norm_epsilon": 1e-5,
        "tied_head": False,
    }
)
"""Fields of the styles of language models, with the values that they have in every other style."""

_OF_LANGUAGE_MODELS = ("norm_epsilon", "tied_head")
"""Fields that both styles read; the others are for ``llama`` only."""


def style_fields(workload: object, style: str) -> dict[str, Any]:
    """Return the fields of a workload that a style reads, except its heads of keys and values.

    Args:
        workload: The workload, possibly of another style; fields that it lacks are then neutral.
        style: Style of the model that is trained.
    """
    return {
        name: getattr(workload, name)
        for name in LANGUAGE_FIELDS
        if name != "kv_heads" and style in owners_of(name)
    }


def owners_of(name: str) -> tuple[str, ...]:
    """Return the styles that read a field."""
    if name == "learned_positions":
        return ("bert", "gpt2")
    if name == "token_types":
        return ("bert",)
    return CAUSAL if name in _OF_LANGUAGE_MODELS else ("llama",)


def require_heads(width: int, heads: int, kv_heads: int) -> None:
    """Refuse heads that style ``llama`` cannot rotate or share.

    Args:
        width: Model width, a multiple of ``heads``.
        heads: Attention heads.
        kv_heads: Heads of keys and values; 0 for as many as ``heads``.

    Raises:
        ValueError: If a head's width is odd, or the number of heads is not a multiple of ``kv_heads``.
    """
    if width // heads % 2:
        raise ValueError(
            f"heads = {heads} of width = {width} have {width // heads} numbers each, but the rotary positions"
            " of style = 'llama' turn pairs of them; choose heads so that width / heads is even"
        )
    if kv_heads and heads % kv_heads:
        raise ValueError(f"kv_heads = {kv_heads} does not divide heads = {heads}")
