"""Time of DSSRA's decisions against their goals, and how it grows with the number of clusters.

Plays rounds and times every decision on the way: one environment of every scenario of the ladder, a batch of
64 of ``medium``, and systems of 4 to 64 clusters of 5 devices, where the exponent of a power law is fitted.
The first decision, which compiles or loads compiled code, is apart. Run::

    python benchmarks/dssra_time.py
    python benchmarks/dssra_time.py --rounds 200 --threads 1
    python benchmarks/dssra_time.py --clusters 4 16 --rounds 5
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from measuring import RESULTS, command, store, within
from tqdm import tqdm

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.errors import ScenarioError
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.simulator.world import World

LADDER = ("small", "medium", "large", "xlarge")
GOALS_MS = {("medium", 1): 5.0, ("medium", 64): 0.5, ("xlarge", 1): 500.0}
"""Most milliseconds of a decision of one environment, by scenario and size of the batch."""
GOAL_EXPONENT = 1.0
DEVICES = 5
"""Devices of each cluster of the growing systems."""


@dataclass(frozen=True)
class Options:
    """Time of DSSRA's decisions."""

    rounds: int = 60
    """Rounds of every run, 1 to 100,000; a tenth of them, at least 2, for a batch and for ``xlarge``."""
    batch: int = 64
    """Environments of the batch, 1 to 10,000."""
    clusters: tuple[int, ...] = (4, 8, 16, 32, 64)
    """Numbers of clusters of the growing systems, at least two different ones, 1 to 128 each."""
    threads: int | None = None
    """Threads for a batch, at least 1; by default what DSSRA takes by itself."""
    seed: int = 0
    """Seed of the channels, at least 0."""
    output: Path = RESULTS / "dssra_time.json"
    """JSON file to write."""

    def check(self) -> None:
        """Refuse what cannot be run.

        Raises:
            ScenarioError: Names the option, its value and the range.
        """
        within(
            ("--rounds", self.rounds, 1, 100_000),
            ("--batch", self.batch, 1, 10_000),
            ("--threads", self.threads, 1, 1024),
            ("--seed", self.seed, 0, 2**32),
            *(("--clusters", clusters, 1, 128) for clusters in self.clusters),
        )
        if len(set(self.clusters)) < 2:
            raise ScenarioError(f"--clusters: {self.clusters} must name at least two different numbers")


@dataclass(frozen=True)
class Result:
    """Times of one run.

    Attributes:
        scenario: Its name.
        clusters: ``N``.
        devices: Devices of all clusters.
        environments: Environments decided at once.
        decisions: Timed calls.
        median_ms: Median time of a call over the environments [ms].
        percentile_95_ms: 95th percentile, likewise [ms].
        fastest_ms: Fastest, likewise [ms].
        processor_ms: Median processor time of all threads, likewise [ms]; hardly depends on other programs.
        goal_ms: What the median is to stay below; None without a goal [ms].
    """

    scenario: str
    clusters: int
    devices: int
    environments: int
    decisions: int
    median_ms: float
    percentile_95_ms: float
    fastest_ms: float
    processor_ms: float
    goal_ms: float | None


def growing_scenario(clusters: int) -> Scenario:
    """``medium`` with another number of clusters, band and server in proportion, as closely as they fit."""
    return load_scenario(
        {
            "base": "medium",
            "name": f"{clusters} x {DEVICES}",
            "cluster": {
                "clusters": clusters,
                "devices": DEVICES,
                "cluster_separation_min_m": 50,
                "cu_distance_max_m": 500,
                "server_flops": 0.5e12 * clusters,
            },
            "radio": {
                "uplink_bandwidth_hz": 5e6 * clusters,
                "downlink_bandwidth_hz": 5e6 * clusters,
                "bs_power_w": 5.0 * clusters,
            },
            "budgets": {"bandwidth_floor": 0.08 / clusters},
        }
    )


def measure(scenario: Scenario, environments: int, rounds: int, threads: int | None, seed: int) -> Result:
    """Play rounds with DSSRA, timing its decisions.

    Args:
        scenario: What to play.
        environments: Environments decided at once.
        rounds: Rounds, after one that is not counted.
        threads: DSSRA's.
        seed: Of the channels.
    """
    scheduler = DSSRA(scenario, threads=threads)
    simulator = World(scenario, IdleLearner(environments), environments)
    simulator.reset([np.random.default_rng([seed, e]) for e in range(environments)])
    simulator.step(scheduler.allocate(simulator.state))
    milliseconds, processor = [], []
    for _ in range(rounds):
        start, busy = time.perf_counter(), time.process_time()
        decision = scheduler.allocate(simulator.state)
        processor.append(1e3 * (time.process_time() - busy) / environments)
        milliseconds.append(1e3 * (time.perf_counter() - start) / environments)
        simulator.step(decision)
    present = simulator.state.present[0]
    return Result(
        scenario=scenario.name,
        clusters=present.shape[0],
        devices=int(present.sum()),
        environments=environments,
        decisions=rounds,
        median_ms=float(np.median(milliseconds)),
        percentile_95_ms=float(np.percentile(milliseconds, 95)),
        fastest_ms=min(milliseconds),
        processor_ms=float(np.median(processor)),
        goal_ms=GOALS_MS.get((scenario.name, environments)),
    )


def exponent(results: Sequence[Result]) -> float:
    """Power of the number of clusters by which the processor time grows, by least squares on logarithms."""
    clusters = np.log([r.clusters for r in results])
    return float(np.polyfit(clusters, np.log([r.processor_ms for r in results]), 1)[0])


def report(ladder: Sequence[Result], growth: Sequence[Result]) -> str:
    """The tables as text."""
    lines = ["scenario  clusters  devices  batch  median ms  95 % ms  fastest ms  processor ms   goal ms"]
    for r in (*ladder, *growth):
        goal = "" if r.goal_ms is None else f"{r.goal_ms:g} {'met' if r.median_ms <= r.goal_ms else 'missed'}"
        lines.append(
            f"{r.scenario:8s} {r.clusters:9d} {r.devices:8d} {r.environments:6d} {r.median_ms:10.3f} "
            f"{r.percentile_95_ms:8.3f} {r.fastest_ms:11.3f} {r.processor_ms:13.3f}   {goal}"
        )
    power = exponent(growth)
    lines.append(
        f"growth with the clusters: N^{power:.2f}, goal at most N^{GOAL_EXPONENT:g} "
        f"{'met' if power <= GOAL_EXPONENT else 'missed'}"
    )
    return "\n".join(line.rstrip() for line in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and store; returns the exit status."""
    return command(Options, _run, __doc__, arguments)


def _run(options: Options) -> None:
    medium = load_scenario("medium")
    start = time.perf_counter()
    measure(medium, 1, 1, 1, options.seed)
    first = time.perf_counter() - start
    few = min(options.rounds, max(2, options.rounds // 10))
    runs = [(load_scenario(name), 1, few if name == "xlarge" else options.rounds) for name in LADDER]
    runs.append((medium, options.batch, few))
    systems = [(growing_scenario(n), 1, options.rounds) for n in sorted(set(options.clusters))]
    results = [
        measure(scenario, environments, rounds, options.threads, options.seed)
        for scenario, environments, rounds in tqdm(
            runs + systems, unit="run", disable=not sys.stderr.isatty()
        )
    ]
    ladder, growth = results[: len(runs)], results[len(runs) :]
    threads = DSSRA(medium, threads=options.threads).threads
    print(report(ladder, growth))
    print(f"a batch uses {threads} threads; first decision, compiling or loading: {first:.1f} s")
    store(
        options.output,
        "time of a decision of one environment: that of a call over its environments",
        replace(options, threads=threads),
        first_decision_s=first,
        ladder=[asdict(r) for r in ladder],
        growth=[asdict(r) for r in growth],
        growth_exponent=exponent(growth),
        growth_exponent_goal=GOAL_EXPONENT,
    )


if __name__ == "__main__":
    sys.exit(main())
