"""Checks of a scenario that reach over several sections: placement and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collapipe_env.physics.memory import memory_cap_blocks
from collapipe_env.physics.payload import adapter_parameters
from collapipe_env.physics.workload import block_parameters, block_state_bytes, stored_activation_bytes
from collapipe_env.scenario.layout import FloatArray, fixed_layout

if TYPE_CHECKING:
    from collapipe_env.scenario.schema import Scenario


SHOWN = 3
"""Clusters that a message about memory lists before it only counts them."""


def require_placement(scenario: Scenario) -> None:
    """Refuse a scenario whose clusters cannot be kept apart.

    The layout of ``layout_seed`` is tried also where layouts are drawn anew in every episode, so that a
    hopeless geometry shows when the scenario is built and not at some later reset.

    Args:
        scenario: The scenario to check.

    Raises:
        ScenarioError: If the placement fails.
    """
    fixed_layout(scenario)


def require_memory(scenario: Scenario) -> None:
    """Refuse a scenario in which some cluster cannot hold the encoder at all.

    A device holds ``floor(memory / (16 w + B alpha))`` blocks: GPipe keeps the activations of the whole
    mini-batch (`system_model.md` section 6). Layouts that are drawn anew in every episode are judged by
    the worst draw, in which every device has the smallest memory of any profile.

    Args:
        scenario: The scenario to check.

    Raises:
        ValueError: If a cluster's caps sum to less than L; names the cluster and the missing bytes.
    """
    need = block_bytes(scenario)
    blocks = scenario.workload.blocks
    if scenario.cluster.layout == "fixed":
        layout = fixed_layout(scenario)
        offered = [layout.memory_bytes[n][layout.present[n]] for n in range(scenario.cluster.clusters)]
        draw = "the fixed layout"
    else:
        worst = min(profile.memory_bytes[0] for profile in scenario.devices.profiles)
        offered = [np.full(count, worst) for count in scenario.cluster.devices_per_cluster]
        draw = "the worst draw of the layout"
    faults = []
    for cluster, memory in enumerate(offered):
        caps = memory_cap_blocks(memory, 1.0, need, 0.0)
        if caps.sum() < blocks:
            missing = _missing_bytes(memory, caps, need, blocks)
            faults.append(
                f"cluster {cluster} cannot hold the encoder: its {len(memory)} devices have room for "
                f"{int(caps.sum())} of {blocks} blocks of {need:.0f} bytes in {draw}; "
                f"{missing:.0f} bytes are missing"
            )
    if faults:
        more = f"; and {len(faults) - SHOWN} more clusters" if len(faults) > SHOWN else ""
        raise ValueError(
            "; ".join(faults[:SHOWN])
            + more
            + " (offer more in devices.profiles[].memory_bytes or cluster.devices, or lower workload.blocks, "
            "workload.batch_size, workload.width or workload.stored_activation_bits)"
        )


def block_bytes(scenario: Scenario) -> float:
    """Return the bytes one block takes on a device under GPipe, ``16 w + B alpha``.

    With low-rank adapters, which alone have gradients and moments, it is ``4 w + 16 w_a + B alpha``.

    Args:
        scenario: Any scenario.
    """
    work = scenario.workload
    lora = work.update_compression == "lora"
    adapters = adapter_parameters(work.width, work.feedforward, work.lora_rank) if lora else 0
    state = block_state_bytes(block_parameters(work.width, work.feedforward), adapters)
    kept = stored_activation_bytes(work.width, work.heads, work.sequence_length, work.stored_activation_bits)
    return state + work.batch_size * kept


def _missing_bytes(memory: FloatArray, caps: FloatArray, need: float, blocks: int) -> float:
    """Return the least memory that, put on the right devices, makes room for all blocks.

    Each device's first further block costs what its left-over room lacks, every later one a whole block.
    """
    missing = int(blocks - caps.sum())
    first = np.sort((caps + 1.0) * need - memory)[:missing]
    return float(first.sum() + need * (missing - len(first)))
