"""BERT checkpoints in Hugging Face format: the encoder computes what transformers computes."""

import pytest
import torch
from hf_support import (
    EMBEDDING,
    FIELDS,
    assert_same,
    edit_config,
    edit_tensors,
    model_of,
    random_bert,
    save,
    tokens_and_mask,
    weights,
    write_checkpoint,
)
from safetensors.torch import load_file

from collapipe_env.models.hf_checkpoint import load_into, read_config
from collapipe_env.training.pipeline_step import CutModel


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint written without transformers: config.json and model.safetensors."""
    write_checkpoint(tmp_path)
    return tmp_path


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", ["BertModel", "BertForTokenClassification"])
def test_outputs_equal_those_of_transformers(kind, attention, tmp_path):
    bert = random_bert(kind, attention)
    save(bert, tmp_path)
    assert read_config(tmp_path) == FIELDS
    model = model_of()
    load_into(model, tmp_path)
    tokens, mask = tokens_and_mask()
    with torch.no_grad():
        expected = getattr(bert, "bert", bert)(input_ids=tokens, attention_mask=mask).last_hidden_state
        torch.testing.assert_close(model(tokens), expected, rtol=0, atol=1e-5)


def test_layers_are_the_pipelines_blocks(tmp_path):
    """Host by host, a cut model hands on what transformers calls its hidden states."""
    bert = random_bert()
    save(bert, tmp_path)
    model = model_of()
    load_into(model, tmp_path)
    tokens, mask = tokens_and_mask()
    additive = torch.zeros(mask.shape).masked_fill(mask == 0, float("-inf"))[:, None, None, :]
    cut = CutModel(model, torch.nn.Identity(), torch.nn.functional.mse_loss, (2, 0, 1))
    with torch.no_grad():
        states = bert(input_ids=tokens, attention_mask=mask, output_hidden_states=True).hidden_states
        x = tokens
        for host, layers in ((0, 0), (1, 2), (2, 3)):
            x = cut.run(host, x, tokens, additive, tokens)
            torch.testing.assert_close(x, states[layers], rtol=0, atol=1e-5)


def test_gradients_equal_those_of_transformers(tmp_path):
    bert = random_bert()
    save(bert, tmp_path)
    model = model_of()
    load_into(model, tmp_path)
    tokens, mask = tokens_and_mask()
    # The padding row of transformers' table never gets a gradient, so only real tokens may count.
    for hidden in (model(tokens), bert(input_ids=tokens, attention_mask=mask).last_hidden_state):
        (hidden * mask[..., None])[..., :5].sum().backward()
    layer = bert.encoder.layer[0]
    for ours, theirs in (
        (model.embedding.weight.grad, bert.embeddings.word_embeddings.weight),
        (model.blocks[0].up_weight.grad, layer.intermediate.dense.weight),
        (model.blocks[0].qkv_weight.grad[24:48], layer.attention.self.key.weight),
    ):
        torch.testing.assert_close(ours, theirs.grad, rtol=1e-3, atol=1e-4)


def test_sharded_checkpoint_of_transformers(tmp_path):
    bert = random_bert("BertForTokenClassification")
    save(bert, tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    model = model_of()
    load_into(model, tmp_path)
    tokens, mask = tokens_and_mask()
    with torch.no_grad():
        expected = bert.bert(input_ids=tokens, attention_mask=mask).last_hidden_state
        torch.testing.assert_close(model(tokens), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("prefix", ["bert.", "", "_orig_mod.module.bert."])
def test_pickled_weights_and_all_prefixes(zipped, prefix, checkpoint):
    expected = model_of()
    load_into(expected, checkpoint)
    tensors = load_file(checkpoint / "model.safetensors")
    (checkpoint / "model.safetensors").unlink()
    torch.save(
        {prefix + name.removeprefix("bert."): value for name, value in tensors.items()},
        checkpoint / "pytorch_model.bin",
        _use_new_zipfile_serialization=zipped,
    )
    model = model_of()
    load_into(model, checkpoint)
    assert_same(model, weights(expected))


def test_former_names_of_layer_norms(checkpoint):
    expected = model_of()
    load_into(expected, checkpoint)

    def rename(tensors):
        for name in list(tensors):
            if "LayerNorm" in name:
                former = name.replace(".weight", ".gamma").replace(".bias", ".beta")
                tensors[former] = tensors.pop(name)

    edit_tensors(checkpoint, rename)
    model = model_of()
    load_into(model, checkpoint)
    assert_same(model, weights(expected))


def test_half_precision_is_converted(checkpoint):
    edit_tensors(checkpoint, lambda tensors: tensors.update({k: v.half() for k, v in tensors.items()}))
    model = model_of()
    load_into(model, checkpoint)
    tensors = load_file(checkpoint / "model.safetensors")
    assert model.embedding.weight.dtype == torch.float32
    assert torch.equal(model.embedding.weight, tensors[f"bert.{EMBEDDING}"].float())


def test_config_of_the_original_release(checkpoint):
    """It has no model_type; what it leaves out is BERT's own."""
    edit_config(checkpoint, model_type=..., hidden_act=...)
    assert read_config(checkpoint) == FIELDS
    load_into(model_of(), str(checkpoint))


def test_nothing_else_changes(checkpoint):
    """Loading draws nothing, and trained parameters stay trained views of flat vectors."""
    before = torch.get_rng_state()
    model = model_of()
    places = {name: p.data_ptr() for name, p in model.named_parameters()}
    load_into(model, checkpoint)
    assert {name: p.data_ptr() for name, p in model.named_parameters()} == places
    assert all(p.requires_grad for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), before)
