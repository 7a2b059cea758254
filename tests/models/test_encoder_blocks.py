"""Styles of models: the formulas of their papers, dropout, initial weights, and what holds for all."""

import math

import pytest
import torch
from hf_support import FAMILIES
from torch import nn

from collapipe_env.models.architecture import Architecture
from collapipe_env.models.cluster_model import ClusterModel, additive_mask
from collapipe_env.models.dropout import private_randomness
from collapipe_env.models.encoder_blocks import EncoderBlock
from collapipe_env.training.flat_parameters import parameter_count

STYLES = ("pre-ln", "transformer", "bert")
KINDS = (*STYLES, *FAMILIES)
"""Those of language models, too."""
LENGTH, VOCABULARY = 6, 50


def architecture(style, blocks=2, d=8, f=12, heads=2, dropout=0.0):
    fields = (
        {"style": style, "learned_positions": 10, "token_types": 2} if style == "bert" else {"style": style}
    )
    fields = FAMILIES.get(style, fields)
    return Architecture(blocks, d, f, heads, LENGTH, VOCABULARY, dropout=dropout, **fields)


def seeded(seed=3):
    return torch.Generator().manual_seed(seed)


def some_tokens(samples=5):
    """Rows of unequal length, padded by 0."""
    tokens = torch.randint(2, VOCABULARY, (samples, LENGTH), generator=seeded())
    for row in range(samples):
        tokens[row, 1 + row % LENGTH :] = 0
    return tokens


@torch.no_grad()
def perturbed(module):
    """Move gains and biases off ones and zeros, so that none can be forgotten or mixed up."""
    generator = seeded(8)
    for parameter in module.parameters():
        parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return module


def reference_layer(block, style, dropout=0.0):
    """PyTorch's own layer with a block's weights."""
    d, f = block.down_weight.shape
    layer = nn.TransformerEncoderLayer(
        d, block.heads, f, dropout, activation="relu" if style == "transformer" else "gelu",
        layer_norm_eps=1e-12 if style == "bert" else 1e-5, batch_first=True, norm_first=style == "pre-ln",
    )  # fmt: skip
    layer.dropout = nn.Identity()  # neither paper drops inside the feed-forward branch
    own = dict(block.named_parameters())
    names = {
        "self_attn.in_proj_weight": "qkv_weight", "self_attn.in_proj_bias": "qkv_bias",
        "self_attn.out_proj.weight": "out_weight", "self_attn.out_proj.bias": "out_bias",
        "linear1.weight": "up_weight", "linear1.bias": "up_bias",
        "linear2.weight": "down_weight", "linear2.bias": "down_bias",
        "norm1.weight": "norm1_gain", "norm1.bias": "norm1_bias",
        "norm2.weight": "norm2_gain", "norm2.bias": "norm2_bias",
    }  # fmt: skip
    layer.load_state_dict({theirs: own[ours].detach() for theirs, ours in names.items()})
    return layer


@pytest.mark.parametrize("style", STYLES)
def test_block_equals_pytorchs_layer(style):
    block = perturbed(EncoderBlock(architecture(style), seeded())).double()
    layer = reference_layer(block, style).double()
    tokens = some_tokens()
    x = torch.randn(len(tokens), LENGTH, 8, generator=seeded(5), dtype=torch.float64, requires_grad=True)
    found = block(x, additive_mask(tokens).double())
    expected = layer(x, src_key_padding_mask=tokens == 0)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    weights = torch.randn(found.shape, generator=seeded(6), dtype=torch.float64)
    gradients = [torch.autograd.grad((y * weights).sum(), x)[0] for y in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)


@pytest.mark.parametrize("style", STYLES)
def test_dropout_falls_where_pytorchs_layer_has_it(style):
    """The same seed gives the same masks on attention weights and on both branches."""
    block = perturbed(EncoderBlock(architecture(style, dropout=0.3), seeded()))
    layer = reference_layer(block, style, dropout=0.3)
    # One sample: PyTorch's layer lays several out in another order, so their masks would differ.
    x = torch.randn(1, LENGTH, 8, generator=seeded(5))
    mask = additive_mask(torch.ones(1, LENGTH))
    for seed in range(5):
        with private_randomness(seed):
            found = block(x, mask)
        with private_randomness(seed):
            expected = layer(x, src_key_padding_mask=torch.zeros(1, LENGTH, dtype=torch.bool))
        torch.testing.assert_close(found, expected)
        with private_randomness(seed + 5):
            assert not torch.allclose(found, block(x, mask))


@pytest.mark.parametrize("style", KINDS)
def test_dropout_is_off_in_evaluation_and_at_zero(style):
    tokens = some_tokens()
    plain, dropping = (ClusterModel(architecture(style, dropout=p), seeded()) for p in (0.0, 0.5))
    before = torch.get_rng_state()
    expected = plain(tokens)
    assert torch.equal(dropping.eval()(tokens), expected)
    assert torch.equal(torch.get_rng_state(), before)  # nothing was drawn
    with private_randomness(1):
        assert not torch.allclose(dropping.train()(tokens), expected)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("style", STYLES)
def test_embedding_drops_out(style):
    embedding = ClusterModel(architecture(style, d=64, dropout=0.25), seeded()).embedding
    tokens = torch.randint(1, VOCABULARY, (40, LENGTH), generator=seeded())
    with private_randomness(2):
        dropped = embedding(tokens)
    kept = dropped != 0
    assert float(kept.float().mean()) == pytest.approx(0.75, abs=0.02)
    torch.testing.assert_close(dropped[kept], embedding.eval()(tokens)[kept] / 0.75)


def test_private_randomness_survives_an_error():
    before = torch.get_rng_state()
    with pytest.raises(KeyError), private_randomness(4):
        {}[torch.rand(3)]
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_private_randomness_on_a_gpu():
    device = torch.device("cuda")
    before = torch.cuda.get_rng_state(), torch.get_rng_state()
    draws = []
    for _ in range(2):
        with private_randomness(5, device):
            draws.append(torch.rand(4, device=device))
    assert torch.equal(*draws)
    assert torch.equal(torch.cuda.get_rng_state(), before[0])
    assert torch.equal(torch.get_rng_state(), before[1])


def positions_by_hand(d):
    return torch.tensor(
        [
            [
                (math.sin, math.cos)[i % 2](position / 10_000 ** ((i - i % 2) / d))
                for i in range(d)
            ]
            for position in range(LENGTH)
        ]
    )  # fmt: skip


@pytest.mark.parametrize("d", [8, 15])
def test_sinusoidal_embeddings_by_hand(d):
    tokens = some_tokens()
    for style, scale in (("pre-ln", 1.0), ("transformer", math.sqrt(d))):
        embedding = ClusterModel(architecture(style, d=d, heads=1), seeded()).embedding
        expected = embedding.weight[tokens] * scale + positions_by_hand(d)
        torch.testing.assert_close(embedding(tokens), expected, rtol=1e-5, atol=1e-6)
        assert float((embedding.weight.detach() * scale).std()) == pytest.approx(1, abs=0.1)


def test_bert_embedding_without_types():
    sizes = Architecture(1, 8, 12, 2, LENGTH, VOCABULARY, style="bert", learned_positions=LENGTH)
    embedding = ClusterModel(sizes, seeded()).embedding
    assert parameter_count(embedding) == (VOCABULARY + LENGTH + 2) * 8
    assert embedding(some_tokens()).shape == (5, LENGTH, 8)


@pytest.mark.parametrize("style", KINDS)
def test_shorter_rows_are_the_beginning_of_longer_ones(style):
    model = ClusterModel(architecture(style), seeded())
    tokens = torch.full((2, LENGTH), 7)
    tokens[:, 4:] = 0
    torch.testing.assert_close(model(tokens[:, :4]), model(tokens)[:, :4])


def test_pre_ln_weights_are_drawn_as_ever():
    """The order and scale of the draws, spelt out: results stay reproducible."""
    blocks, d, f = 3, 8, 12
    model, generator = ClusterModel(architecture("pre-ln", blocks), seeded()), seeded()
    assert torch.equal(model.embedding.weight, torch.randn(VOCABULARY, d, generator=generator))
    for block in model.blocks:
        branch = 1 / math.sqrt(2 * blocks)
        for name, rows, columns, scale in (
            ("qkv", 3 * d, d, 1.0), ("out", d, d, branch), ("up", f, d, 1.0), ("down", d, f, branch),
        ):  # fmt: skip
            expected = torch.randn(rows, columns, generator=generator) * (scale / math.sqrt(columns))
            assert torch.equal(getattr(block, f"{name}_weight"), expected)


@pytest.mark.parametrize(("style", "deviation"), [("transformer", math.sqrt(2 / (64 + 256))), ("bert", 0.02)])
def test_initial_weights_of_the_papers(style, deviation):
    weight = EncoderBlock(architecture(style, d=64, f=256), seeded()).up_weight.detach()
    assert float(weight.std()) == pytest.approx(deviation, rel=0.03)
    assert float(weight.mean()) == pytest.approx(0, abs=deviation / 30)
    if style == "transformer":
        assert float(weight.abs().max()) <= math.sqrt(3) * deviation  # uniform
