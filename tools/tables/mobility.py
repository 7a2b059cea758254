"""Gains between devices that walk, and devices that leave."""

from __future__ import annotations

import numpy as np
from generated_parts import markdown_table

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.backends import NUMPY
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.process_registry import active_processes
from collapipe_env.simulator.system import laid_out

PAGE = "mobility.md"
LAYOUTS, ROUND_S, LAGS = 400, 10.0, (1, 6, 30)
"""Drawn layouts, seconds of a round, and rounds between two looks at a gain."""


def gains_db(shadowing_db: float) -> FloatArray:
    """Gains of all pairs of nodes in every round (rounds, layouts * pairs) [dB], without fading.

    Args:
        shadowing_db: Standard deviation of the shadowing that walks with the devices [dB].
    """
    scenario = load_scenario(
        {
            "base": "medium",
            "cluster": {"layout": "per_episode"},
            "radio": {"d2d_shadowing_db": shadowing_db},
            "dynamics": {"processes": {"mobility": {}}},
        }
    )
    seeds = np.random.SeedSequence(0).generate_state(LAYOUTS, np.uint64)
    system = laid_out(scenario, seeds, NUMPY)
    carried, rounds = {}, []
    for t in range(LAGS[-1] + 1):
        now = system
        for process in active_processes(scenario):
            if process.name in ("shadowing", "mobility"):
                # Every process has seeds of its own.
                own = seeds + np.uint64(len(process.name))
                u = NUMPY.uniform(own, np.full(LAYOUTS, t), process.numbers)
                if t == 0:
                    carried[process.name] = process.begin(now, u)
                elif process.defines("advance"):
                    seconds = np.full(LAYOUTS, ROUND_S)
                    before = carried[process.name]
                    # Mobility depends on time alone, not on states or costs.
                    carried[process.name] = process.advance(before, None, None, u, seconds)  # type: ignore[arg-type]
                now = process.apply(now, carried[process.name])
        rounds.append(10.0 * np.log10(now.link_gain[:, scenario.clusters :].ravel()))
    return np.stack(rounds)


def table() -> str:
    """Return the table."""
    rows = []
    for shadowing_db in (0.0, 4.0):
        gains = gains_db(shadowing_db)
        change = np.abs(gains[1] - gains[0])
        kept = [np.corrcoef(gains[0], gains[lag])[0, 1] for lag in LAGS]
        cells = [f"{shadowing_db:g} dB", f"{gains.std():.1f} dB", f"{np.median(change):.1f} dB"]
        rows.append([*cells, *(f"{value:.2f}" for value in kept)])
    lags = [f"after {lag * ROUND_S:g} s" for lag in LAGS]
    return markdown_table(("shadowing", "deviation", "median change in 10 s", *lags), rows)


def departures() -> str:
    """Return the table of devices that are away, and of departures that were announced."""
    scenario = load_scenario(
        {
            "base": "medium",
            "cluster": {"layout": "per_episode"},
            "dynamics": {"processes": {"mobility": {"area": "open"}}},
        }
    )
    seeds = np.random.SeedSequence(0).generate_state(LAYOUTS, np.uint64)
    process = next(p for p in active_processes(scenario) if p.name == "mobility")
    system, seconds = laid_out(scenario, seeds, NUMPY), np.full(LAYOUTS, ROUND_S)
    carried, away, gone, said = None, [], 0, 0
    for t in range(LAGS[-1] + 1):
        u = NUMPY.uniform(seeds, np.full(LAYOUTS, t), process.numbers)
        before = carried
        if before is None:
            carried = process.begin(system, u)
        else:
            carried = process.advance(before, None, None, u, seconds)  # type: ignore[arg-type]
            left = (before["leaves_s"] > 0.0) & (carried["leaves_s"] == 0.0)
            gone, said = gone + left.sum(), said + (left & (before["leaves_s"] < ROUND_S)).sum()
        away.append((carried["leaves_s"] == 0.0).mean())
    lost = gone / (LAGS[-1] * seeds.size * scenario.clusters * scenario.max_devices)
    row = [f"{np.mean(away):.1%}", f"{lost:.1%}", f"{said / gone:.0%}"]
    head = ("devices away", f"devices that leave in {ROUND_S:g} s", "of those, announced")
    return markdown_table(head, [row])


PARTS = {
    "memory": (table, f"(hops of `medium`, {LAYOUTS} layouts, without fading)"),
    "departures": (departures, f"(`medium` with `area: open`, {LAYOUTS} layouts, 5 minutes)"),
}
