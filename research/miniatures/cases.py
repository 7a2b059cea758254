"""Miniatures of each tier: shipped scenarios, cut down to one cluster without fading and energy budgets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from collapipe_env.scenario import Scenario, load_scenario


@dataclass(frozen=True)
class Miniature:
    """A small system and how its states are counted.

    Attributes:
        name: Short name, also of the file with its results.
        tier: What moves or has a price in it: ``migration``, ``heat`` or ``churn``.
        title: Title in the table.
        scenario: The scenario.
        intervals: Intervals of every device's temperature on the finer of two grids; 0 without heat.
    """

    name: str
    tier: str
    title: str
    scenario: Scenario
    intervals: int = 0

    @property
    def kind(self) -> str:
        """Its tier, and with heat the governor."""
        heat = dict(self.scenario.dynamics.processes).get("heat")
        return self.tier if heat is None else f"heat, `{heat.governor}`"


def _small(name: str, base: str, clock: dict[str, Any], sections: dict[str, dict[str, Any]]) -> Scenario:
    """One cluster of a shipped scenario, with its share of uplink and server.

    Links have their mean gains except for a deviation of 3 % (1,024 branches), nothing is lost, memory does
    not bind, and budgets are so large that virtual queues stay empty.
    """
    shipped = load_scenario(base)
    profile = shipped.devices.profiles[0]
    kind = {
        "name": profile.name,
        "flops_per_cycle": profile.flops_per_cycle,
        "switched_capacitance": profile.switched_capacitance,
        "memory_bytes": [4e9],
        **clock,
    }
    share = 1.0 / shipped.clusters
    fields: dict[str, dict[str, Any]] = {
        "workload": {"micro_batches": [2, 4, 8, 16]},
        "devices": {"profiles": [kind]},
        "cluster": {"clusters": 1, "layout_seed": 0, "server_flops": share * shipped.cluster.server_flops},
        "radio": {
            "diversity": 1024,
            "link_errors": "none",
            "uplink_bandwidth_hz": share * shipped.radio.uplink_bandwidth_hz,
            "downlink_bandwidth_hz": share * shipped.radio.downlink_bandwidth_hz,
            "bs_power_w": share * shipped.radio.bs_power_w,
        },
        "budgets": {"device_energy_j": 1e6, "cu_energy_j": 1e6},
        "dynamics": {"rounds": 1_000_000},
    }
    for section, own in sections.items():
        fields[section] = {**fields.get(section, {}), **own}
    return load_scenario({"base": base, "name": name, **fields})


def _hops(megahertz: float, devices: int) -> dict[str, Any]:
    """Section ``radio`` of a cluster whose hops have this bandwidth each."""
    return {"d2d_total_hz": 1e6 * megahertz * (devices + 1)}


def _boards(
    name: str,
    title: str,
    devices: int,
    blocks: int,
    steps: int,
    megahertz: float,
    *,
    levels: tuple[float, ...] = (0.4, 0.7, 1.0),
    stay: float = 0.95,
    unlike: bool = False,
    moments: str = "move",
) -> Miniature:
    """Boards with background load whose changes of plan cost time."""
    clock = {"clock_min_hz": 0.5e9 if unlike else 1e9, "clock_max_hz": 2e9 if unlike else 1e9}
    sections: dict[str, dict[str, Any]] = {
        "workload": {"blocks": blocks, "local_steps": steps},
        "cluster": {"devices": devices},
        "radio": _hops(megahertz, devices),
        "dynamics": {
            "load_levels": list(levels),
            "load_stay_probability": stay,
            "processes": {"migration": {"moments": moments}},
        },
    }
    return Miniature(name, "migration", title, _small(name, "boards", clock, sections))


def _phones(
    name: str,
    title: str,
    clock: tuple[float, float],
    governor: str,
    intervals: int,
    *,
    seed: int = 0,
    blocks: int = 12,
    steps: int = 4,
    migration: float | None = None,
) -> Miniature:
    """Two phones in a room of 25 C."""
    heat = {"governor": governor, "ambient_min_c": 25.0, "ambient_max_c": 25.0}
    processes: dict[str, Any] = {"heat": heat}
    if migration is not None:
        processes["migration"] = {}
    sections: dict[str, dict[str, Any]] = {
        "workload": {"blocks": blocks, "local_steps": steps},
        "cluster": {"devices": 2, "layout_seed": seed},
        "radio": {} if migration is None else _hops(migration, 2),
        "dynamics": {"processes": processes},
    }
    clocks = {"clock_min_hz": clock[0], "clock_max_hz": clock[1]}
    return Miniature(name, "heat", title, _small(name, "medium", clocks, sections), intervals)


def miniatures() -> tuple[Miniature, ...]:
    """All miniatures, in the order of the table."""
    two, three, unlike = "two boards", "three boards", "three unlike boards"
    short, none = "two boards, short-lived load", "two boards, moments reset"
    alike, fast, mixed = (1.6e9, 1.6e9), (1.8e9, 1.8e9), (1.0e9, 2.0e9)
    narrow: dict[str, Any] = {"levels": (0.3, 1.0)}
    return (
        _boards("boards-2-reset", none, 2, 12, 2, 5.0, moments="reset"),
        _boards("boards-2-20mhz", two, 2, 12, 2, 20.0),
        _boards("boards-2-5mhz", two, 2, 12, 2, 5.0),
        _boards("boards-2-1mhz", two, 2, 12, 2, 1.0),
        _boards("boards-2-short", short, 2, 12, 2, 5.0, stay=0.8),
        _boards("boards-3-5mhz", three, 3, 8, 2, 5.0, **narrow),
        _boards("boards-3-unlike", unlike, 3, 8, 2, 5.0, unlike=True),
        _phones("phones-1.6-pause", "1.6 and 1.6 GHz, `pause`", alike, "pause", 160),
        _phones("phones-1.8-pause", "1.8 and 1.8 GHz, `pause`", fast, "pause", 160),
        _phones("phones-1.1-1.9-pause", "1.1 and 1.9 GHz, `pause`", mixed, "pause", 160, seed=1),
        _phones("phones-1.1-1.9-step", "1.1 and 1.9 GHz, `step`", mixed, "step", 40, seed=1),
        _phones("phones-1.1-1.9-ipa", "1.1 and 1.9 GHz, `ipa`", mixed, "ipa", 80, seed=1),
        _phones(
            "phones-8-move",
            "1.6 and 1.6 GHz, `pause`, 8 blocks, changes of plan paid",
            alike,
            "pause",
            64,
            blocks=8,
            migration=10.0,
        ),
    )


def _failing(
    name: str, title: str, devices: int, blocks: int, on_mean_s: float, clock: tuple[float, float]
) -> Miniature:
    """Devices of two classes that fail without warning."""
    presence = {
        "on_mean_s": on_mean_s,
        "off_mean_s": 150.0,
        "graceful": 0.0,
        "hazard_factors": [0.2, 5.0],
    }
    sections: dict[str, dict[str, Any]] = {
        "workload": {"blocks": blocks, "local_steps": 4, "micro_batches": [8, 16]},
        "cluster": {"devices": devices},
        "dynamics": {"processes": {"presence": presence}},
    }
    clocks = {"clock_min_hz": clock[0], "clock_max_hz": clock[1]}
    return Miniature(name, "churn", title, _small(name, "medium", clocks, sections))


def failing_miniatures() -> tuple[Miniature, ...]:
    """Miniatures whose devices fail, in the order of their table; solved without values of states."""
    alike, unlike = (1.0e9, 1.0e9), (0.5e9, 2.0e9)
    return (
        _failing("failing-2", "two devices", 2, 8, 360.0, alike),
        _failing("failing-3", "three devices", 3, 8, 360.0, alike),
        _failing("failing-3-unlike", "three unlike devices", 3, 8, 360.0, unlike),
        _failing("failing-5-unlike", "five unlike devices", 5, 6, 360.0, unlike),
        _failing("failing-5", "five devices", 5, 6, 360.0, alike),
        _failing("failing-5-short", "five devices, stays of 3 min", 5, 6, 180.0, alike),
    )
