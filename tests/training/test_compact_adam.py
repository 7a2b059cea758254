"""Weights in bfloat16 and moments in eight bits: the rounding, the optimiser, and what a cluster keeps."""

import copy

import numpy as np
import pytest
import torch
from learner_support import BLOCKS, N, SmallRun
from variants_support import mostly_slow

from collapipe_env.models.norms import rms_norm
from collapipe_env.physics.payload import UpdateFormat
from collapipe_env.physics.training_memory import TrainingMemory
from collapipe_env.training import compact_adam
from collapipe_env.training.compact_adam import CompactAdamW, rounded_like
from collapipe_env.training.eight_bit_moments import decode, encode
from collapipe_env.training.staleness import next_step

FULL, HALF, EIGHT = TrainingMemory(), TrainingMemory(16, 32), TrainingMemory(32, 8)
BOTH = TrainingMemory(16, 8, recompute=True)
LORA = UpdateFormat(32, "lora", lora_rank=3, lora_alpha=6.0)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("signed", [True, False])
def test_eight_bits_are_unbiased_and_nearly_as_precise_for_small_moments(signed):
    largest = torch.tensor([3.0, 1e-9, 0.0, 2e4]).repeat_interleave(256)[:900]
    values = largest * 10 ** (torch.rand(900, generator=generator()) * -5)
    values = values**2 if not signed else values * torch.randn(900, generator=generator(1)).sign()
    kind, rounding = torch.int8 if signed else torch.uint8, generator(2)
    found = torch.stack([decode(*encode(values, kind, rounding)) for _ in range(400)])
    codes, scales = encode(values, kind, rounding)
    assert (codes.element_size(), scales.shape) == (1, (4,))
    groups = torch.nn.functional.pad(values.abs(), (0, 124)).view(4, 256).amax(-1)
    torch.testing.assert_close(scales, groups)
    # Moments down to 1e-5 of their block's largest (second: its square) keep their size within a factor.
    known = values != 0
    ratio = (found / values)[:, known]
    assert (ratio > 0.0).all()
    spread = ratio.std(dim=0)
    assert spread.max() < 0.6
    # A code that is drawn rarely may not have been drawn at all.
    assert ((ratio.mean(dim=0) - 1.0).abs() <= 5.0 * spread / 400**0.5 + 0.01).all()
    assert ratio.mean().item() == pytest.approx(1.0, abs=1e-3)
    assert (found[:, ~known] == 0.0).all()


def test_second_moments_never_vanish():
    values = torch.full((256,), 1e-30)  # plain eight bits would make zeros of them
    values[0] = 1.0
    assert (decode(*encode(values, torch.uint8, generator())) > 0.0).all()


def test_rounding_to_bfloat16_is_unbiased_and_keeps_what_fits():
    like = torch.zeros((), dtype=torch.bfloat16)
    exact = torch.tensor([0.0, 1.0, -2.5, float("inf"), -float("inf")])
    assert torch.equal(rounded_like(exact, like, generator()).float(), exact)
    assert rounded_like(torch.tensor([3e38]), like, generator()).isfinite().all()
    assert rounded_like(torch.tensor([float("nan")]), like, generator()).isnan().all()
    value = torch.tensor(1.0 + 1 / 512)  # a quarter of the way to the next bfloat16, 1 + 1/128
    drawn = rounded_like(value.expand(20_000).clone(), like, generator()).float()
    assert set(drawn.tolist()) == {1.0, 1.0078125}
    assert drawn.mean().item() == pytest.approx(value.item(), abs=2e-4)


def optimizer_of(start, memory=None, decay=0.1, rate=0.03, seed=3):
    values = torch.nn.Parameter(start.clone())
    values.grad = torch.zeros_like(values)
    groups = [{"params": [values], "weight_decay": decay}]
    if memory is None:
        return values, torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98))
    if memory.train_bits == 16:
        values.data, values.grad = values.data.bfloat16(), values.grad.bfloat16()
    return values, CompactAdamW(groups, rate, (0.9, 0.98), memory.moment_bits, generator(seed))


def test_with_all_bits_it_is_pytorchs_adamw(monkeypatch):
    monkeypatch.setattr(compact_adam, "NUMBERS_AT_ONCE", 256)  # in three parts, the last one shorter
    start = torch.randn(600, generator=generator())
    (ours, compact_one), (theirs, plain) = optimizer_of(start, FULL), optimizer_of(start)
    for step in range(20):
        gradient = torch.randn(600, generator=generator(step))
        ours.grad.copy_(gradient)
        theirs.grad.copy_(gradient)
        compact_one.step()
        plain.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(next_step(compact_one, applied=True), next_step(plain, applied=True))


def test_parts_of_eight_bit_moments_have_scales_of_their_own(monkeypatch):
    monkeypatch.setattr(compact_adam, "NUMBERS_AT_ONCE", 256)
    values, optimizer = optimizer_of(torch.zeros(600), EIGHT)
    values.grad.copy_(torch.randn(600, generator=generator()) * torch.logspace(0, -4, 600))
    optimizer.step()
    largest = 0.1 * torch.nn.functional.pad(values.grad.abs(), (0, 168)).view(3, 256).amax(-1)
    torch.testing.assert_close(optimizer.state[values]["exp_avg_scale"], largest)
    whole = torch.stack(optimizer.moments(values))
    for start, stop in ((0, 256), (256, 512), (512, None)):
        assert torch.equal(torch.stack(optimizer.moments(values, start, stop)), whole[:, start:stop])


def test_few_bits_descend_as_all_do():
    """Regression whose gradients span four decades: a code that lost small second moments would diverge."""
    scale = torch.logspace(0, -4, 600)
    features = torch.randn(400, 600, generator=generator(1)) * scale
    truth = torch.randn(600, generator=generator(2))
    targets = features @ truth

    def loss_after(memory):
        values, optimizer = optimizer_of(torch.zeros(600), memory, decay=0.0, rate=0.02)
        for step in range(200):
            rows = slice(40 * (step % 10), 40 * (step % 10) + 40)
            error = features[rows] @ values.float() - targets[rows]
            values.grad.copy_(features[rows].T @ error / 20)
            optimizer.step()
        return (features @ values.float() - targets).square().mean().item()

    start, plain = targets.square().mean().item(), loss_after(None)
    assert plain < 0.02 * start
    assert loss_after(EIGHT) < 2.0 * plain
    assert loss_after(TrainingMemory(16, 8)) < 2.0 * plain + 2e-3 * start


def test_steps_shorter_than_a_bfloat16_add_up():
    values, optimizer = optimizer_of(torch.ones(2000), HALF, decay=0.0, rate=1e-4)
    for _ in range(500):
        values.grad.fill_(1.0)
        optimizer.step()
    assert values.float().mean().item() == pytest.approx(0.95, abs=2e-3)


def test_the_half_norm_is_the_norm():
    x = torch.randn(5, 7, 16, generator=generator()).bfloat16().requires_grad_()
    gain = torch.randn(16, generator=generator(1)).bfloat16().requires_grad_()
    pull = torch.randn(5, 7, 16, generator=generator(2))
    exact = [part.detach().double().requires_grad_() for part in (x, gain)]
    (rms_norm(x, gain, 1e-5) * pull.bfloat16()).sum().backward()
    (torch.nn.functional.rms_norm(exact[0], (16,), exact[1], 1e-5) * pull.bfloat16()).sum().backward()
    for found, expected in zip((x, gain), exact, strict=True):
        torch.testing.assert_close(found.grad.double(), expected.grad, rtol=0.02, atol=0.02)
    rms_norm(x, gain.detach(), 1e-5).sum().backward()  # a frozen gain


def size_of(tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@pytest.mark.parametrize("memory", [FULL, HALF, EIGHT, BOTH], ids=["full", "half", "eight", "both"])
@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
def test_a_cluster_keeps_what_is_priced(memory, lora):
    run = SmallRun(memory=memory, update_format=LORA if lora else UpdateFormat())
    run.train()
    model, _, optimizer = run.federation.replicas[1]
    parameters = list(model.parameters())
    trained = sum(p.numel() for p in parameters if p.requires_grad)
    whole = sum(p.numel() for p in parameters)
    assert all(p.grad is None for p in parameters if not p.requires_grad)
    assert all(optimizer.state.values())
    assert len(optimizer.state) == len(optimizer.param_groups)
    moments = [m for state in optimizer.state.values() for name, m in state.items() if name != "step"]
    kept = size_of(parameters) + size_of(p.grad for p in parameters if p.grad is not None) + size_of(moments)
    priced = memory.block_bytes(whole - trained, trained) if lora else memory.block_bytes(whole)
    scales = 2 * 4 * 2 if memory.moment_bits == 8 else 0  # groups that are not full
    assert priced <= kept <= priced + scales
    assert (trained < whole) == lora


@pytest.mark.parametrize("memory", mostly_slow([HALF, EIGHT, BOTH], [2]), ids=["half", "eight", "both"])
def test_a_run_learns_nearly_as_in_full_precision(memory):
    options = {"learning_rate": 3e-3, "server_learning_rate": 3e-3}
    plain, few = SmallRun(2, **options), SmallRun(2, memory=memory, **options)
    (expected, found) = (np.mean([run.train() for _ in range(4)][-2:]) for run in (plain, few))
    assert found == pytest.approx(expected, abs=0.04)
    model, head = few.federation.common_model
    kept = torch.bfloat16 if memory.train_bits == 16 else torch.float32
    assert {p.dtype for p in model.parameters()} == {kept}
    assert {p.dtype for p in head.parameters()} == {torch.float32}
    assert 0.0 < (few.weights[0].float() - plain.weights[0]).norm() / plain.weights[0].norm() < 0.1


def test_moments_of_blocks_that_move():
    run = SmallRun(memory=EIGHT, moment_bits=16)
    run.train()
    optimizer = run.federation.replicas[0].optimizer
    before = copy.deepcopy(optimizer.state_dict()["state"])
    lost = np.zeros((N, BLOCKS), dtype=np.int64)
    lost[0, 1], lost[0, 2] = 2, 1
    run.federation.open_round(np.zeros(N, int), -1, 1, lost)
    after = optimizer.state_dict()["state"]
    assert len(set(before) - set(after)) == 2  # a block's matrices, and its vectors
    for group, memory in after.items():
        for name, values in memory.items():
            assert torch.equal(values, before[group][name])
