"""Consistency of a scenario's sections: distances, room for the clusters, and memory for the blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.physics.memory import memory_cap_blocks
from collapipe_env.scenario.block_prices import block_prices, training_memory_of
from collapipe_env.scenario.layout import fixed_layout

if TYPE_CHECKING:
    from collapipe_env.scenario.sections import Sections

MAX_HOPS = 2**24
"""Pairs of nodes within a cluster, over all clusters: 134 MB for every array with an entry for each."""
SHOWN = 3
"""Clusters that a message about memory lists before it only counts the rest."""


def require_placement(scenario: Sections) -> None:
    """Refuse a scenario whose clusters cannot be kept apart, or have more hops than fit into memory.

    The layout of ``layout_seed`` is tried even where layouts are drawn anew in every episode: a hopeless
    geometry then fails when the scenario is built, after a second or so, not at a later reset.

    Raises:
        ScenarioError: If there are too many hops, or the placement fails.
    """
    cluster = scenario.cluster
    hops = cluster.clusters * (cluster.max_devices + 1) ** 2
    if hops > MAX_HOPS:
        raise ScenarioError(
            f"cluster: clusters = {cluster.clusters} of up to {cluster.max_devices} devices have {hops:,} "
            f"pairs of nodes, above the limit of {MAX_HOPS:,}; lower clusters or devices"
        )
    fixed_layout(scenario)


def require_memory(scenario: Sections) -> None:
    """Refuse a scenario in which some cluster cannot hold the encoder at all.

    A device holds ``floor(memory / (16 w + B alpha))`` blocks: GPipe keeps the activations of the whole
    mini-batch (`system_model.md` section 6). Layouts that are drawn anew in every episode are judged by
    the worst draw, in which every device has the smallest memory of any profile. With recomputation every
    device first needs room for the working set of one block (:func:`working_bytes`).

    Raises:
        ValueError: If a cluster's caps sum to less than L; names the cluster and the missing bytes.
    """
    need, working = block_bytes(scenario), working_bytes(scenario)
    beside = f" beside a working set of {working:.0f} bytes" if working else ""
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
        caps = memory_cap_blocks(memory, 1.0, need, 0.0, working)
        if caps.sum() < blocks:
            missing = _missing_bytes(memory - working, caps, need, blocks)
            faults.append(
                f"cluster {cluster} cannot hold the encoder: its {len(memory)} devices have room for "
                f"{int(caps.sum())} of {blocks} blocks of {need:.0f} bytes{beside} in {draw}; "
                f"{missing:.0f} bytes are missing"
            )
    if faults:
        listed = faults[:SHOWN] + [f"and {len(faults) - SHOWN} more clusters"] * (len(faults) > SHOWN)
        other = "let devices recompute activations, workload.recompute: true"
        if working:
            other = "leave small numbers out of workload.micro_batches, which shrinks the working set"
        raise ValueError(
            f"{'; '.join(listed)} (offer more in devices.profiles[].memory_bytes or cluster.devices, or "
            "lower workload.blocks, workload.batch_size, workload.width or "
            f"workload.stored_activation_bits; or {other})"
        )


def block_bytes(scenario: Sections) -> float:
    """Return the bytes one block takes on a device under GPipe, ``16 w + B alpha`` in 32 bits.

    With low-rank adapters, which alone have gradients and moments, it is ``4 w + 16 w_a + B alpha``.
    Where devices fail, they also keep the weights that the round began with.
    """
    block = block_prices(scenario.workload)
    state = training_memory_of(scenario).block_bytes(block.parameters, block.adapter_parameters)
    return state + scenario.workload.batch_size * block.stored_bytes


def working_bytes(scenario: Sections) -> float:
    """Return a device's working set for the largest allowed micro-batch [byte]; 0 without recomputation."""
    work = scenario.workload
    return work.batch_size / work.micro_batch_choices[0] * block_prices(work).working_bytes


def _missing_bytes(memory: FloatArray, caps: FloatArray, need: float, blocks: int) -> float:
    """Return the least additional memory that, on the right devices, makes room for all blocks.

    A device's first additional block costs a block less its unused room, every later one a whole block.
    """
    missing = int(blocks - caps.sum())
    first = np.sort((caps + 1.0) * need - memory)[:missing]
    return float(first.sum() + need * (missing - len(first)))
