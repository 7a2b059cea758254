"""The systems of the scaling study: ``medium``, with one of its sizes changed at a time."""

from __future__ import annotations

from dataclasses import dataclass

from collapipe_env.scenario import Scenario, load_scenario

BASE = "medium"
BATCH = 64
"""Environments of the native vector environment wherever its size is not what changes."""


@dataclass(frozen=True)
class Axis:
    """One size that the study changes.

    Attributes:
        name: In options and files.
        symbol: As the formulas have it.
        label: For tables and pictures.
        values: Sizes, ascending; ``medium``'s own among them.
    """

    name: str
    symbol: str
    label: str
    values: tuple[int, ...]


AXES = (
    Axis("clusters", "N", "clusters N", (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)),
    Axis("devices", "K", "devices K of a cluster", (2, 3, 4, 5, 6, 8, 10, 12, 14, 16)),
    Axis("blocks", "L", "encoder blocks L", (6, 8, 12, 16, 20, 24, 28, 32, 40, 48)),
    Axis("samples", "B", "mini-batch B (samples)", (16, 24, 32, 48, 64, 96, 128, 192, 256)),
    Axis("environments", "E", "environments E", (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)),
)


def scenario_at(axis: str, value: int) -> Scenario:
    """``medium`` with one size changed, and with what such a system needs besides.

    Band, server and base station's power grow with the clusters, so that each keeps its share; sites stand
    closer, so that many find room; memory and energy budgets grow where a device has more to do.

    Args:
        axis: Name of the axis; the number of environments changes nothing here.
        value: The size.
    """
    sizes = {"clusters": 4, "devices": 5, "blocks": 12, "samples": 64, axis: value}
    N = sizes["clusters"]
    medium = load_scenario(BASE)
    load = max(5 / sizes["devices"], 1.0) * max(sizes["blocks"] / 12, 1.0) * max(sizes["samples"] / 64, 1.0)
    offered = medium.devices.profiles[0].memory_bytes
    return medium.with_overrides(
        {
            "name": f"{axis} {value}",
            "cluster.clusters": N,
            "cluster.devices": sizes["devices"],
            "cluster.cluster_separation_min_m": 50.0,
            "cluster.cu_distance_max_m": 500.0,
            "cluster.server_flops": 0.5e12 * N,
            "workload.blocks": sizes["blocks"],
            "workload.batch_size": sizes["samples"],
            "devices.profiles.0.memory_bytes": [load * choice for choice in offered],
            "radio.uplink_bandwidth_hz": 5e6 * N,
            "radio.downlink_bandwidth_hz": 5e6 * N,
            "radio.bs_power_w": 5.0 * N,
            "budgets.device_energy_j": medium.budgets.device_energy_j * load,
            "budgets.cu_energy_j": medium.budgets.cu_energy_j * load,
            "budgets.bandwidth_floor": 0.08 / N,
        }
    )
