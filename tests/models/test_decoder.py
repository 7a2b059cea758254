"""The decoder costs what it is priced at, equals PyTorch's layers, and looks neither ahead nor at padding."""

import math

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from collapipe_env.models.architecture import Architecture
from collapipe_env.models.decoder import CachedDecoding, Decoder
from collapipe_env.physics.workload import decoder_forward_flops

STYLES = ["pre-ln", "transformer", "bert"]
D, F, HEADS, Q, V = 16, 40, 4, 9, 50


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def architecture(style="pre-ln", **other):
    return Architecture(**{"blocks": 2, "width": D, "feedforward": F, "heads": HEADS, "sequence_length": Q,
                           "vocabulary": 64, "style": style, **other})  # fmt: skip


def decoder(style, blocks=2, dtype=torch.float64, **other):
    built = Decoder(architecture(style, **other), blocks, V, generator()).to(dtype)
    with torch.no_grad():  # gains and biases of trained models are not 1 and 0
        for parameter in built.parameters():
            if parameter.ndim == 1:
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator(1), dtype=dtype)
    return built


def score(built, hidden, mask, targets):
    """Scores by sample and position; the targets have no padding."""
    return built(hidden, mask, targets).view(len(targets), -1, V)


def batch(samples=3, dtype=torch.float64):
    hidden = torch.randn(samples, Q, D, generator=generator(2), dtype=dtype)
    mask = torch.arange(Q) < torch.tensor([Q, 4, 1])[:samples, None]
    targets = torch.randint(4, V, (samples, Q + 1), generator=generator(3))
    return hidden, mask, targets


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("sizes", [(2, 32, 64, 2, 32, 100), (1, 24, 100, 3, 10, 77)])
def test_flops_and_parameters_are_the_formulas(style, sizes):
    blocks, d, f, heads, q, outputs = sizes
    samples = 3
    built = Decoder(Architecture(1, d, f, heads, q, 64, style), blocks, outputs, generator())
    norms = 4 * d if style == "pre-ln" else 0
    block = 8 * d * d + 2 * d * f + 15 * d + f
    assert sum(p.numel() for p in built.parameters()) == outputs * d + blocks * block + norms
    hidden = torch.randn(samples, q, d, generator=generator(), requires_grad=True)
    targets = torch.full((samples, q + 1), 4)
    forward = samples * (blocks * (2 * q * (8 * d * d + 2 * d * f) + 8 * q * q * d) + 2 * q * d * outputs)
    assert forward == samples * decoder_forward_flops(blocks, d, f, q, outputs, q)
    with sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False) as counter:
            scores = built(hidden, torch.ones(samples, q, dtype=torch.bool), targets)
        assert counter.get_total_flops() == forward
        assert scores.shape == (samples * q, outputs)
        with FlopCounterMode(display=False) as counter:
            scores.sum().backward()
        assert counter.get_total_flops() == 2 * forward


def torch_layer(block, style):
    """PyTorch's decoder layer with a block's weights."""
    layer = nn.TransformerDecoderLayer(
        D, HEADS, F, dropout=0.0, activation="relu" if style == "transformer" else "gelu",
        layer_norm_eps=1e-12 if style == "bert" else 1e-5, batch_first=True, norm_first=style == "pre-ln",
        dtype=torch.float64,
    )  # fmt: skip
    attention, cross = layer.self_attn, layer.multihead_attn
    pairs = {
        attention.in_proj_weight: block.qkv_weight, attention.in_proj_bias: block.qkv_bias,
        attention.out_proj.weight: block.out_weight, attention.out_proj.bias: block.out_bias,
        cross.in_proj_weight: torch.cat((block.query_weight, block.memory_weight)),
        cross.in_proj_bias: torch.cat((block.query_bias, block.memory_bias)),
        cross.out_proj.weight: block.cross_weight, cross.out_proj.bias: block.cross_bias,
        layer.linear1.weight: block.up_weight, layer.linear1.bias: block.up_bias,
        layer.linear2.weight: block.down_weight, layer.linear2.bias: block.down_bias,
        layer.norm1.weight: block.norm1_gain, layer.norm1.bias: block.norm1_bias,
        layer.norm2.weight: block.norm2_gain, layer.norm2.bias: block.norm2_bias,
        layer.norm3.weight: block.norm3_gain, layer.norm3.bias: block.norm3_bias,
    }  # fmt: skip
    with torch.no_grad():
        for own, other in pairs.items():
            own.copy_(other)
    return layer


@pytest.mark.parametrize("style", STYLES)
def test_blocks_equal_pytorch_layers_with_the_same_weights(style):
    built = decoder(style)
    hidden, mask, targets = batch()
    hidden.requires_grad_()
    x = nn.functional.embedding(targets[:, :-1], built.weight) * math.sqrt(D) + built.positions.double()
    memory = hidden
    if style == "pre-ln":
        memory = nn.functional.layer_norm(hidden, (D,), built.memory_gain, built.memory_bias)
    causal = nn.Transformer.generate_square_subsequent_mask(Q, dtype=torch.float64)
    for block in built.blocks:
        layer = torch_layer(block, style)
        x = layer(x, memory, tgt_mask=causal, memory_key_padding_mask=~mask)
    if style == "pre-ln":
        x = nn.functional.layer_norm(x, (D,), built.norm_gain, built.norm_bias)
    found, expected = score(built, hidden, mask, targets), x @ built.weight.T
    torch.testing.assert_close(found, expected)
    pull = torch.randn(found.shape, generator=generator(4), dtype=torch.float64)
    gradients = [torch.autograd.grad((scores * pull).sum(), hidden)[0] for scores in (found, expected)]
    torch.testing.assert_close(*gradients)


def test_scores_that_padding_follows_are_not_computed():
    """And padding changes nothing before it."""
    built = decoder("pre-ln")
    hidden, mask, targets = batch()
    before = score(built, hidden, mask, targets)
    lengths = torch.tensor([5, 1, 3])
    targets[torch.arange(Q + 1) > lengths[:, None]] = 0
    shorter = built(hidden, mask, targets)
    assert shorter.shape == (9, V)
    torch.testing.assert_close(shorter, before[torch.arange(Q) < lengths[:, None]])


@pytest.mark.parametrize("style", STYLES)
def test_cached_decoding_equals_full_recomputation(style):
    built = decoder(style)
    hidden, mask, targets = batch()
    full = score(built, hidden, mask, targets)
    stepper = CachedDecoding(built, hidden, mask)
    for t in range(5):
        torch.testing.assert_close(stepper.step(targets[:, t]), full[:, t])
    rows = torch.tensor([2, 0, 0, 2])  # go on with some rows, twice and in another order
    stepper.select(rows)
    for t in range(5, Q):
        torch.testing.assert_close(stepper.step(targets[rows, t]), full[rows, t])


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("width", [16, 128])
def test_untrained_decoder_begins_near_the_uniform_guess(style, width):
    outputs = 1000
    built = Decoder(architecture(style, width=width), 3, outputs, generator())
    hidden = torch.randn(8, Q, width, generator=generator(1))
    targets = torch.randint(4, outputs, (8, Q + 1), generator=generator(2))
    scores = built(hidden, torch.ones(8, Q, dtype=torch.bool), targets)
    loss = nn.functional.cross_entropy(scores, targets[:, 1:].flatten())
    assert abs(loss.item() - math.log(outputs)) < 3


def test_weights_come_from_the_generator_alone():
    before = torch.random.get_rng_state()
    first, second, third = (Decoder(architecture(), 2, V, generator(seed)) for seed in (5, 5, 6))
    assert torch.equal(torch.random.get_rng_state(), before)
    for (name, a), b, c in zip(
        first.named_parameters(), second.parameters(), third.parameters(), strict=True
    ):
        assert torch.equal(a, b)
        assert torch.equal(a, c) == (a.ndim == 1), name


def test_dropout_acts_in_training_only():
    built = decoder("pre-ln", dropout=0.2)
    plain = decoder("pre-ln")
    hidden, mask, targets = batch()
    built.eval()
    assert torch.equal(built(hidden, mask, targets), plain(hidden, mask, targets))
    built.train()
    with torch.random.fork_rng([]):
        torch.manual_seed(1)
        first, second = built(hidden, mask, targets), built(hidden, mask, targets)
    assert (first - second).abs().max() > 0.1


def test_mixed_precision_computes_nearly_the_same():
    built = decoder("pre-ln", dtype=torch.float32)
    hidden, mask, targets = batch(dtype=torch.float32)
    exact = score(built, hidden, mask, targets)
    with torch.autocast("cpu", torch.bfloat16):
        rough = score(built, hidden, mask, targets)
        stepper = CachedDecoding(built, hidden, mask)
        stepped = torch.stack([stepper.step(targets[:, t]) for t in range(Q)], dim=1)
    torch.testing.assert_close(rough.float(), exact, rtol=0.1, atol=0.15)
    torch.testing.assert_close(stepped.float(), exact, rtol=0.1, atol=0.15)
