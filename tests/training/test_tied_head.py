"""A head on the server that is the embedding's table on the control units."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hf_support import architecture
from learner_support import BLOCKS, N, SmallRun
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


def run_of(family="qwen2", local_steps=1, **options):
    """A run that trains a tied language model on random tokens."""
    defaults = {"optimizer": "sgd", "learning_rate": RATE, "server_learning_rate": RATE, "weight_decay": 0.0}
    run = SmallRun(local_steps, token_dropout=0.0, partition="iid", **{**defaults, **options})
    sizes = architecture(family, tied=True, length=LENGTH, blocks=BLOCKS)
    samples = 12 * N
    drawn = torch.randint(1, VOCABULARY, (samples, LENGTH + 1), generator=torch.Generator().manual_seed(3))
    run.setup = replace(
        run.setup,
        task=NextToken(),
        task_spec=replace(run.setup.task_spec, architecture=sizes, outputs=VOCABULARY),
        train=(drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()),
        strata=np.zeros(samples, dtype=int),
        lengths=np.zeros(samples, dtype=int),
        units=np.full(samples, float(LENGTH)),
    )
    run.federation = Federation(run.setup, np.random.default_rng(5))
    return run


def table_and_matrix(run):
    model, head = run.federation.common_model
    return model.embedding.weight.detach().clone(), head.weight.detach().clone()


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("family", ["gpt2", "qwen2"])
@pytest.mark.parametrize("clip", [0.0, 1e6])  # which clips nothing
def test_one_step_is_that_of_one_matrix_at_both_ends(family, clip):
    """Plain SGD against autograd through a model whose head is the very table of its embedding."""
    run, twin = run_of(family, gradient_clip=clip), run_of(family)
    model, head = twin.federation.common_model
    head.weight = model.embedding.weight
    samples = twin.federation.samples
    batches = [samples.next_batch(twin.setup, stream) for stream in twin.federation.streams]
    losses = [
        functional.cross_entropy(head(model(tokens)).flatten(end_dim=1), targets.flatten())
        for tokens, targets, _ in batches
    ]
    names = [name for name, _ in model.named_parameters()]
    gradients = torch.autograd.grad(sum(losses) / N, [*model.parameters(), head.norm_gain])
    run.train()
    found, found_head = run.federation.common_model
    for name, gradient in zip(names, gradients, strict=False):
        expected = model.get_parameter(name) - RATE * gradient
        torch.testing.assert_close(found.get_parameter(name), expected, rtol=0, atol=1e-12, msg=name)
    torch.testing.assert_close(
        found_head.norm_gain, head.norm_gain - RATE * gradients[-1], rtol=0, atol=1e-12
    )
    assert torch.equal(*table_and_matrix(run))


@pytest.mark.parametrize("mode", [COMMON, COPIES, SEQUENTIAL])
@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "adamw", "learning_rate": 0.01, "server_learning_rate": 0.02},
        {"update_format": UpdateFormat(8), "aggregation": "fedadam"},
        {"update_format": UpdateFormat(16), "head": "common"},
    ],
)
def test_both_ends_are_one_after_every_round(options, mode):
    run = run_of(local_steps=2, **options)
    before, matrix = table_and_matrix(run)
    assert torch.equal(before, matrix)
    for _ in range(2):
        run.train(server_blocks=(0 if mode == COMMON else 2,) * N, mode=mode)
        table, matrix = table_and_matrix(run)
        assert torch.equal(table, matrix)
        assert not torch.equal(table, before)
        for model, *_ in run.federation.replicas[1:]:
            assert torch.equal(model.embedding.weight, table)


def test_adapters_freeze_both_ends():
    run = run_of(update_format=UpdateFormat(32, "lora", lora_rank=2))
    before = table_and_matrix(run)
    gain = run.federation.common_model[1].norm_gain.detach().clone()
    run.train()
    for old, new in zip(before, table_and_matrix(run), strict=True):
        assert torch.equal(old, new)
    assert torch.equal(*before)
    assert not torch.equal(gain, run.federation.common_model[1].norm_gain)
