"""Pictures of a comparison, most with a panel for each scenario."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from collapipe_env.evaluation import plotting
from collapipe_env.evaluation.comparison import ScenarioComparison, common_labels, notes
from collapipe_env.evaluation.delay_profile import delay_profile
from collapipe_env.evaluation.episode_result import EpisodeResult
from collapipe_env.evaluation.learning_curve import learning_curve
from collapipe_env.evaluation.looks import Look, Style, looks_of
from collapipe_env.evaluation.plotting import FAINT, INK, MARK, MUTED, WARNING
from collapipe_env.evaluation.resampling import Estimate
from collapipe_env.evaluation.run_directory import folder_name
from collapipe_env.evaluation.statistics import Summary, measure_name
from collapipe_env.evaluation.typical_rounds import gantt_figure

Comparisons = Sequence[ScenarioComparison]
"""One for each scenario that some scheduler could play."""
Looks = Mapping[str, Look]
"""The look of each scheduler by its name."""
RING: Style = {"marker": "o", "markerfacecolor": "none", "markeredgecolor": INK}
"""Markers around schedulers on the Pareto front."""
WIDE = 8.0
"""Ratio of the largest to the smallest value beyond which an axis is logarithmic."""
DOTS = 250
"""Most dots in a row of the memory picture."""
SQUARE = (5.0, 4.3)
"""Width and height of a panel with two scales [inch]."""


def comparison_pictures(
    comparisons: Comparisons,
    gantt: Sequence[str] = (),
    history: Sequence[Mapping[str, float]] = (),
    style: str = "default",
) -> dict[str, Callable[[Path], None]]:
    """Functions that draw all pictures, by name, the most interesting picture first.

    Args:
        comparisons: One for each scenario that some scheduler could play.
        gantt: Schedulers whose typical rounds are drawn side by side; empty for the best few.
        history: Validations of the training of the agent that plays in the only scenario; may be empty.
        style: Name of a style of :data:`~.plotting.STYLES`.
    """
    if not comparisons:
        return {}
    makers: dict[str, Callable[[], Figure]] = {
        "delay": partial(delay_bars, comparisons),
        "energy_delay": partial(energy_against_delay, comparisons),
        "delay_cdf": partial(delay_distribution, comparisons),
        "delay_per_round": partial(over_rounds, comparisons, "delay", "round delay (s)"),
        "backlog": partial(over_rounds, comparisons, "backlog", "energy queues, sum of z (budgets)"),
        "memory": partial(memory_per_device, comparisons),
        "loss_time": partial(loss_over, comparisons, "delay", 60.0, "simulated time (min)"),
    }
    if all(math.isfinite(e.energy_j[-1]) for c in comparisons for es in c.results.values() for e in es):
        makers["loss_energy"] = partial(loss_over, comparisons, "energy_j", 1e3, "energy of all nodes (kJ)")
    held = [comparison for comparison in comparisons if comparison.reference in comparison.results]
    if held:
        makers["delay_profile"] = partial(delay_profile, held)
    if len(history) > 1:
        only = comparisons[0]
        makers["learning_curve"] = partial(learning_curve, history, only.summaries, only.name)
    explained = notes(comparisons)
    drawers = {name: partial(_draw, make, explained, style) for name, make in makers.items()}
    for comparison in comparisons:
        make = partial(gantt_figure, comparison, gantt)
        drawers[f"gantt-{folder_name(comparison.name)}"] = partial(_draw, make, (), style)
    return dict(drawers)


def _draw(make: Callable[[], Figure], explained: Sequence[str], style: str, path: Path) -> None:
    with plotting.in_style(style):
        figure = make()
        plotting.footer(figure, explained)
        plotting.save(figure, path)


def _panels(
    comparisons: Comparisons,
    draw: Callable[[Axes, ScenarioComparison, Looks], None],
    size: tuple[float, float] = SQUARE,
    title: str = "{}",
    keys: Sequence[Artist] | None = (),
    lines: bool = True,
) -> Figure:
    """A figure with a panel for each scenario, two or three in a row, and a legend of all schedulers.

    Args:
        comparisons: One for each scenario.
        draw: Draws one panel; a scheduler has the same look in all.
        size: Width and height of a panel [inch].
        title: Title of each panel, with a placeholder for the scenario's name.
        keys: Further entries of the legend; ``None`` for no legend.
        lines: Whether the schedulers have lines, or markers alone.
    """
    count = len(comparisons)
    columns = 2 if count in (2, 4) else min(count, 3)
    rows = math.ceil(count / columns)
    figure = plotting.new_figure(size[0] * columns, size[1] * rows)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for spare in panels[count:]:
        spare.remove()
    summaries = [summary for comparison in comparisons for summary in comparison.summaries]
    looks = looks_of(summary.scheduler for summary in summaries)
    for axes, comparison in zip(panels, comparisons, strict=False):
        draw(axes, comparison, looks)
        axes.set_title(title.format(comparison.name), loc="left", fontsize=10.5)
    if keys is not None:
        hidden: Style = {} if lines else {"linestyle": "none"}
        own = [
            plotting.line_key(plotting.short_name(label), **(looks[name].style() | hidden))
            for name, label in common_labels(summaries).items()
        ]
        plotting.legend_beside(figure, [*own, *keys], handle_length=2.6 if lines else 1.4)
    return figure


def _rows_size(comparisons: Comparisons, width: float, counts: Sequence[int]) -> tuple[float, float]:
    """Width and height of a panel with a row for each scheduler [inch]."""
    names = (summary.label for c in comparisons for summary in c.summaries)
    return width + plotting.name_width(names), 0.34 * max(counts) + 1.5


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Write schedulers' names beside horizontal bars, the first on top."""
    axes.set_yticks(range(len(names)), [plotting.short_name(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(False, axis="y")


def _band(axes: Axes, x: Any, values: Any, look: Look, markers: int) -> None:
    """Draw the mean of values (episodes, points) and their range."""
    axes.fill_between(x, values.min(axis=0), values.max(axis=0), color=look.colour, alpha=0.12, linewidth=0)
    axes.plot(x, values.mean(axis=0), linewidth=1.4, **look.along(len(x), markers))


def _band_keys(comparisons: Comparisons) -> list[Artist]:
    """Legend entries for lines of means with bands over episodes; none for a single episode."""
    episodes = max(len(episodes) for c in comparisons for episodes in c.results.values())
    if episodes == 1:
        return []
    label = f"lowest to highest of {episodes} episodes"
    band = Patch(facecolor=FAINT, alpha=0.3, linewidth=0, label=label)
    return [plotting.line_key("mean over episodes"), band]


def delay_bars(comparisons: Comparisons) -> Figure:
    """Priced delay with its interval, the mean round delay, and the energy over budget in words."""
    size = _rows_size(comparisons, 4.9, [len(c.summaries) for c in comparisons])
    return _panels(comparisons, _delay_panel, size, "{}: priced delay and energy", keys=None)


def _delay_panel(axes: Axes, comparison: ScenarioComparison, looks: Looks) -> None:
    lines = comparison.summaries
    ends = [float(np.nanmax([s.measure.mean, s.measure.high])) for s in lines]
    # One poor scheduler would squeeze the others against the axis: its bar is cut and marked.
    limit = min(max(ends), 2.5 * float(np.median([s.measure.mean for s in lines])))
    for y, summary in enumerate(lines):
        _delay_bar(axes, y, summary, limit, looks[summary.scheduler])
    _name_rows(axes, [summary.label for summary in lines])
    axes.set_xlim(0.0, 1.85 * limit)
    axes.set_xticks([tick for tick in axes.get_xticks() if 0.0 <= tick <= 1.05 * limit])
    tick = "" if any(summary.by_progress for summary in lines) else ", tick: mean round delay"
    plotting.row_label(
        axes,
        f"{measure_name(lines)} (s)",
        f"; whisker: 95 % bootstrap interval{tick}\n",
        "energy: worst node's mean against its budget; red: over its energy budget",
    )


def _delay_bar(axes: Axes, y: int, summary: Summary, limit: float, look: Look) -> None:
    mean, delay = summary.measure, summary.delay_mean.mean
    shown = min(mean.mean, limit)
    axes.barh(y, shown, height=0.62, color=look.colour, hatch=look.hatch, edgecolor="white")
    if mean.mean > limit:
        axes.plot([0.97 * limit, 0.985 * limit], [y + 0.4, y - 0.4], color="white", linewidth=2.5)
    elif not math.isnan(mean.low):
        error = [[max(mean.mean - mean.low, 0.0)], [max(min(mean.high, limit) - mean.mean, 0.0)]]
        axes.errorbar(mean.mean, y, xerr=error, color=INK, capsize=3, linewidth=1.1)
    if delay <= limit and not summary.by_progress:
        axes.plot(delay, y, marker="|", markersize=12, color=INK, markeredgewidth=1.5)
    seconds = f"{mean.mean:.3g}" if mean.mean < 999.5 else f"{mean.mean:.0f}"
    axes.annotate(
        f"{seconds} s, energy {100.0 * summary.energy_excess.mean:+.1f} %",
        (shown if math.isnan(mean.high) else max(shown, min(mean.high, limit)), y),
        xytext=(8, 0), textcoords="offset points", va="center", fontsize=8.5,
        color=WARNING if summary.gate.failed else INK,
    )  # fmt: skip


def energy_against_delay(comparisons: Comparisons) -> Figure:
    """Worst node's mean energy over its budget against the mean round delay, with the Pareto front."""
    keys = [plotting.line_key("Pareto front", markersize=11, **RING), plotting.mark_key("budget")]
    if any(not math.isnan(s.delay_mean.low) for c in comparisons for s in c.summaries):
        interval: Style = {"color": INK, "marker": "+", "markersize": 11, "linestyle": "none"}
        keys.append(plotting.line_key("95 % bootstrap interval", **interval))
    return _panels(comparisons, _energy_panel, keys=keys, lines=False)


def _energy_panel(axes: Axes, comparison: ScenarioComparison, looks: Looks) -> None:
    points = [(s.delay_mean.mean, 1.0 + s.energy_excess.mean) for s in comparison.summaries]
    for summary, (x, y) in zip(comparison.summaries, points, strict=True):
        look = looks[summary.scheduler].style(linestyle="none", markersize=7.5, markeredgecolor="white")
        errors: Style = {"xerr": _error(summary.delay_mean), "yerr": _error(summary.energy_excess)}
        axes.errorbar(x, y, **errors, **look, elinewidth=1.0, markeredgewidth=0.6)
    front = list(zip(*(points[i] for i in pareto_front(points)), strict=True))
    axes.plot(*front, color=FAINT, linewidth=1.2, drawstyle="steps-post", zorder=1)
    axes.plot(*front, linestyle="none", markersize=13, markeredgewidth=0.9, **RING)
    axes.axhline(1.0, **MARK)
    axes.margins(0.1)
    for which, values in zip("xy", zip(*points, strict=True), strict=True):
        if plotting.spread(values) > (WIDE / 2.0):
            plotting.log_axis(axes, which)
    axes.set_xlabel("mean round delay (s)")
    axes.set_ylabel("worst node's mean energy / budget")


def _error(estimate: Estimate) -> list[list[float]] | None:
    if math.isnan(estimate.low):
        return None
    return [[max(estimate.mean - estimate.low, 0.0)], [max(estimate.high - estimate.mean, 0.0)]]


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the Pareto front, in order of the first quantity; smaller is better in both.

    A point belongs to the front unless another point is no larger in both quantities and smaller in one.

    Args:
        points: Pairs of finite numbers.
    """
    front: list[int] = []
    for index in sorted(range(len(points)), key=lambda i: points[i]):
        if not front or points[index][1] < points[front[-1]][1] or points[index] == points[front[-1]]:
            front.append(index)
    return front


def delay_distribution(comparisons: Comparisons) -> Figure:
    """Cumulative distribution of the round delay over all rounds of all episodes."""
    return _panels(comparisons, _distribution_panel)


def _distribution_panel(axes: Axes, comparison: ScenarioComparison, looks: Looks) -> None:
    ends = []
    for summary in comparison.summaries:
        delays = np.sort(np.concatenate([e.delay for e in comparison.results[summary.scheduler]]))
        share = np.arange(len(delays) + 1) / len(delays)
        style = looks[summary.scheduler].along(len(delays), 5)
        axes.step(np.concatenate((delays[:1], delays)), share, where="post", linewidth=1.5, **style)
        ends += [float(delays[0]), float(np.percentile(delays, 99.5))]
    axes.set_xlim(0.95 * min(ends), 1.03 * max(ends))
    if plotting.spread(ends) > WIDE:
        plotting.log_axis(axes, "x")
    axes.set_ylim(0.0, 1.02)
    axes.set_xlabel("round delay (s)")
    axes.set_ylabel("share of rounds")


def over_rounds(comparisons: Comparisons, column: str, label: str) -> Figure:
    """One quantity over rounds: the mean over episodes, and their range as a band.

    Args:
        comparisons: One for each scenario.
        column: Name of a list of the episodes' results.
        label: Label of the axis.
    """

    def panel(axes: Axes, comparison: ScenarioComparison, looks: Looks) -> None:
        lowest, highest = math.inf, 0.0
        for summary in comparison.summaries:
            values = np.array([getattr(e, column) for e in comparison.results[summary.scheduler]])
            rounds = np.arange(1, values.shape[1] + 1)
            _band(axes, rounds, values, looks[summary.scheduler], 10)
            lowest, highest = min(lowest, float(values.min())), max(highest, float(values.max()))
        if plotting.spread([lowest, highest]) > WIDE and lowest > 0.0:
            plotting.log_axis(axes, "y")  # one poor scheduler would squeeze the others against the axis
        else:
            axes.set_ylim(bottom=0.0)
        axes.margins(x=0.01)
        plotting.whole_numbers(axes)
        axes.set_xlabel("round")
        axes.set_ylabel(label)

    return _panels(comparisons, panel, keys=_band_keys(comparisons))


def memory_per_device(comparisons: Comparisons) -> Figure:
    """Peak memory of every device in every episode against what the device offers."""
    size = _rows_size(comparisons, 4.7, [len(c.summaries) for c in comparisons])
    random = np.random.default_rng(0)

    def panel(axes: Axes, comparison: ScenarioComparison, looks: Looks) -> None:
        for y, summary in enumerate(comparison.summaries):
            _memory_row(
                axes, y, comparison.results[summary.scheduler], looks[summary.scheduler].colour, random
            )
        axes.axvline(100.0, **MARK)
        _name_rows(axes, [s.label for s in comparison.summaries])
        axes.set_xlim(-3.0, 155.0)
        axes.set_xticks([0, 25, 50, 75, 100])
        plotting.row_label(
            axes,
            "peak memory, % of what the device offers",
            "; dot: a device in an episode\n",
            "bar: middle half of the devices, tick: median; idle: no blocks in any round",
        )

    return _panels(comparisons, panel, size, "{}: memory of every device", keys=None)


def _memory_row(
    axes: Axes, y: int, episodes: Sequence[EpisodeResult], colour: str, random: np.random.Generator
) -> None:
    used = np.array([e.device_memory_bytes for e in episodes])
    offered = np.array([e.offered_memory_bytes for e in episodes])
    share = 100.0 * used[offered > 0.0] / offered[offered > 0.0]
    low, middle, high = np.percentile(share, [25, 50, 75])
    axes.barh(y, high - low, left=low, height=0.66, color=colour, alpha=0.22)
    dots = share if share.size <= DOTS else random.choice(share, DOTS, replace=False)
    look: Style = {"color": colour, "alpha": 0.7, "markersize": 4.5, "markeredgewidth": 0.0}
    axes.plot(dots, y + random.uniform(-0.24, 0.24, dots.size), ".", **look)
    axes.plot(middle, y, marker="|", markersize=13, color=INK, markeredgewidth=1.6)
    idle = f", {100.0 * float(np.mean(share == 0.0)):.0f} % idle" if (share == 0.0).any() else ""
    most = f"most {used.max() / 1e6:.0f} MB{idle}"
    axes.annotate(most, (103.0, y), va="center", fontsize=8.5, color=INK)


def loss_over(comparisons: Comparisons, column: str, unit: float, label: str) -> Figure:
    """Smoothed evaluation loss against what was spent: the mean over episodes, and their range.

    Args:
        comparisons: One for each scenario.
        column: Quantity that rounds take: ``delay`` [s] or ``energy_j`` [J].
        unit: Unit of the axis in that of the column.
        label: Label of the axis.
    """

    def panel(axes: Axes, comparison: ScenarioComparison, looks: Looks) -> None:
        ends, reached = [], []
        for summary in comparison.summaries:
            spent, losses = mean_loss_curve(comparison, summary.scheduler, column)
            spent = spent / unit
            _band(axes, spent, losses, looks[summary.scheduler], 6)
            ends.append(float(spent[-1]))
            reached += spent[losses.mean(axis=0) <= comparison.target][:1].tolist()
        # Rounds long after the target, and the slowest schedulers, would squeeze the rest against the axis.
        limits = [max(ends), 1.5 * float(np.median(ends))]
        axes.set_xlim(0.0, min([*limits, *([2.0 * float(np.median(reached))] if reached else [])]))
        if not math.isnan(comparison.target):
            axes.axhline(comparison.target, **MARK)
            axes.annotate(
                f"target {comparison.target:.3f}", (1.0, comparison.target),
                xycoords=("axes fraction", "data"), xytext=(-2, 3), textcoords="offset points", ha="right",
                color=MUTED, fontsize=8.5, zorder=4.0,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.8},
            )  # fmt: skip
        axes.set_xlabel(label)
        axes.set_ylabel("evaluation loss, smoothed (nat)")

    return _panels(comparisons, panel, keys=_band_keys(comparisons))


def mean_loss_curve(
    comparison: ScenarioComparison, scheduler: str, column: str = "delay", points: int = 121
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The smoothed loss of each episode on a common grid of time or energy.

    Args:
        comparison: The comparison that holds the episodes.
        column: Quantity that rounds take, above 0: ``delay`` [s] or ``energy_j`` [J].
        points: Points of the grid, which ends with the shortest episode.

    Returns:
        The grid (points,) and losses (episodes, points): the loss after the last round that was over by then.
    """
    episodes = comparison.results[scheduler]
    grid = np.linspace(0.0, min(sum(getattr(e, column)) for e in episodes), points)
    losses = np.empty((len(episodes), points))
    for row, episode in enumerate(episodes):
        over = np.searchsorted(np.cumsum(getattr(episode, column)) * (1.0 - 1e-12), grid, side="right")
        losses[row] = np.array([episode.initial_loss, *episode.smoothed_loss])[over]
    return grid, losses
