"""Time of schedulers' decisions, one by one and in a batch, against DSSRA's goals.

Plays rounds and times every decision but the first one, which compiles or loads compiled code. How decisions
grow with the sizes of a system is measured by the study of scaling. Run::

    python benchmarks/decision_time.py
    python benchmarks/decision_time.py --schedulers dssra zoo:graph --scenarios small medium boards
"""

from __future__ import annotations

import sys
import time
from typing import Annotated

import numpy as np
from measuring import BenchmarkOptions, Figure, command, publish
from pydantic import Field
from tqdm import tqdm

from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import StateScheduler
from collapipe_env.simulator.world import World

WHAT = "median time of a decision over the environments that it decides; range: fastest to 95 %"
GOALS_MS = {("dssra", "medium", 1): 5.0, ("dssra", "medium", 64): 0.5, ("dssra", "xlarge", 1): 500.0}
"""Most milliseconds of a decision of one environment, by scheduler, scenario and size of the batch."""


class Options(BenchmarkOptions):
    """Time of schedulers' decisions."""

    schedulers: tuple[str, ...] = ("dssra",)
    """Schedulers that decide from states, agents of the zoo included."""
    scenarios: tuple[str, ...] = ("small", "medium", "large", "xlarge")
    """Shipped scenarios or YAML files."""
    rounds: Annotated[int, Field(ge=1)] = 60
    """Rounds of every run, at least 1; a tenth of them, at least 2, for a batch and for ``xlarge``."""
    batch: Annotated[int, Field(ge=1)] = 64
    """Environments of a batch, at least 1; an eighth of them for ``xlarge``."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the channels, at least 0."""


def measure(scheduler: StateScheduler, title: str, environments: int, rounds: int, seed: int) -> Figure:
    """Play rounds, timing the scheduler's decisions.

    Args:
        title: Its name in the table.
        environments: Environments decided at once.
        rounds: Rounds, after one that is not counted.
        seed: Seed of the channels.

    Returns:
        Milliseconds for one environment; the note has the processor time of all threads, which hardly depends
        on other programs.
    """
    name = scheduler.scenario.name
    world = World(scheduler.scenario, IdleLearner(environments), environments)
    world.reset([np.random.default_rng([seed, e]) for e in range(environments)])
    scheduler.reset(seed)
    world.step(scheduler.act(None, world.state))
    milliseconds, processor = [], []
    for _ in range(rounds):
        start, busy = time.perf_counter(), time.process_time()
        decision = scheduler.act(None, world.state)
        processor.append(1e3 * (time.process_time() - busy) / environments)
        milliseconds.append(1e3 * (time.perf_counter() - start) / environments)
        world.step(decision)
    return Figure(
        f"{title}, {name}, {int(world.state.present[0].sum())} devices, batch of {environments}",
        float(np.median(milliseconds)),
        "ms",
        min(milliseconds),
        float(np.percentile(milliseconds, 95)),
        GOALS_MS.get((title, name, environments)),
        f"{np.median(processor):.3f} ms of processor time",
    )


def _run(options: Options) -> None:
    runs = []
    for scenario in map(load_scenario, options.scenarios):
        few = max(2, options.rounds // 10)
        large = scenario.name.startswith("xlarge")
        batch = max(1, options.batch // 8) if large else options.batch
        for name in options.schedulers:
            scheduler = make_scheduler(name, scenario)
            if not isinstance(scheduler, StateScheduler):
                raise ScenarioError(f"--schedulers: {name} does not decide from states: leave it out")
            runs.append((scheduler, name, 1, few if large else options.rounds))
            runs.append((scheduler, name, batch, min(few, options.rounds)))
    publish(options, WHAT, [measure(*run, options.seed) for run in tqdm(runs, unit="run", disable=None)])


main = command(Options, _run, __doc__)

if __name__ == "__main__":
    sys.exit(main())
