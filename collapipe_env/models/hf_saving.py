"""Language models written as folders in Hugging Face format, which transformers loads."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from collapipe_env.ground.errors import CheckpointError, DataError, shown
from collapipe_env.ground.files import read_json, read_regular
from collapipe_env.models.architecture import CAUSAL_STYLES, Architecture
from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.models.hf_config import CONFIG, checkpoint_folder
from collapipe_env.models.hf_language_places import HEAD, STEMS, head_places, model_places
from collapipe_env.models.hf_tokenizer import LARGEST
from collapipe_env.models.language_head import LanguageHead
from collapipe_env.models.lora import Adapter
from collapipe_env.models.rotary import HIGH_FREQUENCY, LOW_FREQUENCY

WEIGHTS = (
    ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".gguf", ".onnx", ".onnx_data", ".ot",
    ".npz", ".npy", ".pkl",
)  # fmt: skip
"""Endings of files of weights, which are not copied."""
_TEMPLATES = "additional_chat_templates"
"""Folder of further chat templates, as transformers writes it."""

SHARD_BYTES = 4 * 1024**3
"""Most bytes of tensors in a file of weights."""

_CLASSES = {"gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}


def save_checkpoint(
    folder: str | Path,
    model: ClusterModel,
    head: nn.Module,
    source: str | Path | None = None,
    shard_bytes: int = SHARD_BYTES,
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
        shard_bytes: Most bytes of tensors in a file.
        tokenizer: Tokeniser to write, where there is no such folder.
        end: Id of its token that ends texts.

    Raises:
        CheckpointError: If the folder is not empty or cannot be written, or the model has another style.
    """
    sizes = model.architecture
    if sizes.style not in CAUSAL_STYLES or not isinstance(head, LanguageHead):
        raise CheckpointError(
            f"a model of style {sizes.style!r} with a {type(head).__name__} cannot be saved in Hugging Face "
            f"format; only {' and '.join(map(repr, CAUSAL_STYLES))} with a language model's head can"
        )
    path, origin = Path(folder), None if source is None else checkpoint_folder(source)
    ends = {} if end is None else {"bos_token_id": end, "eos_token_id": end}
    config = {**_further(origin), **_config(sizes), **ends}
    partial, made = path / ".partial", not path.exists()
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise CheckpointError(f"{path} is not empty; name a new folder for the checkpoint")
        partial.mkdir()
        _write_tensors(partial, dict(_tensors(model, head)), shard_bytes)
        _write_json(partial / CONFIG, config)
        if origin is not None:
            _copy_texts(origin, partial)
        if tokenizer is not None and end is not None:
            _write_tokenizer(partial, tokenizer, end)
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

    These are texts in UTF-8, such as vocabularies and chat templates, and tokenisers of SentencePiece. Links
    may lead to other files of the folder, or of the Hub's cache that the folder belongs to.
    """
    inside = origin.resolve()
    cached = inside.parent.name == "snapshots"
    within = (inside, inside.parents[1] / "blobs") if cached else (inside,)
    outside = []
    for file in (*sorted(origin.iterdir()), *sorted((origin / _TEMPLATES).glob("*.jinja"))):
        name = file.name
        if (
            name == CONFIG
            or name.startswith(".")
            or name.endswith(".index.json")
            or file.suffix.lower() in WEIGHTS
        ):
            continue
        real = Path(os.path.realpath(file))  # resolve() fails at links that lead in a circle
        if not any(real.is_relative_to(folder) for folder in within):
            outside.append(name)
            continue
        try:
            content = read_regular(real, LARGEST)
            if file.suffix != ".model" and "\0" in content.decode("utf-8"):
                continue
        except (OSError, UnicodeDecodeError):  # no regular file, too large, or no text
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


def _write_tokenizer(path: Path, tokenizer: Tokenizer, end: int) -> None:
    """Write a tokeniser in the form that ``transformers`` reads."""
    options = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": tokenizer.id_to_token(end),
        "clean_up_tokenization_spaces": False,
    }
    tokenizer.save(str(path / "tokenizer.json"))
    _write_json(path / "tokenizer_config.json", options)


def _tensors(model: ClusterModel, head: LanguageHead) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a checkpoint by their names."""
    sizes = model.architecture
    stem = STEMS[sizes.style][0]
    for owner, places in ((model, model_places(sizes)), (head, head_places(sizes))):
        for place in places:
            value = _value(owner, place.ours)
            if place.transposed:
                value = value.T
            rows = [own or len(value) for _, own in place.sources]
            for (name, _), part in zip(place.sources, torch.split(value, rows), strict=True):
                yield stem + name, part.contiguous().clone()
    if not head.tied:
        yield HEAD, _value(head, "weight").clone()


def _value(owner: nn.Module, name: str) -> Tensor:
    """Return a parameter in float32 on the CPU, with its adapter added."""
    value = owner.get_parameter(name).detach()
    parent, _, own = name.rpartition(".")
    adapters = getattr(owner.get_submodule(parent), "adapters", {})
    key = own.removesuffix("_weight")
    if own.endswith("_weight") and key in adapters:
        adapter = adapters[key]
        assert isinstance(adapter, Adapter)
        value = value + adapter.scale * (adapter.up.detach() @ adapter.down.detach())
    return value.to("cpu", torch.float32)


def _write_tensors(path: Path, tensors: dict[str, Tensor], shard_bytes: int) -> None:
    """Write one file, or several with an index."""
    shards: list[dict[str, Tensor]] = [{}]
    held = 0
    for name, tensor in tensors.items():
        if shards[-1] and held + tensor.nbytes > shard_bytes:
            shards.append({})
            held = 0
        shards[-1][name] = tensor
        held += tensor.nbytes
    if len(shards) == 1:
        save_file(shards[0], path / "model.safetensors", {"format": "pt"})
        return
    index: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, path / file, {"format": "pt"})
        index |= dict.fromkeys(shard, file)
    content = {
        "metadata": {"total_size": sum(tensor.nbytes for tensor in tensors.values())},
        "weight_map": index,
    }
    _write_json(path / "model.safetensors.index.json", content)


def _further(origin: Path | None) -> dict[str, Any]:
    """Return the source's configuration without rotations and number types, which are written anew."""
    if origin is None:
        return {}
    try:
        config = read_json(origin / CONFIG, "fetch the checkpoint again")
    except DataError as error:
        raise CheckpointError(str(error)) from None
    told_anew = ("rope_scaling", "rope_parameters", "rope_theta", "torch_dtype", "quantization_config")
    return {key: value for key, value in config.items() if key not in told_anew}


def _config(sizes: Architecture) -> dict[str, Any]:
    """Return the configuration of a model's sizes."""
    family = "gpt2" if sizes.style == "gpt2" else "qwen2" if sizes.qkv_bias else "llama"
    common = {
        "model_type": family,
        "architectures": [_CLASSES[family]],
        "vocab_size": sizes.vocabulary,
        "tie_word_embeddings": sizes.tied_head,
        "dtype": "float32",
    }
    if family == "gpt2":
        return common | {
            "n_layer": sizes.blocks,
            "n_embd": sizes.width,
            "n_inner": sizes.feedforward,
            "n_head": sizes.heads,
            "n_positions": sizes.learned_positions,
            "layer_norm_epsilon": sizes.norm_epsilon,
            "activation_function": "gelu_new",
        }
    stretched = {
        "rope_type": "llama3",
        "factor": sizes.rope_factor,
        "low_freq_factor": LOW_FREQUENCY,
        "high_freq_factor": HIGH_FREQUENCY,
        "original_max_position_embeddings": sizes.rope_original_length,
    }
    scaling = stretched if sizes.rope_factor != 1.0 else None
    return common | {
        "num_hidden_layers": sizes.blocks,
        "hidden_size": sizes.width,
        "intermediate_size": sizes.feedforward,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads or sizes.heads,
        "rms_norm_eps": sizes.norm_epsilon,
        "hidden_act": "silu",
        # Both spellings: transformers 5 reads the last entry, earlier versions the first two.
        "rope_theta": sizes.rope_theta,
        "rope_scaling": scaling,
        "rope_parameters": {"rope_theta": sizes.rope_theta, **(scaling or {"rope_type": "default"})},
    }
