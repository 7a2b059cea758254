"""Checkpoints in Hugging Face format as initial weights: their layers become the pipeline's blocks.

Only local folders are read, and nothing in them is executed: ``model.safetensors`` holds nothing but tensors,
and pickles (``pytorch_model.bin``) are not read. Modules on top of BERT's encoder (pooler, classifiers,
language-model heads) are ignored. The heads of GPT-2, Llama and Qwen2 are read.

Names of tensors may begin with what wrappers of a model add (:data:`WRAPPERS`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from collapipe_env.ground.errors import CheckpointError, shown
from collapipe_env.models.architecture import Architecture
from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.models.hf_config import (
    CONFIG,
    ENTRIES,
    FETCH_ANEW,
    MERGE,
    ROTATIONS,
    checkpoint_folder,
    read_config,
    read_settings,
    reading,
)
from collapipe_env.models.hf_places import HEAD, STEMS, place_of, places_of
from collapipe_env.models.language_head import LanguageHead

WEIGHT_FILES = ("model.safetensors", "model.safetensors.index.json")
"""Files that may hold the weights; the first that exists is read."""

WRAPPERS = re.compile(r"(module\.|_orig_mod\.|base_model\.model\.)*")
"""Beginnings that data-parallel training, ``torch.compile`` and PEFT add to the names of all tensors."""

REAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""Types of weights that are read."""


def load_into(model: ClusterModel, folder: str | Path, head: nn.Module | None = None) -> None:
    """Overwrite a model's embedding and blocks with those of a checkpoint, and a language model's head.

    Everything is read and checked before the first weight is written, so an error leaves the model unchanged.
    Weights in half precision are converted to the model's precision.

    Args:
        head: The server's module. The head of a language model is also read; any other head stays unchanged.

    Raises:
        CheckpointError: If the folder, a file or a tensor is missing, damaged or of another shape, if the
            checkpoint's family is unknown, or if its sizes contradict the model's.
    """
    path = checkpoint_folder(folder)
    _check_sizes(model.architecture, read_config(path), path)
    file, tensors = _read_tensors(path)
    found = _values(model, head, tensors, file)
    with torch.no_grad():
        for parameter, value in found:
            parameter.copy_(value)


def _values(
    model: ClusterModel, head: nn.Module | None, tensors: Mapping[str, Tensor], file: Path
) -> list[tuple[nn.Parameter, Tensor]]:
    """Return the parameters of the model, and of a language model's head, with their values."""
    sizes = model.architecture
    stems, (table,) = STEMS[sizes.style], place_of(sizes, "embedding.weight", (1, 1)).sources
    stem = next((stem for stem in stems if stem + table in tensors), None)
    if stem is None:
        raise CheckpointError(
            f"{file} has no tensor {table!r}, with or without {stems[0]!r} before it, so it holds no model "
            f"of style {sizes.style!r}; choose another checkpoint"
        )
    found = []
    for owner, name, place in places_of(model, head, stem):
        parts = [_tensor(tensors, source, shape, file) for source, shape in place.sources.items()]
        found.append((owner.get_parameter(name), place.joined(parts)))
    if isinstance(head, LanguageHead) and head.tied:
        shape = tuple(head.weight.shape)
        matrix = _tensor(tensors, stem + table, shape, file)
        # transformers keeps a head of its own; here the workload says whether there is one, as it is priced.
        if HEAD in tensors and not torch.equal(_tensor(tensors, HEAD, shape, file).float(), matrix.float()):
            raise CheckpointError(
                f"{file}: {HEAD!r} differs from {stem + table!r}, but {CONFIG} says that the head is the "
                "table (tie_word_embeddings: true); to keep the head, set tie_word_embeddings and "
                "workload.tied_head to false"
            )
        found.append((head.weight, matrix))
    return found


def _check_sizes(architecture: Architecture, config: Mapping[str, Any], folder: Path) -> None:
    """Refuse a checkpoint of another size or style; the error names all differences."""
    entries = {**ENTRIES[config["style"]], **ROTATIONS}
    most = read_settings(folder / CONFIG).get("max_position_embeddings")
    if isinstance(most, int) and architecture.sequence_length > most:
        raise CheckpointError(
            f"{folder / CONFIG}: max_position_embeddings is {most}, below workload.sequence_length = "
            f"{architecture.sequence_length}, and the checkpoint has no such rows; lower sequence_length"
        )
    sizes = {**vars(architecture), "kv_heads": architecture.key_heads}
    differences = [
        f"workload.{field} is {sizes[field]!r} but "
        f"{entries[field].key if field in entries else f'the {field} of its model_type'} is {shown(value)}"
        for field, value in config.items()
        if sizes[field] != value
    ]
    if differences:
        raise CheckpointError(
            f"{folder / CONFIG} contradicts the scenario: {'; '.join(differences)}. Give the workload the "
            "checkpoint's sizes (with learning.proxy off), or choose another checkpoint"
        )


def _read_tensors(folder: Path) -> tuple[Path, dict[str, Tensor]]:
    """Return the file that was read, for messages, and the tensors by their names."""
    file = next((folder / name for name in WEIGHT_FILES if (folder / name).is_file()), None)
    if file is None:
        raise CheckpointError(
            f"{folder} holds no weights; it needs one of {', '.join(WEIGHT_FILES)} (pickles such as "
            f"pytorch_model.bin are not read): {FETCH_ANEW}, or save it anew with save_pretrained"
        )
    names = {file.name}
    if file.suffix == ".json":
        shards = read_settings(file).get("weight_map")
        if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
            raise CheckpointError(f"{file} has no weight_map that names the files of tensors; {FETCH_ANEW}")
        names = set(shards.values())
    tensors: dict[str, Tensor] = {}
    for name in sorted(names):
        shard = folder / name
        if shard.parent != folder or shard.suffix != ".safetensors" or not os.path.isfile(shard):
            raise CheckpointError(
                f"{file} names the file {shown(name)}, but there is no such weight file in the folder; "
                f"{FETCH_ANEW}"
            )
        with reading(shard):
            tensors.update(load_file(shard))
    return file, _unwrapped(tensors, file)


def _unwrapped(tensors: dict[str, Tensor], file: Path) -> dict[str, Tensor]:
    """Return the tensors by the names that they have without wrappers; refuse adapters beside them."""
    wrapped = WRAPPERS.match(os.path.commonprefix(list(tensors)))  # noqa: RUF071 - no paths
    assert wrapped is not None  # it may be empty
    tensors = {name.removeprefix(wrapped[0]): tensor for name, tensor in tensors.items()}
    for name in tensors:
        if ".base_layer." in name or ".lora_" in name:
            raise CheckpointError(f"{file} holds the tensor {shown(name)} of an adapter; {MERGE}")
    return tensors


def _tensor(tensors: Mapping[str, Tensor], name: str, shape: tuple[int, ...], file: Path) -> Tensor:
    """Return a tensor, found by its present or its former name and checked."""
    former = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
    tensor = tensors.get(name, tensors.get(former))
    if tensor is None:
        raise CheckpointError(f"{file} lacks the tensor {name!r}; {FETCH_ANEW}")
    if tuple(tensor.shape) != shape:
        raise CheckpointError(
            f"{file}: tensor {name!r} has the shape {tuple(tensor.shape)}, but {CONFIG} implies {shape}; "
            f"{FETCH_ANEW}"
        )
    # In the narrowest type that may be trained: numbers in float64 can exceed its range.
    if tensor.dtype not in REAL or not tensor.to(torch.bfloat16).isfinite().all():
        raise CheckpointError(
            f"{file}: tensor {name!r} ({tensor.dtype}) must hold finite floating-point numbers of 16, 32 or "
            f"64 bits; {FETCH_ANEW}"
        )
    return tensor
