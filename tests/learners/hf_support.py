"""Checkpoints to load: written plainly, or by transformers."""

import contextlib
import functools
import io
import json
import os
import warnings

import pytest
import torch
from safetensors.torch import load_file, save_file

from collapipe_env.models.architecture import Architecture
from collapipe_env.models.cluster_model import ClusterModel

LENGTH = 9
SIZES = {
    "vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4,
    "intermediate_size": 40, "max_position_embeddings": 12, "type_vocab_size": 2,
}  # fmt: skip
FIELDS = {
    "style": "bert", "blocks": 3, "width": 24, "feedforward": 40, "heads": 4, "vocabulary": 61,
    "learned_positions": 12, "token_types": 2,
}  # fmt: skip
EMBEDDING = "embeddings.word_embeddings.weight"


@functools.cache
def transformers():
    """The library, imported once and only by the tests that compare with it: it takes seconds."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library = pytest.importorskip("transformers", reason="compares with transformers (extra `dev`)")
        _ = library.BertModel, library.BertForTokenClassification, library.BertTokenizerFast
    return library


def tokens_and_mask():
    tokens = torch.randint(2, 61, (7, LENGTH), generator=torch.Generator().manual_seed(2))
    for row in range(7):
        tokens[row, 2 + row :] = 0
    return tokens, (tokens != 0).long()


def random_bert(kind="BertModel", attention="eager", **changes):
    """A BERT of transformers with weights large enough for every part to matter."""
    library = transformers()
    config = library.BertConfig(**{**SIZES, **changes}, attn_implementation=attention)
    with private_seed():
        bert = getattr(library, kind)(config).eval()
        with torch.no_grad():
            for parameter in bert.parameters():
                parameter.add_(torch.randn(parameter.shape) * 0.2)
    return bert


@contextlib.contextmanager
def private_seed():
    with torch.random.fork_rng([]):
        torch.manual_seed(11)
        yield


def save(bert, folder, **options):
    with contextlib.redirect_stderr(io.StringIO()):  # a progress bar
        bert.save_pretrained(folder, **options)


def model_of(**changes):
    sizes = {**FIELDS, "sequence_length": LENGTH, **changes}
    return ClusterModel(Architecture(**sizes), torch.Generator().manual_seed(0))


def write_checkpoint(folder, prefix="bert."):
    generator = torch.Generator().manual_seed(4)
    d, f = 24, 40
    shapes = {
        EMBEDDING: (61, d), "embeddings.position_embeddings.weight": (12, d),
        "embeddings.token_type_embeddings.weight": (2, d), "embeddings.LayerNorm.weight": (d,),
        "embeddings.LayerNorm.bias": (d,),
    }  # fmt: skip
    for i in range(3):
        layer = f"encoder.layer.{i}"
        for name, rows, columns in (
            ("attention.self.query", d, d), ("attention.self.key", d, d), ("attention.self.value", d, d),
            ("attention.output.dense", d, d), ("intermediate.dense", f, d), ("output.dense", d, f),
        ):  # fmt: skip
            shapes[f"{layer}.{name}.weight"], shapes[f"{layer}.{name}.bias"] = (rows, columns), (rows,)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"{layer}.{name}.weight"] = shapes[f"{layer}.{name}.bias"] = (d,)
    tensors = {prefix + k: torch.randn(s, generator=generator) for k, s in shapes.items()}
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", "hidden_act": "gelu", **SIZES}))


def edit_config(folder, **changes):
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not ...}))


def edit_tensors(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def weights(model):
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def assert_same(model, expected):
    for name, value in model.named_parameters():
        assert torch.equal(value, expected[name]), name
