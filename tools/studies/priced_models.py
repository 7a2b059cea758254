"""Priced costs of each model beside the real modules', memory of a large model, and least energies.

Everything is measured on the modules that the real learner trains: parameters are counted, FLOPs come from
PyTorch's ``FlopCounterMode``, and stored activations are the bytes that autograd really keeps for the
backward pass (``saved_tensors_hooks``, each storage once, weights left out).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from generated_parts import markdown_table
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from collapipe_env.feasibility import energy_feasibility
from collapipe_env.models.architecture import Architecture
from collapipe_env.models.cluster_model import additive_mask, build_block
from collapipe_env.models.embeddings import Embedding
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.simulator.build import workload_costs
from collapipe_env.tasks import get_task
from collapipe_env.tasks.base import task_spec
from collapipe_env.training.flat_parameters import parameter_count

SCENARIOS = ("medium", "medium-ner", "medium-translation", "bert-small", "bert-base", "transformer-base")
SAMPLES = 2
"""Samples that are measured at once; every figure is per sample."""
DROPOUT = 0.1
"""Dropout of the module that the formula of activations describes (Korthikanti et al., 2022, count masks)."""
LARGE: dict[str, object] = {
    "workload.model": "qwen2.5-0.5b",
    "workload.task": "language-modelling",
    "devices.profiles.0.memory_bytes": (1e12,),
    "workload.batch_size": 8,
    "workload.micro_batches": (8,),
}
"""The model whose memory on a chain of devices is shown, under GPipe with passes of one sample."""
DEVICES, BLOCKS = 6, 24
HALF = dict.fromkeys(("train_bits", "stored_activation_bits", "activation_bits", "gradient_bits"), 16)
FORMS: dict[str, dict[str, object]] = {
    "32 bits": {},
    "16 bits": HALF,
    "8-bit moments": {"moment_bits": 8},
    "recomputed": {"recompute": True},
    "all three": {**HALF, "moment_bits": 8, "recompute": True},
}
"""Fields of the workload that change the memory needed."""


class Comparison(NamedTuple):
    """A priced figure, and what the real modules need."""

    quantity: str
    priced: float
    measured: float

    @property
    def ratio(self) -> float:
        """Measured over priced."""
        return self.measured / self.priced


def scenario_named(name: str) -> Scenario:
    """The scenario that trains what it prices; ``medium-ner`` is a preset with a task."""
    preset, _, task = name.rpartition("-")
    plain = task not in ("ner", "translation")
    scenario = load_scenario(name) if plain else load_scenario(preset).with_task(task)
    return scenario.with_overrides({"learning.proxy": None})


def exact_figures(scenario: Scenario) -> Iterator[Comparison]:
    """Parameters, FLOPs and payloads of a scenario's priced model beside the real modules'."""
    costs, workload, spec = workload_costs(scenario), scenario.workload, task_spec(scenario)
    architecture, generator = spec.architecture, torch.Generator().manual_seed(0)
    block, embedding = build_block(architecture, generator), Embedding(architecture, generator)
    yield Comparison("parameters of a block", costs.block_parameters, parameter_count(block))
    yield Comparison("parameters of the embedding", costs.embedding_parameters, parameter_count(embedding))

    x = torch.randn(SAMPLES, architecture.sequence_length, architecture.width, generator=generator)
    x.requires_grad_()
    forward, backward = flops(block, x, additive_mask(torch.ones(x.shape[:2], dtype=torch.int64)))
    yield Comparison("forward FLOPs of a block", costs.block_forward_flops, forward)
    yield Comparison("backward FLOPs of a block", 2.0 * costs.block_forward_flops, backward)

    head = get_task(workload.task).build_head(spec, generator)
    # A decoder reads all targets except the last and answers all except the first: q of them, as priced.
    targets = torch.full((SAMPLES, architecture.sequence_length + 1), 4)
    forward, backward = flops(head, x, torch.ones(x.shape[:2], dtype=torch.bool), targets)
    yield Comparison("forward FLOPs of the server", costs.decoder_forward_flops, forward)
    yield Comparison("backward FLOPs of the server", 2.0 * costs.decoder_forward_flops, backward)

    sent = x[0].numel() * workload.activation_bits
    yield Comparison("bits over a hop", costs.activation_bits, sent)
    trained = workload.blocks * parameter_count(block) + parameter_count(embedding)
    yield Comparison("bits of an update", costs.update_payload_bits, trained * workload.weight_bits)


def flops(module: nn.Module, x: Tensor, *inputs: Tensor) -> tuple[float, float]:
    """A module's forward and backward FLOPs per sample."""
    with sdpa_kernel(SDPBackend.MATH):  # the fused kernels hide their products from the counter's backward
        with FlopCounterMode(display=False) as counter:
            out = module(x, *inputs)
        forward = counter.get_total_flops() / SAMPLES
        with FlopCounterMode(display=False) as counter:
            out.sum().backward()
    return forward, counter.get_total_flops() / SAMPLES


def stored_bytes(architecture: Architecture, *, fused: bool) -> float:
    """Bytes that autograd keeps of one sample in one block.

    Args:
        architecture: Sizes, style and dropout; the block is in training mode.
        fused: Whether attention may use a kernel that never materialises its weights, as in training here.
    """
    generator = torch.Generator().manual_seed(0)
    block = build_block(architecture, generator).train()
    x = torch.randn(SAMPLES, architecture.sequence_length, architecture.width, generator=generator)
    mask = additive_mask(torch.ones(x.shape[:2], dtype=torch.int64))
    known = {tensor.untyped_storage().data_ptr() for tensor in (*block.parameters(), mask)}
    kept: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage().data_ptr()
        if storage not in known:
            kept[storage] = tensor  # held, so that no other tensor may get the same address
        return tensor

    backend = SDPBackend.FLASH_ATTENTION if fused else SDPBackend.MATH
    with sdpa_kernel(backend), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        block(x.requires_grad_(), mask)
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values()) / SAMPLES


def activation_figures(scenario: Scenario) -> dict[str, Comparison]:
    """Stored activations per sample and block: as the formula means them, and as trained here."""
    scenario = scenario.with_overrides({"workload.stored_activation_bits": 32})
    priced = workload_costs(scenario).stored_activation_bytes
    plain = task_spec(scenario).architecture
    dropped = Architecture(**{**vars(plain), "dropout": DROPOUT})
    return {
        "materialised, dropout": Comparison("bytes", priced, stored_bytes(dropped, fused=False)),
        "materialised": Comparison("bytes", priced, stored_bytes(plain, fused=False)),
        "fused, as trained": Comparison("bytes", priced, stored_bytes(plain, fused=True)),
    }


def exact(entry: Mapping[str, Any], quick: bool) -> str:
    """The table of parameters, FLOPs and payloads."""
    names = SCENARIOS[:1] if quick else SCENARIOS
    columns = [list(exact_figures(scenario_named(name))) for name in names]
    rows = [
        (row[0].quantity, *(f"{c.priced:.4g} ({c.ratio:.4f})" for c in row))
        for row in zip(*columns, strict=True)
    ]
    return markdown_table(("priced = measured?", *names), rows)


def activations(entry: Mapping[str, Any], quick: bool) -> str:
    """The table of stored activations."""
    rows, heads = [], []
    for name in ("medium", *(() if quick else SCENARIOS[3:])):
        found = activation_figures(scenario_named(name))
        cells, heads = (f"{one.measured / 1e6:.3f} ({one.ratio:.2f})" for one in found.values()), [*found]
        rows.append((name, f"{found[heads[0]].priced / 1e6:.3f}", *cells))
    return markdown_table(("scenario", "priced (MB)", *heads), rows)


def memory_figures(changes: dict[str, object], blocks: int, *, lora: bool) -> dict[str, float]:
    """Bytes that a device needs for its part of the large model, and FLOPs backward over forward.

    Args:
        changes: Fields of the workload.
        blocks: Blocks that it holds.
        lora: Whether low-rank adapters are trained and the rest is frozen.
    """
    fields = {"update_compression": "lora" if lora else "none", **changes}
    own = {f"workload.{name}": value for name, value in fields.items()}
    costs = workload_costs(load_scenario("medium").with_overrides({**LARGE, **own}))
    weights = costs.training_memory.weight_bytes * (costs.block_parameters + costs.adapter_parameters)
    return {
        "weights": blocks * weights,
        "gradients and moments": blocks * (costs.block_state_bytes - weights),
        "stored activations": blocks * costs.batch_size * costs.stored_activation_bytes,
        "working set": costs.working_bytes,  # of the one sample of a pass
        "backward over forward": costs.backward_over_forward,
    }


def memory(entry: Mapping[str, Any], quick: bool) -> str:
    """The table of the memory of a device with a sixth of the large model, and of one with all."""
    rows, names = [], []
    for lora in (True, False):
        for form, changes in FORMS.items():
            figures = memory_figures(changes, BLOCKS // DEVICES, lora=lora)
            (*names, _), (*parts, ratio) = figures, figures.values()
            *whole, _ = memory_figures(changes, BLOCKS, lora=lora).values()
            shown = (f"{part / 1e6:,.1f}" for part in (*parts, sum(parts), sum(whole)))
            rows.append(("adapters" if lora else "everything", form, *shown, f"{ratio:.0f}"))
    header = ("trained", "form", *names, "device of six", "one device alone", "backward / forward")
    return markdown_table(header, rows)


def least_energy(entry: Mapping[str, Any], quick: bool) -> str:
    """The table of the language scenarios' least energy over budget, as in ``collapipe scenario check``."""
    rows = []
    for name in ("llm-boards", "llm-phones"):
        scenario = load_scenario(name)
        ratio = energy_feasibility(scenario).energy_ratio
        for cluster in range(scenario.clusters):
            use = ratio[:, cluster]
            worst = use.max(axis=0)
            node, most = int(worst.argmax()), float(worst.max())
            cells = (f"{np.median(use.max(axis=-1)):.3f}", f"{most:.3f}", f"{100.0 * (1.0 - most):.0f} %")
            who = f"device {node - 1}" if node else "CU"
            rows.append((name, cluster, who, *cells, f"{worst[0]:.3f}", f"{worst[1:].max():.3f}"))
    heads = ("scenario", "cluster", "worst node", "median", "worst episode", "margin", "CU", "devices")
    return markdown_table(heads, rows, left=3)
