"""BERT checkpoints in Hugging Face format: the encoder computes what transformers computes."""

import re

import pytest
import torch
from hf_support import (
    BERT,
    architecture,
    edit_config,
    edit_tensors,
    loaded,
    model_and_head,
    random_bert,
    save,
    some_tokens,
    weights,
    write_checkpoint,
)

from collapipe_env.models.cluster_model import additive_mask
from collapipe_env.models.hf_checkpoint import load_into, read_config
from collapipe_env.training.pipeline_step import CutModel

SIZES = architecture("bert")
FIELDS = {**BERT, "blocks": 3, "width": 24, "feedforward": 40, "heads": 4, "vocabulary": 61}


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
    assert read_config(tmp_path) == FIELDS
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


def test_config_of_the_original_release(tmp_path):
    """It has no model_type; what it leaves out is BERT's own."""
    write_checkpoint(tmp_path)
    edit_config(tmp_path, model_type=..., hidden_act=...)
    assert read_config(tmp_path) == FIELDS
    load_into(model_and_head(SIZES)[0], str(tmp_path))


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
