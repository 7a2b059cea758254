"""The shortcut of plain SGD against the loop that it replaces."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from learner_support import BLOCKS, B, N, single_outcome, small_learner
from torch import nn
from torch.nn import functional

from collapipe_env.models.architecture import Architecture
from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.physics.allocation import COMMON, COPIES
from collapipe_env.physics.payload import UpdateFormat
from collapipe_env.scenario.learning import LearningSpec
from collapipe_env.training import federation
from collapipe_env.training.cluster_samples import MiniBatch
from collapipe_env.training.merged_step import can_merge, joint_pass_size, merged_step

CUTS = [[1, 0, 3], [2, 2, 0], [4, 0, 0]]
MICRO_BATCHES = (2, 3, 6)


def survivals():
    """Three rounds: some losses in two clusters, a cluster without any arrival, nothing at all."""
    survived = np.ones((3, N, 1, B), dtype=bool)
    survived[0, 1, 0, 1] = survived[0, 2, 0, [0, 4]] = False
    survived[1, 0] = survived[1, 2, 0, 3] = False
    survived[2] = False
    return survived


def states_and_reports(**learning):
    learner = small_learner(1, seeds=(7,), optimizer="sgd", evaluate_every=1, **learning)
    states, reports = [], []
    for survived in survivals():
        report = learner.train_round(single_outcome(CUTS, survived, MICRO_BATCHES))
        run = learner._runs[0]
        states.append(torch.cat((run._parameters.flatten(), run._head.flat.values)))
        reports.append((report.train_loss[0], report.loss[0]))
    return states, reports


LEARNING = [
    {},
    {"partition": "quantity", "dirichlet_alpha": 0.3},
    {"weight_decay": 0.5, "label_smoothing": 0.1},
    {"proximal": 0.7},
    {"aggregation": "fedyogi", "aggregation_rate": 0.1, "aggregation_floor": 0.1},
    {"samples_per_pass": 1},
    {"schedule": "linear", "schedule_steps": 3},
    {"token_dropout": 0.5},
]


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("learning", LEARNING, ids=lambda case: "-".join(case) or "plain")
def test_shortcut_equals_the_loop(monkeypatch, learning):
    learning = {"learning_rate": 0.5, "server_learning_rate": 0.3, **learning}
    with monkeypatch.context() as patched:
        patched.delattr(federation, "pipeline_step")  # of the loop
        states, reports = states_and_reports(**learning)
    monkeypatch.setattr(federation, "can_merge", lambda *_, **__: False)
    expected_states, expected_reports = states_and_reports(**learning)
    for found, expected in zip(states, expected_states, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(reports, expected_reports, rtol=1e-9)
    # The comparison means something: rounds moved the model, by much more than the tolerance.
    assert float((states[1] - states[0]).abs().max()) > 1e-3
    assert torch.equal(states[2], states[1]) or "aggregation" in learning


class Tagger(nn.Module):
    """One linear layer on every token, so that samples ask for different numbers of predictions."""

    def __init__(self, generator):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 8, generator=generator))

    def forward(self, hidden, *_):
        return functional.linear(hidden, self.weight)


def tag_loss(outputs, targets):
    return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignore_index=-100)


@pytest.mark.parametrize("samples_per_pass", [1, 4, 100])
def test_gradients_of_units_by_hand(float64, samples_per_pass):
    """Every tagged word's gradient on its own; it weighs p_n / u_n for the encoder and 1 / u for the head."""
    generator = torch.Generator().manual_seed(2)
    model, head = ClusterModel(Architecture(BLOCKS, 8, 12, 2, 6, 50), generator), Tagger(generator)
    shares, batches = np.array([5.0, 1.0, 3.0]), []
    survived = ([True, False, True], [True], [False, False])
    for _ in survived:
        tokens = torch.randint(2, 50, (6, 6), generator=generator)
        targets = torch.randint(0, 3, (6, 6), generator=generator)
        targets[torch.rand(6, 6, generator=generator) < 0.4] = -100
        targets[4] = -100  # a sample that asks for nothing
        units = (targets != -100).sum(dim=-1).double().numpy()
        batches.append(MiniBatch(tokens, targets, units))
    units, mean_loss = merged_step(model, head, tag_loss, batches, survived, shares, samples_per_pass)

    kept = [[0, 1, 4, 5], [0, 1, 2, 3, 4, 5], []]
    counts = [batch.units[rows].sum() for batch, rows in zip(batches, kept, strict=True)]
    encoder = [torch.zeros_like(p) for p in model.parameters()]
    server = torch.zeros_like(head.weight)
    losses = []
    for batch, rows, share, count in zip(batches, kept, shares / 6.0, counts, strict=True):
        for row in rows:
            outputs = head(model(batch.tokens[row : row + 1]))[0]
            for output, target in zip(outputs, batch.targets[row], strict=True):
                if target < 0:
                    continue
                loss = functional.cross_entropy(output, target)
                losses.append(loss.detach())
                found = torch.autograd.grad(loss, [*model.parameters(), head.weight], retain_graph=True)
                for total, gradient in zip(encoder, found, strict=False):
                    total += gradient * share / count
                server += found[-1] / sum(counts)
    for parameter, expected in zip(model.parameters(), encoder, strict=True):
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(head.weight.grad, server, rtol=1e-9, atol=1e-12)
    assert units.sum() == len(losses) == sum(counts)
    assert float(mean_loss) == pytest.approx(float(torch.stack(losses).mean()), rel=1e-12)
    assert (units > 0).tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("samples_per_pass", "on_cpu", "on_gpu"), [(1, 4, 4), (16, 64, 64), (32, 64, 128), (100, 100, 400)]
)
def test_joint_passes_are_as_large_as_the_device_likes(samples_per_pass, on_cpu, on_gpu):
    for name, expected in (("cpu", on_cpu), ("cuda", on_gpu)):
        assert joint_pass_size(samples_per_pass, 4, torch.device(name)) == expected


def merges(local_steps=1, server_mode=COMMON, weight_bits=32, dropout=0.0, recompute=False, **learning):
    """Whether a round of plain SGD may be merged, but for these changes."""
    setup = SimpleNamespace(
        learning=LearningSpec(**{"optimizer": "sgd", **learning}),
        update_format=UpdateFormat(weight_bits),
        architecture=Architecture(BLOCKS, 8, 12, 2, 6, 50, dropout=dropout),
    )
    plan = SimpleNamespace(
        local_steps=np.array([1, local_steps]),
        server_mode=np.array(server_mode),
        recompute=np.array([False, recompute]),
    )
    return can_merge(setup, plan)


@pytest.mark.parametrize(
    "change",
    [
        {"optimizer": "adamw"},
        {"momentum": 0.9},
        {"gradient_clip": 1.0},
        {"local_steps": 2},
        {"server_mode": COPIES},
        {"local_steps": 0},
        {"weight_bits": 8},
        {"dropout": 0.1},
        {"recompute": True},
    ],
    ids=lambda change: "-".join(map(str, *change.items())),
)
def test_anything_else_is_computed_by_the_loop(change):
    assert merges()
    assert not merges(**change)
