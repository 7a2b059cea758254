"""Checkpoints of GPT-2, Llama and Qwen2: read from transformers, written for transformers."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from damage_support import damaged
from hf_support import assert_same, edit_config, edit_tensors, save, transformers, weights
from language_support import FAMILIES, architecture, model_and_head, random_language_model, some_tokens
from safetensors.torch import load_file
from test_tied_head import play, run_of
from tokenizers import Tokenizer, models

from collapipe_env.ground.errors import CheckpointError
from collapipe_env.models.hf_checkpoint import load_into, read_config
from collapipe_env.models.hf_saving import save_checkpoint
from collapipe_env.models.hf_tokenizer import language_tokenizer
from collapipe_env.models.lora import add_adapters
from collapipe_env.physics.payload import UpdateFormat
from collapipe_env.tasks.checkpoint_tokens import CheckpointTokens
from collapipe_env.training.federation import Federation

families = pytest.mark.parametrize("family", FAMILIES)
both_heads = pytest.mark.parametrize("tied", [False, True])


def loaded(sizes, folder, seed=1):
    """A model and its head with the weights of a checkpoint."""
    model, head = model_and_head(sizes, seed)
    load_into(model, folder, head)
    return model, head


@torch.no_grad()
def logits(made, tokens):
    if isinstance(made, tuple):
        model, head = made
        return head(model(tokens))
    return made(input_ids=tokens).logits


def from_transformers(folder):
    return transformers().AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@families
@both_heads
def test_logits_after_loading_and_after_saving_back(family, tied, tmp_path):
    """Written by transformers, read and written by us, read by transformers."""
    sizes = architecture(family, tied)
    theirs = random_language_model(sizes, family)
    save(theirs, tmp_path / "theirs")
    fields = read_config(tmp_path / "theirs")
    assert fields == {name: getattr(sizes, name) for name in fields}
    assert len(fields) > 8
    tokens = some_tokens(padded=False)
    expected = logits(theirs, tokens)
    made = loaded(sizes, tmp_path / "theirs")
    torch.testing.assert_close(logits(made, tokens), expected, rtol=0, atol=1e-5)
    save_checkpoint(tmp_path / "ours", *made, source=tmp_path / "theirs")
    torch.testing.assert_close(
        logits(from_transformers(tmp_path / "ours"), tokens), expected, rtol=0, atol=1e-5
    )
    before = json.loads((tmp_path / "theirs" / "config.json").read_text())
    after = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert after["model_type"] == before["model_type"]
    assert after["eos_token_id"] == before["eos_token_id"] == 1


@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen2"])
def test_a_head_of_its_own_that_is_said_to_be_tied(family, tmp_path):
    """Refused; with the remedy of the message the logits are those of transformers, which keeps the head."""
    sizes = architecture(family, tied=True)
    theirs = tmp_path / "theirs"
    save(random_language_model(sizes, family), theirs)
    tokens = some_tokens(padded=False)
    tied = logits(from_transformers(theirs), tokens)
    table = next(value for value in loaded(sizes, theirs)[0].parameters() if len(value) == sizes.vocabulary)
    edit_tensors(theirs, lambda tensors: tensors.update({"lm_head.weight": table.detach().clone()}))
    loaded(sizes, theirs)  # the table twice, as some programs write it
    other = torch.randn(table.shape, generator=torch.Generator().manual_seed(3)) * 0.5
    edit_tensors(theirs, lambda tensors: tensors.update({"lm_head.weight": other}))
    expected = logits(from_transformers(theirs), tokens)
    assert (expected - tied).abs().max() > 5
    model, head = model_and_head(sizes)
    before = weights(model)
    with pytest.raises(CheckpointError, match=r"'lm_head.weight' differs .*set tie_word_embeddings and"):
        load_into(model, theirs, head)
    assert_same(model, before)
    edit_config(theirs, tie_word_embeddings=False)
    found = logits(loaded(architecture(family), theirs), tokens)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "base_model.model.", "_orig_mod.module."])
def test_names_that_wrappers_made_longer(prefix, tmp_path):
    sizes = architecture("qwen2")
    theirs = random_language_model(sizes, "qwen2")
    save(theirs, tmp_path)

    def wrap(tensors):
        for name in list(tensors):
            tensors[prefix + name] = tensors.pop(name)

    edit_tensors(tmp_path, wrap)
    tokens = some_tokens(padded=False)
    torch.testing.assert_close(
        logits(loaded(sizes, tmp_path), tokens), logits(theirs, tokens), rtol=0, atol=1e-5
    )


def test_wrapped_names_beside_plain_ones_are_as_they_are(checkpoint):
    edit_tensors(checkpoint, lambda t: t.update({"module.lm_head.weight": t.pop("lm_head.weight")}))
    with pytest.raises(CheckpointError, match=r"lacks the tensor 'lm_head.weight'"):
        loaded(architecture("qwen2"), checkpoint)


@pytest.mark.parametrize("beside", ["adapter_config.json", None])
def test_adapters_that_are_not_merged(beside, checkpoint):
    """A folder of an adapter, and a whole model with an adapter's tensors, named as PEFT does."""
    if beside is None:
        stem = "base_model.model.model.layers.0.self_attn.q_proj."

        def adapt(tensors):
            for name in list(tensors):
                tensors[f"base_model.model.{name}"] = tensors.pop(name)
            tensors[f"{stem}base_layer.weight"] = tensors.pop(f"{stem}weight")
            tensors[f"{stem}lora_A.default.weight"] = torch.ones(2, 24)

        edit_tensors(checkpoint, adapt)
    else:
        for file in checkpoint.iterdir():
            file.unlink()
        (checkpoint / beside).write_text('{"peft_type": "LORA"}')
        (checkpoint / "adapter_model.safetensors").write_bytes(b"")
        with pytest.raises(CheckpointError, match="merge_and_unload"):
            language_tokenizer(checkpoint)
    with pytest.raises(CheckpointError, match=r"an adapter.*; merge it .*merge_and_unload"):
        loaded(architecture("qwen2"), checkpoint)


@pytest.mark.parametrize("family", ["gpt2", "qwen2"])
def test_adapters_are_added_into_the_weights(family, tmp_path):
    sizes = architecture(family, tied=True)
    model, head = model_and_head(sizes)
    add_adapters(model, 3, 6.0, torch.Generator().manual_seed(1))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".adapters." in name:
                parameter.copy_(
                    torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)) * 0.2
                )
    tokens = some_tokens(padded=False)
    plain = logits(model_and_head(sizes), tokens)
    expected = logits((model, head), tokens)
    assert not torch.allclose(plain, expected, atol=1e-3)
    save_checkpoint(tmp_path / "ours", model, head)
    for made in (from_transformers(tmp_path / "ours"), loaded(sizes, tmp_path / "ours")):
        torch.testing.assert_close(logits(made, tokens), expected, rtol=0, atol=1e-5)


def test_shards(tmp_path):
    sizes = architecture("llama", tied=False)
    theirs = random_language_model(sizes, "llama")
    save(theirs, tmp_path / "theirs", max_shard_size="20KB")
    assert len(list((tmp_path / "theirs").glob("*.safetensors"))) > 1
    tokens = some_tokens(padded=False)
    made = loaded(sizes, tmp_path / "theirs")
    torch.testing.assert_close(logits(made, tokens), logits(theirs, tokens), rtol=0, atol=1e-5)
    save_checkpoint(tmp_path / "ours", *made, shard_bytes=20_000)
    files = list((tmp_path / "ours").glob("*.safetensors"))
    assert len(files) > 1
    assert all(sum(tensor.nbytes for tensor in load_file(file).values()) <= 20_000 for file in files)
    for again in (from_transformers(tmp_path / "ours"), loaded(sizes, tmp_path / "ours", seed=2)):
        torch.testing.assert_close(logits(again, tokens), logits(theirs, tokens), rtol=0, atol=1e-5)


@pytest.fixture
def checkpoint(tmp_path):
    """A Qwen2 with a free head, written by us."""
    folder = tmp_path / "checkpoint"
    save_checkpoint(folder, *model_and_head(architecture("qwen2")))
    return folder


def test_names_of_the_first_gpt2(tmp_path):
    """Its tensors have no stem, and its masks are among them."""
    sizes = architecture("gpt2", tied=True)
    made = model_and_head(sizes)
    save_checkpoint(tmp_path / "ours", *made)

    def rename(tensors):
        for name in list(tensors):
            tensors[name.removeprefix("transformer.")] = tensors.pop(name)
        tensors["h.0.attn.bias"] = torch.ones(1, 1, 12, 12)

    edit_tensors(tmp_path / "ours", rename)
    tokens = some_tokens()
    assert torch.equal(logits(loaded(sizes, tmp_path / "ours"), tokens), logits(made, tokens))


@pytest.mark.parametrize("lora", [False, True])
def test_a_run_starts_from_a_checkpoint_and_is_saved_back(lora, tmp_path):
    """Fine-tuning in full, or of adapters: what is saved is what was trained."""
    learner, run = run_of("qwen2", learning_rate=0.1, server_learning_rate=0.1)
    setup = run._setup
    first = model_and_head(setup.architecture, seed=9)
    save_checkpoint(tmp_path / "first", *first)
    setup = replace(
        setup,
        task_spec=replace(setup.task_spec, checkpoint=str(tmp_path / "first")),
        update_format=UpdateFormat(32, "lora", lora_rank=2) if lora else UpdateFormat(),
    )
    run = learner._runs[0] = Federation(setup, np.random.default_rng(5))
    tokens = some_tokens(length=7, padded=False)
    before = logits(first, tokens)
    assert torch.equal(logits(run.common_model, tokens), before)
    for _ in range(2):
        play(learner)
    after = logits(run.common_model, tokens)
    assert not torch.allclose(after, before, atol=1e-3)
    learner._task_spec = setup.task_spec
    learner.save_checkpoint(tmp_path / "tuned")
    for made in (from_transformers(tmp_path / "tuned"), loaded(setup.architecture, tmp_path / "tuned")):
        torch.testing.assert_close(logits(made, tokens), after, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "mistral"}, r"model_type is 'mistral', but only BERT, GPT-2, Llama and Qwen2"),
        ({"model_type": ["qwen2"]}, r"model_type is \['qwen2'\], but only BERT"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu', but the trained blocks have SwiGLU"),
        ({"use_sliding_window": True}, "use_sliding_window is True, but only full attention"),
        ({"mlp_bias": True}, "mlp_bias is True"),
        ({"model_type": "llama", "attention_bias": True}, "attention_bias is True, but only Qwen2's"),
        ({"hidden_size": ...}, "hidden_size is missing"),
        ({"num_key_value_heads": 3}, "num_key_value_heads = 3 does not divide num_attention_heads = 4"),
        ({"num_attention_heads": 5}, "num_attention_heads = 5 does not divide hidden_size = 24"),
        ({"head_dim": 8}, "head_dim is 8, but the trained heads have .* = 6 numbers"),
        ({"rms_norm_eps": 0}, "rms_norm_eps is 0; it must be a number above 0"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings is 1; it must be true or false"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type 'yarn', but only plain rotations"),
        ({"rope_parameters": [1]}, r"rope_parameters is \[1\]; it must be a mapping"),
        (
            {"rope_parameters": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 2.0}},
            "low_freq_factor is 2.0, but the trained blocks have Llama 3's 1",
        ),
        ({"rope_parameters": {"rope_type": "llama3"}}, "factor is missing"),
    ],
)
def test_unsupported_configurations(changes, message, checkpoint):
    edit_config(checkpoint, **changes)
    with pytest.raises(CheckpointError, match=message) as refusal:
        read_config(checkpoint)
    assert str(checkpoint / "config.json") in str(refusal.value)


def test_former_spelling_of_rotations(tmp_path):
    sizes = architecture("llama3")
    save_checkpoint(tmp_path / "ours", *model_and_head(sizes))
    expected = read_config(tmp_path / "ours")
    edit_config(tmp_path / "ours", rope_parameters=...)
    assert read_config(tmp_path / "ours") == expected
    assert (expected["rope_theta"], expected["rope_factor"], expected["rope_original_length"]) == (50, 8, 32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"blocks": 2}, "workload.blocks is 2 but num_hidden_layers is 3"),
        ({"kv_heads": 2}, "workload.kv_heads is 2 but num_key_value_heads is 1"),
        ({"rope_theta": 10.0}, "workload.rope_theta is 10.0 but rope_theta is 1000000.0"),
        ({"qkv_bias": False}, "workload.qkv_bias is False but the bias of model_type is True"),
        ({"tied_head": True}, "workload.tied_head is True but tie_word_embeddings is False"),
    ],
)
def test_sizes_that_contradict_the_scenario(changes, message, checkpoint):
    model, head = model_and_head(architecture("qwen2", **changes))
    before = weights(model)
    with pytest.raises(CheckpointError, match=message):
        load_into(model, checkpoint, head)
    assert_same(model, before)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model.embed_tokens.weight", "holds no model of style 'llama'"),
        ("lm_head.weight", "lacks the tensor 'lm_head.weight'"),
        ("model.layers.2.post_attention_layernorm.weight", "lacks the tensor 'model.layers.2.post"),
        ("model.layers.1.self_attn.k_proj.bias", "lacks the tensor 'model.layers.1.self_attn.k_proj.bias'"),
    ],
)
def test_missing_tensors_leave_the_model_as_it_was(name, message, checkpoint):
    edit_tensors(checkpoint, lambda tensors: tensors.pop(name))
    model, head = model_and_head(architecture("qwen2"), seed=4)
    before, before_head = weights(model), weights(head)
    with pytest.raises(CheckpointError, match=message):
        load_into(model, checkpoint, head)
    assert_same(model, before)
    assert_same(head, before_head)


def test_damaged_configurations(checkpoint):
    """Whatever the bytes, one clear refusal or fields that are usable."""
    file, chance = checkpoint / "config.json", random.Random(3)
    whole, refusals = file.read_bytes(), []
    for _ in range(150):
        file.write_bytes(damaged(whole, chance))
        try:
            fields = read_config(checkpoint)
        except CheckpointError as error:
            refusals.append(str(error))
        else:
            assert fields["width"] % fields["heads"] == 0
    assert len(refusals) > 75
    assert max(map(len, refusals)) < 2000


def test_rows_beyond_the_positions_of_the_checkpoint(checkpoint):
    edit_config(checkpoint, max_position_embeddings=4)
    model, head = model_and_head(architecture("qwen2"))
    with pytest.raises(CheckpointError, match=r"max_position_embeddings is 4, below workload\.seq"):
        load_into(model, checkpoint, head)


def test_numbers_beyond_the_trained_type(checkpoint):
    """Finite in float64, infinite in what is trained."""
    name = "model.layers.1.mlp.up_proj.weight"
    edit_tensors(checkpoint, lambda tensors: tensors.update({name: tensors[name].double() * 1e300}))
    model, head = model_and_head(architecture("qwen2"))
    with pytest.raises(CheckpointError, match=r"up_proj.weight.*must hold finite"):
        load_into(model, checkpoint, head)


def test_tokenizers_that_lose_the_text(tmp_path):
    kept = CheckpointTokens(Tokenizer(models.BPE(LETTERS, [], unk_token=None)), 0, 6)
    texts = ["ab" * 50, "zz" * 3]
    kept.require_text(kept.encode(texts), texts)
    texts = ["zz" * 50, "ab"]
    with pytest.raises(CheckpointError, match=r"keeps 2 of 102 bytes of the text"):
        kept.require_text(kept.encode(texts), texts)
    words = CheckpointTokens(Tokenizer(models.WordLevel({"a": 0}, unk_token="q")), 0, 1)
    with pytest.raises(CheckpointError, match=r"cannot encode the text \(WordLevel error"):
        words.encode(["b"])


LETTERS = {"<|end|>": 0, "a": 1, "b": 2, "ab": 3, "Ġ": 4, "Ġab": 5}
MERGES = "#version: 0.2\na b\nĠ ab\n"


@pytest.mark.parametrize("ready", [True, False])
def test_tokenizers(ready, tmp_path):
    folder = tmp_path / "ours"
    save_checkpoint(folder, *model_and_head(architecture("gpt2")))
    edit_config(folder, eos_token_id=0)
    (folder / "vocab.json").write_text(json.dumps(LETTERS))
    (folder / "merges.txt").write_text(MERGES)
    if ready:
        tokenizer, _ = language_tokenizer(folder)
        tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "vocab.json").unlink()
    tokenizer, end = language_tokenizer(folder)
    assert end == 0
    assert tokenizer.encode("ab aab").ids == [3, 4, 1, 3]
    assert tokenizer.encode("ab ab").ids == [3, 5]
    assert tokenizer.decode(tokenizer.encode("ab aba").ids) == "ab aba"
    library = transformers()
    if not ready:
        theirs = library.GPT2Tokenizer.from_pretrained(folder)
        assert theirs("ab ab")["input_ids"] == tokenizer.encode("ab ab").ids


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "merges.txt").unlink(), "holds no tokenizer.json"),
        (lambda folder: (folder / "vocab.json").write_text("{"), "vocab.json"),
        (lambda folder: (folder / "merges.txt").write_text("x y\n"), "is damaged"),
        (lambda folder: (folder / "vocab.json").write_text(json.dumps({**LETTERS, "z": 61})), "up to 61"),
        (lambda folder: edit_config(folder, eos_token_id=...), "eos_token_id is None"),
        (lambda folder: edit_config(folder, eos_token_id=61), "eos_token_id is 61"),
    ],
)
def test_damaged_tokenizers(damage, message, tmp_path):
    folder = tmp_path / "ours"
    save_checkpoint(folder, *model_and_head(architecture("gpt2")))
    edit_config(folder, eos_token_id=0)
    (folder / "vocab.json").write_text(json.dumps(LETTERS))
    (folder / "merges.txt").write_text(MERGES)
    damage(folder)
    with pytest.raises(CheckpointError, match=message):
        language_tokenizer(folder)


def test_tokenizer_of_another_kind(checkpoint):
    Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).save(str(checkpoint / "tokenizer.json"))
    edit_config(checkpoint, eos_token_id=[3, 4])
    assert language_tokenizer(checkpoint)[1] == 3
