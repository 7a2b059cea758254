"""The sections of a scenario: devices, clusters, radio, budgets, overheads and dynamics.

Frozen, validated dataclasses. Units are SI throughout (seconds, joules, watts, hertz, bits, bytes, FLOP,
metres); decibels appear only where a field's name ends in ``_db`` or ``_dbm_per_hz``. The defaults are the
preset ``medium``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Protocol, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import ArgsKwargs

from collapipe_env.ground.errors import shown
from collapipe_env.scenario.device_catalogue import profile_fields
from collapipe_env.scenario.fields import (
    Name,
    Positive,
    field,
    real,
    require_ordered,
    require_range,
    spec,
    whole,
)
from collapipe_env.scenario.process_fields import ProcessFields
from collapipe_env.scenario.radio_section import RadioSpec
from collapipe_env.scenario.workload_section import WorkloadSpec

Members = Annotated[int, Field(strict=True, ge=1, le=512)]
JOULES = ("device_energy_j", "cu_energy_j")
"""Fields of the budgets in joules, which a tightness replaces."""
LEAST_SHARE = 1e-9
"""Smallest share of the uplink that a plan may give a cluster: a tenth of a hertz of 100 MHz. With still
smaller shares, delays and rewards soon leave the range of floats."""

ClockShare = Annotated[float, Field(strict=True, gt=0, le=1)]
REFERENCE_CLOCK_HZ = 1e9
"""Clock at which device times are given; at other clocks they scale inversely."""


@spec
class DeviceProfile:
    """A kind of device; every device of a layout is drawn from one profile.

    Its power while computing is given either by ``switched_capacitance`` (``kappa f^3`` at clock f) or by
    ``active_power_w`` (at full clock, and proportional to the clock below it), never by both.
    """

    name: Name = field("mobile", "the profile's name; no unit, one line of text")
    weight: float = real(1.0, "relative frequency of the profile among the devices", "(0, 1e6]")
    clock_min_hz: float = real(0.5e9, "slowest full clock of such a device", "(0, 1e12] Hz")
    clock_max_hz: float = real(2.0e9, "fastest full clock; a device's is uniform in between", "(0, 1e12] Hz")
    flops_per_cycle: float = real(16.0, "floating-point operations per clock cycle", "(0, 1e9] FLOP/cycle")
    switched_capacitance: float | None = real(
        None, "effective switched capacitance kappa, power kappa f^3", "(0, 1] W/Hz^3"
    )
    active_power_w: float | None = real(None, "power while computing at full clock", "(0, 1e6] W")
    memory_bytes: tuple[Positive, ...] = field(
        (384e6, 512e6, 1e9),
        "memory a device may offer, each equally likely; byte, range above 0, at least one",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        require_range(self, "clock_min_hz", "clock_max_hz")
        if (self.switched_capacitance is None) == (self.active_power_w is None):
            found = "neither" if self.active_power_w is None else "both"
            raise ValueError(
                f"exactly one of switched_capacitance and active_power_w must be given; found {found}"
            )
        require_ordered("memory_bytes", self.memory_bytes, least="size")
        return self


Profile = Annotated[DeviceProfile, BeforeValidator(profile_fields)]
"""A device profile, or what stands for one of the catalogue: its name, or a mapping with ``base``."""


@spec
class DeviceSpec:
    """Kinds of devices, and the range of transmit powers (devices and CUs alike).

    A kind is a profile, the name of a device of the catalogue (`docs/devices.md`), or a mapping that names
    one under ``base`` and replaces some of its fields.
    """

    profiles: tuple[Profile, ...] = field(
        (DeviceProfile(switched_capacitance=1e-27),),
        "kinds of devices, drawn in proportion to their weights; no unit, profiles or names such as "
        "orin-nano, at least one",
    )
    power_min_w: float = real(0.001, "least transmit power", "(0, 10] W")
    power_max_w: float = real(0.1, "greatest transmit power, watts: 23 dBm are 0.2", "(0, 10] W")
    clock_cap_min: float = real(
        0.2, "least cap on a device's clock, over the full one, where decisions list clock_cap", "[0.01, 1]"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.profiles:
            raise ValueError("profiles must hold at least one device profile")
        for name, count in Counter(profile.name for profile in self.profiles).items():
            if count > 1:
                raise ValueError(f"profiles holds the name {shown(name)} twice; names must differ")
        require_range(self, "power_min_w", "power_max_w")
        return self


@spec
class ClusterSpec:
    """Numbers of clusters and devices, the area in which they stand, and the server."""

    clusters: int = whole(4, "number of clusters N", 1, 1024)
    devices: Members | tuple[Members, ...] = field(
        5, "devices K_n: one number for all clusters or one each; integer, range 1 to 512"
    )
    cu_distance_min_m: float = real(50.0, "least distance from a CU to the base station", "[1, 1e5] m")
    cu_distance_max_m: float = real(300.0, "greatest distance from a CU to the base station", "[1, 1e5] m")
    cluster_separation_min_m: float = real(100.0, "least distance of two clusters' centres", "[1, 1e5] m")
    area_side_m: float = real(40.0, "side of the square around a CU where its devices stand", "(0, 1e4] m")
    hop_min_m: float = real(5.0, "shortest hop, to which shorter distances are raised", "[0.1, 1e4] m")
    layout_seed: int = whole(19, "seed of the fixed layout's positions, clocks and memories", 0, 2**63 - 1)
    layout: Literal["fixed", "per_episode"] = field("fixed", "same layout in every episode, or redrawn")
    server_flops: float = real(2e12, "speed of the server, shared equally by clusters", "(0, 1e18] FLOP/s")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if isinstance(self.devices, tuple) and len(self.devices) != self.clusters:
            raise ValueError(
                f"devices lists {len(self.devices)} clusters but clusters = {self.clusters}; "
                "give one number for all or one for each"
            )
        require_range(self, "cu_distance_min_m", "cu_distance_max_m")
        return self

    @property
    def devices_per_cluster(self) -> tuple[int, ...]:
        """Number of devices of each cluster, length N."""
        return self.devices if isinstance(self.devices, tuple) else (self.devices,) * self.clusters

    @property
    def longest_hop_m(self) -> float:
        """Longest distance between two nodes of a cluster: the diagonal of its square [m]."""
        return max(math.sqrt(2.0) * self.area_side_m, self.hop_min_m)

    @property
    def max_devices(self) -> int:
        """Length K of the array axis of devices: devices of the largest cluster."""
        return max(self.devices_per_cluster)


@spec
class BudgetSpec:
    """Long-term energy budgets, the weight of the delay, and bounds of queues and bandwidth shares."""

    device_energy_j: float | None = real(
        9.7, "energy budget per device and round; null where tightness sets it", "(0, 1e12] J"
    )
    cu_energy_j: float | None = real(
        8.5, "energy budget per CU and round; null where tightness sets it", "(0, 1e12] J"
    )
    tightness: float | None = real(
        None,
        "place of both budgets between the least energy (0) and that of the even split at full power (1)",
        "[0, 1]",
    )
    per: Literal["round", "second"] = field(
        "round", "period of a budget: a round, or the seconds of a usual round (T_ref at one local step)"
    )
    tradeoff: float = real(
        4.0, "weight beta = V T_ref of the delay of a usual round against the backlogs", "[0, 1e9]"
    )
    backlog_cap: float = real(
        20.0,
        "cap z_cap on normalised backlogs (energy over budget) in observations and the per-round reward",
        "(0, 1e9]",
    )
    participation_min: float = real(
        0.5,
        "least share of rounds in which a cluster is to take part, where decisions list participation",
        "[0, 1]",
    )
    bandwidth_floor: float = real(0.02, "least share of the bandwidth for a cluster", f"[{LEAST_SHARE}, 1)")

    @model_validator(mode="before")
    @classmethod
    def _of_one_kind(cls, given: Any) -> Any:
        """Make budgets in joules null, instead of their defaults, where a tightness sets them."""
        values = given.kwargs if isinstance(given, ArgsKwargs) else given
        if not isinstance(values, Mapping) or values.get("tightness") is None:
            return given
        for name in JOULES:
            if values.get(name) is not None:
                raise ValueError(
                    f"{name} = {shown(values[name])} and tightness = {shown(values['tightness'])} both set "
                    "this budget: leave one of them out"
                )
        values = {**values, **dict.fromkeys(JOULES)}
        return ArgsKwargs(given.args, values) if isinstance(given, ArgsKwargs) else values

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for name in JOULES:
            if self.tightness is None and getattr(self, name) is None:
                raise ValueError(f"{name} is null, and no tightness sets it: give one of the two")
        return self


@spec
class OverheadSpec:
    """Overheads and latencies ([X]); with all of them zero the model is the paper's.

    The defaults are estimates for phones and small boards (`docs/prices.md`).
    """

    block_s: float = real(0.003, "launch of a forward pass of a block at 1 GHz, twice backward", "[0, 1e3] s")
    update_s: float = real(0.005, "time to update a million parameters at 1 GHz", "[0, 1e3] s")
    message_s: float = real(0.001, "time of a device-to-device message beside its bits", "[0, 1e3] s")
    header_bits: float = real(0.0, "header of a device-to-device message", "[0, 1e9] bits")
    latency_s: float = real(0.003, "latency of a device-to-device message after sending", "[0, 1e3] s")
    edge_message_s: float = real(0.001, "time of a message on up- or downlink beside its bits", "[0, 1e3] s")
    edge_latency_s: float = real(0.015, "latency of uplink and downlink after sending", "[0, 1e3] s")
    server_s: float = real(0.0005, "launch of the server's forward pass, twice backward", "[0, 1e3] s")


@spec
class DynamicsSpec:
    """Length of an episode, and slow changes over its rounds."""

    rounds: int = whole(100, "rounds of an episode", 1, 10_000_000)
    load_levels: tuple[ClockShare, ...] = field(
        (1.0,),
        "shares of its full clock that a device's Markov load may leave it, ascending; unit 1, range above "
        "0 to 1, at least one",
    )
    load_stay_probability: float = real(0.95, "probability that a device's load stays for a round", "[0, 1]")
    target_loss: float | None = real(
        None, "smoothed evaluation loss that ends an episode, null for never", "(0, 1e6] nat"
    )
    time_base: Literal["mixed", "real", "reference"] = field(
        "mixed",
        "seconds by which a round moves processes: the round's delay (real), T_ref at one local step "
        "(reference), or the delay for those that plans drive and T_ref for the others (mixed)",
    )
    visibility: Literal["full", "realistic"] = field(
        "full", "what schedulers see of processes: all that these show, or what real systems can measure"
    )
    processes: ProcessFields = field((), "processes that are on, by name; units per process, none by default")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        require_ordered("load_levels", self.load_levels, least="level; [1.0] means constant speeds")
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
    def radio(self) -> RadioSpec:
        """Links."""

    @property
    def dynamics(self) -> DynamicsSpec:
        """The episode."""
