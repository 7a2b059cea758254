"""Random systems to train on: sizes, layouts, workloads, budgets and prices drawn anew for every group."""

from __future__ import annotations

from typing import Any

import numpy as np

from collapipe_env.errors import ScenarioError
from collapipe_env.scenario import Scenario, load_scenario

_TRIES = 50


def random_system(rng: np.random.Generator, most_clusters: int = 16) -> Scenario:
    """A scenario whose layout is redrawn in every episode.

    Args:
        rng: Draws it.
        most_clusters: Largest number of clusters.

    Raises:
        ScenarioError: If no valid one is found in many draws.
    """
    for _ in range(_TRIES):
        try:
            return _draw(rng, most_clusters)
        except ScenarioError:
            continue  # too little memory or room: the next draw has other sizes
    raise ScenarioError(f"no valid system in {_TRIES} draws with at most {most_clusters} clusters")


def _draw(rng: np.random.Generator, most_clusters: int) -> Scenario:
    def between(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    N = round(between(1.6, most_clusters))
    K, L = int(rng.integers(3, 17)), int(rng.integers(6, 17))
    N, H = max(N, 2), int(rng.choice([1, 1, 1, 1, 2, 4]))
    base = str(rng.choice(["medium", "medium", "medium", "boards", "phones"]))
    ladder = base == "medium"
    scenario = load_scenario(base)
    faster = between(0.6, 2.5) if ladder else 1.0
    part = L / 12.0 * H * (5.0 if ladder else 4.0) / K
    changes: dict[str, Any] = {
        "name": f"random-{N}x{K}x{L}",
        "workload.blocks": L,
        "workload.local_steps": H,
        "cluster.clusters": N,
        "cluster.devices": K,
        "cluster.layout": "per_episode",
        "cluster.layout_seed": int(rng.integers(2**31)),
        "cluster.cu_distance_max_m": rng.uniform(150.0, 500.0),
        "cluster.cluster_separation_min_m": rng.uniform(25.0, 100.0),
        "cluster.area_side_m": between(20.0, 60.0),
        "cluster.server_flops": 0.5e12 * N * between(0.5, 2.0),
        "radio.uplink_bandwidth_hz": 5e6 * N * between(0.6, 1.6),
        "radio.downlink_bandwidth_hz": 5e6 * N * between(0.6, 1.6),
        "radio.bs_power_w": 5.0 * N,
        "radio.diversity": int(rng.choice([2, 4, 4, 4, 8])),
        "budgets.tradeoff_v": between(0.08, 3.0) / H,
        "budgets.bandwidth_floor": 0.08 / N,
        "budgets.device_energy_j": scenario.budgets.device_energy_j * part * between(0.9, 2.5) / faster,
        "budgets.cu_energy_j": scenario.budgets.cu_energy_j * between(0.8, 2.0) * (0.6 + 0.4 * H),
    }
    if ladder:
        batch = int(rng.choice([32, 64, 64, 64, 96]))
        changes["workload.batch_size"] = batch
        changes["budgets.device_energy_j"] *= batch / 64.0
        changes["devices.profiles.0.flops_per_cycle"] = 16.0 * faster
        if rng.random() < 0.25:
            changes["dynamics.load_levels"] = [0.4, 0.7, 1.0]
    prices = between(0.3, 3.0) if rng.random() < 0.85 else 0.0
    for name in (
        "block_s",
        "update_s",
        "message_s",
        "latency_s",
        "edge_message_s",
        "edge_latency_s",
        "server_s",
    ):
        changes[f"overheads.{name}"] = getattr(scenario.overheads, name) * prices
    if rng.random() < 0.3:
        changes["radio.d2d_bandwidth_hz"] = scenario.radio.d2d_bandwidth_hz * between(0.5, 2.0)
    return scenario.with_overrides(changes)
