"""Weights in bfloat16, moments in eight bits, recomputation: the learner keeps and does what is priced."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from federation_support import make, train
from learner_support import BLOCKS, N
from test_language_costs import (
    IDS,
    SAMPLES,
    SIZES,
    inputs_of,
    model_of,
    scenario_of,
)
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import set_checkpoint_early_stop
from torch.utils.flop_counter import FlopCounterMode
from variants_support import mostly_slow

from collapipe_env.models.cluster_model import additive_mask
from collapipe_env.models.norms import rms_norm
from collapipe_env.physics.allocation import COMMON
from collapipe_env.physics.payload import UpdateFormat
from collapipe_env.physics.training_memory import TrainingMemory
from collapipe_env.simulator.build import workload_costs
from collapipe_env.training import compact_adam
from collapipe_env.training.compact_adam import CompactAdamW, rounded_like
from collapipe_env.training.eight_bit_moments import decode, encode
from collapipe_env.training.pipeline_step import CutModel, through_hosts
from collapipe_env.training.staleness import next_step

HALF, EIGHT = TrainingMemory(16, 32), TrainingMemory(32, 8)
BOTH = TrainingMemory(16, 8, recompute=True)
FULL = TrainingMemory()
FORMS = pytest.mark.parametrize("memory", [FULL, HALF, EIGHT, BOTH], ids=["full", "half", "eight", "both"])
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
    values = torch.full((256,), 1e-30)
    values[0] = 1.0
    found = decode(*encode(values, torch.uint8, generator()))
    assert (found > 0.0).all()
    linear = (values * 255).round() / 255
    assert (linear[1:] == 0.0).all()  # what plain eight bits would have made of them


def test_rounding_to_bfloat16_is_unbiased_and_keeps_what_fits():
    like = torch.zeros((), dtype=torch.bfloat16)
    exact = torch.tensor([0.0, 1.0, -2.5, 3e38, float("inf"), -float("inf")])
    assert torch.equal(rounded_like(exact, like, generator()).float()[:3], exact[:3])
    assert torch.equal(rounded_like(exact, like, generator()).float()[4:], exact[4:])
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


@pytest.mark.parametrize("part", [256, 1 << 18])
def test_few_bits_descend_as_all_do(part, monkeypatch):
    """Regression whose gradients span four decades: a code that lost small second moments would diverge."""
    monkeypatch.setattr(compact_adam, "NUMBERS_AT_ONCE", part)
    scale = torch.logspace(0, -4, 600)
    features = torch.randn(400, 600, generator=generator(1)) * scale
    truth = torch.randn(600, generator=generator(2))
    targets = features @ truth

    def loss_after(memory):
        values, optimizer = optimizer_of(torch.zeros(600), memory, decay=0.0, rate=0.02)
        for step in range(300):
            rows = slice(40 * (step % 10), 40 * (step % 10) + 40)
            error = features[rows] @ values.float() - targets[rows]
            values.grad.copy_(features[rows].T @ error / 20)
            optimizer.step()
        return (features @ values.float() - targets).square().mean().item()

    start, plain = targets.square().mean().item(), loss_after(None)
    assert plain < 0.02 * start
    assert loss_after(EIGHT) < 2.0 * plain
    assert loss_after(HALF) < 2.0 * plain + 2e-3 * start
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
    frozen = gain.detach()
    rms_norm(x, frozen, 1e-5).sum().backward()


def state_bytes(optimizer):
    memories = [
        memory for state in optimizer.state.values() for name, memory in state.items() if name != "step"
    ]
    return sum(memory.numel() * memory.element_size() for memory in memories)


@FORMS
@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
def test_a_cluster_keeps_what_is_priced(memory, lora):
    learner, run = make(2, memory=memory, update_format=LORA if lora else None)
    train(learner, 1)
    model, optimizer = run.replicas[1].module, run.replicas[1].optimizer
    trained = [p for p in model.parameters() if p.requires_grad]
    size = sum(p.numel() for p in trained)
    whole = sum(p.numel() for p in model.parameters())
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    gradients = sum(p.grad.numel() * p.grad.element_size() for p in model.parameters() if p.grad is not None)
    assert {p.grad is None for p in model.parameters() if not p.requires_grad} <= {True}
    assert sum(len(state) > 0 for state in optimizer.state.values()) == len(optimizer.param_groups)
    priced = memory.block_bytes(whole - size, size) if lora else memory.block_bytes(whole)
    scales = 2 * 4 * 2 if memory.moment_bits == 8 else 0  # groups that are not full
    assert priced <= weights + gradients + state_bytes(optimizer) <= priced + scales
    assert (size < whole) == lora


def half(sizes, **workload):
    bits = dict.fromkeys(("stored_activation_bits", "activation_bits", "gradient_bits", "train_bits"), 16)
    return scenario_of(sizes, **bits, **workload)


@pytest.mark.parametrize("sizes", SIZES, ids=IDS)
@pytest.mark.parametrize("bits", [16, 32])
@pytest.mark.parametrize("early_stop", [False, True], ids=["whole", "early-stop"])
def test_recomputation_stores_the_inputs_of_blocks_and_runs_each_once_more(sizes, bits, early_stop):
    scenario = half(sizes, recompute=True) if bits == 16 else scenario_of(sizes, recompute=True)
    costs, model = workload_costs(scenario), model_of(scenario)
    model = model.bfloat16() if bits == 16 else model
    head = torch.nn.Identity()
    cut = CutModel(model, head, torch.nn.functional.mse_loss, [sizes["blocks"]], recompute=True)
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
    sizes = {**SIZES[2], "style": style}
    model = model_of(scenario_of(sizes))
    model.architecture = replace(model.architecture, dropout=dropout)
    for block in model.blocks:
        block.dropout = dropout
    tokens = torch.randint(1, 77, (SAMPLES, sizes["sequence_length"]), generator=generator())
    targets = torch.randn(SAMPLES, sizes["sequence_length"], sizes["width"], generator=generator(1))

    def gradients(recompute):
        replica = copy.deepcopy(model)
        cut = CutModel(
            replica, torch.nn.Identity(), torch.nn.functional.mse_loss, [1, 1], recompute=recompute
        )
        cut._head = lambda x, *_: x
        with torch.random.fork_rng():
            torch.manual_seed(5)
            through_hosts(cut, tokens, targets, 1.0)
        return [parameter.grad for parameter in replica.parameters()]

    for found, expected in zip(gradients(True), gradients(False), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)
    assert additive_mask(tokens).dtype == torch.float32


@pytest.mark.parametrize("memory", mostly_slow([HALF, EIGHT, BOTH], [2]), ids=["half", "eight", "both"])
def test_a_run_learns_nearly_as_in_full_precision(memory):
    options = {"learning_rate": 3e-3, "server_learning_rate": 3e-3}
    (plain, plain_run), (few, run) = make(2, **options), make(2, memory=memory, **options)
    expected = np.mean([train(plain, 1).train_loss[0] for _ in range(15)][-5:])
    found = np.mean([train(few, 1).train_loss[0] for _ in range(15)][-5:])
    assert found == pytest.approx(expected, abs=0.04)
    kept = torch.bfloat16 if memory.train_bits == 16 else torch.float32
    assert {p.dtype for p in run.replicas[0].module.parameters()} == {kept}
    assert {p.dtype for p in run._head.module.parameters()} == {torch.float32}
    moved = (run._parameters[0].float() - plain_run._parameters[0]).norm() / plain_run._parameters[0].norm()
    assert 0.0 < moved < 0.1


def test_moments_of_blocks_that_move():
    learner, run = make(2, memory=EIGHT, moment_bits=16)
    train(learner, 1)
    before = copy.deepcopy(run.replicas[0].optimizer.state_dict()["state"])
    lost = np.zeros((N, BLOCKS), dtype=np.int64)
    lost[0, 1], lost[0, 2] = 2, 1
    run.open_round(np.zeros(N, int), COMMON, 2, lost)
    after = run.replicas[0].optimizer.state_dict()["state"]
    gone = set(before) - set(after)
    assert len(gone) == 2  # a block's matrices, and its vectors
    for group, memory in after.items():
        for name, values in memory.items():
            assert torch.equal(values, before[group][name])
