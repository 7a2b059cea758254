"""Schedulers under every terms of the server."""

from __future__ import annotations

import math

import numpy as np
from generated_parts import markdown_table
from playing import rounds

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.physics.server import server_energy
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.schedulers import SCHEDULERS
from collapipe_env.simulator.build import system_parameters

PAGE = "server.md"
TERMS: dict[str, dict[str, object]] = {
    "free": {"terms": "free"},
    "metered": {"terms": "metered"},
    "contended": {"terms": "contended"},
    "contended, mean share": {"terms": "contended", "tenants": 0.575},
    "weak": {"terms": "weak"},
}
"""Name of each row, with its fields of the section ``server``."""
NAMES = ("dssra", "splitfed_v1", "splitfed_v2", "pipar")
EPISODES, ROUNDS = 2, 50


def played(scenario: Scenario, name: str) -> tuple[float, float, float]:
    """Mean round delay [s], and the server's energy in a round [J]: for encoder blocks, and in all.

    Args:
        scenario: Scenario of the episodes.
        name: Name of the scheduler.
    """
    env = CollaPipeVectorEnv(EPISODES, scenario, learner="surrogate")
    parameters, delays, encoder, whole = system_parameters(scenario), [], [], []
    for record in rounds(env, SCHEDULERS.get(name)(scenario), ROUNDS):
        c = record.costs
        seconds = (c.elements.downlink, c.broadcast, c.delay)
        used = server_energy(
            parameters.server, parameters.costs, parameters.bs_power_w, c.allocation, seconds
        )
        delays.append(record.costs.delay.mean())
        encoder.append(used.encoder.sum(axis=-1).mean())
        whole.append(encoder[-1] + used.head.sum(axis=-1).mean() + (used.idle + used.radio).mean())
    return float(np.mean(delays)), float(np.mean(encoder)), float(np.mean(whole))


def table() -> str:
    """Return the table."""
    titles = [str(getattr(SCHEDULERS.get(name), "name", name)) for name in NAMES]
    rows = []
    for row, section in TERMS.items():
        scenario = load_scenario({"base": "medium", "server": section})
        budget = system_parameters(scenario).server.budget_j
        cells = [row]
        for name in NAMES:
            delay, encoder, whole = played(scenario, name)
            against = "no budget" if math.isinf(budget) else f"{encoder / budget:.0%} of budget"
            over = "" if encoder <= budget else "**"
            cells.append(f"{delay:.2f} s; {encoder:.1f} J, {over}{against}{over}; {whole:.0f} J in all")
        rows.append(cells)
    return markdown_table(("terms", *titles), rows)


PARTS = {"terms": (table, f"(`medium`, {EPISODES} episodes x {ROUNDS} rounds, surrogate)")}
