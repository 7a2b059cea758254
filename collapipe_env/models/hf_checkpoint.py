"""Checkpoints in Hugging Face format as initial weights: their layers become the pipeline's blocks.

Only local folders are read, and nothing in them is executed: ``model.safetensors`` holds nothing but tensors,
and ``pytorch_model.bin`` is read with PyTorch's ``weights_only``. Modules on top of BERT's encoder (pooler,
classifiers, language-model heads) are ignored. The heads of GPT-2, Llama and Qwen2 are read.

Names of tensors may begin with what wrappers of a model add (:data:`WRAPPERS`).
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from collapipe_env.ground.archives import open_zip, require_tensors
from collapipe_env.ground.errors import CheckpointError, DataError, reason, shown
from collapipe_env.ground.files import read_json
from collapipe_env.models.architecture import CAUSAL_STYLES, Architecture
from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.models.hf_config import CONFIG, KEYS, MERGE, checkpoint_folder, read_config
from collapipe_env.models.hf_language_config import LANGUAGE_KEYS
from collapipe_env.models.hf_language_places import HEAD, STEMS, TABLES, Place, head_places, model_places
from collapipe_env.models.hf_tokenizer import checkpoint_tokenizer
from collapipe_env.models.language_head import LanguageHead

__all__ = ["checkpoint_tokenizer", "load_into", "read_config"]

WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
"""Files that may hold the weights; the first that exists is read."""

WRAPPERS = re.compile(r"(module\.|_orig_mod\.|base_model\.model\.)*")
"""Beginnings that data-parallel training, ``torch.compile`` and PEFT add to the names of all tensors."""

REAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""Types of weights that are read."""

FETCH_ANEW = "fetch the checkpoint again"


def load_into(model: ClusterModel, folder: str | Path, head: nn.Module | None = None) -> None:
    """Overwrite a model's embedding and blocks with those of a checkpoint, and a language model's head.

    Everything is read and checked before the first weight is written, so an error leaves the model unchanged.
    Weights in half precision are converted to the model's precision.

    Args:
        model: A model of the checkpoint's style and sizes.
        folder: The checkpoint's local folder.
        head: The server's module. The head of a language model is also read; any other head stays unchanged.

    Raises:
        CheckpointError: If the folder, a file or a tensor is missing, damaged or of another shape, if the
            checkpoint's family is unknown, or if its sizes contradict the model's.
    """
    path = checkpoint_folder(folder)
    _check_sizes(model.architecture, read_config(path), path)
    file, tensors = _read_tensors(path)
    found = (
        _language_model(model, head, tensors, file)
        if model.architecture.style in CAUSAL_STYLES
        else _bert(model, tensors, file)
    )
    with torch.no_grad():
        for parameter, value in found:
            parameter.copy_(value)


def _bert(
    model: ClusterModel, tensors: Mapping[str, Tensor], file: Path
) -> list[tuple[nn.Parameter, Tensor]]:
    """Return the parameters of a BERT encoder with their values."""
    prefix = next((p for p in ("bert.", "") if f"{p}{_TOKENS}" in tensors), None)
    if prefix is None:
        raise CheckpointError(
            f"{file} has no tensor {_TOKENS!r}, with or without 'bert.' before it, so it holds no BERT "
            "encoder; choose another checkpoint"
        )
    found = []
    for name, sources in _places(model.architecture):
        parameter = model.get_parameter(name)
        rows, *columns = parameter.shape
        shape = (rows // len(sources), *columns)
        parts = [_tensor(tensors, prefix + source, shape, file) for source in sources]
        found.append((parameter, torch.cat(parts)))
    return found


def _language_model(
    model: ClusterModel, head: nn.Module | None, tensors: Mapping[str, Tensor], file: Path
) -> list[tuple[nn.Parameter, Tensor]]:
    """Return the parameters of a language model with their values."""
    sizes = model.architecture
    table = TABLES[sizes.style]
    stem = next((stem for stem in STEMS[sizes.style] if stem + table in tensors), None)
    if stem is None:
        raise CheckpointError(
            f"{file} has no tensor {table!r}, with or without {STEMS[sizes.style][0]!r} before it, so it "
            f"holds no model of style {sizes.style!r}; choose another checkpoint"
        )
    owners: list[tuple[nn.Module, Iterator[Place]]] = [(model, model_places(sizes))]
    found = []
    if isinstance(head, LanguageHead):
        owners.append((head, head_places(sizes)))
        table, shape = stem + table, tuple(head.weight.shape)
        matrix = _tensor(tensors, table if head.tied else HEAD, shape, file)
        # transformers keeps such a head; here the workload says whether there is one, as it is priced.
        if head.tied and HEAD in tensors:
            own = _tensor(tensors, HEAD, shape, file)
            if not torch.equal(own.float(), matrix.float()):
                raise CheckpointError(
                    f"{file}: {HEAD!r} differs from {table!r}, but {CONFIG} says that the head is the table "
                    "(tie_word_embeddings: true); to keep the head, set tie_word_embeddings and "
                    "workload.tied_head to false"
                )
        found.append((head.weight, matrix))
    for owner, places in owners:
        for place in places:
            parameter = owner.get_parameter(place.ours)
            rows, *columns = reversed(parameter.shape) if place.transposed else parameter.shape
            parts = [
                _tensor(tensors, stem + source, (own or rows, *columns), file)
                for source, own in place.sources
            ]
            whole = torch.cat(parts)
            found.append((parameter, whole.T if place.transposed else whole))
    return found


_TOKENS = "embeddings.word_embeddings.weight"


def _places(architecture: Architecture) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each of our parameters with the checkpoint's tensors whose stacked rows it consists of."""
    yield "embedding.weight", (_TOKENS,)
    yield "embedding.positions", ("embeddings.position_embeddings.weight",)
    if architecture.token_types:
        yield "embedding.types", ("embeddings.token_type_embeddings.weight",)
    yield "embedding.norm_gain", ("embeddings.LayerNorm.weight",)
    yield "embedding.norm_bias", ("embeddings.LayerNorm.bias",)
    maps = {
        "qkv": tuple(f"attention.self.{part}" for part in ("query", "key", "value")),
        "out": ("attention.output.dense",),
        "up": ("intermediate.dense",),
        "down": ("output.dense",),
    }
    norms = {"norm1": "attention.output.LayerNorm", "norm2": "output.LayerNorm"}
    for i in range(architecture.blocks):
        layer = f"encoder.layer.{i}"
        for ours, theirs in maps.items():
            for kind in ("weight", "bias"):
                yield f"blocks.{i}.{ours}_{kind}", tuple(f"{layer}.{source}.{kind}" for source in theirs)
        for ours, norm in norms.items():
            yield f"blocks.{i}.{ours}_gain", (f"{layer}.{norm}.weight",)
            yield f"blocks.{i}.{ours}_bias", (f"{layer}.{norm}.bias",)


def _check_sizes(architecture: Architecture, config: Mapping[str, object], folder: Path) -> None:
    """Refuse a checkpoint of another size or style; the error names all differences."""
    keys = LANGUAGE_KEYS.get(str(config["style"]), KEYS)
    most = read_json(folder / CONFIG, FETCH_ANEW).get("max_position_embeddings")
    if isinstance(most, int) and architecture.sequence_length > most:
        raise CheckpointError(
            f"{folder / CONFIG}: max_position_embeddings is {most}, below workload.sequence_length = "
            f"{architecture.sequence_length}, and the checkpoint has no such rows; lower sequence_length"
        )
    differences = [
        f"workload.{field} is {_size(architecture, field)!r} but {keys.get(field, 'the model type')} is "
        f"{shown(value)}"
        for field, value in config.items()
        if _size(architecture, field) != value
    ]
    if differences:
        raise CheckpointError(
            f"{folder / CONFIG} contradicts the scenario: {'; '.join(differences)}. Give the workload the "
            "checkpoint's sizes (with learning.proxy off), or choose another checkpoint"
        )


def _size(architecture: Architecture, field: str) -> object:
    """Return a field of an architecture; for ``kv_heads`` 0, the number of heads."""
    return (
        architecture.kv_heads or architecture.heads if field == "kv_heads" else getattr(architecture, field)
    )


def _read_tensors(folder: Path) -> tuple[Path, dict[str, Tensor]]:
    """Return the file that was read, for messages, and the tensors by their names."""
    file = next((folder / name for name in WEIGHT_FILES if (folder / name).is_file()), None)
    if file is None:
        raise CheckpointError(
            f"{folder} holds no weights; it needs one of {', '.join(WEIGHT_FILES)}: {FETCH_ANEW}"
        )
    if file.suffix != ".json":
        return file, _unwrapped(_read_file(file), file)
    try:
        shards = read_json(file, FETCH_ANEW).get("weight_map")
    except DataError as error:
        raise CheckpointError(str(error)) from None
    if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
        raise CheckpointError(f"{file} has no weight_map that names the files of the tensors; {FETCH_ANEW}")
    tensors: dict[str, Tensor] = {}
    for name in sorted(set(shards.values())):
        shard = folder / name
        if shard.parent != folder or shard.suffix not in (".safetensors", ".bin") or not _is_file(shard):
            raise CheckpointError(
                f"{file} names the file {shown(name)}, but there is no such weight file in the folder; "
                f"{FETCH_ANEW}"
            )
        tensors.update(_read_file(shard))
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


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long
        return False


def _read_file(file: Path) -> dict[str, Tensor]:
    try:
        if file.suffix == ".safetensors":
            content = load_file(file)
        else:
            if zipfile.is_zipfile(file):  # older versions of PyTorch wrote other files
                with open_zip(file) as archive:
                    require_tensors(archive, file.stat().st_size)
            content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged pickles may raise anything
        with file.open("rb") as stream:
            pointer = stream.read(16) == b"version https://"
        cause = (
            "it is a pointer of Git LFS: run `git lfs pull` in its folder"
            if pointer
            else f"it is damaged, or contains more than tensors, which is refused: {FETCH_ANEW}, preferably "
            "as model.safetensors"
        )
        raise CheckpointError(
            f"cannot read {file} ({type(error).__name__}: {reason(error, longest=120)}); {cause}"
        ) from None
    if not isinstance(content, dict):
        raise CheckpointError(
            f"{file} holds a {type(content).__name__} where a dictionary of tensors is expected; {FETCH_ANEW}"
        )
    return {
        name: value for name, value in content.items() if isinstance(name, str) and isinstance(value, Tensor)
    }


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
    usable = tensor.dtype in REAL and tensor.layout is torch.strided and tensor.device.type == "cpu"
    # In the narrowest type that may be trained: numbers in float64 can exceed its range.
    if not usable or not tensor.to(torch.bfloat16).isfinite().all():
        raise CheckpointError(
            f"{file}: tensor {name!r} ({tensor.dtype}) must hold finite floating-point numbers of 16, 32 or "
            f"64 bits; {FETCH_ANEW}"
        )
    return tensor
