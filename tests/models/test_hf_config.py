"""Configurations of checkpoints: what is read, and what is refused in one clear error."""

import pytest
from hf_support import (
    BERT_FIELDS,
    architecture,
    edit_config,
    model_and_head,
    refusal,
    write_checkpoint,
)

from collapipe_env.ground.errors import CheckpointError
from collapipe_env.models.hf_config import checkpoint_folder, read_config
from collapipe_env.models.hf_saving import save_checkpoint


def test_config_of_the_original_release(tmp_path):
    """It has no model_type; what it leaves out is BERT's own."""
    write_checkpoint(tmp_path)
    edit_config(tmp_path, model_type=..., hidden_act=...)
    assert read_config(tmp_path) == BERT_FIELDS


def test_former_spelling_of_rotations(tmp_path):
    sizes = architecture("llama3")
    save_checkpoint(tmp_path / "ours", *model_and_head(sizes))
    expected = read_config(tmp_path / "ours")
    edit_config(tmp_path / "ours", rope_parameters=...)
    assert read_config(tmp_path / "ours") == expected
    assert (expected["rope_theta"], expected["rope_factor"], expected["rope_original_length"]) == (50, 8, 32)


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
def test_unsupported_configurations(family, changes, message, tmp_path):
    write_checkpoint(tmp_path, family)
    edit_config(tmp_path, **changes)
    assert str(tmp_path / "config.json") in refusal(tmp_path, message, family)


@pytest.mark.parametrize("key", ["hidden_size", "vocab_size", "layer_norm_eps", "pad_token_id", "model_type"])
@pytest.mark.parametrize(("value", "told"), [(10**400, "an integer of 1,329 bits"), ("x" * 1_000_000, "xxx")])
def test_values_beyond_all_bounds(key, value, told, tmp_path):
    write_checkpoint(tmp_path)
    edit_config(tmp_path, **{key: value})
    assert len(refusal(tmp_path, told)) < 1000


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
def test_sizes_that_contradict_the_scenario(family, changes, message, tmp_path):
    write_checkpoint(tmp_path, family)
    refusal(tmp_path, message, family, **changes)


@pytest.mark.parametrize("name", ["bert-base-uncased", "x" * 5000, "~nobody-of-that-name/x", "a\0b"])
def test_names_of_no_folder(name):
    with pytest.raises(CheckpointError, match=r"is not a folder.*nothing is down|^checkpoint ") as error:
        checkpoint_folder(name)
    assert len(str(error.value)) < 1000
