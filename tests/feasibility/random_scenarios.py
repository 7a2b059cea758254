"""Valid scenarios drawn at random, from ordinary to absurd."""

import numpy as np

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import Scenario, load_scenario


def random_scenario(seed: int) -> Scenario:
    """A scenario that the package accepts; redrawn until it does."""
    rng = np.random.default_rng([seed, 8])
    while True:
        try:
            return load_scenario(_draw(rng, seed))
        except ScenarioError:
            continue


def _draw(rng: np.random.Generator, seed: int) -> dict[str, object]:
    def between(low: float, high: float) -> float:
        """Log-uniform."""
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    clusters = int(rng.integers(1, 6))
    wild = rng.random() < 0.25  # ranges that a validator allows and nobody needs
    power = sorted(between(1e-5, 10.0) if wild else between(1e-3, 0.5) for _ in range(2))
    clock = sorted(between(1e8, 4e9) for _ in range(2))
    profile = {"clock_min_hz": clock[0], "clock_max_hz": clock[1]}
    if rng.random() < 0.5:
        profile["active_power_w"] = between(0.1, 20.0)
    else:
        profile["switched_capacitance"] = between(1e-29, 1e-25)
    return {
        "base": str(rng.choice(["small", "medium", "large"])),
        "name": f"random-{seed}",
        "workload": {"blocks": int(rng.integers(1, 17)), "local_steps": int(rng.integers(1, 5))},
        "devices": {
            "profiles": [{**profile, "memory_bytes": [2e8, 8e8, 4e9]}],
            "power_min_w": power[0],
            "power_max_w": power[1],
        },
        "cluster": {
            "clusters": clusters,
            "devices": [int(k) for k in rng.integers(1, 8, clusters)],
            "layout": str(rng.choice(["fixed", "per_episode"])),
            "layout_seed": int(rng.integers(1000)),
            "area_side_m": between(5.0, 2000.0 if wild else 200.0),
            "cu_distance_max_m": between(100.0, 5000.0 if wild else 500.0),
            "cluster_separation_min_m": between(1.0, 150.0),
        },
        "radio": {
            "noise_dbm_per_hz": float(rng.uniform(-175.0, -120.0 if wild else -160.0)),
            "link_errors": str(rng.choice(["drop", "arq", "none"])),
            "diversity": int(rng.integers(1, 9)),
            "fading_correlation": float(rng.choice([0.0, 0.9])),
            "d2e_shadowing_db": float(rng.choice([0.0, 4.0, 20.0 if wild else 8.0])),
            "d2d_shadowing_db": float(rng.choice([0.0, 4.0, 20.0 if wild else 8.0])),
            "waterfall_threshold": between(1e-3, 100.0 if wild else 0.1),
            "external_interference_w": float(rng.choice([0.0, 1e-9 if wild else 1e-14])),
        },
        "dynamics": {"load_levels": [[1.0], [0.25, 0.5, 1.0]][int(rng.integers(2))]},
        "budgets": {"device_energy_j": between(1.0, 1e4), "cu_energy_j": between(0.1, 1e4)},
    }
