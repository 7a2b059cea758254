"""Chains of a plan: elements in slot order, as the compiled schedules read them, and their local steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collapipe_env.ground.arrays import Array, from_host, loop_array, on_host
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.elements import PipelineElements
from collapipe_env.physics.links import PlanGraph
from collapipe_env.physics.parameters import Parameters
from collapipe_env.physics.schedules.makespans import Chains, Orders, local_step_times


def scheduled_steps(
    parameters: Parameters,
    allocation: Allocation,
    graph: PlanGraph | None,
    elements: PipelineElements,
    gpipe: Array,
) -> Array:
    """Time of a local step under each cluster's own schedule (..., N) [s].

    Args:
        graph: The plan's chain of groups; ``None`` where every stage has one device.
        gpipe: The local step under GPipe (..., N) [s].

    Raises:
        AllocationError: If a gradient is requested: schedules are simulated outside the array library.
    """
    if getattr(gpipe, "requires_grad", False):
        raise AllocationError(
            "schedule: the local steps of plans that name schedules are simulated and have no gradient; "
            "leave schedule, caps and chunks out, which is GPipe, or detach the tensors"
        )
    steps = allocation.whole_steps(parameters.costs.local_steps)
    chains, orders = flat_chains(allocation, graph, elements, steps, gpipe.shape)
    times = on_host(gpipe).astype(np.float64).reshape(-1)  # a copy, which is written to
    local_step_times(chains, orders, parameters.half_duplex, times)
    return from_host(times.reshape(gpipe.shape), gpipe)


def flat_chains(
    allocation: Allocation,
    graph: PlanGraph | None,
    elements: PipelineElements,
    steps: Array | int,
    shape: tuple[int, ...],
) -> tuple[Chains, Orders]:
    """Chains and schedules as rows of contiguous arrays in slot order.

    Args:
        graph: The plan's chain of groups; ``None`` where every stage has one device.
        steps: Local steps ``H`` of the clusters (..., N).
        shape: Common leading axes and clusters (..., N).
    """
    K = allocation.blocks.shape[-1]
    rows = int(np.prod(shape))

    def flat(values: Array, *last: int, kind: type = np.float64) -> npt.NDArray[Any]:
        array, whole = on_host(values), (*shape, *last)
        if array.shape != whole:
            array = np.broadcast_to(array, whole)
        return loop_array(array.reshape(rows, *last), kind)

    def slots(values: Array) -> npt.NDArray[Any]:
        """Return the value of each stage's leader at its slot."""
        if graph is None or not allocation.is_grouped:
            return flat(values, K)
        leads = on_host(graph.leader)[..., None, :] & (
            on_host(allocation.stage)[..., None, :] == np.arange(K)[:, None]
        )
        place = np.broadcast_to(leads.argmax(axis=-1), (*shape, K))
        return flat(np.take_along_axis(np.broadcast_to(on_host(values), (*shape, K)), place, -1), K)

    def work(stages: Array, server: Array) -> npt.NDArray[Any]:
        return np.concatenate((slots(stages), flat(server)[:, None]), axis=-1)

    def links(hops: Array, wrap: Array, edge: Array) -> npt.NDArray[Any]:
        ends = flat(wrap)[:, None], flat(edge)[:, None]
        return np.concatenate((flat(hops[..., :1], 1), slots(hops[..., 1:]), *ends), axis=-1)

    e = elements
    chains = Chains(
        blocks=flat(allocation.blocks, K, kind=np.int64),
        forward=work(e.compute_forward, e.server_forward),
        backward=work(e.compute_backward, e.server_backward),
        weight=work(e.compute_weight, e.server_weight),
        link_forward=links(e.hop_forward, e.wrap_forward, e.uplink),
        link_backward=links(e.hop_backward, e.wrap_backward, e.downlink),
        latency=np.append(np.full(K + 2, e.hop_latency), e.edge_latency),
    )
    orders = Orders(
        schedule=flat(allocation.schedules.schedule, kind=np.int64),
        caps=flat(allocation.schedules.caps, K, kind=np.int64),
        chunks=flat(allocation.schedules.chunks, kind=np.int64),
        micro_batches=flat(allocation.micro_batches, kind=np.int64),
        mini_batches=flat(steps, kind=np.int64),
    )
    return chains, orders
