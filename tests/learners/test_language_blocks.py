"""Blocks of GPT-2, Llama and Qwen2: the same logits and gradients as those of transformers."""

import math

import pytest
import torch
from hf_support import (
    FAMILIES,
    FEEDFORWARD,
    HEADS,
    LENGTH,
    VOCABULARY,
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
from collapipe_env.models.rotary import rotary_tables, rotate
from collapipe_env.training.pipeline_step import pipeline_step


def next_token_loss(scores, targets):
    return functional.cross_entropy(scores.flatten(end_dim=1), targets.flatten())


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_equal_those_of_transformers(family, tied, attention):
    sizes = architecture(family, tied)
    theirs = random_language_model(sizes, family, attention)
    model, head = of_transformers(theirs, sizes)
    tokens = some_tokens()
    with torch.no_grad():
        expected = theirs(input_ids=tokens, attention_mask=(tokens != 0).long()).logits
        found = head(model(tokens), tokens != 0)
    real = tokens != 0
    torch.testing.assert_close(found[real], expected[real], rtol=0, atol=1e-5)
    assert float(expected[real].std()) > 0.5  # so that the tolerance is a strict one


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
        pipeline_step(model, head, next_token_loss, tokens, targets, (1, 2), [True], 12, precision=precision)
        gradients.append(torch.cat([p.grad.flatten() for p in (*model.parameters(), *head.parameters())]))
    exact, rounded = gradients
    assert 0 < float((rounded - exact).norm() / exact.norm()) < 0.05


@pytest.mark.parametrize("family", FAMILIES)
def test_no_position_reads_a_later_one(family):
    model, _ = model_and_head(architecture(family))
    tokens = some_tokens(padded=False)
    before = model(tokens)
    changed = tokens.clone()
    changed[:, 5] = 1 + tokens[:, 5] % (VOCABULARY - 1)
    after = model(changed)
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.isclose(before[:, 5:], after[:, 5:]).all(dim=-1).any()


def turned_by_hand(x, position, sizes):
    """One head's numbers (d / heads) at a position, turned as complex numbers."""
    half = len(x) // 2
    turned = []
    for i in range(half):
        frequency = sizes.rope_theta ** (-i / half)
        wavelength = 2 * math.pi / frequency
        slow, fast = sizes.rope_original_length, sizes.rope_original_length / 4
        if wavelength > slow:
            frequency /= sizes.rope_factor
        elif wavelength > fast:
            smooth = (sizes.rope_original_length / wavelength - 1) / 3
            frequency = (1 - smooth) * frequency / sizes.rope_factor + smooth * frequency
        angle = position * frequency
        turned.append(complex(x[i], x[half + i]) * complex(math.cos(angle), math.sin(angle)))
    return [z.real for z in turned] + [z.imag for z in turned]


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("family", ["llama", "llama3"])
def test_rotations_by_hand(family):
    sizes = architecture(family, heads=1, kv_heads=1)
    cosines, sines = rotary_tables(sizes)
    x = torch.randn(1, LENGTH, 1, WIDTH, generator=torch.Generator().manual_seed(1))
    found = rotate(x, cosines, sines)
    for position in range(LENGTH):
        expected = turned_by_hand(x[0, position, 0].tolist(), position, sizes)
        assert found[0, position, 0].tolist() == pytest.approx(expected, rel=1e-12)
    if family == "llama3":  # some pairs are stretched in full, some in part, some not
        plain = rotary_tables(architecture(family, heads=1, kv_heads=1, rope_factor=1.0))[1][1].asin()
        ratio = sines[1].asin() / plain
        assert float(ratio[0]) == pytest.approx(1)
        assert float(ratio[-1]) == pytest.approx(1 / 8)
        assert ((ratio > 0.13) & (ratio < 0.99)).any()


def test_scores_depend_on_distances_only():
    """Products of turned queries and keys are the same when both are moved on."""
    sizes = architecture("llama")
    cosines, sines = rotary_tables(sizes)
    row = torch.randn(2, 1, 1, HEADS, WIDTH // HEADS, generator=torch.Generator().manual_seed(1))
    query, key = (rotate(x.expand(1, LENGTH, HEADS, -1), cosines, sines) for x in row)
    scores = torch.einsum("bqhd,bkhd->hqk", query, key)
    torch.testing.assert_close(scores[:, 1:, 1:], scores[:, :-1, :-1], rtol=1e-4, atol=1e-5)


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
    with pytest.raises(ScenarioError, match=r"learned_positions is 5, but style 'gpt2' .*9 tokens"):
        ClusterModel(architecture("gpt2", learned_positions=5), torch.Generator())
    with pytest.raises(ScenarioError, match=r"style 'llama' has no decoder blocks that read an encoder"):
        Decoder(architecture("llama"), 1, FEEDFORWARD, torch.Generator())
