"""The sections of a scenario: workload, devices, clusters, radio, budgets and dynamics.

Frozen, validated dataclasses. Units are SI throughout (seconds, joules, watts, hertz, bits, bytes, FLOP,
metres); decibels appear only where a field's name ends in ``_db`` or ``_dbm_per_hz``. The defaults are the
preset ``medium``.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal, Protocol, Self

from pydantic import model_validator
from pydantic.dataclasses import dataclass

from collapipe_env.ground.errors import shown
from collapipe_env.physics.radio import db_to_linear
from collapipe_env.scenario.decision_names import CLOCK_CAP_MIN, PARTICIPATION_MIN
from collapipe_env.scenario.fields import (
    SPEC_CONFIG,
    Name,
    Positive,
    described,
    real,
    require_ordered,
    whole,
)
from collapipe_env.scenario.process_fields import ProcessFields
from collapipe_env.scenario.validation_errors import refuse_clearly
from collapipe_env.scenario.workload_section import WorkloadSpec as WorkloadSpec

Members = Annotated[int, whole("devices of a cluster", 1, 512)]
LEAST_SHARE = 1e-9
"""Smallest share of the uplink that a plan may give a cluster: a fiftieth of a hertz of 20 MHz. With still
smaller shares, delays and rewards soon leave the range of floats."""

ClockShare = Annotated[float, real("share of the full clock", "1", gt=0.0, le=1.0)]


@refuse_clearly
@dataclass(frozen=True, kw_only=True, config=SPEC_CONFIG)
class DeviceProfile:
    """A kind of device; every device of a layout is drawn from one profile.

    Its power while computing is given either by ``switched_capacitance`` (``kappa f^3`` at clock f) or by
    ``active_power_w`` (at full clock, and proportional to the clock below it), never by both.
    """

    name: Annotated[Name, described("the profile's name; no unit, one line of text")] = "mobile"
    weight: Annotated[
        float, real("relative frequency of the profile among the devices", "1", gt=0.0, le=1e6)
    ] = 1.0
    clock_min_hz: Annotated[float, real("slowest full clock of such a device", "Hz", gt=0.0, le=1e12)] = 0.5e9
    clock_max_hz: Annotated[
        float, real("fastest full clock; a device's is uniform between the two", "Hz", gt=0.0, le=1e12)
    ] = 2.0e9
    flops_per_cycle: Annotated[
        float, real("floating-point operations per clock cycle", "FLOP/cycle", gt=0.0, le=1e9)
    ] = 16.0
    switched_capacitance: Annotated[
        Annotated[float, real("effective switched capacitance kappa", "W/Hz^3", gt=0.0, le=1.0)] | None,
        described("effective switched capacitance kappa, power kappa f^3; W/Hz^3, range above 0, or null"),
    ] = None
    active_power_w: Annotated[
        Annotated[float, real("power while computing at full clock", "W", gt=0.0, le=1e6)] | None,
        described("power while computing at full clock; W, range above 0 to 1e6, or null"),
    ] = None
    memory_bytes: Annotated[
        tuple[Positive, ...],
        described("memory a device may offer, each equally likely; byte, range above 0, at least one"),
    ] = (384e6, 512e6, 1e9)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.clock_min_hz > self.clock_max_hz:
            raise ValueError(
                f"clock_min_hz = {self.clock_min_hz:g} is above clock_max_hz = {self.clock_max_hz:g}"
            )
        if (self.switched_capacitance is None) == (self.active_power_w is None):
            found = "neither" if self.active_power_w is None else "both"
            raise ValueError(
                f"exactly one of switched_capacitance and active_power_w must be given; found {found}"
            )
        if not self.memory_bytes:
            raise ValueError("memory_bytes must hold at least one size")
        require_ordered("memory_bytes", self.memory_bytes)
        return self


@refuse_clearly
@dataclass(frozen=True, kw_only=True, config=SPEC_CONFIG)
class DeviceSpec:
    """Kinds of devices, and the range of transmit powers (devices and CUs alike)."""

    profiles: Annotated[
        tuple[DeviceProfile, ...],
        described("kinds of devices, drawn in proportion to their weights; no unit, at least one profile"),
    ] = (DeviceProfile(switched_capacitance=1e-27),)
    power_min_w: Annotated[float, real("least transmit power", "W", gt=0.0, le=1e4)] = 0.002
    power_max_w: Annotated[float, real("greatest transmit power", "W", gt=0.0, le=1e4)] = 0.2
    clock_cap_min: Annotated[
        float,
        real(
            "least cap on a device's clock, over the full one, where decisions list clock_cap",
            "1",
            ge=0.01,
            le=1.0,
        ),
    ] = CLOCK_CAP_MIN

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.profiles:
            raise ValueError("profiles must hold at least one device profile")
        for name, count in Counter(profile.name for profile in self.profiles).items():
            if count > 1:
                raise ValueError(f"profiles holds the name {shown(name)} twice; names must differ")
        if self.power_min_w > self.power_max_w:
            raise ValueError(
                f"power_min_w = {self.power_min_w:g} is above power_max_w = {self.power_max_w:g}"
            )
        return self


@refuse_clearly
@dataclass(frozen=True, kw_only=True, config=SPEC_CONFIG)
class ClusterSpec:
    """Numbers of clusters and devices, the area in which they stand, and the server."""

    clusters: Annotated[int, whole("number of clusters N", 1, 1024)] = 4
    devices: Annotated[
        Members | tuple[Members, ...],
        described("devices K_n: one number for all clusters or one each; integer, range 1 to 512"),
    ] = 5
    cu_distance_min_m: Annotated[
        float, real("least distance from a CU to the base station", "m", ge=1.0, le=1e5)
    ] = 50.0
    cu_distance_max_m: Annotated[
        float, real("greatest distance from a CU to the base station", "m", ge=1.0, le=1e5)
    ] = 400.0
    cluster_separation_min_m: Annotated[
        float, real("least distance between two clusters' centres", "m", ge=1.0, le=1e5)
    ] = 100.0
    area_side_m: Annotated[
        float,
        real("side of the square around a CU where its devices stand", "m", gt=0.0, le=1e4),
    ] = 40.0
    hop_min_m: Annotated[
        float, real("shortest hop, to which shorter distances are raised", "m", ge=0.1, le=1e4)
    ] = 5.0
    layout_seed: Annotated[
        int, whole("seed of the fixed layout's positions, clocks and memories", 0, 2**63 - 1)
    ] = 19
    layout: Annotated[
        Literal["fixed", "per_episode"],
        described("whether the layout is the same in every episode or redrawn; one of fixed, per_episode"),
    ] = "fixed"
    server_flops: Annotated[
        float, real("speed of the server, shared equally by the clusters", "FLOP/s", gt=0.0, le=1e18)
    ] = 2e12

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if isinstance(self.devices, tuple) and len(self.devices) != self.clusters:
            raise ValueError(
                f"devices lists {len(self.devices)} clusters but clusters = {self.clusters}; "
                "give one number for all or one for each"
            )
        if self.cu_distance_min_m > self.cu_distance_max_m:
            raise ValueError(
                f"cu_distance_min_m = {self.cu_distance_min_m:g} is above "
                f"cu_distance_max_m = {self.cu_distance_max_m:g}"
            )
        return self

    @property
    def devices_per_cluster(self) -> tuple[int, ...]:
        """Number of devices of each cluster, length N."""
        return self.devices if isinstance(self.devices, tuple) else (self.devices,) * self.clusters

    @property
    def max_devices(self) -> int:
        """Length K of the array axis of devices: devices of the largest cluster."""
        return max(self.devices_per_cluster)


@refuse_clearly
@dataclass(frozen=True, kw_only=True, config=SPEC_CONFIG)
class RadioSpec:
    """Bandwidths, noise, fading and packet errors."""

    noise_dbm_per_hz: Annotated[float, real("noise power density N0", "dBm/Hz", ge=-250.0, le=0.0)] = -174.0
    d2d_bandwidth_hz: Annotated[
        float, real("bandwidth of a device-to-device hop W_d, reused by all clusters", "Hz", gt=0.0, le=1e12)
    ] = 10e6
    uplink_bandwidth_hz: Annotated[
        float, real("uplink bandwidth W_up that the clusters share", "Hz", gt=0.0, le=1e12)
    ] = 20e6
    downlink_bandwidth_hz: Annotated[float, real("downlink bandwidth W_dl", "Hz", gt=0.0, le=1e12)] = 20e6
    bs_power_w: Annotated[float, real("transmit power of the base station P_bs", "W", gt=0.0, le=1e6)] = 20.0
    external_interference_w: Annotated[
        float, real("interference from outside in the base station's band I_ext", "W", ge=0.0, le=1.0)
    ] = 0.0
    d2e_shadowing_db: Annotated[
        float, real("standard deviation of the CUs' log-normal shadowing", "dB", ge=0.0, le=30.0)
    ] = 0.0
    d2d_shadowing_db: Annotated[
        float, real("standard deviation of the hops' log-normal shadowing", "dB", ge=0.0, le=30.0)
    ] = 0.0
    diversity: Annotated[
        int, whole("Nakagami branches m of a round's gain, 1 for Rayleigh fading", 1, 1024)
    ] = 4
    fading_correlation: Annotated[
        float,
        real("correlation rho between rounds, 0 for independent rounds", "1", ge=0.0, lt=1.0),
    ] = 0.0
    d2d_duplex: Annotated[
        Literal["full", "half"],
        described("whether a device-to-device hop sends both ways at once; one of full, half"),
    ] = "full"
    link_errors: Annotated[
        Literal["drop", "arq", "none"],
        described("effect of a packet error: micro-batch dropped, sent again, none; one of drop, arq, none"),
    ] = "drop"
    max_transmissions: Annotated[
        int, whole("transmissions after which arq drops a micro-batch", 1, 1_000_000)
    ] = 16
    waterfall_threshold: Annotated[
        float, real("waterfall threshold of the packet error rate, linear", "1", ge=0.0, le=1e3)
    ] = 0.023

    snr_cap_db: Annotated[
        Annotated[float, real("greatest SNR that device-to-device rates use", "dB", ge=0.0, le=200.0)] | None,
        described("greatest SNR that device-to-device rates use; dB, range 0 to 200, or null for none"),
    ] = None
    d2d_circuit_w: Annotated[
        float, real("power of a device-to-device sender's circuits", "W", ge=0.0, le=1e4)
    ] = 0.0
    edge_circuit_w: Annotated[
        float, real("power of the circuits of a CU that sends on the uplink", "W", ge=0.0, le=1e4)
    ] = 0.0
    amplifier_efficiency: Annotated[
        float, real("emitted over drawn power of an amplifier", "1", ge=1e-6, le=1.0)
    ] = 1.0
    receive_w: Annotated[
        float, real("power of the receiver of a device-to-device message", "W", ge=0.0, le=1e4)
    ] = 0.0

    @property
    def noise_w_per_hz(self) -> float:
        """Noise power density N0 [W/Hz]."""
        return db_to_linear(self.noise_dbm_per_hz - 30.0)


@refuse_clearly
@dataclass(frozen=True, kw_only=True, config=SPEC_CONFIG)
class BudgetSpec:
    """Long-term energy budgets, the weight of the delay, and bounds of queues and bandwidth shares."""

    device_energy_j: Annotated[float, real("energy budget per device and round", "J", gt=0.0, le=1e12)] = 12.0
    cu_energy_j: Annotated[float, real("energy budget per CU and round", "J", gt=0.0, le=1e12)] = 1.0
    per: Annotated[
        Literal["round", "second"],
        described(
            "period of a budget: a round, or the seconds of a usual round (T_ref at one local step); one "
            "of round, second"
        ),
    ] = "round"
    tradeoff_v: Annotated[float, real("Lyapunov weight of the delay V", "1/s", ge=0.0, le=1e9)] = 1.4
    backlog_cap: Annotated[
        float,
        real(
            "cap z_cap on normalised backlogs (energy over budget) in observations and the per-round reward",
            "1",
            gt=0.0,
            le=1e9,
        ),
    ] = 20.0
    participation_min: Annotated[
        float,
        real(
            "least share of rounds in which a cluster is to take part, where decisions list participation",
            "1",
            ge=0.0,
            le=1.0,
        ),
    ] = PARTICIPATION_MIN
    bandwidth_floor: Annotated[
        float, real("share of the bandwidth that every cluster gets at least", "1", ge=LEAST_SHARE, lt=1.0)
    ] = 0.02


@refuse_clearly
@dataclass(frozen=True, kw_only=True, config=SPEC_CONFIG)
class DynamicsSpec:
    """Length of an episode, and slow changes over its rounds."""

    rounds: Annotated[int, whole("rounds of an episode", 1, 10_000_000)] = 100
    load_levels: Annotated[
        tuple[ClockShare, ...],
        described(
            "shares of its full clock that a device's Markov load may leave it, ascending; "
            "unit 1, range above 0 to 1, at least one"
        ),
    ] = (1.0,)
    load_stay_probability: Annotated[
        float, real("probability that a device's load level stays for the next round", "1", ge=0.0, le=1.0)
    ] = 0.95
    target_loss: Annotated[
        Annotated[float, real("evaluation loss that ends an episode", "nat", gt=0.0, le=1e6)] | None,
        described("smoothed evaluation loss that ends an episode; nat, range above 0, or null for never"),
    ] = None
    time_base: Annotated[
        Literal["mixed", "real", "reference"],
        described(
            "seconds by which a round moves processes: the round's delay (real), T_ref at one local step "
            "(reference), or the delay for those that plans drive and T_ref for the others (mixed); one of "
            "mixed, real, reference"
        ),
    ] = "mixed"
    visibility: Annotated[
        Literal["full", "realistic"],
        described(
            "what schedulers see of processes: all that these show, or what real systems can measure; "
            "one of full, realistic"
        ),
    ] = "full"
    processes: ProcessFields = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.load_levels:
            raise ValueError("load_levels must hold at least one level; [1.0] means constant speeds")
        require_ordered("load_levels", self.load_levels)
        return self


class Sections(Protocol):
    """A scenario, as its layout and its prices read it."""

    @property
    def workload(self) -> WorkloadSpec:
        """The priced model."""

    @property
    def devices(self) -> DeviceSpec:
        """The devices."""

    @property
    def cluster(self) -> ClusterSpec:
        """Clusters and layout."""

    @property
    def dynamics(self) -> DynamicsSpec:
        """The episode."""
