"""Flat vectors of a module's parameters."""

import torch
from torch import nn

from collapipe_env.models.architecture import Architecture
from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.scenario.learning import LearningSpec
from collapipe_env.training.flat_parameters import FlatParameters, parameter_count


def test_flat_vectors_hold_only_what_is_trained():
    sizes = Architecture(2, 8, 12, 2, 6, 50, style="bert", learned_positions=10, token_types=2)
    model = ClusterModel(sizes, torch.Generator().manual_seed(3))
    model.requires_grad_(False)
    block = model.blocks[1]
    block.adapters["up"] = nn.Linear(8, 12, bias=False)
    block.down_weight.requires_grad_(True)
    added = block.adapters["up"].weight
    assert parameter_count(model) == 8 * 12 + 8 * 12
    frozen = model.embedding.weight.data_ptr()
    flat = FlatParameters(model, torch.empty(192), torch.zeros(192))
    assert model.embedding.weight.data_ptr() == frozen
    assert model.embedding.weight.grad is None
    assert torch.equal(flat.values[:96], block.down_weight.flatten())
    assert torch.equal(flat.values[96:], added.flatten())
    assert flat.slices([model.embedding, model.blocks[0]]) == []
    assert flat.slices([block]) == [slice(0, 192)]
    model(torch.arange(1, 7)[None])[..., 0].sum().backward()
    before, weights = flat.values.clone(), added.detach().clone()
    flat.optimizer(LearningSpec(optimizer="sgd", weight_decay=0.0, momentum=0.0), 0.1).step()
    torch.testing.assert_close(flat.values, before - 0.1 * flat.gradients)
    assert not torch.equal(added, weights)
