"""Device and precision of the learner: choice, refusals, the same results to a tolerance."""

import numpy as np
import pytest
import torch
from learner_support import MICRO_BATCHES, B, N, SmallRun, new_learner

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.physics.allocation import COPIES, SEQUENTIAL
from collapipe_env.training.compute_device import full_precision, mixed_precision, resolve_device
from collapipe_env.training.pipeline_step import CutModel

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch can use no GPU here")
TOLERANCE = 0.02
"""bfloat16 has 8 significant bits: a product is exact to 0.4 %, some of them in a row to a few times that."""


def trained(rounds=3, local_steps=2, mode=None, staleness=None, **learning):
    """Losses and final parameters of a short training run, some of which is lost."""
    run = SmallRun(local_steps, **learning)
    survived = np.ones((N, local_steps, B), dtype=bool)
    survived[1, 0, 1] = survived[2, -1] = False
    played = {"staleness": staleness} if staleness else {}
    if mode is not None:
        played |= {"server_blocks": [0] * N, "mode": mode, "blocks": [(2, 2, 0)] * N}
    losses = [run.train(survived=survived, micro_batches=MICRO_BATCHES, **played) for _ in range(rounds)]
    return np.array(losses), torch.cat((run.weights[0], run.head)).cpu()


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


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_mixed_precision_trains_alike(optimizer):
    settings = {"optimizer": optimizer, "local_steps": 1 if optimizer == "sgd" else 2}
    losses, values = trained(**settings)
    mixed_losses, mixed_values = trained(precision="bfloat16", **settings)
    np.testing.assert_allclose(mixed_losses, losses, rtol=TOLERANCE)
    assert not np.array_equal(mixed_losses, losses)
    moved = values - trained(rounds=0, **settings)[1]
    # AdamW makes whole steps of the sign of tiny gradients.
    most = 0.3 if optimizer == "adamw" else 5 * TOLERANCE
    assert float((mixed_values - values).norm() / moved.norm()) < most
    assert mixed_values.dtype == torch.float32


def test_mixed_precision_multiplies_in_bfloat16_and_compares_in_float32():
    run = SmallRun()
    model, head = run.federation.common_model
    seen, (tokens, targets) = [], (part[:3] for part in run.setup.train)
    head.register_forward_hook(lambda _, inputs, output: seen.append((inputs[0].dtype, output.dtype)))

    def loss(outputs, targets):
        seen.append(outputs.dtype)
        return run.setup.task.loss(outputs, targets)

    cut = CutModel(model, head, loss, [4], precision="bfloat16")
    cut.loss(cut.run(2, torch.randn(3, 7, 8), tokens, None, targets), targets)
    assert seen == [(torch.float32, torch.bfloat16), torch.float32]
    assert not torch.is_autocast_enabled("cpu")


def test_full_precision_leaves_all_other_types():
    for kind in (torch.float64, torch.float32, torch.float16):
        assert full_precision(torch.ones(1, dtype=kind)).dtype == kind
    with mixed_precision("float32", torch.device("cpu")):
        assert not torch.is_autocast_enabled("cpu")


@needs_gpu
@pytest.mark.parametrize(
    "case",
    [
        {},
        {"precision": "bfloat16"},
        {"optimizer": "sgd", "local_steps": 1},
        {"mode": COPIES},
        {"mode": SEQUENTIAL},
        {"staleness": [[1, 0, 0]] * N},
        {"gradient_clip": 1.0, "proximal": 0.1, "aggregation": "fedadam"},
    ],
    ids=str,
)
def test_a_gpu_gives_the_same_results(case):
    losses, values = trained(device="cpu", **case)
    gpu_losses, gpu_values = trained(device="cuda", **case)
    mixed = "precision" in case
    np.testing.assert_allclose(gpu_losses, losses, rtol=TOLERANCE if mixed else 1e-3)
    assert float((gpu_values - values).norm() / values.norm()) < (TOLERANCE if mixed else 1e-3)
