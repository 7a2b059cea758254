"""Low-rank adapters: what they compute, what of a model they train, and what of it is sent."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from learner_support import BLOCKS, N, SmallRun

from collapipe_env.models.architecture import Architecture
from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.models.lora import add_adapters
from collapipe_env.physics.allocation import COMMON, COPIES, SEQUENTIAL
from collapipe_env.physics.block_costs import adapter_parameters, linear_maps
from collapipe_env.physics.payload import UpdateFormat
from collapipe_env.training.flat_parameters import parameter_count

WIDTH, FEEDFORWARD = 8, 12
RANK, ALPHA = 3, 6.0
LORA = UpdateFormat(32, "lora", lora_rank=RANK, lora_alpha=ALPHA)


def model(style="pre-ln", adapters=True):
    positions = 9 if style in ("bert", "gpt2") else 0
    sizes = Architecture(BLOCKS, WIDTH, FEEDFORWARD, 2, 7, 50, style, positions)
    if style == "llama":
        sizes = replace(sizes, kv_heads=1)
    made = ClusterModel(sizes, torch.Generator().manual_seed(0))
    if adapters:
        add_adapters(made, RANK, ALPHA, torch.Generator().manual_seed(1))
    return made


@pytest.mark.parametrize("style", ["pre-ln", "transformer", "bert", "gpt2", "llama"])
def test_adapters_add_their_low_rank_products_to_every_map(style):
    """Fresh ones nothing, others as much as if the weights had changed; only they are trained."""
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(2, 50, (5, 7), generator=generator)
    tokens[0, 4:] = 0
    adapted, changed = model(style), model(style, adapters=False)
    before = changed(tokens)
    assert torch.equal(adapted(tokens), before)
    trained = {name: one for name, one in adapted.named_parameters() if one.requires_grad}
    assert len(trained) == BLOCKS * 4 * 2
    assert all(".adapters." in name for name in trained)
    if style == "pre-ln":
        assert parameter_count(adapted) == BLOCKS * adapter_parameters(linear_maps(WIDTH, FEEDFORWARD), RANK)
    with torch.no_grad():
        for parameter in trained.values():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
        for block, plain in zip(adapted.blocks, changed.blocks, strict=True):
            assert list(block.adapters) == ["qkv", "out", "up", "down"]
            for name, adapter in block.adapters.items():
                product = adapter.up @ adapter.down
                assert torch.linalg.matrix_rank(product) == RANK
                getattr(plain, f"{name}_weight").add_(ALPHA / RANK * product)
    torch.testing.assert_close(adapted(tokens), changed(tokens), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(changed(tokens), before, atol=1e-2)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("mode", [COMMON, COPIES, SEQUENTIAL])
def test_training_moves_adapters_and_head_and_nothing_else(optimizer, mode):
    run = SmallRun(2, update_format=LORA, optimizer=optimizer, learning_rate=0.05)
    models, head = [replica.module for replica in run.federation.replicas], run.head
    before = {name: value.detach().clone() for name, value in models[0].named_parameters()}
    assert np.isfinite(run.train(rounds=2, server_blocks=(0 if mode == COMMON else 2,) * N, mode=mode))
    moved = {name for name, value in models[0].named_parameters() if not torch.equal(value, before[name])}
    assert moved == {name for name in before if ".adapters." in name}
    assert not torch.equal(run.head, head)
    for other in models[1:]:
        for name, value in other.named_parameters():
            assert torch.equal(value, models[0].get_parameter(name))


def test_stale_weights_are_stale_adapters():
    """An asynchronous pipeline runs with adapters, and its gaps show."""
    ends = []
    for gap in (0, 1):
        run = SmallRun(3, update_format=LORA, learning_rate=0.05)
        run.train(rounds=2, blocks=[(2, 2)] * N, staleness=np.full((N, 2), gap))
        assert run.weights.isfinite().all()
        ends.append(run.weights)
    assert not torch.equal(*ends)
