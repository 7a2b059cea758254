"""Scenarios of the columns of ``tools/make_generalisation.py``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from collapipe_env.scenario import Scenario, load_scenario


def sized(clusters: int, devices: int) -> Scenario:
    """A system between those of the ladder: ``large`` with other numbers of clusters N and devices K.

    Band, server, power and least bandwidth are those of the ladder: 5 MHz, 0.5 TFLOP/s and 5 W per cluster,
    and 8 % of the band shared out evenly.
    """
    return load_scenario("large").with_overrides(
        {
            "cluster.clusters": clusters,
            "cluster.devices": devices,
            "cluster.server_flops": 0.5e12 * clusters,
            "radio.uplink_bandwidth_hz": 5e6 * clusters,
            "radio.downlink_bandwidth_hz": 5e6 * clusters,
            "radio.bs_power_w": 5.0 * clusters,
            "budgets.bandwidth_floor": 0.08 / clusters,
        }
    )


def changed(**factors: float) -> Scenario:
    """``medium`` with some of its ``budgets`` multiplied."""
    medium = load_scenario("medium")
    values = {f"budgets.{name}": getattr(medium.budgets, name) * by for name, by in factors.items()}
    return medium.with_overrides(values)


COLUMNS: Mapping[str, Callable[[], Scenario]] = {
    "small": lambda: load_scenario("small"),
    "medium": lambda: load_scenario("medium"),
    "large": lambda: load_scenario("large"),
    "xlarge": lambda: load_scenario("xlarge"),
    "8x6": lambda: sized(8, 6),
    "24x10": lambda: sized(24, 10),
    "layouts": lambda: load_scenario("medium").with_overrides({"cluster.layout": "per_episode"}),
    "budgets-0.8": lambda: changed(device_energy_j=0.8, cu_energy_j=0.8),
    "budgets-1.25": lambda: changed(device_energy_j=1.25, cu_energy_j=1.25),
    "V-half": lambda: changed(tradeoff_v=0.5),
    "V-double": lambda: changed(tradeoff_v=2.0),
}
"""Scenarios of the columns by name."""
MEANINGS: Mapping[str, str] = {
    "8x6": "8 clusters of 6 devices, priced as the ladder's",
    "24x10": "24 clusters of 10 devices, likewise",
    "layouts": "`medium` with another layout in every episode",
    "budgets-0.8": "`medium` with 0.8 of its energy budgets",
    "budgets-1.25": "`medium` with 1.25 times its energy budgets",
    "V-half": "`medium` with half the weight V of the delay",
    "V-double": "`medium` with twice the weight V of the delay",
}
"""Meanings of the columns that are not shipped scenarios."""
