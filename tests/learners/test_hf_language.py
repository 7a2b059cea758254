"""Checkpoints of GPT-2, Llama and Qwen2: read from transformers, written for transformers."""

import json

import pytest
import torch
from hf_support import (
    FAMILIES,
    architecture,
    assert_same,
    edit_config,
    edit_tensors,
    loaded,
    model_and_head,
    random_language_model,
    save,
    some_tokens,
    transformers,
    weights,
)
from safetensors.torch import load_file

from collapipe_env.ground.errors import CheckpointError
from collapipe_env.models import hf_saving
from collapipe_env.models.hf_checkpoint import load_into, read_config
from collapipe_env.models.hf_saving import save_checkpoint
from collapipe_env.models.lora import add_adapters


@torch.no_grad()
def logits(made, tokens):
    """Those of real tokens."""
    real = tokens != 0
    if isinstance(made, tuple):
        model, head = made
        return head(model(tokens), real)[real]
    return made(input_ids=tokens, attention_mask=real.long()).logits[real]


def from_transformers(folder):
    return transformers().AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("tied", "attention"), [(False, "eager"), (True, "sdpa")])
def test_logits_after_loading_and_after_saving_back(family, tied, attention, tmp_path):
    """Written by transformers, read and written by us, read by transformers."""
    sizes = architecture(family, tied)
    theirs = random_language_model(sizes, family, attention)
    save(theirs, tmp_path / "theirs")
    fields = read_config(tmp_path / "theirs")
    assert fields == {name: getattr(sizes, name) for name in fields}
    assert len(fields) > 8
    tokens = some_tokens()
    expected = logits(theirs, tokens)
    assert float(expected.std()) > 0.5  # so that the tolerance is a strict one
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
    assert_same(weights(model), before)
    edit_config(theirs, tie_word_embeddings=False)
    found = logits(loaded(architecture(family), theirs), tokens)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


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


def test_shards(tmp_path, monkeypatch):
    sizes = architecture("llama", tied=False)
    theirs = random_language_model(sizes, "llama")
    save(theirs, tmp_path / "theirs", max_shard_size="20KB")
    assert len(list((tmp_path / "theirs").glob("*.safetensors"))) > 1
    tokens = some_tokens(padded=False)
    made = loaded(sizes, tmp_path / "theirs")
    torch.testing.assert_close(logits(made, tokens), logits(theirs, tokens), rtol=0, atol=1e-5)
    monkeypatch.setattr(hf_saving, "SHARD_BYTES", 20_000)
    save_checkpoint(tmp_path / "ours", *made)
    files = list((tmp_path / "ours").glob("*.safetensors"))
    assert len(files) > 1
    assert all(sum(tensor.nbytes for tensor in load_file(file).values()) <= 20_000 for file in files)
    for again in (from_transformers(tmp_path / "ours"), loaded(sizes, tmp_path / "ours", seed=2)):
        torch.testing.assert_close(logits(again, tokens), logits(theirs, tokens), rtol=0, atol=1e-5)


def test_former_spelling_of_rotations(tmp_path):
    sizes = architecture("llama3")
    save_checkpoint(tmp_path / "ours", *model_and_head(sizes))
    expected = read_config(tmp_path / "ours")
    edit_config(tmp_path / "ours", rope_parameters=...)
    assert read_config(tmp_path / "ours") == expected
    assert (expected["rope_theta"], expected["rope_factor"], expected["rope_original_length"]) == (50, 8, 32)
