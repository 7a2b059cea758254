"""Unusable checkpoints are refused with one clear error, and leave the model as it was."""

import json

import pytest
import torch
from hf_support import (
    EMBEDDING,
    assert_same,
    edit_config,
    edit_tensors,
    model_of,
    weights,
    write_checkpoint,
)

from collapipe_env.ground.errors import CheckpointError
from collapipe_env.models.hf_checkpoint import load_into, read_config


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint written without transformers: config.json and model.safetensors."""
    write_checkpoint(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "roberta"}, r"model_type is 'roberta', but only BERT"),
        ({"hidden_act": "gelu_new"}, r"hidden_act is 'gelu_new', but .*exact GELU"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps is 1e-05"),
        ({"pad_token_id": 1}, "pad_token_id is 1, but padding must be token 0"),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"hidden_size": ...}, "hidden_size is missing"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"vocab_size": "61"}, "vocab_size is '61'"),
        ({"num_attention_heads": 5}, "num_attention_heads = 5 does not divide hidden_size = 24"),
    ],
)
def test_unsupported_configs(changes, message, checkpoint):
    edit_config(checkpoint, **changes)
    with pytest.raises(CheckpointError, match=message) as refusal:
        load_into(model_of(), checkpoint)
    assert str(checkpoint / "config.json") in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"blocks": 2}, "workload.blocks is 2 but num_hidden_layers is 3"),
        ({"width": 32}, "workload.width is 32 but hidden_size is 24"),
        ({"feedforward": 41}, "workload.feedforward is 41 but intermediate_size is 40"),
        ({"heads": 2}, "workload.heads is 2 but num_attention_heads is 4"),
        ({"vocabulary": 62}, "workload.vocabulary is 62 but vocab_size is 61"),
        ({"learned_positions": 9}, "workload.learned_positions is 9 but max_position_embeddings is 12"),
        ({"token_types": 0}, "workload.token_types is 0 but type_vocab_size is 2"),
        ({"style": "pre-ln"}, "workload.style is 'pre-ln'"),
        ({"heads": 3, "blocks": 1}, "blocks is 1 .*; workload.heads is 3"),
    ],
)
def test_sizes_that_contradict_the_scenario(changes, message, checkpoint):
    model = model_of(**changes)
    before = weights(model)
    with pytest.raises(CheckpointError, match=message):
        load_into(model, checkpoint)
    assert_same(model, before)


def without(name):
    return lambda tensors: tensors.pop(f"bert.{name}")


def replaced(name, value):
    return lambda tensors: tensors.update({f"bert.{name}": value})


LAST = "encoder.layer.2.output.LayerNorm.bias"  # what is read last: nothing may be written before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without(EMBEDDING), "holds no BERT encoder"),
        (without(LAST), f"lacks the tensor 'bert.{LAST}'"),
        (replaced(LAST, torch.zeros(23)), r"has the shape \(23,\), but config.json implies \(24,\)"),
        (replaced(LAST, torch.zeros(24, dtype=torch.int64)), "must hold finite floating-point numbers"),
        (replaced(LAST, torch.full((24,), float("nan"))), "must hold finite floating-point numbers"),
        (replaced("encoder.layer.1.attention.self.key.weight", torch.zeros(24, 23)), r"\(24, 23\)"),
    ],
)
def test_unusable_tensors(change, message, checkpoint):
    edit_tensors(checkpoint, change)
    model = model_of()
    before = weights(model)
    with pytest.raises(CheckpointError, match=message) as refusal:
        load_into(model, checkpoint)
    assert "model.safetensors" in str(refusal.value)
    assert_same(model, before)


class Malicious:
    """Pickles to a call that would leave a file behind."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def test_pickles_are_never_executed(checkpoint):
    (checkpoint / "model.safetensors").unlink()
    torch.save({"bert": Malicious(checkpoint / "executed")}, checkpoint / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="more than tensors, which is refused"):
        load_into(model_of(), checkpoint)
    assert not (checkpoint / "executed").exists()


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "damaged"),
        (b"abc" * 50, "damaged"),
        (b"PK\x03\x04" + b"x" * 50, "damaged"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
    ],
)
def test_damaged_weights(file, content, message, checkpoint):
    (checkpoint / "model.safetensors").unlink()
    (checkpoint / file).write_bytes(content)
    with pytest.raises(CheckpointError, match=message) as refusal:
        load_into(model_of(), checkpoint)
    assert file in str(refusal.value)


def test_cut_off_weights(checkpoint):
    file = checkpoint / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"cannot read .*damaged"):
        load_into(model_of(), checkpoint)


def test_pickle_of_something_else(checkpoint):
    (checkpoint / "model.safetensors").unlink()
    torch.save([torch.zeros(2)], checkpoint / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="holds a list where a dictionary of tensors"):
        load_into(model_of(), checkpoint)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({"weight_map": {"a": "missing.safetensors"}}, "'missing.safetensors', but there is no such"),
        ({"weight_map": {"a": "../model.safetensors"}}, "no such weight file in the folder"),
        ({"weight_map": {"a": "config.json"}}, "no such weight file in the folder"),
        ({"weight_map": [1]}, "no weight_map"),
        ({}, "no weight_map"),
        ("{", "is damaged"),
    ],
)
def test_damaged_indices(index, message, checkpoint):
    (checkpoint / "model.safetensors").rename(checkpoint.parent / "model.safetensors")
    text = index if isinstance(index, str) else json.dumps(index)
    (checkpoint / "model.safetensors.index.json").write_text(text)
    with pytest.raises(CheckpointError, match=message):
        load_into(model_of(), checkpoint)


def test_missing_files(checkpoint):
    with pytest.raises(CheckpointError, match=r"'bert-base-uncased' is not a folder.*nothing is downloaded"):
        read_config("bert-base-uncased")
    (checkpoint / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"holds no weights; it needs one of model.safetensors"):
        load_into(model_of(), checkpoint)
    (checkpoint / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config.json is damaged"):
        read_config(checkpoint)
    (checkpoint / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"cannot read .*config.json.*Hugging Face format"):
        read_config(checkpoint)
