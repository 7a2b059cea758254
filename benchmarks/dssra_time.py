"""Time of DSSRA's decisions against their goals.

Plays rounds and times every decision on the way: one environment of every scenario of the ladder, and a batch
of 64 of ``medium``. The first decision, which compiles or loads compiled code, is not counted. How decisions
grow with the system's sizes is measured by ``tools/make_scaling_study.py``. Run::

    python benchmarks/dssra_time.py
    python benchmarks/dssra_time.py --rounds 200 --threads 1
"""

from __future__ import annotations

import sys
import time
from typing import Annotated

import numpy as np
from measuring import BenchmarkOptions, Figure, command, publish
from pydantic import Field
from tqdm import tqdm

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.world import World

WHAT = "median time of a call of DSSRA over the environments that it decides; range: fastest to 95 %"
LADDER = ("small", "medium", "large", "xlarge")
GOALS_MS = {("medium", 1): 5.0, ("medium", 64): 0.5, ("xlarge", 1): 500.0}
"""Most milliseconds of a decision of one environment, by scenario and size of the batch."""


class Options(BenchmarkOptions):
    """Time of DSSRA's decisions."""

    rounds: Annotated[int, Field(ge=1)] = 60
    """Rounds of every run, at least 1; a tenth of them, at least 2, for a batch and for ``xlarge``."""
    batch: Annotated[int, Field(ge=1)] = 64
    """Environments of the batch, at least 1."""
    threads: Annotated[int, Field(ge=1)] | None = None
    """Threads for a batch, at least 1; by default DSSRA's own choice."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the channels, at least 0."""


def measure(name: str, environments: int, rounds: int, threads: int | None, seed: int) -> Figure:
    """Play rounds with DSSRA, timing its decisions.

    Args:
        name: The scenario.
        environments: Environments decided at once.
        rounds: Rounds, after one that is not counted.
        threads: Threads of DSSRA.
        seed: Seed of the channels.

    Returns:
        Milliseconds for one environment; the note has the processor time of all threads, which hardly depends
        on other programs.
    """
    scenario = load_scenario(name)
    scheduler = DSSRA(scenario, threads=threads)
    world = World(scenario, IdleLearner(environments), environments)
    world.reset([np.random.default_rng([seed, e]) for e in range(environments)])
    world.step(scheduler.allocate(world.state))
    milliseconds, processor = [], []
    for _ in range(rounds):
        start, busy = time.perf_counter(), time.process_time()
        decision = scheduler.allocate(world.state)
        processor.append(1e3 * (time.process_time() - busy) / environments)
        milliseconds.append(1e3 * (time.perf_counter() - start) / environments)
        world.step(decision)
    return Figure(
        f"{name}, {int(world.state.present[0].sum())} devices, batch of {environments}",
        float(np.median(milliseconds)),
        "ms",
        min(milliseconds),
        float(np.percentile(milliseconds, 95)),
        GOALS_MS.get((name, environments)),
        f"{np.median(processor):.3f} ms of processor time",
    )


def _run(options: Options) -> None:
    few = min(options.rounds, max(2, options.rounds // 10))
    runs = [(name, 1, few if name == "xlarge" else options.rounds) for name in LADDER]
    runs.append(("medium", options.batch, few))
    found = [measure(*run, options.threads, options.seed) for run in tqdm(runs, unit="run", disable=None)]
    threads = DSSRA(load_scenario("medium"), threads=options.threads).threads
    publish(options.model_copy(update={"threads": threads}), WHAT, found)
    print(f"a batch uses {threads} threads")


main = command(Options, _run, __doc__)

if __name__ == "__main__":
    sys.exit(main())
