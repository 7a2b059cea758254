"""DSSRA and the published systems on equal terms."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from generated_parts import markdown_table
from tqdm import tqdm

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.scenario.decision_names import COLLAPIPE
from collapipe_env.schedulers import SCHEDULERS

PAGE = "decisions.md"
EPISODES, ROUNDS = 2, 100
BASES = ("small", "medium", "boards")
OPENINGS: dict[str, tuple[str, ...]] = {
    "CollaPipe's own": (),
    "schedule": ("schedule",),
    "clocks": ("clock_cap",),
    "schedule, clocks": ("schedule", "clock_cap"),
}
"""Rows of the first table, and the decisions that each opens."""
WITHIN = (
    "titanic",
    "pipeedge",
    "optpipe",
    "greedy_dpp",
    "flop_proportional",
    "memory_proportional",
    "best_single_device",
    "pipeline",
)
"""Systems whose plans lie in the common space, the encoder on the devices."""
OUTSIDE = ("vanilla_fl", "asteroid", "adaptis", "flexpipe", "xpipe")
"""Systems with groups, interleaved or asynchronous plans."""
SPLIT = ("pipar", "splitfed_v1", "splitfed_v2")
"""Systems that leave blocks to the server."""
TERMS = ("metered", "contended")
GATE = 1.05
"""Energy over budget above which a row is below the line."""


class Figures(NamedTuple):
    """Means of a scheduler's rounds.

    Attributes:
        delay_s: Round delay [s].
        devices: Mean energy of the device that uses most of its budget, over that budget.
        cus: The same for the CUs.
        server: Energy of the server over its budget, NaN without one.
        decision_ms: Time of a decision of one environment [ms].
    """

    delay_s: float
    devices: float
    cus: float
    server: float
    decision_ms: float

    @property
    def within(self) -> bool:
        """Whether all energies keep to their budgets, up to the gate."""
        return float(np.nanmax((self.devices, self.cus, self.server))) <= GATE


def played(scenario: Scenario, name: str) -> Figures:
    """Play a scheduler.

    Args:
        scenario: Scenario of the episodes.
        name: Name of the scheduler.
    """
    env = CollaPipeVectorEnv(EPISODES, scenario, learner="surrogate")
    observation, _ = env.reset(seed=0)
    scheduler = SCHEDULERS.get(name)(scenario)
    scheduler.reset()
    scheduler.act(observation, env.state)  # compiles
    scheduler.reset()
    delays, ratios, server, seconds = [], [], [], []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        plan = scheduler.act(observation, env.state)
        seconds.append(time.perf_counter() - start)
        observation = (env.step_allocation if isinstance(plan, Allocation) else env.step)(plan)[0]
        record = env.last_round
        assert record is not None
        delays.append(record.costs.delay)
        ratios.append(record.costs.energy_ratio)
        server.append(np.nan if record.server_backlog is None else record.costs.server_ratio.mean())
    mean = np.mean(ratios, axis=0)
    return Figures(
        float(np.mean(delays)),
        float(mean[..., 1:].max()),
        float(mean[..., 0].max()),
        float(np.mean(server)),
        1e3 * float(np.median(seconds)) / EPISODES,
    )


def title(name: str) -> str:
    """Name of a scheduler in tables."""
    return str(getattr(SCHEDULERS.get(name), "name", name))


def opened(base: str, names: Sequence[str], **sections: object) -> Scenario:
    """A scenario with further decisions open."""
    return load_scenario({"base": base, "decisions": [*COLLAPIPE, *names], **sections})


def ranked(rows: dict[str, Figures]) -> str:
    """Table of systems, fastest first, those beyond a budget below a line."""
    served = any(not np.isnan(figures.server) for figures in rows.values())
    heads = ("system", "delay (s)", "device energy", "CU energy", *(("server energy",) if served else ()))
    order = sorted(rows.items(), key=lambda item: (not item[1].within, item[1].delay_s))
    body = []
    for name, figures in order:
        if not figures.within and all(row[0] != "*over a budget*" for row in body):
            body.append(["*over a budget*", *[""] * (len(heads) - 1)])
        energies = (figures.devices, figures.cus, *((figures.server,) if served else ()))
        body.append([name, f"{figures.delay_s:.2f}", *(f"{energy:.2f}" for energy in energies)])
    return markdown_table(heads, body)


def openings_table() -> str:
    """Table of the gain of each decision for DSSRA, with the encoder on the devices."""
    rows = []
    for label, names in OPENINGS.items():
        cells = [label]
        for base in BASES:
            figures = played(opened(base, names), "dssra")
            energy = max(figures.devices, figures.cus)
            cells.append(f"{figures.delay_s:.2f} s, {energy:.2f}, {figures.decision_ms:.1f} ms")
        rows.append(cells)
    return markdown_table(("open", *(f"`{base}`" for base in BASES)), rows)


def devices_table(names: Sequence[str], base: str = "medium") -> str:
    """DSSRA and systems with the encoder on the devices.

    Args:
        names: The systems.
        base: The scenario.
    """
    rows = {
        "**DSSRA**": played(opened(base, ()), "dssra"),
        "**DSSRA**, schedule open": played(opened(base, ("schedule",)), "dssra"),
    }
    for name in tqdm(names, desc="encoder on the devices", leave=False):
        rows[title(name)] = played(opened(base, ()), name)
    return ranked(rows)


def server_table(terms: str, base: str = "medium") -> str:
    """DSSRA and systems under terms of the server.

    Args:
        terms: Name of the terms.
        base: The scenario.
    """
    section = {"terms": terms}
    everything = ("schedule", "server_blocks")
    rows = {
        "**DSSRA**, encoder on the devices": played(opened(base, (), server=section), "dssra"),
        "**DSSRA**, server's blocks open": played(opened(base, everything[1:], server=section), "dssra"),
        "**DSSRA**, all open": played(opened(base, everything, server=section), "dssra"),
    }
    for name in tqdm(SPLIT, desc=terms, leave=False):
        rows[title(name)] = played(opened(base, (), server=section), name)
    return ranked(rows)


ABOUT = (
    f"({EPISODES} episodes x {ROUNDS} rounds, surrogate; energies are means of the node or server that uses "
    "most of its budget, over that budget)"
)
PARTS = {
    "openings": (openings_table, ABOUT),
    "devices": (partial(devices_table, WITHIN), ABOUT),
    "outside": (partial(devices_table, OUTSIDE), ABOUT),
    **{terms: (partial(server_table, terms), ABOUT) for terms in TERMS},
}
