"""Pictures of a comparison, with a panel for each scenario."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from collapipe_env.evaluation.comparison import ScenarioComparison
from collapipe_env.evaluation.comparison_gantt import gantt_figure
from collapipe_env.evaluation.labels import common_labels, notes
from collapipe_env.evaluation.pareto import pareto_front
from collapipe_env.evaluation.plotting import (
    DASHES,
    FAINT,
    INK,
    MUTED,
    RC,
    RED_MEANS,
    Look,
    energy_note,
    footer,
    legend_beside,
    line_key,
    log_axis,
    looks_of,
    name_width,
    new_figure,
    save,
    short_name,
    spread,
    spread_keys,
)
from collapipe_env.evaluation.statistics import Estimate, Summary

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Comparisons = Sequence[ScenarioComparison]
WIDE = 8.0
"""Largest over smallest value beyond which an axis is logarithmic."""
DOTS = 250
"""Most dots in a row of the memory picture."""


def comparison_pictures(
    comparisons: Comparisons, reference: str, gantt: Sequence[str]
) -> dict[str, Callable[[Path], None]]:
    """Names of all pictures, in the order in which they are worth looking at, and who draws them.

    Args:
        comparisons: One for each scenario that somebody could play.
        reference: Name of the scheduler that the others are held against.
        gantt: Schedulers whose typical rounds are drawn side by side; empty for the best few.
    """
    makers: dict[str, Callable[[], Figure]] = {}
    if comparisons:
        makers = {
            "delay": lambda: delay_bars(comparisons),
            "energy_delay": lambda: energy_against_delay(comparisons),
            "delay_cdf": lambda: delay_distribution(comparisons),
            "memory": lambda: memory_per_device(comparisons),
            "loss_time": lambda: loss_over_time(comparisons),
        }
    explained = notes([(c.plan, c.results) for c in comparisons])
    drawers = {name: _drawer(make, explained) for name, make in makers.items()}
    for comparison in comparisons:
        drawers[f"gantt-{comparison.plan.folder.name}"] = _drawer(
            partial(gantt_figure, comparison, reference, gantt), ()
        )
    return drawers


def _drawer(make: Callable[[], Figure], explained: Sequence[str]) -> Callable[[Path], None]:
    def draw(path: Path) -> None:
        import matplotlib

        with matplotlib.rc_context(RC):
            figure = make()
            footer(figure, explained)
            save(figure, path)

    return draw


def delay_bars(comparisons: Comparisons) -> Figure:
    """Mean round delay with its interval, the 95th percentile, and the energy excess in words."""
    most = max(len(c.summaries) + len(c.impossible) for c in comparisons)
    figure, panels = _panels(len(comparisons), 4.9 + _name_width(comparisons), 0.34 * most + 1.5)
    looks = _looks(comparisons)
    for axes, comparison in zip(panels, comparisons, strict=True):
        lines = comparison.summaries
        longest = max(max(s.delay_p95.mean, s.delay_mean.mean) for s in lines)
        # One poor scheduler would press the others onto the axis: its bar is cut and says so.
        limit = min(longest, 2.5 * float(np.median([s.delay_mean.mean for s in lines])))
        for y, summary in enumerate(lines):
            _delay_bar(axes, y, summary, limit, looks[summary.scheduler].colour)
        for y in range(len(lines), len(lines) + len(comparison.impossible)):
            axes.annotate(
                "not possible",
                (0.0, y),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                color=FAINT,
            )
        names = [short_name(name) for name in (*(s.label for s in lines), *comparison.impossible)]
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlim(0.0, 1.85 * limit)
        axes.set_xticks([tick for tick in axes.get_xticks() if 0.0 <= tick <= 1.05 * limit])
        axes.grid(False, axis="y")
        axes.set_xlabel(
            "mean round delay (s); whisker: 95 % bootstrap interval, tick: 95th percentile\n"
            f"energy: worst node's mean against its budget; {RED_MEANS}",
            fontsize=8.5,
        )
        axes.set_title(f"{comparison.name}: round delay and energy", loc="left", fontsize=10.5)
    return figure


def _delay_bar(axes: Axes, y: int, summary: Summary, limit: float, colour: str) -> None:
    mean, p95 = summary.delay_mean, summary.delay_p95.mean
    shown = min(mean.mean, limit)
    axes.barh(y, shown, height=0.62, color=colour)
    if mean.mean > limit:
        axes.plot([0.97 * limit, 0.985 * limit], [y + 0.4, y - 0.4], color="white", linewidth=2.5)
    elif not math.isnan(mean.low):
        error = [[max(mean.mean - mean.low, 0.0)], [max(min(mean.high, limit) - mean.mean, 0.0)]]
        axes.errorbar(mean.mean, y, xerr=error, color=INK, capsize=3, linewidth=1.1)
    if p95 <= limit:
        axes.plot(p95, y, marker="|", markersize=12, color=INK, markeredgewidth=1.5)
    words, ink = energy_note(summary.energy_excess.mean)
    axes.annotate(
        f"{_short(mean.mean)} s, {words}",
        (max(min(p95, limit), shown), y),
        xytext=(8, 0),
        textcoords="offset points",
        va="center",
        fontsize=8.5,
        color=ink,
    )


def energy_against_delay(comparisons: Comparisons) -> Figure:
    """Worst node's time-average energy over its budget against mean round delay, with the Pareto front."""
    figure, panels = _panels(len(comparisons), 5.0, 4.3)
    looks = _looks(comparisons)
    for axes, comparison in zip(panels, comparisons, strict=True):
        lines = comparison.summaries
        points = [(s.delay_mean.mean, 1.0 + s.energy_excess.mean) for s in lines]
        for summary, (x, y) in zip(lines, points, strict=True):
            look = looks[summary.scheduler]
            axes.errorbar(
                x, y, xerr=_error(summary.delay_mean), yerr=_error(summary.energy_excess),
                color=look.colour, marker=look.marker, markersize=7.5, linestyle="none", elinewidth=1.0,
                markeredgecolor="white", markeredgewidth=0.6,
            )  # fmt: skip
        front = pareto_front(points)
        axes.plot(
            *zip(*(points[i] for i in front), strict=True),
            color=FAINT,
            linewidth=1.2,
            drawstyle="steps-post",
            zorder=1,
        )
        axes.plot(
            *zip(*(points[i] for i in front), strict=True),
            linestyle="none", marker="o", markersize=13, markerfacecolor="none", markeredgecolor=INK,
            markeredgewidth=0.9,
        )  # fmt: skip
        axes.axhline(1.0, color=MUTED, linewidth=1.0, linestyle=DASHES)
        axes.margins(0.1)
        for which, values in (("x", [x for x, _ in points]), ("y", [y for _, y in points])):
            if spread(values) > (WIDE / 2.0):
                log_axis(axes, which)
        axes.set_xlabel("mean round delay (s)")
        axes.set_ylabel("worst node's mean energy / budget")
        axes.set_title(comparison.name, loc="left", fontsize=10.5)
    extra = [
        line_key("Pareto front", marker="o", markersize=11, markerfacecolor="none", markeredgecolor=INK),
        line_key("budget", color=MUTED, linestyle=DASHES),
    ]
    if any(not math.isnan(s.delay_mean.low) for c in comparisons for s in c.summaries):
        extra.append(
            line_key("95 % bootstrap interval", color=INK, marker="+", markersize=11, linestyle="none")
        )
    _legend(figure, comparisons, lines=False, extra=extra)
    return figure


def delay_distribution(comparisons: Comparisons) -> Figure:
    """Cumulative distribution of the round delay over all rounds of all episodes."""
    figure, panels = _panels(len(comparisons), 5.0, 4.3)
    looks = _looks(comparisons)
    for axes, comparison in zip(panels, comparisons, strict=True):
        everything = []
        for summary in comparison.summaries:
            look = looks[summary.scheduler]
            delays = np.sort(np.concatenate([e.delay for e in comparison.results[summary.scheduler]]))
            share = np.arange(1, len(delays) + 1) / len(delays)
            axes.step(
                np.concatenate(([delays[0]], delays)), np.concatenate(([0.0], share)), where="post",
                color=look.colour, linestyle=look.line, linewidth=1.5, marker=look.marker, markersize=4.5,
                markevery=max(len(delays) // 5, 1),
            )  # fmt: skip
            everything += [float(delays[0]), float(np.percentile(delays, 99.5))]
        axes.set_xlim(0.95 * min(everything), 1.03 * max(everything))
        if spread(everything) > WIDE:
            log_axis(axes, "x")
        axes.set_ylim(0.0, 1.02)
        axes.set_xlabel("round delay (s)")
        axes.set_ylabel("share of rounds")
        axes.set_title(comparison.name, loc="left", fontsize=10.5)
    _legend(figure, comparisons)
    return figure


def memory_per_device(comparisons: Comparisons) -> Figure:
    """Peak memory of every device in every episode against what the device offers."""
    most = max(len(c.summaries) for c in comparisons)
    figure, panels = _panels(len(comparisons), 4.7 + _name_width(comparisons), 0.34 * most + 1.5)
    looks = _looks(comparisons)
    random = np.random.default_rng(0)
    for axes, comparison in zip(panels, comparisons, strict=True):
        for y, summary in enumerate(comparison.summaries):
            episodes = comparison.results[summary.scheduler]
            used = np.array([e.device_memory_bytes for e in episodes])
            offered = np.array([e.offered_memory_bytes for e in episodes])
            share = 100.0 * used[offered > 0.0] / offered[offered > 0.0]
            colour = looks[summary.scheduler].colour
            low, middle, high = np.percentile(share, [25, 50, 75])
            axes.barh(y, high - low, left=low, height=0.66, color=colour, alpha=0.22)
            dots = share if share.size <= DOTS else random.choice(share, DOTS, replace=False)
            axes.plot(
                dots, y + random.uniform(-0.24, 0.24, dots.size), ".", color=colour, alpha=0.7,
                markersize=4.5, markeredgewidth=0.0,
            )  # fmt: skip
            axes.plot(middle, y, marker="|", markersize=13, color=INK, markeredgewidth=1.6)
            idle = f", {100.0 * float(np.mean(share == 0.0)):.0f} % idle" if (share == 0.0).any() else ""
            axes.annotate(
                f"most {used.max() / 1e6:.0f} MB{idle}", (103.0, y), va="center", fontsize=8.5, color=INK
            )
        axes.axvline(100.0, color=MUTED, linewidth=1.0, linestyle=DASHES)
        axes.set_yticks(range(len(comparison.summaries)), [short_name(s.label) for s in comparison.summaries])
        axes.set_ylim(len(comparison.summaries) - 0.4, -0.6)
        axes.set_xlim(-3.0, 155.0)
        axes.set_xticks([0, 25, 50, 75, 100])
        axes.grid(False, axis="y")
        axes.set_xlabel(
            "peak memory, % of what the device offers; dot: a device in an episode\n"
            "bar: middle half of the devices, tick: median; idle: no blocks in any round",
            fontsize=8.5,
        )
        axes.set_title(f"{comparison.name}: memory of every device", loc="left", fontsize=10.5)
    return figure


def loss_over_time(comparisons: Comparisons) -> Figure:
    """Smoothed evaluation loss against simulated time: the mean over episodes, and their range."""
    figure, panels = _panels(len(comparisons), 5.0, 4.3)
    looks = _looks(comparisons)
    for axes, comparison in zip(panels, comparisons, strict=True):
        ends, reached = [], []
        for summary in comparison.summaries:
            look = looks[summary.scheduler]
            minutes, losses = mean_loss_curve(comparison, summary.scheduler)
            axes.fill_between(minutes, losses.min(axis=0), losses.max(axis=0), color=look.colour, alpha=0.12,
                              linewidth=0)  # fmt: skip
            axes.plot(
                minutes, losses.mean(axis=0), color=look.colour, linestyle=look.line, linewidth=1.4,
                marker=look.marker, markersize=4.5, markevery=max(len(minutes) // 6, 1),
            )  # fmt: skip
            ends.append(float(minutes[-1]))
            below = np.flatnonzero(losses.mean(axis=0) <= comparison.target)
            reached += [float(minutes[below[0]])] if below.size else []
        # What comes long after the target, and the slowest few, would press the rest onto the axis.
        limits = [max(ends), 1.5 * float(np.median(ends))]
        axes.set_xlim(0.0, min([*limits, *([2.0 * float(np.median(reached))] if reached else [])]))
        if not math.isnan(comparison.target):
            axes.axhline(comparison.target, color=MUTED, linewidth=1.0, linestyle=DASHES)
            axes.annotate(
                f"target {comparison.target:.3f}", (1.0, comparison.target),
                xycoords=("axes fraction", "data"), xytext=(-2, 3), textcoords="offset points", ha="right",
                color=MUTED, fontsize=8.5, zorder=4.0,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.8},
            )  # fmt: skip
        axes.set_xlabel("simulated time (min)")
        axes.set_ylabel("evaluation loss, smoothed (nat)")
        axes.set_title(comparison.name, loc="left", fontsize=10.5)
    count = max(len(episodes) for c in comparisons for episodes in c.results.values())
    _legend(figure, comparisons, extra=spread_keys(count))
    return figure


def mean_loss_curve(
    comparison: ScenarioComparison, scheduler: str, points: int = 121
) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], np.ndarray[tuple[int, int], np.dtype[np.float64]]]:
    """The smoothed loss of each episode on one grid of simulated time.

    Args:
        comparison: Where the episodes are.
        scheduler: Whose.
        points: Of the grid, which ends with the shortest episode.

    Returns:
        Minutes (points,) and losses (episodes, points): the loss after the last round that was over by then.
    """
    episodes = comparison.results[scheduler]
    grid = np.linspace(0.0, min(sum(e.delay) for e in episodes), points)
    losses = np.empty((len(episodes), points))
    for row, episode in enumerate(episodes):
        over = np.searchsorted(np.cumsum(episode.delay) * (1.0 - 1e-12), grid, side="right")
        losses[row] = np.array([episode.initial_loss, *episode.smoothed_loss])[over]
    return grid / 60.0, losses


def _panels(count: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """A figure with panels, two or three in a row, each of that size in inches."""
    columns = 2 if count in (2, 4) else min(count, 3)
    rows = math.ceil(count / columns)
    figure = new_figure(width * columns, height * rows)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for spare in panels[count:]:
        spare.remove()
    return figure, panels[:count]


def _legend(
    figure: Figure, comparisons: Comparisons, *, lines: bool = True, extra: Sequence[Artist] = ()
) -> None:
    """All schedulers beside the panels, once."""
    labels = common_labels([s for c in comparisons for s in c.summaries])
    looks = _looks(comparisons)
    handles = [
        line_key(
            short_name(label), color=looks[name].colour, marker=looks[name].marker,
            linestyle=looks[name].line if lines else "none",
        )
        for name, label in labels.items()
    ]  # fmt: skip
    legend_beside(figure, [*handles, *extra], handle_length=2.6 if lines else 1.4)


def _looks(comparisons: Comparisons) -> dict[str, Look]:
    """The looks of all schedulers of a comparison, the same in each of its pictures."""
    return looks_of(s.scheduler for c in comparisons for s in c.summaries)


def _name_width(comparisons: Comparisons) -> float:
    """Inches that the longest name beside a panel needs."""
    return name_width(name for c in comparisons for name in (*(s.label for s in c.summaries), *c.impossible))


def _error(estimate: Estimate) -> list[list[float]] | None:
    if math.isnan(estimate.low):
        return None
    return [[max(estimate.mean - estimate.low, 0.0)], [max(estimate.high - estimate.mean, 0.0)]]


def _short(value: float) -> str:
    return f"{value:.3g}" if value < 999.5 else f"{value:.0f}"
