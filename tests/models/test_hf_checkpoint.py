"""Checkpoints in Hugging Face format: what transformers computes, and files that are refused."""

import json
import os
import random
import re

import pytest
import torch
from damage_support import damaged
from hf_support import (
    BERT_FIELDS,
    architecture,
    assert_same,
    edit_config,
    edit_tensors,
    from_transformers,
    loaded,
    logits,
    model_and_head,
    random_bert,
    random_language_model,
    refusal,
    save,
    some_tokens,
    weights,
    write_checkpoint,
)

from collapipe_env.ground.errors import CheckpointError
from collapipe_env.models.cluster_model import additive_mask
from collapipe_env.models.hf_checkpoint import load_into, read_config
from collapipe_env.training.pipeline_step import CutModel

SIZES = architecture("bert")


def rows_and_mask():
    tokens = some_tokens(7)
    return tokens, (tokens != 0).long()


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize(
    ("kind", "options"),
    [("BertModel", {}), ("BertForTokenClassification", {}), ("BertModel", {"max_shard_size": "20KB"})],
)
def test_layers_are_the_pipelines_blocks(kind, options, attention, tmp_path):
    """Host by host, a cut model hands on what transformers calls its hidden states."""
    bert = random_bert(kind, attention)
    save(bert, tmp_path, **options)
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == bool(options)
    assert read_config(tmp_path) == BERT_FIELDS
    model, _ = loaded(SIZES, tmp_path)
    tokens, mask = rows_and_mask()
    cut = CutModel(model, torch.nn.Identity(), torch.nn.functional.mse_loss, (2, 0, 1))
    with torch.no_grad():
        found = bert(input_ids=tokens, attention_mask=mask, output_hidden_states=True)
        x = tokens
        for host, layers in ((0, 0), (1, 2), (2, 3)):
            x = cut.run(host, x, tokens, additive_mask(tokens), tokens)
            torch.testing.assert_close(x, found.hidden_states[layers], rtol=0, atol=1e-5)
        torch.testing.assert_close(model(tokens), x, rtol=0, atol=1e-5)


def renamed(name):
    """A change of tensors that gives each of them another name."""
    return lambda tensors: [tensors.update({name(old): tensors.pop(old)}) for old in list(tensors)]


def converted(change):
    return lambda tensors: tensors.update({name: change(value) for name, value in tensors.items()})


def former_name(name):
    return re.sub("Norm.weight$", "Norm.gamma", re.sub("Norm.bias$", "Norm.beta", name))


def of_the_first_gpt2(tensors):
    """Its tensors have no stem, and its masks are among them."""
    renamed(lambda name: name.removeprefix("transformer."))(tensors)
    tensors["h.0.attn.bias"] = torch.ones(1, 1, 12, 12)


@pytest.mark.parametrize(
    ("family", "change"),
    [
        ("bert", renamed(lambda name: name.removeprefix("bert."))),
        ("bert", renamed(lambda name: "_orig_mod.module." + name)),
        ("bert", renamed(former_name)),
        ("bert", converted(torch.Tensor.double)),
        ("gpt2", of_the_first_gpt2),
        ("qwen2", renamed(lambda name: "module." + name)),
        ("qwen2", renamed(lambda name: "_orig_mod." + name)),
        ("qwen2", renamed(lambda name: "base_model.model." + name)),
    ],
)  # fmt: skip
def test_files_that_say_the_same(family, change, tmp_path):
    write_checkpoint(tmp_path, family)
    expected = weights(*loaded(architecture(family), tmp_path))
    edit_tensors(tmp_path, change)
    found = weights(*loaded(architecture(family), tmp_path, seed=2))
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_half_precision_is_converted(tmp_path):
    write_checkpoint(tmp_path)
    exact = weights(*loaded(SIZES, tmp_path))
    edit_tensors(tmp_path, converted(torch.Tensor.half))
    for name, value in weights(*loaded(SIZES, tmp_path)).items():
        assert value.dtype == torch.float32
        assert torch.equal(value, exact[name].half().float())


def test_nothing_else_changes(tmp_path):
    """Loading draws nothing, and trained parameters stay trained views of flat vectors."""
    write_checkpoint(tmp_path)
    before = torch.get_rng_state()
    model, _ = model_and_head(SIZES)
    places = {name: p.data_ptr() for name, p in model.named_parameters()}
    load_into(model, tmp_path)
    assert {name: p.data_ptr() for name, p in model.named_parameters()} == places
    assert all(p.requires_grad for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), before)


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


def without(name):
    return lambda tensors: tensors.pop(name)


def replaced(name, value):
    return lambda tensors: tensors.update({name: value})


def wrapped_head(tensors):
    tensors["module.lm_head.weight"] = tensors.pop("lm_head.weight")


def adapted(sign):
    """A whole model in which a tensor's name tells of an adapter, as PEFT names them."""

    def change(tensors):
        for name in list(tensors):
            tensors[f"base_model.model.{name}"] = tensors.pop(name)
        stem = "base_model.model.model.layers.0.self_attn.q_proj."
        tensors[f"{stem}{sign}.weight"] = tensors.pop(f"{stem}weight")

    return change


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
        ("qwen2", adapted("base_layer"), r"an adapter.*; merge it .*merge_and_unload"),
        ("qwen2", adapted("lora_A.default"), r"an adapter.*; merge it .*merge_and_unload"),
    ],
)  # fmt: skip
def test_unusable_tensors(family, change, message, tmp_path):
    write_checkpoint(tmp_path, family)
    edit_tensors(tmp_path, change)
    assert "model.safetensors" in refusal(tmp_path, message, family)


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
def test_damaged_files(name, content, message, tmp_path):
    folder = tmp_path / "bert"
    folder.mkdir()
    write_checkpoint(folder)
    if name != "config.json":
        (folder / "model.safetensors").rename(folder.parent / "model.safetensors")
    file = folder / name
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    refusal(folder, message)


@pytest.mark.parametrize(
    ("family", "name", "least"),
    [("bert", "model.safetensors", 60), ("bert", "config.json", 60), ("qwen2", "config.json", 75)],
)
def test_whatever_the_bytes(family, name, least, tmp_path):
    """One clear refusal, or fields and weights that are usable."""
    write_checkpoint(tmp_path, family)
    whole, chance, refusals = (tmp_path / name).read_bytes(), random.Random(3), []
    model, head = model_and_head(architecture(family))
    for _ in range(150):
        (tmp_path / name).write_bytes(damaged(whole, chance))
        try:
            fields = read_config(tmp_path)
            assert fields["width"] % fields["heads"] == 0
            load_into(model, tmp_path, head)
        except CheckpointError as error:
            refusals.append(str(error))
    assert len(refusals) > least
    assert max(map(len, refusals)) < 2000


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_pipes_in_the_folder(name, tmp_path):
    """Were one opened to be read, the test would wait forever."""
    write_checkpoint(tmp_path)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    refusal(tmp_path, name)
