"""Low-rank adapters: what they compute, what of a model they train, and what of it is sent."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from federation_support import make
from learner_support import BLOCKS, B, N, single_outcome

from collapipe_env.models.architecture import Architecture
from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.models.lora import add_adapters
from collapipe_env.physics.allocation import COPIES, SEQUENTIAL
from collapipe_env.physics.block_costs import adapter_parameters, linear_maps
from collapipe_env.physics.payload import UpdateFormat
from collapipe_env.training.flat_parameters import parameter_count

WIDTH, FEEDFORWARD = 8, 12
RANK, ALPHA = 3, 6.0
LORA = UpdateFormat(32, "lora", lora_rank=RANK, lora_alpha=ALPHA)


def model(style="pre-ln", seed=0, adapters=True):
    positions = 9 if style in ("bert", "gpt2") else 0
    sizes = Architecture(BLOCKS, WIDTH, FEEDFORWARD, 2, 7, 50, style, positions)
    if style == "llama":
        sizes = replace(sizes, kv_heads=1)
    made = ClusterModel(sizes, torch.Generator().manual_seed(seed))
    if adapters:
        add_adapters(made, RANK, ALPHA, torch.Generator().manual_seed(seed + 1))
    return made


def tokens(seed=0):
    found = torch.randint(2, 50, (5, 7), generator=torch.Generator().manual_seed(seed))
    found[0, 4:] = 0
    return found


def stir(made, seed=5):
    """Give all adapters weights that matter."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.requires_grad:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return made


def test_only_adapters_are_trained_and_there_are_as_many_as_priced():
    made = model()
    names = {name for name, parameter in made.named_parameters() if parameter.requires_grad}
    assert len(names) == BLOCKS * 4 * 2
    assert all(".adapters." in name for name in names)
    assert parameter_count(made) == BLOCKS * adapter_parameters(linear_maps(WIDTH, FEEDFORWARD), RANK)


@pytest.mark.parametrize("style", ["pre-ln", "transformer", "bert", "gpt2", "llama"])
def test_adapters_add_their_low_rank_products_to_every_map(style):
    """Fresh ones nothing, others as much as if the weights had changed."""
    adapted, changed = model(style), model(style, adapters=False)
    before = changed(tokens())
    assert torch.equal(adapted(tokens()), before)
    stir(adapted)
    for block, plain in zip(adapted.blocks, changed.blocks, strict=True):
        assert list(block.adapters) == ["qkv", "out", "up", "down"]
        for name, adapter in block.adapters.items():
            product = adapter.up @ adapter.down
            assert torch.linalg.matrix_rank(product) == RANK
            with torch.no_grad():
                getattr(plain, f"{name}_weight").add_(ALPHA / RANK * product)
    torch.testing.assert_close(adapted(tokens()), changed(tokens()), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(changed(tokens()), before, atol=1e-2)


def lora_run(local_steps=2, update_format=LORA, **learning):
    """A learner whose run trains adapters."""
    return make(local_steps, update_format=update_format, **learning)


def play(learner, rounds=3, **options):
    blocks = [(BLOCKS - options.get("on_server", 0), 0)] * N
    servers = {"server_blocks": (options["on_server"],) * N, "mode": options["mode"]} if options else {}
    reports = []
    for t in range(rounds):
        survived = np.random.default_rng(t).random((N, learner._prepared[0].local_steps, B)) < 0.8
        reports.append(learner.train_round(single_outcome(blocks, survived, **servers)))
    return reports


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize(
    "server", [{}, {"on_server": 2, "mode": COPIES}, {"on_server": 2, "mode": SEQUENTIAL}]
)
def test_training_moves_adapters_and_head_and_nothing_else(optimizer, server):
    learner, run = lora_run(optimizer=optimizer, learning_rate=0.05)
    before = {name: value.detach().clone() for name, value in run.common_model[0].named_parameters()}
    head = run._head.flat.values.clone()
    reports = play(learner, **server)
    assert np.isfinite([report.train_loss[0] for report in reports]).all()
    moved = {
        name for name, value in run.common_model[0].named_parameters() if not torch.equal(value, before[name])
    }
    assert moved == {name for name in before if ".adapters." in name}
    assert not torch.equal(run._head.flat.values, head)
    for other, *_ in run.replicas[1:]:
        for name, value in other.named_parameters():
            assert torch.equal(value, run.replicas[0].module.get_parameter(name))


def test_stale_weights_are_stale_adapters():
    """An asynchronous pipeline runs with adapters, and its gaps show."""
    ends = []
    for gap in (0, 1):
        learner, run = lora_run(3, learning_rate=0.05)
        survived = np.ones((N, 3, B), dtype=bool)
        staleness = np.full((N, 2), gap)
        for _ in range(2):
            learner.train_round(single_outcome([(2, 2)] * N, survived, staleness=staleness))
        assert run._parameters.isfinite().all()
        ends.append(run._parameters.clone())
    assert not torch.equal(*ends)
