"""Options of local training inside real runs: FedProx, momentum, clipping, and schedules."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from federation_support import make, parts_of, plan_of, train
from learner_support import N

from collapipe_env.physics.allocation import COMMON, COPIES, SEQUENTIAL
from collapipe_env.training.federation import Federation
from collapipe_env.training.staleness import next_step


def quadratic_steps(run, cluster, curvature, steps):
    """Step a cluster by the gradients of ``curvature w^2 / 2`` and return the weights' path."""
    path = [run.replicas[cluster].flat.values.clone()]
    for _ in range(steps):
        run._gradients.copy_(curvature * run.replicas[cluster].flat.values)
        run._update(cluster)
        path.append(run.replicas[cluster].flat.values.clone())
    return path


@pytest.mark.usefixtures("float64")
def test_proximal_descent_of_a_quadratic_is_its_recurrence():
    """``w - eta (a w + mu (w - w_0))``: after k steps ``w_0 (rest + (1 - rest) (1 - eta (a + mu))^k)``."""
    a, mu, eta, k = 0.8, 2.5, 0.1, 7
    _, run = make(optimizer="sgd", learning_rate=eta, weight_decay=0.0, proximal=mu)
    run._common.copy_(run._parameters[0])
    path = quadratic_steps(run, 1, a, k)
    rest = mu / (a + mu)
    expected = path[0] * (rest + (1 - rest) * (1 - eta * (a + mu)) ** k)
    torch.testing.assert_close(path[-1], expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_proximal_term_shows_in_later_local_steps_only(optimizer):
    ends = {}
    for local_steps in (1, 2):
        for mu in (0.0, 3.0):
            learner, run = make(local_steps, optimizer=optimizer, proximal=mu)
            train(learner)
            ends[local_steps, mu] = run._parameters[0].clone()
    assert torch.equal(ends[1, 0.0], ends[1, 3.0])
    assert not torch.equal(ends[2, 0.0], ends[2, 3.0])


@pytest.mark.parametrize("mode", [COPIES, SEQUENTIAL])
def test_idle_copies_of_a_sequential_servers_blocks_are_not_pulled(mode):
    """Weight decay moves them. A pull would count when gradients are clipped, and stay in the moments."""
    pulls, (learner, run) = [], make(3, proximal=5.0, weight_decay=0.5)
    (place, *_) = parts_of(run)[-1]
    for _, _, optimizer in run.replicas:
        optimizer.register_step_pre_hook(lambda *_: pulls.append(bool(run._gradients[place].any())))
    train(learner, 1, server_blocks=(2,) * N, mode=mode)
    assert pulls == [mode == COPIES] * 3 * N
    # The next round's common server trains no block of its own, so all are pulled.
    train(learner, 1)
    assert all(pulls[3 * N :])


@pytest.mark.usefixtures("float64")
def test_local_momentum_is_a_velocity_that_lives_on():
    eta, beta, decay = 0.03, 0.8, 0.1
    _, run = make(optimizer="sgd", learning_rate=eta, momentum=beta, weight_decay=decay)
    flat = run.replicas[0].flat
    matrices = torch.zeros_like(flat.values)
    matrices[: flat._matrices] = decay
    weights, velocity = flat.values.clone(), 0.0
    for step in range(5):
        if step == 3:  # a new round begins elsewhere
            weights = weights + 0.1
            flat.values.copy_(weights)
        gradient = torch.randn(weights.shape, generator=torch.Generator().manual_seed(step))
        run._gradients.copy_(gradient)
        run._update(0)
        velocity = beta * velocity + gradient + matrices * weights
        weights = weights - eta * velocity
        torch.testing.assert_close(flat.values, weights, rtol=0, atol=1e-12)


def test_the_server_has_momentum_too():
    for mode in (COMMON, COPIES, SEQUENTIAL):
        learner, run = make(optimizer="sgd", momentum=0.7)
        train(learner, 1, server_blocks=None if mode == COMMON else (1,) * N, mode=mode)
        assert {o.param_groups[0]["momentum"] for o in run._servers[mode].optimizers()} == {0.7}


@pytest.mark.parametrize("clip", [1e-3, 0.4, 1e6])
def test_gradients_are_clipped_as_pytorch_does(clip):
    _, run = make(optimizer="sgd", learning_rate=1.0, weight_decay=0.0, gradient_clip=clip)
    before = run._parameters[2].clone()
    gradient = 0.01 * torch.randn(before.shape, generator=torch.Generator().manual_seed(1))
    leaf = torch.nn.Parameter(torch.zeros_like(before))
    leaf.grad = gradient.clone()
    torch.nn.utils.clip_grad_norm_([leaf], clip)
    run._gradients.copy_(gradient)
    run._update(2)
    torch.testing.assert_close(before - run._parameters[2], leaf.grad, rtol=1e-4, atol=2e-7)
    run._gradients.zero_()
    run._update(2)
    assert run._parameters.isfinite().all()


def test_clipping_is_by_cluster_and_step():
    norms = []
    learner, run = make(2, gradient_clip=0.05)
    for n, (_, _, optimizer) in enumerate(run.replicas):
        optimizer.register_step_pre_hook(lambda *_, n=n: norms.append((n, float(run._gradients.norm()))))
    train(learner, 1)
    assert [n for n, _ in norms] == [0, 1, 2] * 2
    assert max(norm for _, norm in norms) == pytest.approx(0.05, rel=1e-5)


@pytest.mark.parametrize("mode", [COMMON, COPIES, SEQUENTIAL])
def test_clusters_and_server_follow_the_schedule(mode):
    options = {"schedule": "linear", "warmup_steps": 1, "schedule_steps": 5}
    learner, run = make(learning_rate=0.01, server_learning_rate=0.04, **options)
    for factor in (1 / 2, 1, 3 / 4, 1 / 2, 1 / 4, 0, 0):
        before = torch.cat([run._parameters[0], run._head.flat.values])
        train(learner, 1, server_blocks=None if mode == COMMON else (1,) * N, mode=mode)
        server = run._servers[mode].optimizers()
        assert [o.param_groups[0]["lr"] for _, _, o in run.replicas] == pytest.approx([0.01 * factor] * N)
        # The server's encoder blocks have the clusters' step size.
        rates = [0.01, 0.04] if mode == SEQUENTIAL else [0.04] * len(server)
        assert [o.param_groups[1]["lr"] for o in server] == pytest.approx([r * factor for r in rates])
        moved = torch.cat([run._parameters[0], run._head.flat.values]) - before
        # The mean of equal copies may differ from them in the last digit.
        assert (float(moved.abs().max()) > 1e-5) == (factor > 0)


@pytest.mark.usefixtures("float64")
def test_a_lone_cluster_trains_the_same_in_few_long_rounds_and_many_short_ones():
    """Without others to be averaged with, only the schedule could tell a round's last step from its first."""
    options = {"schedule": "cosine", "warmup_steps": 5, "schedule_steps": 14, "partition": "iid"}
    models = []
    for local_steps, rounds in ((1, 12), (4, 3)):
        learner, _ = make(local_steps, **options)
        run = Federation(replace(learner._runs[0]._setup, clusters=1), np.random.default_rng(3))
        for _ in range(rounds):
            survived = np.ones((1, local_steps, 2), dtype=bool)
            run.train_round(plan_of(run, np.array([[4]]), survived, [2]))
        assert run.rounds == rounds
        models.append(torch.cat([run._parameters[0], run._head.flat.values]))
    torch.testing.assert_close(*models, rtol=0, atol=1e-9)


def test_a_round_without_arrivals_counts_for_the_schedule():
    learner, run = make(schedule="linear", schedule_steps=4)
    train(learner, 1, clusters=(False,) * N)
    train(learner, 1)
    assert run.replicas[0].optimizer.param_groups[0]["lr"] == pytest.approx(0.01 * 3 / 4)
    learner, run = make(4, schedule="linear", schedule_steps=16)
    train(learner, 1, clusters=(False,) * N)
    train(learner, 1)
    assert run.replicas[0].optimizer.param_groups[0]["lr"] == pytest.approx(0.01 * (1 - 7 / 16))


@pytest.mark.parametrize(
    ("optimizer", "momentum"), [("adamw", 0.0), ("sgd", 0.0), ("sgd", 0.6)], ids=["adamw", "sgd", "momentum"]
)
def test_predictions_of_stale_weights_use_the_present_step_size(optimizer, momentum):
    learner, run = make(optimizer=optimizer, momentum=momentum, schedule="cosine", schedule_steps=4)
    train(learner, 1)
    full = next_step(run.replicas[0].optimizer, applied=True)
    run.step_sizes.next_step([optimizer for _, _, optimizer in run.replicas])
    factor = run.replicas[0].optimizer.param_groups[0]["lr"] / 0.01
    assert factor == pytest.approx((1 + 0.5**0.5) / 2)
    torch.testing.assert_close(next_step(run.replicas[0].optimizer, applied=True), factor * full)


@pytest.mark.usefixtures("float64")
def test_velocity_is_what_momentum_predicts_with():
    """Before the first step nothing is known, afterwards also at a round's start."""
    _, run = make(optimizer="sgd", momentum=0.6, learning_rate=0.5, weight_decay=0.0)
    assert next_step(run.replicas[0].optimizer, applied=False) is None
    gradient = torch.linspace(-1, 1, run._gradients.numel())
    for _ in range(2):
        run._gradients.copy_(gradient)
        run._update(0)
    torch.testing.assert_close(next_step(run.replicas[0].optimizer, applied=False), 0.5 * 1.6 * gradient)
