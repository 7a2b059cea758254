"""Arrays that the loop over plain plans reads, and rows of the arrays that it writes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.kernels.cluster_chain import NODE_ROWS, SUMMARY


class PlainPlan(NamedTuple):
    """A plan's arrays, as :class:`~collapipe_env.physics.allocation.Allocation` names them.

    ``opened`` (rows, E, N) holds :data:`OPENED`'s rows: none if no decision is open, otherwise all of them.
    """

    blocks: IntArray
    micro_batches: IntArray
    bandwidth: FloatArray
    device_power: FloatArray
    cu_power: FloatArray
    opened: FloatArray


class OpenedRows(NamedTuple):
    """Rows of opened decisions.

    ``other_setting`` is 1 where a cluster takes the other setting of recomputation, ``local_steps`` is
    ``H_n``, and ``counted`` is -1 where a cluster takes part, otherwise the ``T_n`` that counts for it [s].
    """

    other_setting: int
    local_steps: int
    counted: int


class RoundRows(NamedTuple):
    """Rows that the loop writes for each round, by the names of ``RoundCosts``."""

    delay: int
    broadcast: int


class ClusterRows(NamedTuple):
    """Rows written for each cluster, by the names of ``RoundCosts`` and of its ``PipelineElements``.

    ``allreduce`` is zero in plain plans, ``latency`` is that of one way.
    """

    cluster_delay: int
    local_step: int
    allreduce: int
    update: int
    collect: int
    upload: int
    relay: int
    barrier: int
    survival: int
    interference: int
    uplink: int
    downlink: int
    server_forward: int
    server_backward: int
    latency: int


class NodeRows(NamedTuple):
    """Rows that the loop writes for each node."""

    busy_energy: int
    energy: int
    energy_ratio: int
    hop_forward: int
    hop_backward: int


class DeviceRows(NamedTuple):
    """Rows that the loop writes for each device."""

    memory: int
    compute_forward: int
    compute_backward: int


# One block with numbered rows rather than one array for each name: Numba unpacks each array in every call.
OPENED = OpenedRows(*range(3))
ROUND = RoundRows(*range(2))
CLUSTER = ClusterRows(*range(15))
NODE = NodeRows(*range(5))
DEVICE = DeviceRows(*range(3))


@lru_cache(maxsize=64)
def places_of(E: int, N: int, K: int) -> tuple[Mapping[str, tuple[slice, tuple[int, ...]]], int]:
    """Places and shapes of all rows by name in the loop's block, and its length, workspace included."""
    found: dict[str, tuple[slice, tuple[int, ...]]] = {}
    at = 0
    for rows, shape in ((ROUND, (E,)), (CLUSTER, (E, N)), (NODE, (E, N, K + 1)), (DEVICE, (E, N, K))):
        size = math.prod(shape)
        for name in rows._fields:
            found[name] = slice(at, at + size), shape
            at += size
    return found, at + N + (1 + NODE_ROWS) * (K + 1) + SUMMARY
