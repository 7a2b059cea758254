"""DSSRA with recomputation always, never and as a decision."""

from __future__ import annotations

import numpy as np
from generated_parts import markdown_table
from playing import rounds

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.scenario.decision_names import COLLAPIPE

PAGE = "costs.md"
MEMORIES: tuple[tuple[float, ...], ...] = (
    (1e9, 2e9, 4e9),
    (0.6e9, 0.9e9),
    (0.35e9, 0.45e9, 0.6e9, 1.2e9),
    (0.3e9,),
)
"""Bytes that a board offers, drawn from these."""
EPISODES, ROUNDS = 3, 100


def played(scenario: Scenario) -> tuple[float, float, float]:
    """Mean round delay [s], energy excess of the worst node, and share of plans that recompute.

    As in comparisons, the excess is that of each episode's worst node, averaged over episodes.

    Args:
        scenario: Scenario of the episodes.
    """
    env = CollaPipeVectorEnv(EPISODES, scenario, learner="surrogate")
    delays, ratios, chosen = [], [], []
    for record in rounds(env, DSSRA(scenario), ROUNDS):
        plan, costs = record.allocation, record.costs
        again = np.full(plan.micro_batches.shape, int(scenario.workload.recompute))
        chosen.append((again if plan.recompute is None else plan.recompute).mean())
        delays.append(costs.delay.mean())
        ratios.append(costs.energy_ratio)
    worst = np.mean(ratios, axis=0).max(axis=(-1, -2))
    return float(np.mean(delays)), float(worst.mean()) - 1.0, float(np.mean(chosen))


def table() -> str:
    """Return the table."""
    rows = []
    for memory in MEMORIES:
        cells = [" / ".join(f"{size / 1e9:g}" for size in memory)]
        for changes in (
            {"workload.recompute": False},
            {"workload.recompute": True},
            {"workload.recompute": True, "decisions": (*COLLAPIPE, "recompute")},
        ):
            try:
                scenario = load_scenario("llm-boards").with_overrides(
                    {"devices.profiles.0.memory_bytes": memory, **changes}
                )
            except ScenarioError:
                cells.append("does not fit")
                continue
            delay, energy, share = played(scenario)
            text = f"{delay:.2f} s, {energy:+.0%}"
            cells.append(f"{text}, {share:.0%} recompute" if "decisions" in changes else text)
        rows.append(cells)
    return markdown_table(("memory of a board (GB), one of", "never", "always", "decided"), rows)


PARTS = {"recompute": (table, f"({EPISODES} episodes x {ROUNDS} rounds, surrogate)")}
