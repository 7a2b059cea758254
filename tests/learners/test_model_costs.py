"""The trained modules have exactly the parameters and FLOPs that the workload formulas charge for."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from collapipe_env.models.architecture import Architecture
from collapipe_env.models.cluster_model import ClusterModel, additive_mask
from collapipe_env.models.encoder_blocks import EncoderBlock
from collapipe_env.tasks.classification import PooledLinear
from collapipe_env.training.flat_parameters import parameter_count

SIZES = [(2, 32, 64, 2, 32, 100), (3, 24, 100, 3, 10, 77), (1, 256, 1024, 4, 64, 8000), (2, 15, 7, 1, 5, 64)]


def architecture(sizes):
    blocks, d, f, heads, q, vocabulary = sizes
    return Architecture(blocks, d, f, heads, q, vocabulary)


@pytest.mark.parametrize("sizes", SIZES)
def test_parameter_counts(sizes):
    blocks, d, f, _, _, vocabulary = sizes
    model = ClusterModel(architecture(sizes), torch.Generator())
    block = 4 * d * d + 2 * d * f + 9 * d + f
    assert parameter_count(model.blocks[0]) == block
    assert parameter_count(model.embedding) == vocabulary * d
    assert parameter_count(model) == vocabulary * d + blocks * block


@pytest.mark.parametrize("sizes", SIZES)
def test_block_flops_forward_and_backward(sizes):
    _, d, f, _, q, _ = sizes
    samples = 3
    block = EncoderBlock(architecture(sizes), torch.Generator())
    x = torch.randn(samples, q, d, generator=torch.Generator(), requires_grad=True)
    mask = additive_mask(torch.ones(samples, q, dtype=torch.int64))
    forward = samples * (2 * q * (4 * d * d + 2 * d * f) + 4 * q * q * d)
    with sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False) as counter:
            y = block(x, mask)
        assert counter.get_total_flops() == forward
        with FlopCounterMode(display=False) as counter:
            y.sum().backward()
        assert counter.get_total_flops() == 2 * forward


@pytest.mark.parametrize("outputs", [2, 5])
def test_head_flops(outputs):
    samples, q, d = 3, 8, 16
    head = PooledLinear(d, outputs, torch.Generator())
    hidden = torch.ones(samples, q, d, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        logits = head(hidden, torch.ones(samples, q, dtype=torch.bool))
    assert counter.get_total_flops() == samples * 2 * d * outputs
    with FlopCounterMode(display=False) as counter:
        logits.sum().backward()
    assert counter.get_total_flops() == 2 * samples * 2 * d * outputs


def test_padding_changes_nothing():
    sizes = (2, 16, 32, 2, 8, 64)
    model = ClusterModel(architecture(sizes), torch.Generator())
    head = PooledLinear(16, 2, torch.Generator())
    tokens = torch.tensor([[5, 9, 3, 0, 0, 0, 0, 0]])
    before = head(model(tokens), tokens != 0)
    with torch.no_grad():
        model.embedding.weight[0] = 100.0  # the padding token's row
    torch.testing.assert_close(head(model(tokens), tokens != 0), before)
