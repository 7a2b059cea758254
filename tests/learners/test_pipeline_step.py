"""Cutting the encoder and the mini-batch must not change the gradient."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from collapipe_env.models.architecture import Architecture
from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.tasks.classification import Classification
from collapipe_env.tasks.heads import PooledLinear
from collapipe_env.training.pipeline_step import CutModel, pipeline_step

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


@settings(max_examples=40, deadline=None)
@given(blocks=cuts(), micro_batches=st.integers(1, BATCH), samples_per_pass=st.integers(1, BATCH + 1))
def test_gradient_equals_uncut_full_batch(blocks, micro_batches, samples_per_pass):
    model, head, tokens, targets = setup()
    expected_loss, expected = uncut(*setup())
    arrive = [True] * micro_batches
    units, loss = step(model, head, tokens, targets, blocks, arrive, samples_per_pass)
    assert units == BATCH
    assert float(loss) == pytest.approx(expected_loss, rel=1e-5)
    assert relative_error(gradients(model, head), expected) < 1e-5


@settings(max_examples=25, deadline=None)
@given(
    blocks=cuts(),
    survived=st.lists(st.booleans(), min_size=1, max_size=BATCH),
    samples_per_pass=st.sampled_from([1, 4]),
)
def test_lost_micro_batches_are_left_out(blocks, survived, samples_per_pass):
    model, head, tokens, targets = setup()
    units, _ = step(model, head, tokens, targets, blocks, survived, samples_per_pass)
    keep = torch.cat(
        [
            torch.full((len(part),), s)
            for part, s in zip(tokens.tensor_split(len(survived)), survived, strict=True)
        ]
    )
    assert units == int(keep.sum())
    if not any(survived):
        assert all(p.grad is None for p in (*model.parameters(), *head.parameters()))
        return
    _, expected = uncut(*setup()[:2], tokens[keep], targets[keep])
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
    for index in (0, 2):
        model.blocks[index].register_forward_pre_hook(lambda _, inputs: leaves.append(inputs[0].is_leaf))
    model.blocks[1].register_forward_pre_hook(lambda _, inputs: leaves.append(inputs[0].is_leaf))
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
