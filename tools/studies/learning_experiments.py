"""The effect of the allocation on learning: trainings under allocations that differ in one thing at a time.

The entry lists the cases, each with changes of the scenario (``with``), scheduler and number of
micro-batches, and the panels of the picture, with the names that the cases have there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from generated_parts import markdown_table

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.episode import HELD_OUT_SEED
from collapipe_env.evaluation.plan import EvaluationPlan
from collapipe_env.evaluation.plotting import COLOURS, log_axis, new_figure, spread
from collapipe_env.evaluation.runner import decisions_of
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.scenario import Scenario
from collapipe_env.tasks import get_task
from studies import learning_runs as kept
from studies.learning_runs import Curve, Training, interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FIGURE = "loss_over_time.png"
SHARE = 0.9
"""Share of the reference's fall of the loss at which the common loss lies."""
WIDE = 3.0
"""Largest over smallest loss beyond which a panel's axis is logarithmic."""
Entry = Mapping[str, Any]


class Trained(NamedTuple):
    """All runs of a case: evaluations, mean delays [s], final metrics; see :func:`arrivals_and_segments`."""

    curves: Sequence[Curve]
    delays: Sequence[float]
    metrics: Sequence[float]
    arrived: FloatArray
    segments: float


def study(entry: Entry, quick: bool) -> str:
    """The table; the picture goes to ``docs/images``."""
    options = Training.of(entry, quick, "learning")
    scenario = options.whole(entry["task"])
    results = trained(entry, options, scenario)
    kept.drawn(options, draw(entry, results, f"{scenario.name}, {scenario.workload.task}"), FIGURE)
    return kept.stamped(table(entry, results, options, scenario))


def trained(entry: Entry, options: Training, scenario: Scenario) -> dict[str, Trained]:
    """Train what is not finished, and return every case; the first one is the reference."""
    common = {**entry["with"], **kept.evaluations(options.rounds, 30)}
    plans = {}
    for name, case in entry["cases"].items():
        changed = scenario.with_overrides({**common, **case.get("with", {})})
        plans[name] = kept.planned(options, name, changed, case.get("scheduler", "pipeline"))
    found = {}
    for name, runs in kept.train(plans, options.processes).items():
        every = plans[name].scenario.learning.evaluate_every
        found[name] = Trained(
            [kept.curve(one, every) for one in runs],
            [float(np.mean(one.delay)) for one in runs],
            [one.metric[-1] for one in runs],
            *arrivals_and_segments(plans[name]),
        )
    return found


def arrivals_and_segments(plan: EvaluationPlan) -> tuple[FloatArray, float]:
    """Share of each cluster's micro-batches that arrived (N,), and devices with a segment in a cluster.

    The decisions are played again under the surrogate: the learner does not affect the system.
    """
    arrived, segments = [], []
    for episode in range(plan.episodes):
        env = CollaPipeVectorEnv(
            num_envs=1,
            scenario=plan.scenario.with_overrides({"dynamics.target_loss": None}),
            learner="surrogate",
            reward="delay",
            autoreset_mode="Disabled",
            max_episode_steps=plan.rounds,
        )
        env.reset(seed=HELD_OUT_SEED + episode)
        for allocation in decisions_of(plan, plan.schedulers[0], episode):
            env.step_allocation(allocation.map(lambda array: array[None]))
            arrived.append(env.last_round.surviving_fraction()[0])
            segments.append(float((allocation.blocks > 0).sum(axis=-1).mean()))
    return np.mean(arrived, axis=0), float(np.mean(segments))


def table(entry: Entry, results: Mapping[str, Trained], options: Training, scenario: Scenario) -> str:
    """All cases in Markdown."""
    reference = next(iter(results.values()))
    first, last = np.mean([one.loss[[0, -1]] for one in reference.curves], axis=0)
    target, headline = float(first - SHARE * (first - last)), get_task(scenario.workload.task).metrics[0]
    heads = (
        "case", "H", "M", "segments", "round (s)", "micro-batches that arrived (%)", "simulated time (s)",
        "final loss (nat)", f"final {headline}", f"time to loss {target:.3f} (s)",
    )  # fmt: skip
    rows = []
    for name, one in results.items():
        case = entry["cases"][name]
        rows.append(
            (
                case["title"],
                case.get("with", {}).get("workload.local_steps", 1),
                case.get("micro_batches", 4),
                f"{one.segments:.1f}",
                interval(one.delays, ".2f"),
                f"{100.0 * one.arrived.mean():.0f}, worst cluster {100.0 * one.arrived.min():.0f}",
                interval([curve.seconds[-1] for curve in one.curves], ".0f"),
                interval([curve.loss[-1] for curve in one.curves], ".4f"),
                interval(one.metrics, ".3f"),
                kept.reached([kept.time_to_loss(curve, target) for curve in one.curves]),
            )
        )
    sizes = f"{options.rounds} rounds, {options.episodes} seeds"
    return f"{markdown_table(heads, rows)}\n\n{sizes}; 95 % bootstrap intervals over seeds."


def draw(entry: Entry, results: Mapping[str, Trained], title: str) -> Figure:
    """Evaluation loss against simulated time, a panel for each thing that differs."""
    figure = new_figure(12.5, 8.2)
    for axes, (name, cases) in zip(figure.subplots(2, 2).ravel(), entry["panels"].items(), strict=True):
        ends = []
        for colour, (case, label) in zip(COLOURS, cases.items(), strict=False):
            curves = results[case].curves
            seconds = np.mean([one.seconds for one in curves], axis=0)
            mean = kept.band(axes, seconds, [one.loss for one in curves], colour)
            axes.plot(seconds[-1], mean[-1], color=colour, marker="o", markersize=4.5)
            ends.append((float(seconds[-1]), float(mean[-1]), label, colour))
        if (
            spread([float(loss) for case in cases for one in results[case].curves for loss in one.loss])
            > WIDE
        ):
            log_axis(axes, "y")
        _label(axes, ends)
        axes.set_title(name, loc="left", fontsize=10.5)
        axes.set_xlabel("simulated time (s)")
        axes.set_ylabel("evaluation loss (nat)" + (", logarithmic" if axes.get_yscale() == "log" else ""))
    about = f"{title}: mean over seeds, band from the least to the greatest"
    figure.suptitle(about, x=0.01, ha="left", fontsize=11)
    return figure


def _label(axes: Axes, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Write the curves' names in a column beside them, in the order of their ends, and join both."""
    axes.set_xlim(0.0, 1.02 * max(end[0] for end in ends))
    axes.figure.canvas.draw()  # settles the limits, on which places depend
    below = -np.inf
    for x, y, name, colour in sorted(ends, key=lambda end: end[1]):
        height = axes.transAxes.inverted().transform(axes.transData.transform((x, y)))[1]
        below = max(height, below + 0.062)
        axes.annotate(
            name, (x, y), xytext=(1.03, below), textcoords="axes fraction", color=colour, fontsize=8.5,
            va="center", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.6, "shrinkA": 1, "shrinkB": 3},
        )  # fmt: skip
