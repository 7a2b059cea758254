"""The description of a checkpoint in Hugging Face format; free of PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from collapipe_env.ground.errors import CheckpointError, DataError, shown
from collapipe_env.ground.files import read_json
from collapipe_env.ground.typed_paths import given_path
from collapipe_env.models.hf_language_config import FAMILIES, language_fields

CONFIG = "config.json"
ADAPTER = "adapter_config.json"
"""File of PEFT that says that a folder holds an adapter."""
MERGE = "merge it into its model with PEFT (merge_and_unload, then save_pretrained) and give the new folder"
"""Remedy for adapters, which are not read."""

KEYS: Mapping[str, str] = MappingProxyType(
    {
        "blocks": "num_hidden_layers",
        "width": "hidden_size",
        "feedforward": "intermediate_size",
        "heads": "num_attention_heads",
        "vocabulary": "vocab_size",
        "learned_positions": "max_position_embeddings",
        "token_types": "type_vocab_size",
    }
)
"""Key of each workload field in BERT's ``config.json``."""

# Key, test of its value, the format's default, and the words of the message about what is supported.
_REQUIRED: tuple[tuple[str, Callable[[Any], bool], Any, str], ...] = (
    (
        "model_type",
        lambda value: value == "bert",
        "bert",
        f"only BERT, GPT-2, Llama and Qwen2 ({', '.join(map(repr, ('bert', *FAMILIES)))}) can be loaded",
    ),
    ("hidden_act", lambda value: value == "gelu", "gelu", "the trained blocks have the exact GELU ('gelu')"),
    (
        "position_embedding_type",
        lambda value: value in (None, "absolute"),
        "absolute",
        "only absolute positions ('absolute') are supported",
    ),
    (
        "layer_norm_eps",
        lambda value: isinstance(value, int | float) and math.isclose(value, 1e-12, rel_tol=1e-6),
        1e-12,
        "the trained layer norms have BERT's 1e-12",
    ),
    ("pad_token_id", lambda value: value in (None, 0), 0, "padding must be token 0"),
    ("is_decoder", lambda value: not value, False, "only encoders are supported"),
    ("add_cross_attention", lambda value: not value, False, "only encoders are supported"),
)


def read_config(folder: str | Path) -> dict[str, Any]:
    """Return the sizes in a checkpoint's ``config.json`` as fields of a workload.

    Args:
        folder: The checkpoint's local folder.

    Returns:
        ``style``, ``blocks``, ``width``, ``feedforward``, ``heads``, ``vocabulary`` and the style's further
        fields (``learned_positions`` and ``token_types`` of ``bert``; see
        :func:`~collapipe_env.models.hf_language_config.language_fields`). A workload and an
        :class:`~collapipe_env.models.architecture.Architecture` have the same fields.

    Raises:
        CheckpointError: If the folder or file is missing or damaged, or describes anything but a plain BERT
            encoder, GPT-2, Llama or Qwen2.
    """
    path = checkpoint_folder(folder) / CONFIG
    try:
        config = read_json(path, "give the folder of a checkpoint in Hugging Face format")
    except DataError as error:
        raise CheckpointError(str(error)) from None
    if config.get("model_type") in FAMILIES:
        return language_fields(config, path)
    for key, fits, default, supported in _REQUIRED:
        value = config.get(key, default)
        if not fits(value):
            raise CheckpointError(
                f"{path}: {key} is {shown(value)}, but {supported}; choose another checkpoint"
            )
    fields: dict[str, Any] = {"style": "bert"}
    for field, key in KEYS.items():
        value = config.get(key)
        least = 0 if field == "token_types" else 1
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            found = f"{key} is {shown(value)}" if key in config else f"{key} is missing"
            raise CheckpointError(
                f"{path}: {found}; it must be an integer of at least {least}, so this is not a usable BERT "
                "checkpoint"
            )
        fields[field] = value
    if fields["width"] % fields["heads"]:
        raise CheckpointError(
            f"{path}: {KEYS['heads']} = {fields['heads']} does not divide {KEYS['width']} = "
            f"{fields['width']}; the file contradicts itself, fetch it again"
        )
    return fields


def checkpoint_folder(folder: str | Path) -> Path:
    """Return a checkpoint's folder, with ``~`` expanded.

    Raises:
        CheckpointError: If there is no such folder, or it holds an adapter that is not merged.
    """
    try:
        path = given_path(str(folder))
    except DataError as error:
        raise CheckpointError(f"checkpoint {error}") from None
    if not path.is_dir():
        raise CheckpointError(
            f"checkpoint {shown(str(folder))} is not a folder; give the local folder of a checkpoint with "
            f"{CONFIG} in it (nothing is downloaded)"
        )
    if (path / ADAPTER).exists():
        raise CheckpointError(f"{path} holds an adapter ({ADAPTER}), not a whole model; {MERGE}")
    return path
