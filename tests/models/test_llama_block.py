"""Blocks of GPT-2, Llama and Qwen2: the gradients of transformers, mixed precision, initial weights."""

import math

import numpy as np
import pytest
import torch
from hf_support import (
    FAMILIES,
    FEEDFORWARD,
    WIDTH,
    architecture,
    model_and_head,
    of_transformers,
    random_language_model,
    some_tokens,
)
from torch.nn import functional

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.models.decoder import Decoder
from collapipe_env.training.pipeline_step import CutModel, pipeline_step


def next_token_loss(scores, targets):
    return functional.cross_entropy(scores.flatten(end_dim=1), targets.flatten())


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_equal_those_of_transformers(family, tied):
    sizes = architecture(family, tied)
    theirs = random_language_model(sizes, family)
    model, head = of_transformers(theirs, sizes)
    tokens, targets = some_tokens(padded=False), some_tokens(padded=False).roll(1, dims=0)
    next_token_loss(head(model(tokens)), targets).backward()
    next_token_loss(theirs(input_ids=tokens).logits, targets).backward()
    found = dict(theirs.named_parameters())
    block = model.blocks[1]
    if family == "gpt2":
        stem, layer = "transformer.", "transformer.h.1."
        pairs = [
            (model.embedding.weight, found[f"{stem}wte.weight"].grad),
            (model.embedding.positions, found[f"{stem}wpe.weight"].grad),
            (block.qkv_weight, found[f"{layer}attn.c_attn.weight"].grad.T),
            (block.norm2_bias, found[f"{layer}ln_2.bias"].grad),
        ]
    else:
        layer, k = "model.layers.1.", block.parts[1]
        pairs = [
            (model.embedding.weight, found["model.embed_tokens.weight"].grad),
            (block.up_weight, torch.cat([found[f"{layer}mlp.{n}_proj.weight"].grad for n in ("gate", "up")])),
            (block.norm1_gain, found[f"{layer}input_layernorm.weight"].grad),
        ]
        keys = found[f"{layer}self_attn.k_proj.weight"].grad
        torch.testing.assert_close(block.qkv_weight.grad[WIDTH : WIDTH + k], keys, rtol=1e-4, atol=1e-6)
    for ours, expected in pairs:
        torch.testing.assert_close(ours.grad, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_mixed_precision_is_the_same_but_for_rounding(family):
    sizes = architecture(family)
    gradients = []
    for precision in ("float32", "bfloat16"):
        model, head = model_and_head(sizes)
        tokens, targets = some_tokens(12, padded=False), some_tokens(12, padded=False).roll(1, dims=0)
        cut = CutModel(model, head, next_token_loss, (1, 2), precision=precision)
        pipeline_step(cut, tokens, targets, np.ones(12), [True], 12)
        gradients.append(torch.cat([p.grad.flatten() for p in (*model.parameters(), *head.parameters())]))
    exact, rounded = gradients
    assert 0 < float((rounded - exact).norm() / exact.norm()) < 0.05


def test_initial_weights():
    for family in ("gpt2", "llama"):
        model, head = model_and_head(architecture(family, width=64, feedforward=256, blocks=8))
        block = model.blocks[0]
        branch = 0.02 / math.sqrt(16) if family == "gpt2" else 0.02
        for weight, deviation in (
            (model.embedding.weight, 0.02), (block.qkv_weight, 0.02), (block.up_weight, 0.02),
            (block.out_weight, branch), (block.down_weight, branch), (head.weight, 0.02),
        ):  # fmt: skip
            assert float(weight.detach().std()) == pytest.approx(deviation, rel=0.05)


def test_refusals():
    with pytest.raises(ScenarioError, match=r"heads = 8 of width = 24 have 3 numbers each"):
        ClusterModel(architecture("llama", heads=8), torch.Generator())
    with pytest.raises(ScenarioError, match=r"kv_heads = 3 does not divide heads = 4"):
        ClusterModel(architecture("llama", kv_heads=3), torch.Generator())
    with pytest.raises(ScenarioError, match=r"style 'llama' has no decoder blocks that read an encoder"):
        Decoder(architecture("llama"), 1, FEEDFORWARD, torch.Generator())
