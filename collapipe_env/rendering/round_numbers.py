"""Numbers of a round that a picture is drawn from; free of the simulator and of Matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.ground.errors import CollaPipeError
from collapipe_env.physics.schedules.timeline import RoundTimeline


@dataclass(frozen=True, eq=False)
class ClusterMap:
    """Positions in a cluster whose devices move, relative to its CU.

    Attributes:
        side_m: Side of the square [m].
        east_m: (K,) devices eastwards from the CU [m].
        north_m: (K,) devices northwards from the CU [m].
        reach_m: Distance from the CU beyond which devices are away [m]; ``None`` where nobody leaves.
        station_m: Base station, eastwards and northwards from the CU [m].
        links: Sender, receiver (0 for the CU, else one more than the device slot) and time of the whole
            mini-batch forward [s], for each hop of the pipeline.
    """

    side_m: float
    east_m: FloatArray
    north_m: FloatArray
    station_m: tuple[float, float]
    links: tuple[tuple[int, int, float], ...]
    reach_m: float | None = None


@dataclass(frozen=True, eq=False)
class ClusterView:
    """Numbers of one cluster.

    Attributes:
        name: Short, for the margin: ``"c0"``.
        timeline: Its round. Only clusters drawn in detail need events (see :meth:`RoundView.detailed`).
        blocks: (K,) blocks per device slot, 0 where the slot holds none.
        micro_batches: M of the round.
        bandwidth: Share beta of the uplink, in [0, 1].
        cu_power_w: Transmit power of the CU in watts.
        device_power_w: (K,) transmit powers in watts. Only those of devices with blocks are drawn.
        delay_s: The cluster's own round time T_n in seconds, before waiting and broadcast.
        arrivals: Fraction of micro-batches whose gradient arrived, in [0, 1].
        order: (K,) devices in the order in which micro-batches pass them.
        clock_cap: (K,) caps on the devices' clocks relative to full clocks.
        recomputes: Whether the plan lets its devices recompute activations.
        schedule: Name of its schedule; empty where plans do not decide it.
        server_blocks: Number of the encoder's last blocks that the server runs.
        takes_part: Whether it takes part in the round.
        local_steps: Its local steps H_n.
        site: Positions of its devices; ``None`` where they do not move.
    """

    name: str
    timeline: RoundTimeline
    blocks: IntArray
    micro_batches: int
    bandwidth: float
    cu_power_w: float
    device_power_w: FloatArray
    delay_s: float
    arrivals: float
    order: IntArray
    clock_cap: FloatArray
    recomputes: bool = False
    schedule: str = ""
    server_blocks: int = 0
    takes_part: bool = True
    local_steps: int = 1
    site: ClusterMap | None = None


@dataclass(frozen=True, eq=False)
class RoundView:
    """Numbers of one round.

    Attributes:
        title: First words of the heading, for instance the scenario's and the policy's names.
        clusters: N clusters, in index order.
        backlog: (N, K+1) normalised energy queues z after the round, node 0 being the CU.
        energy_ratio: (N, K+1) energy of the round over its budget, e.
        present: (N, K) True where the device slot is filled and alive.
        round_index: Number of the round, counted from 1.
        delay_s: Delay of the round in seconds.
        loss_history: Evaluation losses of the rounds so far, oldest first, this round's last; may be empty
            and may hold NaN.
        delay_history: Delays of the rounds so far in seconds, in the same order; may be empty.
        allowance: Budgets that the round granted, where they are per second; ``None`` where per round.
        known_error_db: Root mean square error of the gains that schedulers knew, over present links [dB];
            ``None`` where they knew the true ones.

    Raises:
        CollaPipeError: On construction, if shapes do not fit together.
    """

    title: str
    clusters: tuple[ClusterView, ...]
    backlog: FloatArray
    energy_ratio: FloatArray
    present: BoolArray
    round_index: int
    delay_s: float
    loss_history: Sequence[float] = ()
    delay_history: Sequence[float] = ()
    allowance: float | None = None
    known_error_db: float | None = None

    def __post_init__(self) -> None:
        if not self.clusters:
            raise CollaPipeError("RoundView.clusters is empty; a picture needs at least one cluster")
        N, K = len(self.clusters), len(self.clusters[0].blocks)
        arrays: dict[str, tuple[Any, tuple[int, ...]]] = {
            name: (getattr(self, name), (N, K + (name != "present")))
            for name in ("present", "backlog", "energy_ratio")
        }
        for i, cluster in enumerate(self.clusters):
            for name in ("blocks", "device_power_w", "order", "clock_cap"):
                arrays[f"clusters[{i}].{name}"] = getattr(cluster, name), (K,)
        for name, (array, wanted) in arrays.items():
            if array.shape != wanted:
                raise CollaPipeError(
                    f"RoundView.{name} has shape {array.shape}, but {N} clusters of {K} device slots take "
                    f"{wanted}"
                )

    @property
    def devices(self) -> int:
        """Device slots per cluster, K."""
        return int(self.present.shape[1])

    @property
    def node_present(self) -> BoolArray:
        """Presence of the nodes (N, K+1); the CU, node 0, is always there."""
        return np.concatenate([np.ones((len(self.clusters), 1), dtype=np.bool_), self.present], axis=1)

    def detailed(self, most: int = 4) -> list[int]:
        """Return the clusters for detailed charts: all if at most ``most``, else the slowest, in order."""
        count = len(self.clusters)
        if count <= most:
            return list(range(count))
        return sorted(range(count), key=lambda n: -self.clusters[n].delay_s)[:most]
