"""Step sizes over the local steps, against PyTorch's own schedulers and the formulas of the papers."""

import math
import warnings

import numpy as np
import pytest
import torch

from collapipe_env.scenario.learning import LearningSpec
from collapipe_env.training.step_sizes import StepSizes, step_factor

SCHEDULES = ["constant", "linear", "cosine", "inverse-sqrt"]


def ours(schedule, warmup, steps, count):
    """Step sizes that an optimiser really gets, local step by local step."""
    learning = LearningSpec(schedule=schedule, warmup_steps=warmup)
    optimizers = [torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate) for rate in (0.5, 0.02)]
    step_sizes = StepSizes(learning, steps)
    seen = []
    for _ in range(count):
        step_sizes.next_step(optimizers)
        seen.append([optimizer.param_groups[0]["lr"] for optimizer in optimizers])
    np.testing.assert_allclose(np.array(seen)[:, 0], 25 * np.array(seen)[:, 1], rtol=1e-12)
    return [first for first, _ in seen]


def pytorchs(schedule, warmup, steps):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    lr = torch.optim.lr_scheduler
    rest = steps - warmup
    after = {
        "constant": lambda: lr.ConstantLR(optimizer, factor=1.0),
        "linear": lambda: lr.LinearLR(optimizer, start_factor=1.0, end_factor=0.0, total_iters=rest),
        "cosine": lambda: lr.CosineAnnealingLR(optimizer, T_max=rest),
        "inverse-sqrt": lambda: lr.LambdaLR(optimizer, lambda t: math.sqrt((warmup + 1) / (t + warmup + 1))),
    }[schedule]
    if warmup:
        ramp = lr.LinearLR(optimizer, start_factor=1 / (warmup + 1), end_factor=1.0, total_iters=warmup)
        scheduler = lr.SequentialLR(optimizer, [ramp, after()], milestones=[warmup])
    else:
        scheduler = after()
    seen = []
    for _ in range(steps):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # SequentialLR passes PyTorch's own deprecated argument on
            scheduler.step()
    return seen


@pytest.mark.parametrize("warmup", [0, 1, 5])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_as_pytorch_schedules(schedule, warmup):
    found = ours(schedule, warmup, 17, 20)
    np.testing.assert_allclose(found[:17], pytorchs(schedule, warmup, 17), rtol=1e-9)
    if schedule in ("linear", "cosine"):  # past the end as at the end
        np.testing.assert_allclose(found[17:], 0.0, atol=1e-12)


def test_inverse_sqrt_is_the_transformers():
    """Vaswani et al., equation 3, with steps from 1 and its peak at ``warm-up + 1``, scaled to 1 there."""
    peak = 7
    paper = [min(s**-0.5, s * peak**-1.5) * peak**0.5 for s in range(1, 60)]
    found = [step_factor("inverse-sqrt", t, peak - 1, 10) for t in range(59)]
    np.testing.assert_allclose(found, paper, rtol=1e-12)


def test_an_optimiser_that_comes_later_has_its_own_full_step_size():
    step_sizes = StepSizes(LearningSpec(schedule="linear", warmup_steps=0), 10)
    first, second = (torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=r) for r in (1.0, 3.0))
    for _ in range(5):
        step_sizes.next_step([first])
    step_sizes.next_step([first, second])
    assert [o.param_groups[0]["lr"] for o in (first, second)] == pytest.approx([0.5, 1.5])
