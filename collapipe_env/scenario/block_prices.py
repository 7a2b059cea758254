"""Price of one block of a workload, by the formulas of its style."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from collapipe_env.physics.block_costs import (
    adapter_parameters,
    block_parameters,
    forward_flops,
    linear_maps,
    llama_maps,
    llama_parameters,
    llama_stored_bytes,
    stored_activation_bytes,
    weight_flops,
)
from collapipe_env.physics.training_memory import TrainingMemory

if TYPE_CHECKING:
    from collapipe_env.scenario.sections import Sections
    from collapipe_env.scenario.workload_section import WorkloadSpec


@dataclass(frozen=True)
class BlockPrices:
    """Figures of one block.

    Attributes:
        forward_flops: ``Phi_F`` per sample [FLOP].
        weight_flops: Weight gradients' part of its backward pass, per sample [FLOP].
        parameters: ``w``.
        adapter_parameters: ``w_a`` of low-rank adapters if only these are trained; 0 if the whole block is.
        stored_bytes: ``alpha`` per sample [byte]: activations kept until the backward pass; only the input
            with recomputation.
        working_bytes: ``omega`` per sample [byte]: activations restored by recomputation for the backward
            pass; 0 without recomputation.
    """

    forward_flops: float
    weight_flops: float
    parameters: int
    adapter_parameters: int
    stored_bytes: float
    working_bytes: float


def training_memory(workload: WorkloadSpec) -> TrainingMemory:
    """Return the form in which devices store the parameters that they train."""
    return TrainingMemory(workload.train_bits, workload.moment_bits, workload.recompute)


def training_memory_of(scenario: Sections) -> TrainingMemory:
    """Return that form for a scenario, including the copies that devices need to continue after a failure."""
    presence = dict(scenario.dynamics.processes).get("presence")
    goes_on = presence is not None and presence.graceful < 1.0 and presence.recovery != "drop-round"
    return replace(training_memory(scenario.workload), start_kept=goes_on)


def block_prices(workload: WorkloadSpec) -> BlockPrices:
    """Return the figures of a workload's block."""
    w = workload
    d, f, q, bits = w.width, w.feedforward, w.sequence_length, w.stored_activation_bits
    if w.style == "llama":
        kv = w.kv_width
        maps, parameters = llama_maps(d, f, kv), llama_parameters(d, f, kv, qkv_bias=w.qkv_bias)
        needed = llama_stored_bytes(d, f, kv, w.heads, q, bits, half_model=w.train_bits == 16)
    else:
        maps, parameters = linear_maps(d, f), block_parameters(d, f)
        needed = stored_activation_bytes(d, w.heads, q, bits)
    # Of everything that a backward pass needs, recomputation keeps the block's input only, q d numbers.
    stored = float(q * d * bits // 8) if w.recompute else needed
    trained = adapter_parameters(maps, w.lora_rank) if w.update_compression == "lora" else 0
    flops = forward_flops(maps, d, q), weight_flops(maps, q)
    return BlockPrices(*flops, parameters, trained, stored, needed - stored)
