"""Unusable and harmful checkpoints are refused with one clear error, and leave the model as it was."""

import json
import os
import random
import shutil

import pytest
import torch
from damage_support import damaged
from hf_support import (
    architecture,
    assert_same,
    edit_config,
    edit_tensors,
    model_and_head,
    weights,
    write_checkpoint,
)

from collapipe_env.ground.errors import CheckpointError
from collapipe_env.models.hf_checkpoint import load_into
from collapipe_env.models.hf_config import checkpoint_folder, read_config


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A BERT and a Qwen2 with a free head."""
    folders = {family: tmp_path_factory.mktemp(family) for family in ("bert", "qwen2")}
    for family, folder in folders.items():
        write_checkpoint(folder, family)
    return folders


@pytest.fixture
def copy_of(written, tmp_path):
    return lambda family: shutil.copytree(written[family], tmp_path / family)


def refusal(folder, message, family="bert", **changes):
    """Load into a model, which has to be refused, and return what the error says."""
    made = model_and_head(architecture(family, **changes))
    before = weights(*made)
    with pytest.raises(CheckpointError, match=message) as error:
        load_into(made[0], folder, made[1])
    assert_same(weights(*made), before)
    assert len(str(error.value)) < 2000
    return str(error.value)


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("bert", {"model_type": "roberta"}, r"model_type is 'roberta', but only BERT, GPT-2, Llama and"),
        ("qwen2", {"model_type": ["qwen2"]}, r"model_type is \['qwen2'\], but only BERT"),
        ("bert", {"hidden_act": "gelu_new"}, r"hidden_act is 'gelu_new', but .*exact GELU"),
        ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ("bert", {"layer_norm_eps": 1e-5}, "layer_norm_eps is 1e-05"),
        ("bert", {"pad_token_id": 1}, "pad_token_id is 1, but padding must be token 0"),
        ("bert", {"is_decoder": True}, "is_decoder is True"),
        ("bert", {"hidden_size": ...}, "hidden_size is missing"),
        ("bert", {"num_hidden_layers": 0}, "num_hidden_layers is 0; it must be an integer of at least 1"),
        ("bert", {"type_vocab_size": -1}, "type_vocab_size is -1; it must be an integer of at least 0"),
        ("bert", {"num_attention_heads": 5}, "num_attention_heads = 5 does not divide hidden_size = 24"),
        ("qwen2", {"hidden_act": "gelu"}, "hidden_act is 'gelu', but the trained blocks have SwiGLU"),
        ("qwen2", {"use_sliding_window": True}, "use_sliding_window is True, but only full attention"),
        ("qwen2", {"mlp_bias": True}, "mlp_bias is True"),
        ("qwen2", {"model_type": "llama", "attention_bias": True}, "attention_bias is True, but only"),
        ("qwen2", {"num_key_value_heads": 3}, "num_key_value_heads = 3 does not divide num_attention_he"),
        ("qwen2", {"head_dim": 8}, "head_dim is 8, but the trained heads have 6 numbers"),
        ("qwen2", {"rms_norm_eps": 0}, "rms_norm_eps is 0; it must be a number above 0"),
        ("qwen2", {"tie_word_embeddings": 1}, "tie_word_embeddings is 1; it must be true or false"),
        ("qwen2", {"rope_parameters": {"rope_type": "yarn"}}, "rope_type is 'yarn', but only plain"),
        ("qwen2", {"rope_parameters": [1]}, r"rope_parameters is \[1\]; it must be a mapping"),
        ("qwen2", {"rope_parameters": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 2.0}},
         "low_freq_factor is 2.0, but the trained blocks have Llama 3's 1"),
        ("qwen2", {"rope_parameters": {"rope_type": "llama3"}}, "factor is missing"),
        ("qwen2", {"max_position_embeddings": 4}, r"max_position_embeddings is 4, below workload\.seq"),
    ],
)  # fmt: skip
def test_unsupported_configurations(family, changes, message, copy_of):
    folder = copy_of(family)
    edit_config(folder, **changes)
    assert str(folder / "config.json") in refusal(folder, message, family)


@pytest.mark.parametrize("key", ["hidden_size", "vocab_size", "layer_norm_eps", "pad_token_id", "model_type"])
@pytest.mark.parametrize(("value", "told"), [(10**400, "an integer of 1,329 bits"), ("x" * 1_000_000, "xxx")])
def test_values_beyond_all_bounds(key, value, told, copy_of):
    folder = copy_of("bert")
    edit_config(folder, **{key: value})
    assert len(refusal(folder, told)) < 1000


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("bert", {"blocks": 2}, "workload.blocks is 2 but num_hidden_layers is 3"),
        ("bert", {"width": 32}, "workload.width is 32 but hidden_size is 24"),
        ("bert", {"feedforward": 41}, "workload.feedforward is 41 but intermediate_size is 40"),
        ("bert", {"heads": 2}, "workload.heads is 2 but num_attention_heads is 4"),
        ("bert", {"vocabulary": 62}, "workload.vocabulary is 62 but vocab_size is 61"),
        ("bert", {"learned_positions": 9}, "learned_positions is 9 but max_position_embeddings is 12"),
        ("bert", {"token_types": 0}, "workload.token_types is 0 but type_vocab_size is 2"),
        ("bert", {"style": "pre-ln"}, "workload.style is 'pre-ln' but the style of its model_type is 'bert'"),
        ("bert", {"heads": 3, "blocks": 1}, "blocks is 1 .*; workload.heads is 3"),
        ("qwen2", {"kv_heads": 2}, "workload.kv_heads is 2 but num_key_value_heads is 1"),
        ("qwen2", {"rope_theta": 10.0}, "workload.rope_theta is 10.0 but rope_theta is 1000000.0"),
        ("qwen2", {"qkv_bias": False}, "qkv_bias is False but the qkv_bias of its model_type is True"),
        ("qwen2", {"tied": True}, "workload.tied_head is True but tie_word_embeddings is False"),
    ],
)  # fmt: skip
def test_sizes_that_contradict_the_scenario(family, changes, message, written):
    refusal(written[family], message, family, **changes)


def without(name):
    return lambda tensors: tensors.pop(name)


def replaced(name, value):
    return lambda tensors: tensors.update({name: value})


def wrapped_head(tensors):
    tensors["module.lm_head.weight"] = tensors.pop("lm_head.weight")


def adapted(tensors):
    """A whole model with an adapter's tensors, named as PEFT does."""
    stem = "base_model.model.model.layers.0.self_attn.q_proj."
    for name in list(tensors):
        tensors[f"base_model.model.{name}"] = tensors.pop(name)
    tensors[f"{stem}base_layer.weight"] = tensors.pop(f"{stem}weight")
    tensors[f"{stem}lora_A.default.weight"] = torch.ones(2, 24)


INDEX = "model.safetensors.index.json"
LAST = "bert.encoder.layer.2.output.LayerNorm.bias"  # what is read last: nothing may be written before
KEY = "bert.encoder.layer.1.attention.self.key.weight"
UP = "model.layers.1.mlp.up_proj.weight"
FINITE = r"must hold finite floating-point numbers of 16, 32 or 64 bits"


@pytest.mark.parametrize(
    ("family", "change", "message"),
    [
        ("bert", without("bert.embeddings.word_embeddings.weight"), "holds no model of style 'bert'"),
        ("bert", without(LAST), f"lacks the tensor '{LAST}'"),
        ("bert", replaced(LAST, torch.zeros(23)), r"has the shape \(23,\), but config.json implies \(24,\)"),
        ("bert", replaced(KEY, torch.zeros(24, 23)), r"\(24, 23\)"),
        ("bert", replaced(LAST, torch.zeros(24, dtype=torch.int64)), FINITE),
        ("bert", replaced(LAST, torch.zeros(24).to(torch.float8_e4m3fn)), FINITE),
        ("bert", replaced(LAST, torch.full((24,), float("nan"))), FINITE),
        # Finite in float64, infinite in what is trained.
        ("qwen2", replaced(UP, torch.full((40, 24), 1e300, dtype=torch.float64)), f"up_proj.*{FINITE}"),
        ("qwen2", without("model.embed_tokens.weight"), "holds no model of style 'llama'"),
        ("qwen2", without("lm_head.weight"), "lacks the tensor 'lm_head.weight'"),
        ("qwen2", wrapped_head, "lacks the tensor 'lm_head.weight'"),
        ("qwen2", without("model.layers.1.self_attn.k_proj.bias"), "lacks the tensor 'model.layers.1.self"),
        ("qwen2", adapted, r"an adapter.*; merge it .*merge_and_unload"),
    ],
)  # fmt: skip
def test_unusable_tensors(family, change, message, copy_of):
    folder = copy_of(family)
    edit_tensors(folder, change)
    assert "model.safetensors" in refusal(folder, message, family)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.safetensors", b"abc" * 50, r"cannot read .*model.safetensors .*damaged"),
        ("model.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        # Never opened, whatever is in it.
        ("pytorch_model.bin", b"", r"holds no weights; .*model.bin are not read\): .*save_pretrained"),
        (INDEX, {"weight_map": {"a": "missing.safetensors"}}, "'missing.safetensors', but"),
        (INDEX, {"weight_map": {"a": "../model.safetensors"}}, "no such weight file"),
        (INDEX, {"weight_map": {"a": "config.json"}}, "no such weight file in the folder"),
        (INDEX, {"weight_map": [1]}, "no weight_map"),
        (INDEX, b"{", "is damaged"),
        ("adapter_config.json", {"peft_type": "LORA"}, "an adapter.*; merge it .*merge_and_unload"),
        ("config.json", b"{", "config.json is damaged"),
        ("config.json", None, r"cannot read .*config.json.*Hugging Face format"),
    ],
)  # fmt: skip
def test_damaged_files(name, content, message, copy_of):
    folder = copy_of("bert")
    if name != "config.json":
        (folder / "model.safetensors").rename(folder.parent / "model.safetensors")
    file = folder / name
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    refusal(folder, message)


@pytest.mark.parametrize("name", ["bert-base-uncased", "x" * 5000, "~nobody-of-that-name/x", "a\0b"])
def test_names_of_no_folder(name):
    with pytest.raises(CheckpointError, match=r"is not a folder.*nothing is down|^checkpoint ") as error:
        checkpoint_folder(name)
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize(
    ("family", "name", "least"),
    [("bert", "model.safetensors", 60), ("bert", "config.json", 60), ("qwen2", "config.json", 75)],
)
def test_whatever_the_bytes(family, name, least, copy_of):
    """One clear refusal, or fields and weights that are usable."""
    folder = copy_of(family)
    whole, chance, refusals = (folder / name).read_bytes(), random.Random(3), []
    model, head = model_and_head(architecture(family))
    for _ in range(150):
        (folder / name).write_bytes(damaged(whole, chance))
        try:
            fields = read_config(folder)
            assert fields["width"] % fields["heads"] == 0
            load_into(model, folder, head)
        except CheckpointError as error:
            refusals.append(str(error))
    assert len(refusals) > least
    assert max(map(len, refusals)) < 2000


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_pipes_in_the_folder(name, copy_of):
    """Were one opened to be read, the test would wait forever."""
    folder = copy_of("bert")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    refusal(folder, name)
