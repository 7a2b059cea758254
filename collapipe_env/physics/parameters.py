"""Parameters of a scenario, and their numbers for compiled loops.

Loops take a record of numbers. Names, choices and the priced workload stay out of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, get_type_hints

import numpy.typing as npt

from collapipe_env.ground.arrays import loop_record
from collapipe_env.physics.energy import IDEAL_RADIO, RadioPower
from collapipe_env.physics.moves import Migration
from collapipe_env.physics.overheads import NO_OVERHEADS, Overheads
from collapipe_env.physics.radio import Sharing
from collapipe_env.physics.rates import PAPER_LINKS, LinkLaw
from collapipe_env.physics.replication import NO_REPLICAS, NO_REPLICATION, Replication
from collapipe_env.physics.server import FREE_SERVER, ServerTerms
from collapipe_env.physics.workload import WorkloadCosts


class Numbers(NamedTuple):
    """The numbers of :class:`Parameters` and of its workload, by the same names, for compiled loops.

    What is ``None`` there is 0 here. Named differently are a cluster's whole update and the new model
    (``update_bits``, ``broadcast_bits``), ``alpha`` (``activation_bytes``), ``rho``, ``alpha`` and the
    working set under the other setting of recomputation (``other_...``, equal where it is not a decision),
    and the times of a sample on a cluster's part of the server, without other tenants
    (``server_...seconds``).
    """

    blocks: int
    clusters: int
    batch_size: float
    local_steps: float
    noise_density: float
    d2d_bandwidth_hz: float
    uplink_noise_w: float
    uplink_bandwidth_hz: float
    downlink_noise_w: float
    downlink_bandwidth_hz: float
    bs_power_w: float
    lossy: bool
    half_duplex: bool
    block_forward_flops: float
    server_seconds: float
    server_block_seconds: float
    activation_bits: float
    gradient_bits: float
    block_payload_bits: float
    update_bits: float
    broadcast_bits: float
    block_state_bytes: float
    block_copy_bytes: float
    activation_bytes: float
    power_min_w: float
    power_max_w: float
    bandwidth_floor: float
    tradeoff_v: float
    block_weight_flops: float
    server_weight_seconds: float
    link: LinkLaw
    sharing: Sharing
    overheads: Overheads
    radio_power: RadioPower
    moment_bits: float
    through_cu: bool
    relay_bits: float
    barrier: bool
    backward_over_forward: float
    working_bytes: float
    other_backward_over_forward: float
    other_activation_bytes: float
    other_working_bytes: float
    budget_period_s: float
    idle_round_s: float


@dataclass(frozen=True)
class Parameters:
    """Parameters of a scenario in SI units, as schedulers and the simulator's general form read them.

    Attributes:
        noise_density: Noise of devices and CUs, noise figure included [W/Hz].
        bs_noise_density: The same of the base station [W/Hz].
        d2d_bandwidth_hz: ``W_d`` of one device-to-device sub-channel.
        sharing: How the nodes of a cluster share time and band.
        uplink_bandwidth_hz: ``W_up``.
        downlink_bandwidth_hz: ``W_dl``.
        bs_power_w: ``P_bs``.
        external_interference_w: ``I_ext`` over the whole band.
        lossy: Whether links lose packets, so that micro-batches may not arrive.
        link: How SNR becomes rate and packet errors.
        server_flops: ``v_BS`` [FLOP/s], shared by the clusters and other tenants.
        clusters: ``N``.
        tradeoff_v: Lyapunov ``V`` [1/s].
        micro_batch_choices: Allowed numbers of micro-batches, ascending.
        bandwidth_floor: Smallest share of the uplink that a cluster gets.
        half_duplex: Whether a device-to-device hop serves one direction at a time. GPipe never uses both
            at once; other schedules do.
        overheads: Costs of passes and messages whatever their size.
        radio_power: Power that radios draw in addition to the emitted power.
        migration: Rules for the moments of blocks that change hands; ``None`` where that costs nothing.
        distribution: Way of new weights to the devices, ``cu`` or ``relay``.
        head: Server's head within a round, ``copies`` or ``common``.
        other_costs: Workload with the other setting of recomputation, where schedulers decide about it;
            otherwise ``None``.
        budget_period_s: Period of an energy budget [s]; ``None`` where a budget is per round.
        idle_round_s: Delay of a round in which nobody takes part, ``T_ref`` of one local step [s]; 0 where
            all clusters have to take part.
        participation_min: Least share of rounds in which a cluster is to take part, where it may sit out.
        local_steps_choices: Allowed numbers of local steps, ascending, where schedulers decide about them;
            empty where all clusters take the workload's.
        clock_cap_min: Least cap on a device's clock, over its full clock; 1 where all clocks run free.
        processes: Settings of the active processes by name, as the scenario lists them.
        opened: Decisions that the scenario opens beyond CollaPipe's own, in the order of their entries.
    """

    costs: WorkloadCosts
    noise_density: float
    bs_noise_density: float
    d2d_bandwidth_hz: float
    sharing: Sharing
    uplink_bandwidth_hz: float
    downlink_bandwidth_hz: float
    bs_power_w: float
    external_interference_w: float
    lossy: bool
    server_flops: float
    clusters: int
    power_min_w: float
    power_max_w: float
    tradeoff_v: float
    micro_batch_choices: tuple[int, ...]
    bandwidth_floor: float
    half_duplex: bool = False
    link: LinkLaw = PAPER_LINKS
    overheads: Overheads = NO_OVERHEADS
    radio_power: RadioPower = IDEAL_RADIO
    migration: Migration | None = None
    distribution: str = "cu"
    head: str = "copies"
    other_costs: WorkloadCosts | None = None
    budget_period_s: float | None = None
    server: ServerTerms = FREE_SERVER
    idle_round_s: float = 0.0
    participation_min: float = 0.0
    local_steps_choices: tuple[int, ...] = ()
    clock_cap_min: float = 1.0
    replication: Replication = NO_REPLICATION
    processes: tuple[tuple[str, Any], ...] = ()
    opened: tuple[str, ...] = ()

    @cached_property
    def without_idle_radios(self) -> Parameters:
        """The same parameters with radios that draw nothing while they are idle.

        Schedulers that plan clusters on their own price work with them, and idle radios by the second.
        """
        if self.radio_power.idle_w == 0.0:
            return self
        return replace(self, radio_power=self.radio_power._replace(idle_w=0.0))

    @property
    def uplink_noise_w(self) -> float:
        """Noise plus external interference over the whole uplink [W]."""
        return self.bs_noise_density * self.uplink_bandwidth_hz + self.external_interference_w

    @property
    def downlink_noise_w(self) -> float:
        """Noise plus external interference over the whole downlink [W]."""
        return self.noise_density * self.downlink_bandwidth_hz + self.external_interference_w

    @property
    def server_share_flops(self) -> float:
        """A cluster's part of the server's speed, ``v_BS (1 - rho) / N`` [FLOP/s], at a constant ``rho``.

        The part of clusters that sit a round out is not given to the others.
        """
        return self.server_flops * (1.0 - self.server.tenants) / self.clusters

    def costs_when(self, recompute: bool) -> WorkloadCosts:
        """Return the workload priced with or without recomputation.

        Args:
            recompute: The setting, one that the scenario allows.
        """
        if self.other_costs is None or recompute == self.costs.training_memory.recompute:
            return self.costs
        return self.other_costs

    @property
    def may_sit_out(self) -> bool:
        """Whether clusters may sit rounds out, by decision or because they cannot hold the encoder."""
        return self.idle_round_s > 0.0

    @property
    def barrier(self) -> bool:
        """Whether every local step waits for the slowest cluster's: with a common head and several steps."""
        return self.head == "common" and self.most_local_steps > 1

    @property
    def most_local_steps(self) -> int:
        """Most local steps that a cluster may take in a round: ``H``, or the largest choice."""
        return (self.costs.local_steps, *self.local_steps_choices)[-1]

    @cached_property
    def prices(self) -> tuple[str, ...]:
        """Names of what may add to the physics of a round: the scenario's terms and processes."""
        own = {
            "server": self.server.budget_j < math.inf,
            "replicas": self.replication.kind != NO_REPLICAS,
            "migration": self.migration is not None,
        }
        others = (name for name, _ in self.processes if name not in own)
        return (*(name for name, on in own.items() if on), *others)

    @property
    def moment_bits(self) -> float:
        """Moments of a block that changes device [bit]; 0 where a change costs nothing."""
        return self.migration.block_bits if self.migration is not None and self.migration.moves else 0.0

    @property
    def through_cu(self) -> bool:
        """Whether moments travel over the CU."""
        return self.migration is not None and self.migration.through_cu

    @property
    def relay_bits(self) -> float:
        """Message about one block's new state that a CU forwards [bit]; 0 where none does."""
        return self.costs.block_broadcast_bits(self.clusters) if self.distribution == "relay" else 0.0

    @cached_property
    def numbers(self) -> Numbers:
        """The parameters as numbers, for compiled loops."""
        costs, N, flops = self.costs, self.clusters, self.server_share_flops
        other = self.other_costs or costs
        named: dict[str, Any] = {
            "server_seconds": costs.decoder_forward_flops / flops,
            "server_block_seconds": costs.block_forward_flops / flops,
            "server_weight_seconds": costs.decoder_weight_flops / flops,
            "update_bits": costs.update_payload_bits,
            "broadcast_bits": costs.embedding_broadcast_bits(N)
            + costs.blocks * costs.block_broadcast_bits(N),
            "activation_bytes": costs.stored_activation_bytes,
            "other_backward_over_forward": other.backward_over_forward,
            "other_activation_bytes": other.stored_activation_bytes,
            "other_working_bytes": other.working_bytes,
        }
        for name, kind in get_type_hints(Numbers).items():
            if name not in named:
                value = getattr(self if hasattr(self, name) else costs, name)
                named[name] = float(value or 0.0) if kind is float else value
        return Numbers(**named)

    @cached_property
    def record(self) -> npt.NDArray[Any]:
        """The same as one record (1,); see :func:`~collapipe_env.ground.arrays.loop_record`."""
        return loop_record(self.numbers)
