"""Seconds of a round by its phases, along the cluster that ends last."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.physics.elements import PipelineElements
from collapipe_env.simulator.round import RoundCosts

PARTS = ("compute", "hops", "uplink and downlink", "server")
"""Parts of a local step, by the elements of the pipeline that they occupy."""
REST = "other"
"""Time of no phase: events of processes, and rounds in which nobody takes part."""


def phase_seconds(costs: RoundCosts, local_steps: int) -> dict[str, FloatArray]:
    """Split the delay of rounds, which it sums to.

    A local step under GPipe is the sum over all elements of the chain, and ``M - 1`` times the longest one in
    either direction (:func:`~collapipe_env.physics.delay.gpipe_step`): this time counts to what that element
    is. Steps of other schedules are split in the same proportions. Updates of the optimiser count as compute,
    all-reduces as hops.

    Args:
        costs: Costs of the rounds (E, ...).
        local_steps: The workload's ``H``, for plans that do not choose it.

    Returns:
        Seconds by phase (E,) [s]: :data:`PARTS`, then what else takes time, :data:`REST` if anything is left.
    """
    ends = np.where(costs.plays, costs.cluster_delay, -np.inf).argmax(axis=-1)[:, None]

    def of_last(values: FloatArray) -> FloatArray:
        return np.take_along_axis(np.broadcast_to(values, costs.cluster_delay.shape), ends, axis=-1)[:, 0]

    once, each_step, end = costs.phases
    steps = costs.allocation.real_steps(local_steps)
    parts = _parts(costs.elements, costs.allocation.micro_batches)
    whole = parts.sum(axis=0)
    step = costs.local_step - costs.allreduce - costs.update
    scale = steps * step / np.where(whole > 0.0, whole, 1.0)
    found = {name: of_last(part * scale) for name, part in zip(PARTS, parts, strict=True)}
    found["compute"] += of_last(steps * costs.update)
    found["hops"] += of_last(steps * costs.allreduce)
    counted = ("update", "all-reduce")
    found |= {name: of_last(steps * time) for name, time in each_step.items() if name not in counted}
    found |= {name: of_last(time) for name, time in {**once, **end}.items()}
    found["broadcast"] = np.asarray(costs.broadcast)
    rest = costs.delay - sum(found.values())
    return found | ({REST: rest} if (np.abs(rest) > 1e-6 * costs.delay).any() else {})


def _parts(e: PipelineElements, micro_batches: FloatArray) -> FloatArray:
    """Time of a local step's parts (4, E, N) [s], up to a common factor."""
    latency = np.stack(
        [0 * e.latency, e.latency - e.edge_latency, 0 * e.latency + e.edge_latency, 0 * e.latency]
    )
    total = np.zeros_like(latency)
    for elements in (
        (e.compute_forward, e.hop_forward, e.uplink[..., None], e.server_forward[..., None]),
        (e.compute_backward, e.hop_backward, e.downlink[..., None], e.server_backward[..., None]),
    ):
        longest = np.stack([times.max(axis=-1) for times in elements])
        slowest = np.arange(len(PARTS))[:, None, None] == longest.argmax(axis=0)
        total += np.stack([times.sum(axis=-1) for times in elements]) + latency
        total += slowest * (micro_batches - 1) * longest
    return total
