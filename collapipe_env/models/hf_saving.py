"""Language models written as folders in Hugging Face format, which transformers loads."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

from huggingface_hub import save_torch_state_dict
from safetensors import SafetensorError
from tokenizers import Tokenizer
from torch import Tensor, nn

from collapipe_env.ground.errors import CheckpointError, shown
from collapipe_env.ground.files import read_regular
from collapipe_env.models.architecture import Architecture
from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.models.hf_config import (
    CONFIG,
    ENTRIES,
    LLAMA3,
    SUPPORTED,
    checkpoint_folder,
    read_settings,
)
from collapipe_env.models.hf_places import STEMS, places_of
from collapipe_env.models.hf_tokenizer import LARGEST
from collapipe_env.models.language_head import LanguageHead
from collapipe_env.models.lora import Adapter
from collapipe_env.models.style_fields import CAUSAL

TEXTS = (".json", ".txt", ".md", ".jinja", ".model", "")
"""Endings of files that are copied beside the weights: texts, and tokenisers of SentencePiece."""
_TEMPLATES = "additional_chat_templates"
"""Folder of further chat templates, as transformers writes it."""

SHARD_BYTES = 4 * 1024**3
"""Most bytes of tensors in a file of weights."""

_TOLD_ANEW = ("rope_scaling", "rope_parameters", "rope_theta", "torch_dtype", "quantization_config")
_CLASSES = {"gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}


def save_checkpoint(
    folder: str | Path,
    model: ClusterModel,
    head: nn.Module,
    source: str | Path | None = None,
    tokenizer: Tokenizer | None = None,
    end: int | None = None,
) -> None:
    """Write a language model as ``config.json`` and ``model.safetensors`` in float32, sharded if it is large.

    Low-rank adapters are merged into the weights that they adapt, so the folder needs nothing else. On an
    error, nothing is left in the folder.

    Args:
        folder: Folder to create; it must be new or empty.
        model: Embedding and blocks of style ``gpt2`` or ``llama``.
        head: Its head, a :class:`~collapipe_env.models.language_head.LanguageHead`.
        source: Folder that the model was loaded from. Its tokeniser, chat templates and other texts are
            copied, and so are the entries of ``config.json`` that are not sizes (names of tokens, longest
            text). Weights, hidden files, files above
            :data:`~collapipe_env.models.hf_tokenizer.LARGEST` and links out of the folder are not.
        tokenizer: Tokeniser to write, where there is no such folder.
        end: Id of this tokeniser's token that ends texts.

    Raises:
        CheckpointError: If the folder is not empty or cannot be written, or the model has another style.
    """
    sizes = model.architecture
    if sizes.style not in CAUSAL or not isinstance(head, LanguageHead):
        raise CheckpointError(
            f"a model of style {sizes.style!r} with a {type(head).__name__} cannot be saved in Hugging Face "
            f"format; only {' and '.join(map(repr, CAUSAL))} with a language model's head can"
        )
    path, origin = Path(folder), None if source is None else checkpoint_folder(source)
    told = {} if origin is None else read_settings(origin / CONFIG)
    ends = {} if tokenizer is None else {"bos_token_id": end, "eos_token_id": end}
    config = {**{key: told[key] for key in told if key not in _TOLD_ANEW}, **_config(sizes), **ends}
    partial, made = path / ".partial", not path.exists()
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise CheckpointError(f"{path} is not empty; name a new folder for the checkpoint")
        partial.mkdir()
        save_torch_state_dict(_tensors(model, head), partial, max_shard_size=SHARD_BYTES)
        _write_json(partial / CONFIG, config)
        if origin is not None:
            _copy_texts(origin, partial)
        if tokenizer is not None and end is not None:
            tokenizer.save(str(partial / "tokenizer.json"))
            options = {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "eos_token": tokenizer.id_to_token(end),
                "clean_up_tokenization_spaces": False,
            }
            _write_json(partial / "tokenizer_config.json", options)
        # Without its configuration a folder is no checkpoint.
        for file in sorted(partial.iterdir(), key=lambda file: file.name == CONFIG):
            file.rename(path / file.name)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"cannot write the checkpoint {shown(str(path))} ({getattr(error, 'strerror', None) or error}); "
            "free some space, or name another folder"
        ) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        if made:
            with contextlib.suppress(OSError):  # it holds the checkpoint, or was never made
                path.rmdir()


def _copy_texts(origin: Path, path: Path) -> None:
    """Copy what a checkpoint's folder holds beside weights and configuration.

    Links may lead to other files of the folder, or of the Hub's cache that the folder belongs to.
    """
    inside = origin.resolve()
    cached = inside.parent.name == "snapshots"
    within = (inside, inside.parents[1] / "blobs") if cached else (inside,)
    outside = []
    for file in (*sorted(origin.iterdir()), *sorted((origin / _TEMPLATES).glob("*.jinja"))):
        name = file.name
        if name == CONFIG or name.startswith(".") or name.endswith(".index.json") or file.suffix not in TEXTS:
            continue
        real = Path(os.path.realpath(file))  # resolve() fails at links that lead in a circle
        if not any(real.is_relative_to(folder) for folder in within):
            outside.append(name)
            continue
        try:
            content = read_regular(real, LARGEST)
        except OSError:  # no regular file, or too large
            continue
        copy = path / file.relative_to(origin)
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(content)
    if outside:
        warnings.warn(
            f"checkpoint {origin}: links that lead out of the folder were not copied beside the saved model: "
            f"{', '.join(map(shown, outside))}; copy what you need of them",
            stacklevel=3,
        )


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _tensors(model: ClusterModel, head: LanguageHead) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint by their names."""
    places = places_of(model, head, STEMS[model.architecture.style][0])
    return {k: v for owner, name, place in places for k, v in place.parted(_value(owner, name)).items()}


def _value(owner: nn.Module, name: str) -> Tensor:
    """Return a parameter in float32 on the CPU, with its adapter added."""
    value = owner.get_parameter(name).detach().float()
    parent, _, own = name.rpartition(".")
    adapters = getattr(owner.get_submodule(parent), "adapters", {})
    key = own.removesuffix("_weight")
    if own.endswith("_weight") and key in adapters:
        adapter = adapters[key]
        assert isinstance(adapter, Adapter)
        value = value + adapter.scale * (adapter.up.detach().float() @ adapter.down.detach().float())
    return value.cpu()


def _config(sizes: Architecture) -> dict[str, Any]:
    """Return the configuration of a model's sizes."""
    family = "qwen2" if sizes.qkv_bias else sizes.style
    config = {
        "model_type": family,
        "architectures": [_CLASSES[family]],
        **{entry.key: getattr(sizes, field) for field, entry in ENTRIES[sizes.style].items()},
        **{key: values[0] for key, values, _ in SUPPORTED[family]},
        "dtype": "float32",
    }
    if sizes.style == "gpt2":
        return config
    scaling = None
    if sizes.rope_factor != 1.0:
        scaling = {
            "rope_type": "llama3",
            **{key: values[0] for key, values, _ in LLAMA3},
            "factor": sizes.rope_factor,
            "original_max_position_embeddings": sizes.rope_original_length,
        }
    return config | {
        "num_key_value_heads": sizes.key_heads,
        # Both spellings: transformers 5 reads the last entry, earlier versions the first two.
        "rope_theta": sizes.rope_theta,
        "rope_scaling": scaling,
        "rope_parameters": {"rope_theta": sizes.rope_theta, **(scaling or {"rope_type": "default"})},
    }
