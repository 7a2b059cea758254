"""Show what the allocation does to learning, for ``docs/learning.md``.

Run ``python tools/make_learning_experiments.py``. It trains the Transformer under fixed allocations that
differ in one thing at a time: number of segments, number of micro-batches, interference with lost
micro-batches, and skew of the data. It writes a table and a figure of the evaluation loss against simulated
time. Finished runs are kept: run it again after Ctrl-C.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

# The modules of this folder import each other as they would in the command's own process.
sys.path.insert(0, str(Path(__file__).parent))
import experiment_runs as kept
from experiment_runs import EVEN, FEWEST, Run, RunOptions, RunResult, interval

from collapipe_env.cli.common import chosen_scenario, record, require_within
from collapipe_env.evaluation.plotting import COLOURS, log_axis, new_figure, spread
from collapipe_env.scenario import Scenario

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SCRIPT = Path(__file__).name
FIGURE = "loss_over_time.png"
REFERENCE = "reference"
SHARE = 0.9
"""Share of the reference's fall of the loss at which the common loss lies."""
WIDE = 3.0
"""Largest over smallest loss beyond which a panel's axis is logarithmic."""
BASE: Mapping[str, object] = {
    # A packet with little coding: lost with probability 0.1 at 10 dB and 0.63 at 0 dB.
    # The scenarios' 0.023 loses next to nothing.
    "radio.waterfall_threshold": 1.0,
}
"""Changes of the scenario in all runs."""
CROWDED: Mapping[str, object] = {
    # All clusters reuse the hops' band, so closeness is interference. The nearest are then 40 m apart.
    "cluster.cu_distance_max_m": 120.0,
    "cluster.cluster_separation_min_m": 40.0,
}
"""Strong interference."""
SKEWED: Mapping[str, object] = {"learning.partition": "dirichlet", "learning.dirichlet_alpha": 0.1}


@dataclass(frozen=True)
class Case:
    """One line of the table.

    Attributes:
        title: For table and figure.
        overrides: What it changes of the scenario.
        allocator: Who allocates.
        micro_batches: Micro-batches.
    """

    title: str
    overrides: Mapping[str, object] = field(default_factory=dict)
    allocator: str = EVEN
    micro_batches: int = 4


CASES: Mapping[str, Case] = {
    REFERENCE: Case("reference"),
    "fewest": Case("fewest devices", allocator=FEWEST),
    "one": Case("M = 1", micro_batches=1),
    "many": Case("M = 64", micro_batches=64),
    "crowded": Case("strong", CROWDED),
    "crowded-lossless": Case("strong, nothing lost", {**CROWDED, "radio.link_errors": "none"}),
    "crowded-skewed": Case("Dirichlet 0.1, strong interference", {**CROWDED, **SKEWED}),
    "skewed": Case("Dirichlet 0.1", SKEWED),
    "steps": Case("IID, H = 4", {"workload.local_steps": 4}),
    "skewed-steps": Case("Dirichlet 0.1, H = 4", {**SKEWED, "workload.local_steps": 4}),
}
PANELS: Mapping[str, Mapping[str, str]] = {
    "segments": {REFERENCE: "all devices", "fewest": ""},
    "micro-batches": {REFERENCE: "M = 4", "one": "", "many": ""},
    "interference, IID data": {REFERENCE: "weak", "crowded": "", "crowded-lossless": ""},
    "data": {REFERENCE: "IID", "skewed": "", "crowded-skewed": "", "steps": "", "skewed-steps": ""},
}
"""Cases of each panel, with the names that some have there."""


@dataclass(frozen=True)
class Options(RunOptions):
    """Train under fixed allocations that differ in one thing at a time."""

    work: Path = Path("runs/learning")
    """Folder of the finished runs, the table and the figure."""
    scenario: str = "medium"
    """A shipped scenario or a YAML file."""
    task: str | None = None
    """Task to train; the scenario's by default."""
    rounds: int = 150
    """Rounds of a run."""

    def check(self) -> None:
        """Refuse what cannot be run."""
        super().check()
        require_within(("--rounds", self.rounds, 1, 1_000_000))


def main(arguments: Sequence[str] | None = None) -> int:
    """Train what is missing, then write table, figure and page; returns the exit status."""
    return kept.command(Options, run, SCRIPT, arguments)


def run(options: Options, given: Sequence[str]) -> None:
    """Do what the options ask for."""
    scenario = chosen_scenario(options.scenario, options.task, None)
    runs = runs_of(options, scenario)
    if not options.page_only:
        kept.train_all(runs, options.processes)
    results = kept.results_of(runs)
    kept.require_case(results, REFERENCE, options.work)
    facts = record(f"python tools/{SCRIPT}", given, scenario=scenario.to_dict(), base=dict(BASE))
    facts["common_loss"] = common_loss(results)
    facts["results"] = {name: [asdict(one) for one in runs] for name, runs in results.items()}
    title = f"{scenario.name}, {scenario.workload.task}"
    kept.publish(
        options, "experiments", table(results), (FIGURE, lambda: draw(results, title)), facts,
        kept.stamp_of(SCRIPT, given), page=not options.no_page,
    )  # fmt: skip


def runs_of(options: Options, scenario: Scenario) -> list[Run]:
    """All runs, finished or not."""
    common = {
        **BASE,
        "dynamics.rounds": options.rounds,
        "dynamics.target_loss": None,
        "learning.evaluate_every": kept.evaluation_interval(options.rounds, 30),
        "learning.metric_every": kept.evaluation_interval(options.rounds, 30),
        "learning.device": "cpu",
    }
    return [
        Run(
            case=name,
            seed=seed,
            scenario=scenario.with_overrides({**common, **case.overrides}),
            allocator=case.allocator,
            micro_batches=case.micro_batches,
            folder=options.work / "runs",
        )
        for name, case in CASES.items()
        for seed in range(options.seeds)
    ]


def common_loss(results: Mapping[str, Sequence[RunResult]]) -> float:
    """The loss [nat] at which the reference has done ``SHARE`` of its fall, by means over seeds."""
    reference = results[REFERENCE]
    first = float(np.mean([one.loss[0] for one in reference]))
    last = float(np.mean([one.loss[-1] for one in reference]))
    return first - SHARE * (first - last)


def table(results: Mapping[str, Sequence[RunResult]]) -> str:
    """All cases in Markdown."""
    target = common_loss(results)
    names = sorted({name for runs in results.values() for name in runs[0].metrics})
    headline = next(iter(results[REFERENCE][0].metrics), names[0] if names else "metric")
    lines = [
        f"| case | H | M | segments | round (s) | micro-batches that arrived (%) | simulated time (s) "
        f"| final loss (nat) | final {headline} | time to loss {target:.3f} (s) |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, runs in results.items():
        case = CASES[name]
        mean = 100.0 * np.mean([np.mean(one.survival) for one in runs])
        least = 100.0 * np.mean([one.survival for one in runs], axis=0).min()
        lines.append(
            f"| {title_of(name)} | {case.overrides.get('workload.local_steps', 1)} | {case.micro_batches} "
            f"| {np.mean([one.segments for one in runs]):.1f} | {interval([o.delay for o in runs], '.2f')} "
            f"| {mean:.0f}, worst cluster {least:.0f} | {interval([o.seconds[-1] for o in runs], '.0f')} "
            f"| {interval([o.loss[-1] for o in runs], '.4f')} "
            f"| {interval([o.metrics[headline][-1] for o in runs], '.3f')} "
            f"| {kept.reached([kept.time_to_loss(one, target) for one in runs])} |"
        )
    rounds = results[REFERENCE][0].rounds[-1]
    seeds = max(len(runs) for runs in results.values())
    lines.append(f"\n{rounds} rounds, {seeds} seeds; 95 % bootstrap intervals over seeds.")
    return "\n".join(lines)


def title_of(name: str) -> str:
    """A case's name outside its panel."""
    if name == REFERENCE:
        return "reference: all devices, weak interference, IID"
    return CASES[name].title.replace("strong", "strong interference", not name.endswith("skewed"))


def draw(results: Mapping[str, Sequence[RunResult]], title: str) -> Figure:
    """Evaluation loss against simulated time, a panel for each thing that differs."""
    figure = new_figure(12.5, 8.2)
    for axes, (name, cases) in zip(figure.subplots(2, 2).ravel(), PANELS.items(), strict=True):
        ends = []
        for case, alias in cases.items():
            if case in results:
                colour = COLOURS[list(cases).index(case)]
                ends.append((*_curve(axes, results[case], colour), alias or CASES[case].title, colour))
        losses = [loss for case in cases for one in results.get(case, ()) for loss in one.loss]
        if spread(losses) > WIDE:
            log_axis(axes, "y")
        _label(axes, ends)
        axes.set_title(name, loc="left", fontsize=10.5)
        axes.set_xlabel("simulated time (s)")
        axes.set_ylabel("evaluation loss (nat)" + (", logarithmic" if axes.get_yscale() == "log" else ""))
    figure.suptitle(
        f"{title}: mean over seeds, band from the least to the greatest", x=0.01, ha="left", fontsize=11
    )
    return figure


def _curve(axes: Axes, runs: Sequence[RunResult], colour: str) -> tuple[float, float]:
    """Draw a case, its seeds joined round by round; returns where it ends."""
    seconds = np.mean([one.seconds for one in runs], axis=0)
    losses = np.array([one.loss for one in runs])
    axes.fill_between(seconds, losses.min(axis=0), losses.max(axis=0), color=colour, alpha=0.15, linewidth=0)
    mean = losses.mean(axis=0)
    axes.plot(seconds, mean, color=colour, linewidth=1.5)
    axes.plot(seconds[-1], mean[-1], color=colour, marker="o", markersize=4.5)
    return float(seconds[-1]), float(mean[-1])


def _label(axes: Axes, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Write the curves' names in a column beside them, in the order of their ends, and join both."""
    longest = max(end[0] for end in ends)
    axes.set_xlim(0.0, 1.02 * longest)
    axes.figure.canvas.draw()  # settles the limits, by which places are told
    below = -np.inf
    for x, y, name, colour in sorted(ends, key=lambda end: end[1]):
        height = axes.transAxes.inverted().transform(axes.transData.transform((x, y)))[1]
        below = max(height, below + 0.062)
        axes.annotate(
            name, (x, y), xytext=(1.03, below), textcoords="axes fraction", color=colour, fontsize=8.5,
            va="center", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.6, "shrinkA": 1, "shrinkB": 3},
        )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
