"""The effect of the allocation on learning: trainings under allocations that differ in one thing at a time.

Number of segments, number of micro-batches, interference with lost micro-batches, and skew of the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from generated_parts import markdown_table

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.episode import HELD_OUT_SEED
from collapipe_env.evaluation.plan import EvaluationPlan
from collapipe_env.evaluation.plotting import COLOURS, log_axis, new_figure, spread
from collapipe_env.evaluation.runner import decisions_of
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.record import RoundRecord
from collapipe_env.tasks import get_task
from studies import learning_runs as kept
from studies.learning_runs import Curve, Training, interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
EVEN = "pipeline"
"""Even split over all devices, M = 4."""


@dataclass(frozen=True)
class Case:
    """One line of the table.

    Attributes:
        title: Title in table and figure.
        overrides: Changes of the scenario.
        scheduler: Scheduler that allocates.
        micro_batches: Number of micro-batches that it uses.
    """

    title: str
    overrides: Mapping[str, object] = field(default_factory=dict)
    scheduler: str = EVEN
    micro_batches: int = 4


CASES: Mapping[str, Case] = {
    REFERENCE: Case("reference"),
    "fewest": Case("fewest devices", scheduler="fixed_plans:FewestDevices"),
    "one": Case("M = 1", scheduler="fixed_plans:OneMicroBatch", micro_batches=1),
    "many": Case("M = 64", scheduler="fixed_plans:ManyMicroBatches", micro_batches=64),
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
class Trained:
    """All runs of a case.

    Attributes:
        curves: Their evaluations.
        delays: Mean round delays [s].
        metrics: Final headline metrics.
        arrived: Share of each cluster's micro-batches that arrived, over all runs (N,).
        segments: Mean number of devices that hold a segment in a cluster.
    """

    curves: Sequence[Curve]
    delays: Sequence[float]
    metrics: Sequence[float]
    arrived: FloatArray
    segments: float


def followed(plan: EvaluationPlan, scheduler: str, episode: int) -> Iterator[tuple[RoundRecord, float]]:
    """Play the decisions of a finished episode again under the surrogate: each round, and its smoothed loss.

    The learner does not affect the system, so delays and arrivals are those of the episode.

    Args:
        plan: The evaluation that was played.
        scheduler: Name of the scheduler that decided.
        episode: Number of the episode.
    """
    env = CollaPipeVectorEnv(
        num_envs=1,
        scenario=plan.scenario.with_overrides({"dynamics.target_loss": None}),
        learner="surrogate",
        reward="delay",
        autoreset_mode="Disabled",
        max_episode_steps=plan.rounds,
    )
    env.reset(seed=HELD_OUT_SEED + episode)
    for allocation in decisions_of(plan, scheduler, episode):
        env.step_allocation(allocation.map(lambda array: array[None]))
        assert env.last_round is not None
        yield env.last_round, float(env.state.loss[0])


def study(entry: Mapping[str, Any], quick: bool) -> str:
    """The table; the picture goes to ``docs/images``."""
    options = Training.of(entry, quick, "learning")
    scenario = options.whole(entry["task"])
    results = trained(options, scenario)
    kept.drawn(options, draw(results, f"{scenario.name}, {scenario.workload.task}"), FIGURE)
    return kept.stamped(table(results, options, scenario))


def trained(options: Training, scenario: Scenario) -> dict[str, Trained]:
    """Train what is not finished, and return every case."""
    common = {**BASE, **kept.evaluations(options.rounds, 30)}
    plans = {
        name: kept.planned(
            options, name, scenario.with_overrides({**common, **case.overrides}), case.scheduler
        )
        for name, case in CASES.items()
    }
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
    """Share of each cluster's micro-batches that arrived (N,), and devices with a segment in a cluster."""
    arrived, segments = [], []
    for seed in range(plan.episodes):
        for record, _ in followed(plan, plan.schedulers[0], seed):
            arrived.append(record.surviving_fraction()[0])
            segments.append(float((record.allocation.blocks > 0).sum(axis=-1).mean()))
    return np.mean(arrived, axis=0), float(np.mean(segments))


def common_loss(results: Mapping[str, Trained]) -> float:
    """The loss [nat] at which the reference has completed ``SHARE`` of its fall, by means over seeds."""
    first, last = np.mean([one.loss[[0, -1]] for one in results[REFERENCE].curves], axis=0)
    return float(first - SHARE * (first - last))


def table(results: Mapping[str, Trained], options: Training, scenario: Scenario) -> str:
    """All cases in Markdown."""
    target, headline = common_loss(results), get_task(scenario.workload.task).metrics[0]
    heads = (
        "case", "H", "M", "segments", "round (s)", "micro-batches that arrived (%)", "simulated time (s)",
        "final loss (nat)", f"final {headline}", f"time to loss {target:.3f} (s)",
    )  # fmt: skip
    rows = [
        (
            title_of(name),
            CASES[name].overrides.get("workload.local_steps", 1),
            CASES[name].micro_batches,
            f"{one.segments:.1f}",
            interval(one.delays, ".2f"),
            f"{100.0 * one.arrived.mean():.0f}, worst cluster {100.0 * one.arrived.min():.0f}",
            interval([curve.seconds[-1] for curve in one.curves], ".0f"),
            interval([curve.loss[-1] for curve in one.curves], ".4f"),
            interval(one.metrics, ".3f"),
            kept.reached([kept.time_to_loss(curve, target) for curve in one.curves]),
        )
        for name, one in results.items()
    ]
    sizes = f"{options.rounds} rounds, {options.episodes} seeds"
    return f"{markdown_table(heads, rows)}\n\n{sizes}; 95 % bootstrap intervals over seeds."


def title_of(name: str) -> str:
    """A case's name outside its panel."""
    if name == REFERENCE:
        return "reference: all devices, weak interference, IID"
    return CASES[name].title.replace("strong", "strong interference", not name.endswith("skewed"))


def draw(results: Mapping[str, Trained], title: str) -> Figure:
    """Evaluation loss against simulated time, a panel for each thing that differs."""
    figure = new_figure(12.5, 8.2)
    for axes, (name, cases) in zip(figure.subplots(2, 2).ravel(), PANELS.items(), strict=True):
        ends = []
        for colour, (case, alias) in zip(COLOURS, cases.items(), strict=False):
            curves = results[case].curves
            seconds = np.mean([one.seconds for one in curves], axis=0)
            mean = kept.band(axes, seconds, [one.loss for one in curves], colour)
            axes.plot(seconds[-1], mean[-1], color=colour, marker="o", markersize=4.5)
            ends.append((float(seconds[-1]), float(mean[-1]), alias or CASES[case].title, colour))
        losses = [float(loss) for case in cases for one in results[case].curves for loss in one.loss]
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


def _label(axes: Axes, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Write the curves' names in a column beside them, in the order of their ends, and join both."""
    longest = max(end[0] for end in ends)
    axes.set_xlim(0.0, 1.02 * longest)
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
