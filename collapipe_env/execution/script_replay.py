"""Replay of a local step from a cluster's script alone, by the simulator's own recurrence ([X]).

Each stage runs its own list and each link serves its only sender first come, first served. So processes
that know their own part of the script and the arrival times of messages find the same times without a common
clock.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collapipe_env.execution.scripts import ClusterScript
from collapipe_env.ground.arrays import IntArray
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.schedules.events import recorded_events, room_for_events
from collapipe_env.physics.schedules.simulation import ChainTimes, simulate_chain
from collapipe_env.physics.schedules.timeline import Event


def replayed_step(script: ClusterScript, limits: Sequence[int] | None = None) -> tuple[float, list[Event]]:
    """Replay one local step of a cluster, from its start to the end of the last operation or message.

    Args:
        script: Script of a cluster that plays.
        limits: Where weight gradients, which are not in the orders then, fill gaps: number of micro-batches
            stored (forward begun, weight gradient not done) in each stage and the server, from which a weight
            gradient precedes the next forward. Below it, one that is ready runs, oldest first, whenever the
            next operation cannot start.

    Returns:
        Its length [s], and the events in order of completion; elements as laid out by
        :func:`~collapipe_env.physics.schedules.timeline.chain_elements`.

    Raises:
        AllocationError: If the orders wait for each other.
    """
    stages = (*script.stages, script.server)
    S, M, v = len(script.stages), script.micro_batches, len(script.stages[0].chunk_share)
    share, latency = np.ones((S + 1, v)), np.full(S + 3, script.latency_s)
    share[:S], latency[S + 2] = [stage.chunk_share for stage in script.stages], script.edge_latency_s
    orders: IntArray = np.zeros((S + 1, 3 * M * v, 3), dtype=np.int64)
    for s, stage in enumerate(stages):
        orders[s, : len(stage.order)] = stage.order
    record = room_for_events(S, v, M)
    length = simulate_chain(
        ChainTimes(
            forward=np.array([stage.forward_s for stage in stages]),
            backward=np.array([stage.backward_s for stage in stages]),
            weight=np.array([stage.weight_s for stage in stages]),
            link_forward=np.array([*script.hop_forward_s, script.wrap_forward_s, script.uplink_s]),
            link_backward=np.array([*script.hop_backward_s, script.wrap_backward_s, script.downlink_s]),
            latency=latency,
            chunk_share=share,
        ),
        orders,
        np.array([len(stage.order) for stage in stages]),
        np.full(S + 1, M) if limits is None else np.array(limits),
        M,
        v,
        limits is not None,
        False,
        record,
    )
    if length == np.inf:
        raise AllocationError(
            f"the orders of cluster {script.cluster} under {script.schedule!r} wait for each other; "
            "raise the caps of its stages"
        )
    return length, recorded_events(record, S)
