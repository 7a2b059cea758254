"""The drift-plus-penalty trade-off: delay and energy backlog against V, with DSSRA.

Plays the same channels for every V and shows what Lyapunov optimisation promises: the time-average delay
falls towards the least one that the energy budgets allow, as ``O(1 / V)``, while the virtual queues grow as
``O(V)``. Prints a table, stores it as JSON and draws it. No training takes place. Run::

    python benchmarks/tradeoff_sweep.py
    python benchmarks/tradeoff_sweep.py --figure docs/images/tradeoff.png
    python benchmarks/tradeoff_sweep.py --long-rounds 5000      # do the long-term budgets hold?

Queues need ``O(V)`` rounds to fill. Every V therefore begins with the queues at the end of the previous one,
scaled to V, and plays a warm-up that is not counted; the long run begins with empty queues.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import matplotlib as mpl
import numpy as np
from measuring import BenchmarkOptions, command, store
from pydantic import Field
from tqdm import tqdm

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.evaluation.plotting import COLOURS, RC, log_axis, new_figure, save
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.record import RoundRecord
from collapipe_env.simulator.world import World

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Options(BenchmarkOptions):
    """Delay and energy backlog against V."""

    scenario: str = "small"
    """A shipped scenario or a YAML file."""
    v: tuple[Annotated[float, Field(gt=0.0, allow_inf_nan=False)], ...] = (
        *(0.1, 0.2, 0.4, 0.8, 1.4, 2.8, 5.6, 11.2),
    )
    """Values of V in 1/s, ascending, above 0."""
    rounds: Annotated[int, Field(ge=1)] = 400
    """Counted rounds of each V, at least 1."""
    warmup: Annotated[int, Field(ge=0)] = 400
    """Rounds before them."""
    envs: Annotated[int, Field(ge=1)] = 2
    """Environments, at least 1."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the channels, at least 0."""
    long_rounds: Annotated[int, Field(ge=0)] = 0
    """Rounds of a long run at the scenario's V that checks the budgets; 0 for none."""
    figure: Path | None = None
    """Picture (PNG) to draw; beside the JSON file by default."""


@dataclass(frozen=True)
class Point:
    """Result of one V, means over the counted rounds and environments.

    Attributes:
        v: ``V`` [1/s].
        delay: Time-average round delay [s].
        backlog: Time-average of the mean normalised backlog of the nodes that exist.
        largest_backlog: The same for the node with the largest.
        energy_ratio: Largest time-average energy over budget of a node.
    """

    v: float
    delay: float
    backlog: float
    largest_backlog: float
    energy_ratio: float


def start(scenario: Scenario, envs: int, seed: int) -> World:
    """Environments with the channels of a seed and empty queues."""
    world = World(scenario, IdleLearner(envs), envs)
    world.reset([np.random.default_rng([seed, row]) for row in range(envs)])
    return world


def played(
    world: World, scheduler: DSSRA, count: int, label: str, free: bool = False
) -> Iterator[RoundRecord]:
    """Play rounds from the present state; ``free`` decisions ignore the budgets, as with empty queues."""
    for _ in tqdm(range(count), desc=label, unit="round", disable=None):
        state = world.state
        if free:
            state = replace(state, backlog=np.zeros_like(state.backlog))
        yield world.step(scheduler.allocate(state))


def sweep(scenario: Scenario, options: Options) -> tuple[list[Point], float]:
    """Points of every V on the same channels, and the delay without energy budgets [s], their bound."""
    points: list[Point] = []
    backlog: FloatArray | None = None
    total = options.warmup + options.rounds
    for place, v in enumerate(options.v):
        world = start(scenario, options.envs, options.seed)
        if backlog is not None:
            world.state = replace(world.state, backlog=backlog * (v / options.v[place - 1]))
        records = itertools.islice(
            played(world, DSSRA(scenario, tradeoff_v=v), total, f"V = {v:g}"), options.warmup, None
        )
        each = ((r.costs.delay, r.backlog, r.costs.energy_ratio) for r in records)
        delay, queue, ratio = (np.mean(values, axis=0) for values in zip(*each, strict=True))
        backlog, present = world.state.backlog, world.state.present
        nodes = np.concatenate((np.ones_like(present[..., :1]), present), axis=-1)  # the CU always exists
        figures = (delay.mean(), queue[nodes].mean(), queue.max(), ratio.max())
        points.append(Point(v, *map(float, figures)))
    free = played(
        start(scenario, options.envs, options.seed), DSSRA(scenario), total, "no budgets", free=True
    )
    return points, float(np.mean([r.costs.delay for r in itertools.islice(free, options.warmup, None)]))


def long_run(scenario: Scenario, rounds: int, seed: int) -> list[dict[str, float]]:
    """Budgets in the long run from empty queues, at the scenario's own V.

    Returns:
        After a tenth, a half and all of the rounds, the worst node's time-average energy over budget and its
        largest backlog per round, which tends to zero where the budget holds.
    """
    world, spent, course = start(scenario, 1, seed), 0.0, []
    for index, record in enumerate(played(world, DSSRA(scenario), rounds, "long run"), 1):
        spent = spent + record.costs.energy_ratio
        if index in {max(rounds // 10, 1), max(rounds // 2, 1), rounds}:
            ratio, backlog = float(np.max(spent)) / index, float(record.backlog.max()) / index
            course.append(
                {"rounds": index, "worst_energy_ratio": ratio, "largest_backlog_per_round": backlog}
            )
    return course


def draw(points: Sequence[Point], limit: float, name: str) -> Figure:
    """Delay and its limit [s], and backlog, against V, on an Agg canvas."""
    v = np.array([p.v for p in points])
    dashed = {"color": COLOURS[6], "linestyle": "--", "linewidth": 1.2}
    with mpl.rc_context(RC):
        figure = new_figure(8.6, 3.7)
        left, right = figure.subplots(1, 2)
        left.plot(v, [p.delay for p in points], marker="o", color=COLOURS[0], label="DSSRA")
        left.axhline(limit, **dashed, label="no energy budgets (bound)")
        left.set_ylim(bottom=0.95 * limit)
        right.plot(v, [p.largest_backlog for p in points], marker="s", color=COLOURS[1], label="fullest node")
        right.plot(v, [p.backlog for p in points], marker="o", color=COLOURS[0], label="mean of the nodes")
        middle = len(points) // 2
        right.plot(v, points[middle].backlog * v / v[middle], **dashed, label="proportional to V")
        log_axis(right, "y")
        for axes, title, label in (
            (left, "Delay falls towards its limit", "time-average round delay (s)"),
            (right, "Queues grow with V", "time-average backlog (budgets)"),
        ):
            axes.set_title(title, loc="left", fontsize=10.5)
            axes.set_ylabel(label)
            axes.set_xlabel("V (1/s)")
            log_axis(axes, "x")
            axes.legend()
        figure.suptitle(f"Drift plus penalty on the {name} scenario", x=0.01, ha="left", fontsize=11)
    return figure


def _run(options: Options) -> None:
    scenario = load_scenario(options.scenario)
    points, limit = sweep(scenario, options)
    long = long_run(scenario, options.long_rounds, options.seed)
    print("   V [1/s]  delay [s]  mean backlog  fullest node  backlog / V  worst node's energy / budget")
    for p in points:
        print(
            f"{p.v:10.3g} {p.delay:10.3f} {p.backlog:13.3f} {p.largest_backlog:13.3f} "
            f"{p.backlog / p.v:12.3f} {p.energy_ratio:29.3f}"
        )
    print(f"{'no budgets':>10s} {limit:10.3f}")
    for mark in long:
        print(
            f"after {mark['rounds']:,} rounds at V = {system_parameters(scenario).tradeoff_v:g}: "
            f"worst node's time-average energy / budget {mark['worst_energy_ratio']:.4f}, largest backlog "
            f"per round {mark['largest_backlog_per_round']:.5f}"
        )
    picture = options.figure or options.file.with_suffix(".png")
    save(draw(points, limit, scenario.name), picture)
    print(f"drawn in {picture}")
    what = "time-average delay and energy backlog of DSSRA against V"
    rows = [asdict(p) for p in points]
    store(options, what, points=rows, delay_without_budgets=limit, long_run=long)


main = command(Options, _run, __doc__)

if __name__ == "__main__":
    sys.exit(main())
