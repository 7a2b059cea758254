"""Cutting the encoder and the mini-batch must not change the gradient, nor must recomputation."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from priced_support import HALF, SAMPLES, SIZES, inputs_of, model_of, scenario_of, sized
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import set_checkpoint_early_stop
from torch.utils.flop_counter import FlopCounterMode

from collapipe_env.models.architecture import Architecture
from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.simulator.build import workload_costs
from collapipe_env.tasks.classification import Classification
from collapipe_env.tasks.heads import PooledLinear
from collapipe_env.training.pipeline_step import CutModel, pipeline_step, through_hosts

BLOCKS, BATCH, LENGTH = 5, 12, 6
LOSS = Classification().loss


def setup(blocks=BLOCKS):
    generator = torch.Generator().manual_seed(3)
    architecture = Architecture(blocks, 8, 12, 2, LENGTH, 64)
    model, head = ClusterModel(architecture, generator), PooledLinear(8, 3, generator)
    tokens = torch.randint(0, 64, (BATCH, LENGTH), generator=generator)
    tokens[:, 0] = 7
    return model, head, tokens, torch.randint(0, 3, (BATCH,), generator=generator)


def step(model, head, tokens, targets, blocks, survived, samples_per_pass=1):
    cut = CutModel(model, head, LOSS, blocks)
    return pipeline_step(cut, tokens, targets, np.ones(BATCH), survived, samples_per_pass)


def gradients(model, head):
    return torch.cat([p.grad.flatten() for p in (*model.parameters(), *head.parameters())])


def uncut(model, head, tokens, targets):
    loss = LOSS(head(model(tokens), tokens != 0), targets)
    loss.backward()
    return float(loss.detach()), gradients(model, head)


def relative_error(found, expected):
    return float((found - expected).norm() / expected.norm())


@st.composite
def cuts(draw):
    """Stage slots with zero-block slots anywhere, as decoded actions have them."""
    marks = sorted(draw(st.lists(st.integers(0, BLOCKS), max_size=6)))
    return [b - a for a, b in zip([0, *marks], [*marks, BLOCKS], strict=True)]


@settings(max_examples=25, deadline=None)
@given(
    blocks=cuts(),
    survived=st.lists(st.sampled_from([True, True, False]), min_size=1, max_size=BATCH),
    samples_per_pass=st.integers(1, BATCH + 1),
)
def test_the_gradient_is_that_of_the_uncut_batch_that_arrives(blocks, survived, samples_per_pass):
    model, head, tokens, targets = setup()
    units, loss = step(model, head, tokens, targets, blocks, survived, samples_per_pass)
    parts = zip(tokens.tensor_split(len(survived)), survived, strict=True)
    keep = torch.cat([torch.full((len(part),), arrives) for part, arrives in parts])
    assert units == int(keep.sum())
    if not any(survived):
        assert all(p.grad is None for p in (*model.parameters(), *head.parameters()))
        return
    expected_loss, expected = uncut(*setup()[:2], tokens[keep], targets[keep])
    assert float(loss) == pytest.approx(expected_loss, rel=1e-5)
    assert relative_error(gradients(model, head), expected) < 1e-5


def test_a_micro_batch_is_done_before_the_next_begins():
    model, head, tokens, targets = setup()
    order = []
    for block, name in ((model.blocks[0], "first"), (model.blocks[-1], "last")):
        block.register_forward_hook(lambda *_, name=name: order.append(("forward", name)))
        block.register_full_backward_hook(lambda *_, name=name: order.append(("backward", name)))
    step(model, head, tokens, targets, [2, 0, 3], [True] * 3)
    forth, back = [("forward", "first"), ("forward", "last")], [("backward", "last"), ("backward", "first")]
    assert order == (forth + back) * 3


def test_no_graph_crosses_a_boundary():
    """Every stage's backward starts from the gradient handed to it: a stage sees a leaf as its input."""
    model, head, tokens, targets = setup()
    leaves = []
    for block in list(model.blocks)[:3]:
        block.register_forward_pre_hook(lambda _, inputs: leaves.append(inputs[0].is_leaf))
    step(model, head, tokens, targets, [2, 3], [True])
    assert leaves == [True, False, True]


def test_merged_passes_hold_at_most_the_samples_asked_for():
    model, head, tokens, targets = setup()
    sizes = []
    model.blocks[0].register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    survived = [True, True, False, True, True, True]  # six micro-batches of two samples
    step(model, head, tokens, targets, [BLOCKS], survived, samples_per_pass=5)
    assert sizes == [4, 4, 2]
    sizes.clear()
    step(model, head, tokens, targets, [BLOCKS], survived)
    assert sizes == [2] * 5


@sized(*SIZES)
@pytest.mark.parametrize("bits", [16, 32])
@pytest.mark.parametrize("early_stop", [False, True], ids=["whole", "early-stop"])
def test_recomputation_stores_the_inputs_of_blocks_and_runs_each_once_more(sizes, bits, early_stop):
    scenario = scenario_of(sizes, recompute=True, **(HALF if bits == 16 else {}))
    costs, model = workload_costs(scenario), model_of(scenario)
    model = model.bfloat16() if bits == 16 else model
    loss = torch.nn.functional.mse_loss
    cut = CutModel(model, torch.nn.Identity(), loss, [sizes["blocks"]], recompute=True)
    x, mask = (part.detach().to(cut.dtype) for part in inputs_of(sizes))
    tokens = torch.ones(x.shape[:2], dtype=torch.int64)
    kept = {}

    def pack(tensor):
        if tensor.shape == x.shape:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        else:  # the mask, and nothing else
            assert tensor.numel() <= mask.numel()
        return tensor

    x.requires_grad_()
    with sdpa_kernel(SDPBackend.MATH):
        hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
        with hooks, FlopCounterMode(display=False) as forward, set_checkpoint_early_stop(early_stop):
            out = cut.run(1, x, tokens, mask, tokens)
        with FlopCounterMode(display=False) as backward:
            out.float().square().sum().backward()
    stored = sum(tensor.numel() * tensor.element_size() for tensor in kept.values())
    assert stored == SAMPLES * sizes["blocks"] * costs.stored_activation_bytes
    work = SAMPLES * sizes["blocks"] * costs.block_forward_flops
    assert forward.get_total_flops() == work
    again = costs.backward_over_forward * work
    assert again == 3.0 * work
    # PyTorch saves the last product of each block, as nothing needs what it would make.
    saved = 2 * sizes["sequence_length"] * sizes["width"] * sizes["feedforward"] * early_stop
    assert backward.get_total_flops() == again - SAMPLES * sizes["blocks"] * saved


@pytest.mark.parametrize("style", ["pre-ln", "llama"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_recomputed_gradients_are_the_same(style, dropout):
    sizes = {**SIZES["llama"], "style": style}
    model = model_of(scenario_of(sizes))
    model.architecture = replace(model.architecture, dropout=dropout)
    for block in model.blocks:
        block.dropout = dropout
    shape = SAMPLES, sizes["sequence_length"]
    tokens = torch.randint(1, 77, shape, generator=torch.Generator().manual_seed(0))
    targets = torch.randn(*shape, sizes["width"], generator=torch.Generator().manual_seed(1))

    class Head(torch.nn.Module):
        def forward(self, x, *_):
            return x

    def found(recompute):
        replica = copy.deepcopy(model)
        cut = CutModel(replica, Head(), torch.nn.functional.mse_loss, [1, 1], recompute=recompute)
        with torch.random.fork_rng():
            torch.manual_seed(5)
            through_hosts(cut, tokens, targets, 1.0)
        return [parameter.grad for parameter in replica.parameters()]

    for one, expected in zip(found(True), found(False), strict=True):
        torch.testing.assert_close(one, expected, rtol=1e-6, atol=1e-8)
