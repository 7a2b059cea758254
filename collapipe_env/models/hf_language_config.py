"""The description of a checkpoint of GPT-2, Llama or Qwen2 in Hugging Face format; free of PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from collapipe_env.ground.errors import CheckpointError, shown

FAMILIES = ("gpt2", "llama", "qwen2")
"""Supported values of ``model_type``."""

_LLAMA_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "blocks": "num_hidden_layers",
        "width": "hidden_size",
        "feedforward": "intermediate_size",
        "heads": "num_attention_heads",
        "kv_heads": "num_key_value_heads",
        "vocabulary": "vocab_size",
        "norm_epsilon": "rms_norm_eps",
        "tied_head": "tie_word_embeddings",
        "rope_theta": "rope_theta",
        "rope_factor": "rope_scaling.factor",
        "rope_original_length": "rope_scaling.original_max_position_embeddings",
        "qkv_bias": "the bias of model_type",
    }
)
LANGUAGE_KEYS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "gpt2": MappingProxyType(
            {
                "blocks": "n_layer",
                "width": "n_embd",
                "feedforward": "n_inner",
                "heads": "n_head",
                "vocabulary": "vocab_size",
                "learned_positions": "n_positions",
                "norm_epsilon": "layer_norm_epsilon",
                "tied_head": "tie_word_embeddings",
            }
        ),
        "llama": _LLAMA_KEYS,
    }
)
"""Key of each workload field in ``config.json``, by style."""

# Key, supported values (the format's default first), and the reason, for the message.
_GPT2_REQUIRED: tuple[tuple[str, tuple[object, ...], str], ...] = (
    (
        "activation_function",
        ("gelu_new", "gelu_pytorch_tanh"),
        "the trained blocks have GELU by its tanh form",
    ),
    ("scale_attn_weights", (True,), "the trained blocks scale their scores"),
    ("scale_attn_by_inverse_layer_idx", (False,), "the trained blocks scale all scores alike"),
    ("add_cross_attention", (False,), "only language models are supported"),
)
_LLAMA_REQUIRED: tuple[tuple[str, tuple[object, ...], str], ...] = (
    ("hidden_act", ("silu",), "the trained blocks have SwiGLU ('silu')"),
    ("mlp_bias", (False,), "the trained feed-forward maps have no biases"),
    ("attention_bias", (False,), "only Qwen2's biases are supported"),
    ("use_sliding_window", (False,), "only full attention is supported"),
)
_QWEN2_REQUIRED = tuple(row for row in _LLAMA_REQUIRED if row[0] != "attention_bias")
_PLAIN_ROPE = ("default", None)
_LLAMA3_BANDS = (("low_freq_factor", 1.0), ("high_freq_factor", 4.0))


def language_fields(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the sizes in a language model's ``config.json`` as fields of a workload.

    Args:
        config: Its content; ``model_type`` is one of :data:`FAMILIES`.
        path: Its path, for messages.

    Returns:
        ``style`` (``"gpt2"`` or ``"llama"``), ``blocks``, ``width``, ``feedforward``, ``heads``,
        ``vocabulary``, ``norm_epsilon`` and ``tied_head``; ``learned_positions`` of GPT-2; ``kv_heads``,
        ``qkv_bias``, ``rope_theta``, ``rope_factor`` and, where that is not 1, ``rope_original_length`` of
        Llama and Qwen2.

    Raises:
        CheckpointError: If the file contradicts itself, or describes anything that the styles do not have.
    """
    family = config["model_type"]
    required = {"gpt2": _GPT2_REQUIRED, "llama": _LLAMA_REQUIRED, "qwen2": _QWEN2_REQUIRED}[family]
    for key, supported, reason in required:
        value = config.get(key, supported[0])
        if value is not None and not any(value is one or value == one for one in supported):
            raise CheckpointError(f"{path}: {key} is {shown(value)}, but {reason}; choose another checkpoint")
    fields = _gpt2_fields(config, path) if family == "gpt2" else _llama_fields(config, path)
    keys = LANGUAGE_KEYS[fields["style"]]
    for part, whole in (("heads", "width"), ("kv_heads", "heads")):
        if part in fields and fields[whole] % fields[part]:
            raise CheckpointError(
                f"{path}: {keys[part]} = {fields[part]} does not divide {keys[whole]} = {fields[whole]}; the "
                "file contradicts itself, fetch it again"
            )
    head_dim = config.get("head_dim")
    if head_dim is not None and head_dim != fields["width"] // fields["heads"]:
        raise CheckpointError(
            f"{path}: head_dim is {shown(head_dim)}, but the trained heads have {keys['width']} / "
            f"{keys['heads']} = {fields['width'] // fields['heads']} numbers; choose another checkpoint"
        )
    return fields


def _gpt2_fields(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    width = _whole(config, "n_embd", path)
    inner = config.get("n_inner")
    return {
        "style": "gpt2",
        "blocks": _whole(config, "n_layer", path),
        "width": width,
        "feedforward": 4 * width if inner is None else _whole(config, "n_inner", path),
        "heads": _whole(config, "n_head", path),
        "vocabulary": _whole(config, "vocab_size", path),
        "learned_positions": _whole(config, "n_positions", path),
        "norm_epsilon": _real(config, "layer_norm_epsilon", 1e-5, path),
        "tied_head": _flag(config, "tie_word_embeddings", True, path),
    }


def _llama_fields(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    heads = _whole(config, "num_attention_heads", path)
    shared = config.get("num_key_value_heads")
    return {
        "style": "llama",
        "blocks": _whole(config, "num_hidden_layers", path),
        "width": _whole(config, "hidden_size", path),
        "feedforward": _whole(config, "intermediate_size", path),
        "heads": heads,
        "kv_heads": heads if shared is None else _whole(config, "num_key_value_heads", path),
        "vocabulary": _whole(config, "vocab_size", path),
        "norm_epsilon": _real(config, "rms_norm_eps", 1e-6, path),
        "tied_head": _flag(config, "tie_word_embeddings", False, path),
        "qkv_bias": config["model_type"] == "qwen2",
        **_rotary_fields(config, path),
    }


def _rotary_fields(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the fields of rotary positions, from the keys of present or earlier files."""
    key = "rope_parameters" if config.get("rope_parameters") is not None else "rope_scaling"
    scaling = config.get(key)
    if scaling is None:
        scaling = {}
    if not isinstance(scaling, dict):
        raise CheckpointError(f"{path}: {key} is {shown(scaling)}; it must be a mapping, fetch it again")
    base = scaling if "rope_theta" in scaling else config
    fields: dict[str, Any] = {"rope_theta": _real(base, "rope_theta", 10_000.0, path), "rope_factor": 1.0}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind in _PLAIN_ROPE:
        return fields
    if kind != "llama3":
        raise CheckpointError(
            f"{path}: {key} has rope_type {shown(kind)}, but only plain rotations ('default') and Llama 3's "
            "('llama3') are supported; choose another checkpoint"
        )
    for name, needed in _LLAMA3_BANDS:
        if _real(scaling, name, needed, path) != needed:
            raise CheckpointError(
                f"{path}: {name} is {shown(scaling[name])}, but the trained blocks have Llama 3's {needed:g};"
                " choose another checkpoint"
            )
    fields["rope_factor"] = _real(scaling, "factor", None, path)
    if fields["rope_factor"] != 1.0:
        fields["rope_original_length"] = _whole(scaling, "original_max_position_embeddings", path)
    return fields


def _whole(config: Mapping[str, Any], key: str, path: Path) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise CheckpointError(
            f"{path}: {_found(config, key)}; it must be an integer of at least 1, so this is not a usable "
            "checkpoint"
        )
    return value


def _real(config: Mapping[str, Any], key: str, default: float | None, path: Path) -> float:
    value = config.get(key, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e18:
        raise CheckpointError(
            f"{path}: {_found(config, key)}; it must be a number above 0, so this is not a usable checkpoint"
        )
    return float(value)


def _flag(config: Mapping[str, Any], key: str, default: bool, path: Path) -> bool:
    value = config.get(key, default)
    if not isinstance(value, bool):
        raise CheckpointError(f"{path}: {key} is {shown(value)}; it must be true or false")
    return value


def _found(config: Mapping[str, Any], key: str) -> str:
    return f"{key} is {shown(config[key])}" if key in config else f"{key} is missing"
