"""DSSRA on known gains of all kinds, and errors of filtered gains."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from generated_parts import markdown_table
from playing import rounds

from collapipe_env.agents.link_filter import LinkFilter
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.schedulers import SCHEDULERS
from collapipe_env.simulator.state import SystemState
from collapipe_env.simulator.system import joined_links

PAGE = "channel_knowledge.md"
EPISODES, ROUNDS = 20, 60
NOISES_DB = (1.0, 2.0, 3.0, 6.0)
KNOWN: dict[str, dict[str, Any] | None] = {
    "the truth": None,
    **{f"noisy, {noise:g} dB": {"modes": ["noisy"], "noise_db": noise} for noise in NOISES_DB},
    "delayed, 1 round": {"modes": ["delayed"]},
    "delayed and noisy, 1 round, 2 dB": {},
    "mean": {"modes": ["mean"]},
}
"""What is known of gains, with the fields of the process."""
UNFILTERED = ("the truth", "mean")
"""Knowledge from which the filter removes nothing."""
FILTERED_DB = (0.0, 1.0, 2.0, 3.0, 6.0)


def scenario_of(knowledge: dict[str, Any] | None, **processes: Any) -> Scenario:
    """``medium`` with a kind of channel knowledge.

    Args:
        knowledge: Fields of the process; ``None`` without it.
        **processes: Other processes that are on, with their fields.
    """
    on = dict(processes) if knowledge is None else {**processes, "channel_knowledge": knowledge}
    return load_scenario({"base": "medium", "dynamics": {"processes": on}})


def played(scenario: Scenario, name: str, filtered: bool) -> tuple[float, float, float]:
    """Mean round delay [s], mean upload time [s], and the worst node's mean energy over its budget.

    Args:
        name: Name of the scheduler.
        filtered: Whether it decides from filtered gains.
    """
    env = CollaPipeVectorEnv(EPISODES, scenario, learner="surrogate")
    links = LinkFilter(scenario)

    def sees(env: CollaPipeVectorEnv) -> SystemState:
        return links.update(env.state) if filtered else env.state

    delays, uploads, energy = [], [], []
    for record in rounds(env, SCHEDULERS.get(name)(scenario), ROUNDS, sees=sees):
        delays.append(record.costs.delay.mean())
        uploads.append(record.costs.upload.max(axis=-1).mean())
        energy.append(record.costs.energy_ratio)
    worst = np.mean(energy, axis=0).max(axis=(-2, -1)).mean()
    return float(np.mean(delays)), float(np.mean(uploads)), float(worst)


def errors(noise_db: float, **processes: Any) -> tuple[float, float]:
    """Root mean square error of known and of filtered gains over all links and rounds [dB].

    Args:
        noise_db: Standard deviation of errors [dB].
        **processes: Other processes that are on, with their fields.
    """
    scenario = scenario_of({"modes": ["noisy"], "noise_db": noise_db}, **processes)
    env = CollaPipeVectorEnv(EPISODES, scenario, learner="surrogate")
    env.reset(seed=0)
    links, nothing = LinkFilter(scenario), np.zeros(env.action_space.shape or ())
    squares: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        true, seen = _decibels(env.truth), env.state
        found = (_decibels(state) - true for state in (seen, links.update(seen)))
        known, better = (float(np.mean(error**2)) for error in found)
        squares.append((known, better))
        env.step(nothing)
    known, better = np.mean(squares, axis=0).tolist()
    return math.sqrt(known), math.sqrt(better)


def _decibels(state: SystemState) -> FloatArray:
    return np.asarray(10.0 * np.log10(joined_links(state.uplink_gain, state.d2d_gain)))


def knowledge_table() -> str:
    """Return the table of what is known."""
    base, rows = played(scenario_of(None), "dssra", filtered=False)[0], []

    def shown(fields: dict[str, Any] | None, name: str, *, filtered: bool) -> tuple[str, str]:
        delay, upload, worst = played(scenario_of(fields), name, filtered)
        return f"{delay:.2f} s ({100.0 * (delay / base - 1.0):+.1f} %)", f"{upload:.2f} s; {worst:.2f}"

    for known, fields in KNOWN.items():
        better = ("", "") if known in UNFILTERED else shown(fields, "dssra", filtered=True)
        rows.append([known, *shown(fields, "dssra", filtered=False), *better])
    even = shown(None, "pipeline", filtered=False)
    rows.append(["nothing: even split, equal shares", *even, "", ""])
    heads = ("known gains", "DSSRA: delay", "upload; energy", "on filtered gains: delay", "upload; energy")
    return markdown_table(heads, rows)


def filter_table() -> str:
    """Return the table of errors."""
    rows = []
    for noise in FILTERED_DB:
        cells = [f"{noise:g} dB"]
        for processes in ({}, {"mobility": {}}):
            cells += [f"{value:.2f} dB" for value in errors(noise, **processes)]
        rows.append(cells)
    heads = ("noise", "standing: known", "filtered", "walking: known", "filtered")
    return markdown_table(heads, rows)


PARTS = {
    "knowledge": (
        knowledge_table,
        f"(`medium`, DSSRA, {EPISODES} episodes x {ROUNDS} rounds, surrogate: mean delay of a round, with "
        "its excess over the delay on the truth; mean of the longest upload; mean energy of the worst node "
        "over its budget)",
    ),
    "filter": (
        filter_table,
        f"(`medium`, all links of {EPISODES} episodes x {ROUNDS} rounds: root mean square errors)",
    ),
}
