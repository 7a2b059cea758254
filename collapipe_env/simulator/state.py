"""The nouns of the simulator: what is fixed, what a scheduler sees, and what a round cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING

from collapipe_env.arrays import Array
from collapipe_env.physics.workload import WorkloadCosts

if TYPE_CHECKING:
    from collapipe_env.kernels.plain_round import PlainRoundScalars


@dataclass(frozen=True)
class SystemParameters:
    """The scalars of a scenario that the physics needs, in SI units.

    Attributes:
        costs: Priced workload.
        noise_density: ``N0`` [W/Hz].
        d2d_bandwidth_hz: ``W_d`` of one device-to-device sub-channel.
        uplink_bandwidth_hz: ``W_up``.
        downlink_bandwidth_hz: ``W_dl``.
        bs_power_w: ``P_bs``.
        external_interference_w: ``I_ext`` over the whole band.
        link_errors: ``drop``, ``arq`` or ``none``.
        waterfall_threshold: ``m`` of the packet error.
        server_flops: ``v_BS`` [FLOP/s], shared by the clusters.
        clusters: ``N``.
        power_min_w: Smallest transmit power.
        power_max_w: Largest transmit power.
        tradeoff_v: Lyapunov ``V`` [1/s].
        micro_batch_choices: Allowed numbers of micro-batches, ascending.
        bandwidth_floor: Smallest share of the uplink that a cluster gets.
        half_duplex: Whether a device-to-device hop serves one direction at a time. GPipe never uses both
            at once; other schedules do.
    """

    costs: WorkloadCosts
    noise_density: float
    d2d_bandwidth_hz: float
    uplink_bandwidth_hz: float
    downlink_bandwidth_hz: float
    bs_power_w: float
    external_interference_w: float
    link_errors: str
    waterfall_threshold: float
    server_flops: float
    clusters: int
    power_min_w: float
    power_max_w: float
    tradeoff_v: float
    micro_batch_choices: tuple[int, ...]
    bandwidth_floor: float
    half_duplex: bool = False

    @cached_property
    def plain_round_scalars(self) -> PlainRoundScalars:
        """The scalars of the compiled loop over plain plans."""
        from collapipe_env.simulator.plain_costs import plain_round_scalars

        return plain_round_scalars(self)

    @property
    def uplink_noise_w(self) -> float:
        """Noise plus external interference over the whole uplink [W]."""
        return self.noise_density * self.uplink_bandwidth_hz + self.external_interference_w

    @property
    def downlink_noise_w(self) -> float:
        """Noise plus external interference over the whole downlink [W]."""
        return self.noise_density * self.downlink_bandwidth_hz + self.external_interference_w


@dataclass(frozen=True, eq=False)
class SystemState:
    """Everything that decides a round besides the allocation; leading batch axes ``...``.

    Attributes:
        uplink_gain: ``h_n`` (..., N).
        d2d_gain: ``G_n`` (..., N, K+1, K+1), symmetric; node 0 is the CU.
        cross_gain: ``X`` (..., N, N), path-loss gain between cluster centres, zero diagonal.
        speed: Effective speed now, ``v_k`` (..., N, K) [FLOP/s]; positive also for absent devices.
        compute_power: ``P_act`` now (..., N, K) [W].
        memory_bytes: Memory offered (..., N, K); zero for absent devices.
        memory_cap: Blocks that fit the memory under GPipe (..., N, K), int.
        present: Devices that exist and answer (..., N, K), bool.
        budget: Energy budget per round (..., N, K+1) [J].
        backlog: Normalised virtual queues ``z`` (..., N, K+1); zero for absent devices.
        round_index: Rounds played (...), int.
        loss: Smoothed evaluation loss (...).
        processes: What processes show of themselves: arrays (..., ...) by name, by process.
    """

    uplink_gain: Array
    d2d_gain: Array
    cross_gain: Array
    speed: Array
    compute_power: Array
    memory_bytes: Array
    memory_cap: Array
    present: Array
    budget: Array
    backlog: Array
    round_index: Array
    loss: Array
    processes: Mapping[str, Mapping[str, Array]] = field(default_factory=dict)

    def map(self, function: Callable[[Array], Array]) -> SystemState:
        """Apply one function to every array, for instance to add a batch axis."""
        arrays = {f.name: function(getattr(self, f.name)) for f in fields(self) if f.name != "processes"}
        shown = {
            process: {name: function(array) for name, array in carried.items()}
            for process, carried in self.processes.items()
        }
        return SystemState(**arrays, processes=shown)

    def __getitem__(self, index: object) -> SystemState:
        """Index the leading batch axes of every array."""
        return self.map(lambda a: a[index])
