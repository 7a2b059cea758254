"""DSSRA with hot devices under every governor."""

from __future__ import annotations

from typing import Any

import numpy as np
from generated_parts import markdown_table
from playing import rounds

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import SCHEDULERS

PAGE = "heat.md"
LOADS: dict[str, dict[str, Any]] = {
    "as shipped": {},
    "no energy budgets, H = 4": {
        "workload": {"local_steps": 4},
        "budgets": {"device_energy_j": 1e4, "cu_energy_j": 1e3},
    },
    "no energy budgets, H = 16": {
        "workload": {"local_steps": 16},
        "budgets": {"device_energy_j": 1e4, "cu_energy_j": 1e3},
    },
}
"""Name of each column, and what it changes in ``medium``; budgets that never bind stand for none."""
GOVERNORS = (None, "step", "pause", "ipa")
EPISODES, ROUNDS = 4, 60


def played(load: str, governor: str | None) -> tuple[float, float, float]:
    """Mean round delay [s], greatest thermal headroom, and share of devices and rounds below the full clock.

    Args:
        load: Name of a column.
        governor: Governor of all devices; ``None`` without heat.
    """
    processes = {} if governor is None else {"heat": {"governor": governor}}
    scenario = load_scenario({"base": "medium", **LOADS[load], "dynamics": {"processes": processes}})
    env = CollaPipeVectorEnv(EPISODES, scenario, learner="surrogate")
    delays, warmest, slowed = [], 0.0, []
    for record in rounds(env, SCHEDULERS.get("dssra")(scenario), ROUNDS):
        delays.append(record.costs.delay.mean())
        if governor is not None:
            heat = env.state.processes["heat"]
            warmest = max(warmest, float(heat["headroom"].max()))
            slowed.append((heat["share"] < 1.0).mean())
    return float(np.mean(delays)), warmest, float(np.mean(slowed)) if slowed else 0.0


def table() -> str:
    """Return the table."""
    rows = []
    for governor in GOVERNORS:
        cells = ["no heat" if governor is None else f"`{governor}`"]
        for load in LOADS:
            delay, warmest, slowed = played(load, governor)
            heat = "" if governor is None else f"; headroom {warmest:.2f}, {slowed:.0%} slowed"
            cells.append(f"{delay:.2f} s{heat}")
        rows.append(cells)
    return markdown_table(("governor", *LOADS), rows)


PARTS = {
    "governors": (
        table,
        f"(`medium`, phones, DSSRA, {EPISODES} episodes x {ROUNDS} rounds, surrogate): mean delay of a "
        "round; "
        "greatest thermal headroom; share of devices and rounds below the full clock",
    )
}
