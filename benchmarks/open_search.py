"""Time of DSSRA's decisions with further decisions open, over that with CollaPipe's own, and what they gain.

Plays rounds with CollaPipe's own decisions and lets every search decide in the same states, in turn, so that
ratios also hold on a busy machine. Run::

    python benchmarks/open_search.py
    python benchmarks/open_search.py --scenarios medium --rounds 50 --environments 16
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from measuring import RESULTS, Between, Checked, Figure, command, publish
from tqdm import tqdm

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.decisions import COLLAPIPE, Decision
from collapipe_env.simulator.world import World

WHAT = "processor time of a decision over that with CollaPipe's own decisions; range: 5 to 95 % of rounds"
OPENINGS: tuple[tuple[Decision, ...], ...] = (
    ("schedule",),
    ("server_blocks",),
    ("schedule", "server_blocks"),
)
GOAL = 5.0
"""Largest ratio of times wanted."""


@dataclass(frozen=True)
class Options(Checked):
    """Time of DSSRA's search of the open space."""

    scenarios: tuple[str, ...] = ("small", "medium", "boards", "large")
    """Scenarios."""
    rounds: Annotated[int, Between(1, 100_000)] = 20
    """Rounds of every run, 1 to 100,000, after one that is not counted."""
    environments: Annotated[int, Between(1, 10_000)] = 4
    """Environments decided at once, 1 to 10,000."""
    seed: Annotated[int, Between(0, 2**32)] = 0
    """Seed of the channels, at least 0."""
    output: Path = RESULTS / "open_search.json"
    """JSON file to write."""


def measure(name: str, options: Options) -> list[Figure]:
    """Play a scenario, timing all searches in the same states.

    Args:
        name: The scenario.
        options: Rounds, environments and seed.

    Returns:
        A figure for each opening; the note says by how much the objective over ``V`` falls.
    """
    own, E = load_scenario(name), options.environments
    searches = [
        DSSRA(own.with_overrides({"decisions": [*COLLAPIPE, *opening]}), threads=1)
        for opening in ((), *OPENINGS)
    ]
    world = World(own, IdleLearner(E), E)
    world.reset([np.random.default_rng([options.seed, e]) for e in range(E)])
    times = np.empty((options.rounds + 1, len(searches)))
    gains = np.empty((options.rounds + 1, len(searches)))
    for played in range(options.rounds + 1):
        plans = []
        for i, search in enumerate(searches):
            start = time.process_time()
            plans.append(search.allocate(world.state))
            times[played, i] = time.process_time() - start
            value = search.objective(world.state, plans[-1]) / search.tradeoff_v
            gains[played, i] = value.mean()
        world.step(plans[0])
    ratio, gain = times[1:] / times[1:, :1], gains[1:, :1] - gains[1:]
    return [
        Figure(
            f"{name}, {', '.join(opening)}",
            float(np.median(times[1:, i]) / np.median(times[1:, 0])),
            "x",
            float(np.percentile(ratio[:, i], 5)),
            float(np.percentile(ratio[:, i], 95)),
            GOAL,
            f"objective / V falls by {gain[:, i].mean():.2f} s, at least {gain[:, i].min():.2f} s",
        )
        for i, opening in enumerate(OPENINGS, start=1)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and store; returns the exit status."""
    return command(Options, _run, __doc__, arguments)


def _run(options: Options) -> None:
    found = [
        figure
        for name in tqdm(options.scenarios, unit="scenario", disable=None)
        for figure in measure(name, options)
    ]
    publish(options, WHAT, found)


if __name__ == "__main__":
    sys.exit(main())
