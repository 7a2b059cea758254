"""The drift-plus-penalty trade-off: delay and energy backlog against V, with DSSRA.

Plays the same channels for every V and shows what Lyapunov optimisation promises: the time-average delay
falls towards the least one that the energy budgets allow, as ``O(1 / V)``, while the virtual queues grow as
``O(V)``. Prints a table, stores it as JSON and draws it. No training takes place. Run::

    python benchmarks/tradeoff_sweep.py
    python benchmarks/tradeoff_sweep.py --figure docs/images/tradeoff.png
    python benchmarks/tradeoff_sweep.py --long-rounds 5000      # do the long-term budgets hold?

Queues need ``O(V)`` rounds to fill. Every V therefore begins with the queues in which the one before it
ended, in proportion to V, and plays a warm-up that is not counted; the long run begins with empty queues.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from measuring import RESULTS, command, store, within
from tqdm import tqdm

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.arrays import BoolArray, FloatArray
from collapipe_env.errors import ScenarioError
from collapipe_env.evaluation.plotting import COLOURS, RC, log_axis, new_figure, save
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.world import World

if TYPE_CHECKING:
    from matplotlib.figure import Figure


DEFAULT_V = (0.1, 0.2, 0.4, 0.8, 1.4, 2.8, 5.6, 11.2)


@dataclass(frozen=True)
class Options:
    """Delay and energy backlog against V."""

    scenario: str = "small"
    """A shipped scenario or a YAML file."""
    v: tuple[float, ...] = DEFAULT_V
    """Values of V in 1/s, ascending, above 0."""
    rounds: int = 400
    """Counted rounds of each V, 1 to 1,000,000."""
    warmup: int = 400
    """Rounds before them, 0 to 1,000,000."""
    envs: int = 2
    """Environments, 1 to 1,000."""
    seed: int = 0
    """Seed of the channels, at least 0."""
    long_rounds: int = 0
    """Rounds of a long run at the scenario's V that checks the budgets; 0 for none, at most 10,000,000."""
    output: Path = RESULTS / "tradeoff_sweep.json"
    """JSON file to write."""
    figure: Path | None = None
    """Picture (PNG) to draw; beside the JSON file by default."""

    @property
    def picture(self) -> Path:
        """File of the picture."""
        return self.output.with_suffix(".png") if self.figure is None else self.figure

    def check(self) -> None:
        """Refuse what cannot be run.

        Raises:
            ScenarioError: Names the option, its value and the range.
        """
        within(
            ("--rounds", self.rounds, 1, 1_000_000),
            ("--warmup", self.warmup, 0, 1_000_000),
            ("--envs", self.envs, 1, 1000),
            ("--seed", self.seed, 0, 2**32),
            ("--long-rounds", self.long_rounds, 0, 10_000_000),
        )
        if not self.v or not all(0.0 < v < np.inf for v in self.v) or list(self.v) != sorted(set(self.v)):
            raise ScenarioError(f"--v: {self.v} must be finite numbers above 0 in ascending order")
        if self.picture.is_dir():
            raise ScenarioError(f"--figure: {self.picture} is a folder; name a file")
        if self.picture.suffix != ".png":
            raise ScenarioError(f"--figure: {self.picture} must end in .png")


@dataclass(frozen=True)
class Point:
    """Result of one V, means over the counted rounds and environments.

    Attributes:
        v: ``V`` [1/s].
        delay: Time-average round delay [s].
        backlog: Time-average of the mean normalised backlog of the nodes that exist.
        largest_backlog: The same of the node with the most.
        energy_ratio: Largest time-average energy over budget of a node.
    """

    v: float
    delay: float
    backlog: float
    largest_backlog: float
    energy_ratio: float


def start(scenario: Scenario, envs: int, seed: int) -> World:
    """Environments with the channels of a seed and empty queues."""
    simulator = World(scenario, IdleLearner(envs), envs)
    simulator.reset([np.random.default_rng([seed, row]) for row in range(envs)])
    return simulator


def nodes_of(simulator: World) -> BoolArray:
    """Nodes that exist (E, N, K+1): the CUs and the devices present."""
    present = simulator.state.present
    everywhere = np.ones((*present.shape[:-1], 1), dtype=np.bool_)
    return np.concatenate((everywhere, present), axis=-1)


def sweep(
    scenario: Scenario,
    values: Sequence[float],
    *,
    rounds: int,
    warmup: int,
    envs: int,
    seed: int,
    on_round: Callable[[], object] = lambda: None,
) -> list[Point]:
    """Play every V on the same channels.

    Args:
        scenario: What to play.
        values: V, ascending.
        rounds: Counted rounds of each.
        warmup: Rounds before them.
        envs: Environments.
        seed: Seed of the channels.
        on_round: Called after each round.
    """
    points: list[Point] = []
    backlog: FloatArray | None = None
    for place, v in enumerate(values):
        simulator = start(scenario, envs, seed)
        if backlog is not None:
            begun = backlog * (v / values[place - 1])
            simulator.state = replace(simulator.state, backlog=begun)
        scheduler = DSSRA(scenario, tradeoff_v=v)
        nodes = nodes_of(simulator)
        delay, queue, ratio = [], np.zeros(nodes.shape), np.zeros(nodes.shape)
        for index in range(warmup + rounds):
            record = simulator.step(scheduler.allocate(simulator.state))
            if index >= warmup:
                delay.append(record.costs.delay)
                queue += record.backlog / rounds
                ratio += record.costs.energy_ratio / rounds
            on_round()
        backlog = simulator.state.backlog
        points.append(
            Point(
                v, float(np.mean(delay)), float(queue[nodes].mean()), float(queue.max()), float(ratio.max())
            )
        )
    return points


def delay_limit(
    scenario: Scenario,
    *,
    rounds: int,
    warmup: int,
    envs: int,
    seed: int,
    on_round: Callable[[], object] = lambda: None,
) -> float:
    """Time-average delay without energy budgets [s]: DSSRA with empty queues on the same channels."""
    simulator = start(scenario, envs, seed)
    scheduler = DSSRA(scenario)
    delays = []
    for index in range(warmup + rounds):
        state = replace(simulator.state, backlog=np.zeros_like(simulator.state.backlog))
        allocation = scheduler.allocate(state)
        if index >= warmup:
            delays.append(round_costs(scheduler.parameters, state, allocation).delay)
        simulator.step(allocation)
        on_round()
    return float(np.mean(delays))


def long_run(
    scenario: Scenario, rounds: int, seed: int, on_round: Callable[[], object] = lambda: None
) -> dict[str, Any]:
    """Budgets in the long run from empty queues, at the scenario's own V.

    Args:
        scenario: What to play.
        rounds: How long.
        seed: Seed of the channels.
        on_round: Called after each round.

    Returns:
        Rounds, mean delay and, after a tenth, a half and all of the rounds, the worst node's time-average
        energy over budget and its largest backlog per round, which tends to zero where the budget holds.
    """
    simulator = start(scenario, 1, seed)
    scheduler = DSSRA(scenario)
    spent = np.zeros(nodes_of(simulator).shape)
    delay, course = 0.0, []
    marks = {max(rounds // 10, 1), max(rounds // 2, 1), rounds}
    for index in range(1, rounds + 1):
        record = simulator.step(scheduler.allocate(simulator.state))
        delay += float(record.costs.delay[0])
        spent += record.costs.energy_ratio
        if index in marks:
            course.append(
                {
                    "rounds": index,
                    "worst_energy_ratio": float(spent.max()) / index,
                    "largest_backlog_per_round": float(record.backlog.max()) / index,
                }
            )
        on_round()
    return {"rounds": rounds, "v": scheduler.tradeoff_v, "mean_delay": delay / rounds, "course": course}


def draw(points: Sequence[Point], limit: float, name: str) -> Figure:
    """Delay and backlog against V, on an Agg canvas.

    Args:
        points: At least one.
        limit: Delay without budgets [s].
        name: The scenario's name, for the title.
    """
    import matplotlib as mpl

    v = np.array([p.v for p in points])
    with mpl.rc_context(RC):
        figure = new_figure(8.6, 3.7)
        left, right = figure.subplots(1, 2)
        left.plot(v, [p.delay for p in points], marker="o", color=COLOURS[0], label="DSSRA")
        left.axhline(
            limit, color=COLOURS[6], linestyle="--", linewidth=1.2, label="no energy budgets (bound)"
        )
        left.set_ylim(bottom=0.95 * limit)
        left.set_ylabel("time-average round delay (s)")
        left.set_title("Delay falls towards its limit", loc="left", fontsize=10.5)
        left.legend()
        right.plot(v, [p.largest_backlog for p in points], marker="s", color=COLOURS[1], label="fullest node")
        right.plot(v, [p.backlog for p in points], marker="o", color=COLOURS[0], label="mean of the nodes")
        middle = len(points) // 2
        guide = points[middle].backlog * v / v[middle]
        right.plot(v, guide, color=COLOURS[6], linestyle="--", linewidth=1.2, label="proportional to V")
        right.set_ylabel("time-average backlog (budgets)")
        right.set_title("Queues grow with V", loc="left", fontsize=10.5)
        right.legend()
        for axes in (left, right):
            axes.set_xlabel("V (1/s)")
            log_axis(axes, "x")
        log_axis(right, "y")
        figure.suptitle(f"Drift plus penalty on the {name} scenario", x=0.01, ha="left", fontsize=11)
    return figure


def table(points: Sequence[Point], limit: float) -> str:
    """The sweep as text."""
    lines = ["   V [1/s]  delay [s]  mean backlog  fullest node  backlog / V  worst node's energy / budget"]
    lines += [
        f"{p.v:10.3g} {p.delay:10.3f} {p.backlog:13.3f} {p.largest_backlog:13.3f} {p.backlog / p.v:12.3f} "
        f"{p.energy_ratio:29.3f}"
        for p in points
    ]
    return "\n".join([*lines, f"{'no budgets':>10s} {limit:10.3f}"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Play, print, draw and store; returns the exit status."""
    return command(Options, _run, __doc__, arguments)


def _run(options: Options) -> None:
    scenario = load_scenario(options.scenario)
    common = {"rounds": options.rounds, "warmup": options.warmup, "envs": options.envs, "seed": options.seed}
    begun = time.perf_counter()
    total = (len(options.v) + 1) * (options.rounds + options.warmup) + options.long_rounds
    with tqdm(total=total, unit="round", disable=not sys.stderr.isatty()) as bar:
        points = sweep(scenario, options.v, **common, on_round=bar.update)
        limit = delay_limit(scenario, **common, on_round=bar.update)
        long = (
            long_run(scenario, options.long_rounds, options.seed, bar.update) if options.long_rounds else None
        )
    print(table(points, limit))
    for mark in [] if long is None else long["course"]:
        print(
            f"after {mark['rounds']:,} rounds at V = {scenario.budgets.tradeoff_v:g}: worst node's "
            f"time-average energy / budget {mark['worst_energy_ratio']:.4f}, largest backlog per round "
            f"{mark['largest_backlog_per_round']:.5f}"
        )
    save(draw(points, limit, scenario.name), options.picture)
    print(f"drawn in {options.picture}")
    store(
        options.output,
        "time-average delay and energy backlog of DSSRA against V",
        options,
        seconds=time.perf_counter() - begun,
        points=[asdict(p) for p in points],
        delay_without_budgets=limit,
        long_run=long,
    )


if __name__ == "__main__":
    sys.exit(main())
