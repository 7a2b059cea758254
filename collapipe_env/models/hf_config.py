"""The description of a checkpoint in Hugging Face format; free of PyTorch."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from collapipe_env.ground.errors import CheckpointError, DataError, reason, shown
from collapipe_env.ground.files import read_json
from collapipe_env.ground.typed_paths import given_path
from collapipe_env.models.architecture import HIGH_FREQUENCY, LOW_FREQUENCY

CONFIG = "config.json"
ADAPTER = "adapter_config.json"
"""File of PEFT that says that a folder holds an adapter."""
MERGE = "merge it into its model with PEFT (merge_and_unload, then save_pretrained) and give the new folder"
"""Remedy for adapters, which are not read."""
FETCH_ANEW = "fetch the checkpoint again"

STYLES = {"bert": "bert", "gpt2": "gpt2", "llama": "llama", "qwen2": "llama"}
"""Style of each supported ``model_type``."""


class Entry(NamedTuple):
    """An entry of ``config.json`` that a workload has a field for, of a kind in ``_KINDS``.

    The default is the format's value where the file has none; ``...`` where it must have one.
    """

    key: str
    kind: str
    default: Any = ...


_SIZES = {
    "blocks": Entry("num_hidden_layers", "size"),
    "width": Entry("hidden_size", "size"),
    "feedforward": Entry("intermediate_size", "size"),
    "heads": Entry("num_attention_heads", "size"),
    "vocabulary": Entry("vocab_size", "size"),
}
ENTRIES: Mapping[str, Mapping[str, Entry]] = {
    "bert": {
        **_SIZES,
        "learned_positions": Entry("max_position_embeddings", "size"),
        "token_types": Entry("type_vocab_size", "count"),
    },
    "gpt2": {
        "blocks": Entry("n_layer", "size"),
        "width": Entry("n_embd", "size"),
        "feedforward": Entry("n_inner", "size", None),
        "heads": Entry("n_head", "size"),
        "vocabulary": Entry("vocab_size", "size"),
        "learned_positions": Entry("n_positions", "size"),
        "norm_epsilon": Entry("layer_norm_epsilon", "number", 1e-5),
        "tied_head": Entry("tie_word_embeddings", "flag", True),
    },
    "llama": {
        **_SIZES,
        "kv_heads": Entry("num_key_value_heads", "size", None),
        "norm_epsilon": Entry("rms_norm_eps", "number", 1e-6),
        "tied_head": Entry("tie_word_embeddings", "flag", False),
    },
}
"""Entry of each field of a workload, by style, without the rotations of ``llama``."""

ROTATIONS = {
    "rope_theta": Entry("rope_theta", "number", 10_000.0),
    "rope_factor": Entry("factor", "number"),
    "rope_original_length": Entry("original_max_position_embeddings", "size"),
}
"""Entries of Llama's rotations; the last two where they are stretched."""

_KINDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "size": (lambda value: type(value) is int and value >= 1, "an integer of at least 1"),
    "count": (lambda value: type(value) is int and value >= 0, "an integer of at least 0"),
    "number": (lambda value: type(value) in (int, float) and 0 < value < 1e18, "a number above 0"),
    "flag": (lambda value: type(value) is bool, "true or false"),
}

# Key, supported values (the format's default first), and the reason, for the message.
_Limits = tuple[tuple[str, tuple[object, ...], str], ...]
_ENCODER = "only encoders are supported"
_LLAMA: _Limits = (
    ("hidden_act", ("silu",), "the trained blocks have SwiGLU ('silu')"),
    ("mlp_bias", (False,), "the trained feed-forward maps have no biases"),
    ("use_sliding_window", (False,), "only full attention is supported"),
)
SUPPORTED: Mapping[str, _Limits] = {
    "bert": (
        ("hidden_act", ("gelu",), "the trained blocks have the exact GELU ('gelu')"),
        ("position_embedding_type", ("absolute",), "only absolute positions ('absolute') are supported"),
        ("layer_norm_eps", (1e-12,), "the trained layer norms have BERT's 1e-12"),
        ("pad_token_id", (0,), "padding must be token 0"),
        ("is_decoder", (False,), _ENCODER),
        ("add_cross_attention", (False,), _ENCODER),
    ),
    "gpt2": (
        ("activation_function", ("gelu_new", "gelu_pytorch_tanh"), "the trained GELU has its tanh form"),
        ("scale_attn_weights", (True,), "the trained blocks scale their scores"),
        ("scale_attn_by_inverse_layer_idx", (False,), "the trained blocks scale all scores alike"),
        ("add_cross_attention", (False,), "only language models are supported"),
    ),
    "llama": (*_LLAMA, ("attention_bias", (False,), "only Qwen2's biases are supported")),
    "qwen2": _LLAMA,
}
_ROPE: _Limits = (
    ("rope_type", ("default", "llama3"), "only plain rotations ('default') and Llama 3's are supported"),
)
LLAMA3: _Limits = (
    ("low_freq_factor", (LOW_FREQUENCY,), "the trained blocks have Llama 3's 1"),
    ("high_freq_factor", (HIGH_FREQUENCY,), "the trained blocks have Llama 3's 4"),
)


def read_config(folder: str | Path) -> dict[str, Any]:
    """Return the sizes in a checkpoint's ``config.json`` as fields of a workload.

    Returns:
        ``style`` and the fields of :data:`ENTRIES`; for Llama and Qwen2 also ``qkv_bias``, ``rope_theta``,
        ``rope_factor`` and, where that is not 1, ``rope_original_length``. A workload and an
        :class:`~collapipe_env.models.architecture.Architecture` have the same fields.

    Raises:
        CheckpointError: If the folder or file is missing or damaged, contradicts itself, or describes
            anything but a plain BERT encoder, GPT-2, Llama or Qwen2.
    """
    path = checkpoint_folder(folder) / CONFIG
    config = read_settings(path, "give the folder of a checkpoint in Hugging Face format")
    family = config.get("model_type", "bert")
    if not isinstance(family, str) or family not in STYLES:
        raise CheckpointError(
            f"{path}: model_type is {shown(family)}, but only BERT, GPT-2, Llama and Qwen2 "
            f"({', '.join(map(repr, STYLES))}) can be loaded; choose another checkpoint"
        )
    _require(config, SUPPORTED[family], path)
    style = STYLES[family]
    fields = {"style": style, **read_entries(config, ENTRIES[style], path)}
    if fields["feedforward"] is None:
        fields["feedforward"] = 4 * fields["width"]
    if style == "llama":
        fields["kv_heads"] = fields["kv_heads"] or fields["heads"]
        fields |= {"qkv_bias": family == "qwen2", **_rotations(config, path)}
    for part, whole in (("heads", "width"), ("kv_heads", "heads")):
        if part in fields and fields[whole] % fields[part]:
            raise CheckpointError(
                f"{path}: {ENTRIES[style][part].key} = {fields[part]} does not divide "
                f"{ENTRIES[style][whole].key} = {fields[whole]}; the file contradicts itself, {FETCH_ANEW}"
            )
    head_width = fields["width"] // fields["heads"]
    _require(config, (("head_dim", (head_width,), f"the trained heads have {head_width} numbers"),), path)
    return fields


def checkpoint_folder(folder: str | Path) -> Path:
    """Return a checkpoint's folder, with ``~`` expanded.

    Raises:
        CheckpointError: If there is no such folder, or it holds an adapter that is not merged.
    """
    with reading("checkpoint "):
        path = given_path(str(folder))
    if not path.is_dir():
        raise CheckpointError(
            f"checkpoint {shown(str(folder))} is not a folder; give the local folder of a checkpoint with "
            f"{CONFIG} in it (nothing is downloaded)"
        )
    if (path / ADAPTER).exists():
        raise CheckpointError(f"{path} holds an adapter ({ADAPTER}), not a whole model; {MERGE}")
    return path


def read_settings(path: Path, remedy: str = FETCH_ANEW) -> dict[str, Any]:
    """Return the content of a JSON file of a checkpoint.

    Raises:
        CheckpointError: If it cannot be read or holds no object.
    """
    with reading():
        return read_json(path, remedy)


@contextlib.contextmanager
def reading(what: object = "") -> Iterator[None]:
    """Turn whatever the reading of a checkpoint's file raises into one error.

    Args:
        what: The file; errors that name it themselves are only preceded by this.

    Raises:
        CheckpointError: In place of another error; the libraries that read files have no class of their own.
    """
    try:
        yield
    except CheckpointError:
        raise
    except DataError as error:
        raise CheckpointError(f"{what}{error}") from None
    except OSError as error:
        raise CheckpointError(f"cannot read {what} ({error.strerror or error}); {FETCH_ANEW}") from None
    except Exception as error:
        raise CheckpointError(
            f"cannot read {what} ({type(error).__name__}: {reason(error, longest=120)}): it is damaged, or a "
            f"pointer of Git LFS; {FETCH_ANEW}, or run `git lfs pull` in its folder"
        ) from None


def _rotations(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the fields of rotary positions, from the keys of present or earlier files."""
    key = "rope_parameters" if config.get("rope_parameters") is not None else "rope_scaling"
    scaling = config.get(key)
    if not isinstance(scaling, dict | None):
        raise CheckpointError(f"{path}: {key} is {shown(scaling)}; it must be a mapping, {FETCH_ANEW}")
    scaling = {"rope_theta": config.get("rope_theta"), **(scaling or {})}
    scaling.setdefault("rope_type", scaling.get("type"))
    _require(scaling, _ROPE, path)
    wanted = ["rope_theta"]
    if scaling["rope_type"] == "llama3":
        _require(scaling, LLAMA3, path)
        wanted += ["rope_factor"] if scaling.get("factor") == 1 else ["rope_factor", "rope_original_length"]
    return {"rope_factor": 1.0, **read_entries(scaling, {name: ROTATIONS[name] for name in wanted}, path)}


def _require(config: Mapping[str, Any], limits: _Limits, path: Path) -> None:
    """Refuse an entry that has none of the supported values; null stands for the default."""
    for key, supported, why in limits:
        value = config.get(key)
        if value is None or value in supported:
            continue
        # Files keep some numbers with the digits of single precision only.
        if isinstance(value, float) and any(
            isinstance(one, float) and math.isclose(value, one, rel_tol=1e-6) for one in supported
        ):
            continue
        raise CheckpointError(f"{path}: {key} is {shown(value)}, but {why}; choose another checkpoint")


def read_entries(config: Mapping[str, Any], entries: Mapping[str, Entry], path: Path) -> dict[str, Any]:
    """Return entries by the names of a workload's fields."""
    fields: dict[str, Any] = {}
    for field, (key, kind, default) in entries.items():
        value: Any = config.get(key)
        fits, words = _KINDS[kind]
        if value is None and default is not ...:
            value = default
        elif not fits(value):
            found = f"{key} is {shown(value)}" if key in config else f"{key} is missing"
            raise CheckpointError(f"{path}: {found}; it must be {words}, so this is not a usable checkpoint")
        fields[field] = float(value) if kind == "number" else value
    return fields
