"""A head on the server that is the embedding's table on the control units."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from federation_support import plan_of
from hf_support import architecture
from learner_support import BLOCKS, B, N, small_learner
from torch.nn import functional

from collapipe_env.models.language_head import LanguageHead
from collapipe_env.physics.allocation import COMMON, COPIES, SEQUENTIAL
from collapipe_env.physics.payload import UpdateFormat
from collapipe_env.training.federation import Federation

LENGTH, VOCABULARY, RATE = 7, 61, 0.3


class NextToken:
    """As much of a language-modelling task as training asks for."""

    def build_head(self, spec, generator):
        return LanguageHead(spec.architecture, VOCABULARY, generator)

    def loss(self, outputs, targets, smoothing=0.0):
        return functional.cross_entropy(
            outputs.flatten(end_dim=1), targets.flatten(), label_smoothing=smoothing
        )


def run_of(family="qwen2", *, tied=True, local_steps=1, update_format=None, head="copies", **learning):
    """A learner whose run trains a language model on random tokens."""
    options = {"optimizer": "sgd", "learning_rate": RATE, "server_learning_rate": RATE, "weight_decay": 0.0}
    learner = small_learner(local_steps, token_dropout=0.0, head=head, **{**options, **learning})
    setup = learner._prepared[0]
    sizes = architecture(family, tied, length=LENGTH, blocks=BLOCKS)
    samples = len(setup.train[0])
    drawn = torch.randint(1, VOCABULARY, (samples, LENGTH + 1), generator=torch.Generator().manual_seed(3))
    setup = replace(
        setup,
        task=NextToken(),
        task_spec=replace(setup.task_spec, architecture=sizes, outputs=VOCABULARY),
        train=(drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()),
        units=np.full(samples, float(LENGTH)),
        update_format=update_format or UpdateFormat(),
    )
    run = learner._runs[0] = Federation(setup, np.random.default_rng(5))
    run._data_sizes[:] = 1.0
    return learner, run


def play(learner, on_server=0, mode=COMMON):
    run, survived = learner._runs[0], np.ones((N, learner._prepared[0].local_steps, B), dtype=bool)
    blocks = np.array([(BLOCKS - on_server, 0)] * N)
    run.train_round(plan_of(run, blocks, survived, on_server=on_server, mode=mode))


def table_and_matrix(run):
    model, head = run.common_model
    return model.embedding.weight.detach().clone(), head.weight.detach().clone()


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("family", ["gpt2", "qwen2"])
@pytest.mark.parametrize("merged", [True, False])
def test_one_step_is_that_of_one_matrix_at_both_ends(family, merged):
    """Plain SGD against autograd through a model whose head is the very table of its embedding."""
    options = {} if merged else {"gradient_clip": 1e6}  # which keeps clusters apart and clips nothing
    learner, run = run_of(family, **options)
    _, twin = run_of(family)
    model, head = twin.common_model
    head.weight = model.embedding.weight
    batches = [twin.samples.next_batch(twin._setup, stream) for stream in twin.streams]
    losses = [
        functional.cross_entropy(head(model(tokens)).flatten(end_dim=1), targets.flatten())
        for tokens, targets, _ in batches
    ]
    names = [name for name, _ in model.named_parameters()]
    gradients = torch.autograd.grad(sum(losses) / N, [*model.parameters(), head.norm_gain])
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    gain = head.norm_gain.detach().clone()
    play(learner)
    found, found_head = run.common_model
    for name, gradient in zip(names, gradients, strict=False):
        expected = before[name] - RATE * gradient
        torch.testing.assert_close(found.get_parameter(name), expected, rtol=0, atol=1e-12, msg=name)
    torch.testing.assert_close(found_head.norm_gain, gain - RATE * gradients[-1], rtol=0, atol=1e-12)
    assert torch.equal(*table_and_matrix(run))


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "adamw", "learning_rate": 0.01, "server_learning_rate": 0.02},
        {"update_format": UpdateFormat(8), "aggregation": "fedadam"},
        {"update_format": UpdateFormat(16), "head": "common"},
    ],
)
@pytest.mark.parametrize(
    "server", [{}, {"on_server": 2, "mode": COPIES}, {"on_server": 2, "mode": SEQUENTIAL}]
)
def test_both_ends_are_one_after_every_round(options, server):
    learner, run = run_of(local_steps=2, **options)
    before, matrix = table_and_matrix(run)
    assert torch.equal(before, matrix)
    for _ in range(2):
        play(learner, **server)
        table, matrix = table_and_matrix(run)
        assert torch.equal(table, matrix)
        assert not torch.equal(table, before)
        for model, *_ in run.replicas[1:]:
            assert torch.equal(model.embedding.weight, table)


def test_adapters_freeze_both_ends():
    learner, run = run_of(update_format=UpdateFormat(32, "lora", lora_rank=2))
    before = table_and_matrix(run)
    gain = run.common_model[1].norm_gain.detach().clone()
    play(learner)
    for old, new in zip(before, table_and_matrix(run), strict=True):
        assert torch.equal(old, new)
    assert torch.equal(*before)
    assert not torch.equal(gain, run.common_model[1].norm_gain)
