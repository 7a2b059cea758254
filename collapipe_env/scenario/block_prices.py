"""Price of one block of a workload, by the formulas of its style."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from collapipe_env.physics.llama_workload import (
    llama_adapter_parameters,
    llama_forward_flops,
    llama_parameters,
    llama_stored_bytes,
    llama_weight_flops,
)
from collapipe_env.physics.payload import adapter_parameters
from collapipe_env.physics.training_memory import TrainingMemory
from collapipe_env.physics.workload import (
    block_forward_flops,
    block_parameters,
    block_weight_flops,
    stored_activation_bytes,
)

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
        flops = llama_forward_flops(d, f, kv, q), llama_weight_flops(d, f, kv, q)
        parameters = llama_parameters(d, f, kv, qkv_bias=w.qkv_bias)
        adapters = llama_adapter_parameters(d, f, kv, w.lora_rank)
        needed = llama_stored_bytes(d, f, kv, w.heads, q, bits, half_model=w.train_bits == 16)
    else:
        flops = block_forward_flops(d, f, q), block_weight_flops(d, f, q)
        parameters = block_parameters(d, f)
        adapters = adapter_parameters(d, f, w.lora_rank)
        needed = stored_activation_bytes(d, w.heads, q, bits)
    # Of everything that a backward pass needs, recomputation keeps the block's input only, q d numbers.
    stored = float(q * d * bits // 8) if w.recompute else needed
    trained = adapters if w.update_compression == "lora" else 0
    return BlockPrices(*flops, parameters, trained, stored, needed - stored)
