"""Device and precision of the learner: choice, refusals, the same results to a tolerance."""

import numpy as np
import pytest
import torch
from learner_support import B, N, new_learner, single_outcome, small_learner

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.physics.allocation import COPIES, SEQUENTIAL
from collapipe_env.training.compute_device import full_precision, mixed_precision, resolve_device
from collapipe_env.training.pipeline_step import CutModel

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch can use no GPU here")
CUTS, MICRO_BATCHES = [[1, 0, 3], [2, 2, 0], [4, 0, 0]], (2, 3, 6)
SURVIVED = np.ones((N, 2, B), dtype=bool)
SURVIVED[1, 0, 1] = SURVIVED[2, 1] = False


def train(rounds=3, local_steps=2, mode=None, staleness=None, **learning):
    """Reports and final parameters of a short training run."""
    learner = small_learner(local_steps, evaluate_every=1, **learning)
    outcome = single_outcome(
        CUTS, SURVIVED[:, :local_steps], MICRO_BATCHES,
        None if mode is None else [0] * N, mode, staleness,
    )  # fmt: skip
    reports = [learner.train_round(outcome) for _ in range(rounds)]
    run = learner._runs[0]
    values = torch.cat((run._parameters[0], run._head.flat.values)).cpu()
    return np.array([[report.train_loss[0], report.loss[0]] for report in reports]), values, learner


def test_auto_takes_a_gpu_if_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device("auto") == torch.device("cuda")


@pytest.mark.parametrize("name", ["cuda", "cuda:1"])
def test_a_missing_gpu_is_refused_with_a_remedy(monkeypatch, name):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ScenarioError, match=rf"learning.device is '{name}'.*0 GPUs.*set device: auto"):
        resolve_device(name)


def test_the_device_is_asked_for_at_the_first_reset(monkeypatch):
    """Before, a process that makes environments can still be forked."""
    asked = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: asked.append(True))
    learner = new_learner()
    assert asked == []
    learner.reset([np.random.default_rng(0)])
    assert asked == [True]


TOLERANCE = 0.02
"""bfloat16 has 8 significant bits: a product is exact to 0.4 %, some of them in a row to a few times that."""


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_mixed_precision_trains_alike(optimizer):
    settings = {"optimizer": optimizer, "local_steps": 1 if optimizer == "sgd" else 2}
    reports, values, _ = train(**settings)
    mixed_reports, mixed_values, learner = train(precision="bfloat16", **settings)
    np.testing.assert_allclose(mixed_reports, reports, rtol=TOLERANCE)
    assert not np.array_equal(mixed_reports, reports)
    start = train(rounds=0, **settings)[1]
    moved, mixed_moved = values - start, mixed_values - start
    # AdamW makes whole steps of the sign of tiny gradients.
    most = 0.3 if optimizer == "adamw" else 5 * TOLERANCE
    assert float((mixed_moved - moved).norm() / moved.norm()) < most
    run = learner._runs[0]
    assert {t.dtype for t in (run._parameters, run._gradients, run._head.flat.values)} == {torch.float32}


def test_mixed_precision_multiplies_in_bfloat16_and_compares_in_float32():
    learner = small_learner(1)
    run = learner._runs[0]
    model, head = run.common_model
    seen, tokens, targets = [], learner._prepared[0].train[0][:3], learner._prepared[0].train[1][:3]
    head.register_forward_hook(lambda _, inputs, output: seen.append((inputs[0].dtype, output.dtype)))

    def loss(outputs, targets):
        seen.append(outputs.dtype)
        return learner.training.task.loss(outputs, targets)

    cut = CutModel(model, head, loss, [4], precision="bfloat16")
    assert not torch.is_autocast_enabled("cpu")
    x = torch.randn(3, 7, 8)
    outputs = cut.run(2, x, tokens, None, targets)
    cut.loss(outputs, targets)
    assert seen == [(torch.float32, torch.bfloat16), torch.float32]
    assert not torch.is_autocast_enabled("cpu")


def test_full_precision_leaves_all_other_types():
    for kind in (torch.float64, torch.float32, torch.float16):
        assert full_precision(torch.ones(1, dtype=kind)).dtype == kind
    with mixed_precision("float32", torch.device("cpu")):
        assert not torch.is_autocast_enabled("cpu")


CASES = [
    {},
    {"precision": "bfloat16"},
    {"optimizer": "sgd", "local_steps": 1},
    {"evaluation": "background"},
    {"mode": COPIES},
    {"mode": SEQUENTIAL},
    {"staleness": [[1, 0, 0]] * N},
    {"gradient_clip": 1.0, "proximal": 0.1, "aggregation": "fedadam"},
]


@needs_gpu
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_gpu_gives_the_same_results(case):
    reports, values, _ = train(device="cpu", **case)
    gpu_reports, gpu_values, learner = train(device="cuda", **case)
    assert learner._runs[0]._parameters.device.type == "cuda"
    mixed = "precision" in case
    np.testing.assert_allclose(gpu_reports, reports, rtol=TOLERANCE if mixed else 1e-3)
    assert float((gpu_values - values).norm() / values.norm()) < (TOLERANCE if mixed else 1e-3)
