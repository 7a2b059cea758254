"""Random systems to train on: sizes, layouts, workloads, budgets and prices drawn anew for every group.

Most are like the shipped ladder: its workload, devices and prices, with other sizes, layouts, budgets and V.
The others also have other workloads, radios, speeds and prices, and moments that move. Where they are to be
like the tier Wild, only sizes, densities and budgets are drawn.
"""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias

import numpy as np

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import Scenario, block_bytes, load_scenario

RandomSystems: TypeAlias = Literal["ladder", "wild"]
"""Model of random systems: the shipped ladder, or the tier Wild."""
WIDE_SHARE = 0.5
"""Share of systems that differ from the ladder in more than size, layout, budgets and V."""
Range: TypeAlias = tuple[float, float]
RANGES: dict[RandomSystems, dict[str, Range]] = {
    "ladder": {
        "cluster.devices": (3, 16),
        "cluster.cu_distance_max_m": (150.0, 500.0),
        "workload.blocks": (6, 48),
        "workload.batch_size": (16, 256),
        "workload.local_steps": (1, 8),
        "radio.diversity": (1, 8),
        "budgets.tradeoff_v": (0.08 / 8, 3.0),
    },
    "wild": {
        "cluster.devices": (4, 16),
        "cluster.cu_distance_max_m": (300.0, 500.0),
        "workload.blocks": (8, 16),
    },
}
"""Least and largest values of what is drawn."""
BASES: dict[RandomSystems, tuple[str, ...]] = {
    "ladder": ("medium", "boards", "phones"),
    "wild": ("large-wild",),
}
"""Scenarios from which random systems take everything else."""
_TRIES = 50
_PER_CLUSTER_HZ = 5e6


def random_system(rng: np.random.Generator, most_clusters: int, like: RandomSystems = "ladder") -> Scenario:
    """A scenario whose layout is redrawn in every episode.

    Args:
        most_clusters: Largest number of clusters, >= 2.
        like: What it is like.

    Raises:
        ScenarioError: If no valid one is found in many draws.
    """
    for _ in range(_TRIES):
        try:
            if like == "wild":
                return wild_system(rng, most_clusters)
            draw = _wide if rng.random() < WIDE_SHARE else _like_the_ladder
            return draw(rng, most_clusters)
        except ScenarioError:
            continue  # too little memory or room: the next draw has other sizes
    raise ScenarioError(f"no valid system in {_TRIES} draws with at most {most_clusters} clusters")


def wild_system(rng: np.random.Generator, most_clusters: int, least_clusters: int = 3) -> Scenario:
    """A scenario like those of the tier Wild, of any size.

    Args:
        most_clusters: Largest number of clusters.
        least_clusters: Smallest number of clusters, or the largest if that is smaller.

    Raises:
        ScenarioError: If its clusters have too little room.
    """
    N, of = round(_between(rng, min(least_clusters, most_clusters), most_clusters)), RANGES["wild"]
    changes = scaled(N) | {
        "workload.blocks": _whole(rng, *of["workload.blocks"]),
        "cluster.devices": _whole(rng, *of["cluster.devices"]),
        "cluster.cu_distance_max_m": rng.uniform(*of["cluster.cu_distance_max_m"]),
        "cluster.cluster_separation_min_m": rng.uniform(45.0, 100.0),
        "budgets.cu_energy_j": rng.uniform(3.5, 6.5),
        "budgets.device_energy_j": rng.uniform(65.0, 100.0),
        "server.energy_budget_j": 20.0 * N,
    }
    return _named(load_scenario("large-wild"), changes)


def with_new_layouts(scenario: Scenario) -> Scenario:
    """The same scenario with another layout in every episode.

    Raises:
        ScenarioError: If some layouts would not have room for the encoder.
    """
    return scenario.with_overrides({"cluster.layout": "per_episode"})


def _between(rng: np.random.Generator, low: float, high: float) -> float:
    """Number whose logarithm is uniform."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _whole(rng: np.random.Generator, low: float, high: float) -> int:
    """Whole number from ``low`` to ``high``."""
    return int(rng.integers(int(low), int(high) + 1))


def scaled(N: int) -> dict[str, Any]:
    """``N`` clusters, and what they share: as much for each as on the ladder."""
    return {
        "cluster.clusters": N,
        "cluster.server_flops": 0.5e12 * N,
        "radio.uplink_bandwidth_hz": _PER_CLUSTER_HZ * N,
        "radio.downlink_bandwidth_hz": _PER_CLUSTER_HZ * N,
        "radio.bs_power_w": 5.0 * N,
        "budgets.bandwidth_floor": 0.08 / N,
    }


def _sizes(rng: np.random.Generator, most_clusters: int) -> dict[str, Any]:
    """Numbers of clusters, devices and blocks, and where they stand."""
    # Many clusters are as frequent as few: their effects on each other are the harder part.
    few = rng.random() < 0.5
    clusters = _between(rng, 1.6, most_clusters) if few else rng.uniform(1.6, most_clusters)
    N, of = max(2, round(clusters)), RANGES["ladder"]
    K = _whole(rng, *of["cluster.devices"])
    fewest, most = of["workload.blocks"]
    L = _whole(rng, fewest, 16) if rng.random() < 0.6 else round(_between(rng, 12, most))
    return scaled(N) | {
        "workload.blocks": L,
        "cluster.devices": K,
        "cluster.layout": "per_episode",
        "cluster.layout_seed": int(rng.integers(2**31)),
        "cluster.cu_distance_max_m": rng.uniform(*of["cluster.cu_distance_max_m"]),
        "cluster.cluster_separation_min_m": rng.uniform(25.0, 100.0),
        "budgets.tradeoff_v": _between(rng, 0.08, 3.0),
        "budgets.cu_energy_j": _between(rng, 0.8, 2.0) * max(1.0, L / 12),  # they send the encoder
    }


def _room(rng: np.random.Generator, scenario: Scenario, changes: dict[str, Any]) -> dict[str, Any]:
    """Memories in which the cluster can always hold its blocks; those of the scenario where they suffice."""
    memory = scenario.devices.profiles[0].memory_bytes
    batch = {"workload.batch_size": changes.get("workload.batch_size", scenario.workload.batch_size)}
    block = block_bytes(scenario.with_overrides(batch | {"devices.profiles.0.memory_bytes": [1e12]}))
    most = math.ceil(changes["workload.blocks"] / changes["cluster.devices"])
    factor = _between(rng, 1.0, 1.5) * max(1.0, most * block / min(memory))
    return {"devices.profiles.0.memory_bytes": [size * factor for size in memory]}


def _named(scenario: Scenario, changes: dict[str, Any]) -> Scenario:
    N, K, L = (changes[f"{name}"] for name in ("cluster.clusters", "cluster.devices", "workload.blocks"))
    return scenario.with_overrides({"name": f"random-{N}x{K}x{L}", **changes})


def _like_the_ladder(rng: np.random.Generator, most_clusters: int) -> Scenario:
    scenario, changes = load_scenario("medium"), _sizes(rng, most_clusters)
    # Device budgets of medium for the same blocks per device, with more or less slack.
    part = changes["workload.blocks"] / scenario.blocks * scenario.max_devices / changes["cluster.devices"]
    changes["budgets.device_energy_j"] = scenario.budgets.device_energy_j * part * _between(rng, 0.75, 2.5)
    return _named(scenario, changes | _room(rng, scenario, changes))


def _wide(rng: np.random.Generator, most_clusters: int) -> Scenario:
    scenario = load_scenario(str(rng.choice(BASES["ladder"], p=[0.4, 0.4, 0.2])))
    changes = _sizes(rng, most_clusters)
    H = int(rng.choice([1, 1, 1, 2, 4, 8]))
    part = changes["workload.blocks"] / scenario.blocks * scenario.max_devices / changes["cluster.devices"]
    budget = scenario.budgets.device_energy_j * part * H * _between(rng, 0.75, 2.5)
    changes |= {
        "workload.local_steps": H,
        "cluster.area_side_m": _between(rng, 20.0, 60.0),
        "radio.diversity": int(rng.choice([1, 2, 4, 8])),
    }
    changes["budgets.cu_energy_j"] *= scenario.budgets.cu_energy_j * (0.6 + 0.4 * H)
    changes["budgets.tradeoff_v"] /= H
    for name in ("cluster.server_flops", "radio.uplink_bandwidth_hz", "radio.downlink_bandwidth_hz"):
        changes[name] *= _between(rng, 0.6, 1.6)
    changes["radio.d2d_bandwidth_hz"] = scenario.radio.d2d_bandwidth_hz * _between(rng, 0.5, 2.0)
    if scenario.name == "medium":
        faster, batch = _between(rng, 0.6, 2.5), int(rng.choice([16, 32, 64, 96, 128, 256]))
        budget *= batch / scenario.workload.batch_size / faster
        changes["workload.batch_size"] = batch
        sent = batch / scenario.workload.batch_size  # CUs send activations, too
        changes["budgets.cu_energy_j"] *= 0.7 + 0.3 * sent
        changes["devices.profiles.0.flops_per_cycle"] = scenario.devices.profiles[0].flops_per_cycle * faster
        changes |= _room(rng, scenario, changes)
        if rng.random() < 0.5:
            changes["dynamics.load_levels"] = [0.4, 0.7, 1.0]
    changes["budgets.device_energy_j"] = budget
    if scenario.name == "boards" or rng.random() < 0.25:
        changes["dynamics.processes.migration"] = {
            "moments": "move",
            "moment_bits": int(rng.choice([16, 32])),
            "route": str(rng.choice(["direct", "cu"], p=[0.7, 0.3])),
        }
    changes["radio.link_errors"] = str(rng.choice(["drop", "arq"], p=[0.75, 0.25]))
    changes["workload.distribution"] = str(rng.choice(["cu", "relay"], p=[0.8, 0.2]))
    prices = _between(rng, 0.3, 3.0) if rng.random() < 0.85 else 0.0
    for name in (
        "block_s", "update_s", "message_s", "latency_s", "edge_message_s", "edge_latency_s", "server_s",
    ):  # fmt: skip
        changes[f"overheads.{name}"] = getattr(scenario.overheads, name) * prices
    return _named(scenario, changes)
