"""Workload fields that only some styles of blocks have."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

Style = Literal["pre-ln", "transformer", "bert", "gpt2", "llama"]
"""Styles of blocks and embedding."""
CAUSAL = ("gpt2", "llama")
"""Styles of language models."""

OWNERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "learned_positions": ("bert", "gpt2"),
        "token_types": ("bert",),
        **dict.fromkeys(("norm_epsilon", "tied_head"), CAUSAL),
        **dict.fromkeys(
            ("kv_heads", "qkv_bias", "rope_theta", "rope_factor", "rope_original_length"), ("llama",)
        ),
    }
)
"""Styles that read a field; it has its default in every other style."""

LANGUAGE_FIELDS = tuple(OWNERS)[2:]
"""Fields of the styles of language models."""


def style_fields(workload: object, style: str) -> dict[str, Any]:
    """Return the fields of language models that a style reads, except its heads of keys and values.

    Args:
        workload: The workload, possibly of another style; fields that it lacks are then neutral.
    """
    names = (name for name in LANGUAGE_FIELDS if name != "kv_heads" and style in OWNERS[name])
    return {name: getattr(workload, name) for name in names}


def require_heads(style: str | None, width: int, heads: int, kv_heads: int) -> None:
    """Refuse heads that do not divide the width, or that style ``llama`` cannot rotate or share.

    Args:
        kv_heads: Heads of keys and values; 0 for as many as ``heads``.

    Raises:
        ValueError: Names the fields and their values.
    """
    if width % heads:
        raise ValueError(f"heads = {heads} does not divide width = {width}")
    if style != "llama":
        return
    if width // heads % 2:
        raise ValueError(
            f"heads = {heads} of width = {width} have {width // heads} numbers each, but the rotary positions"
            " of style = 'llama' turn pairs of them; choose heads so that width / heads is even"
        )
    if kv_heads and heads % kv_heads:
        raise ValueError(f"kv_heads = {kv_heads} does not divide heads = {heads}")
