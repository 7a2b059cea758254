"""Pictures of a comparison, with a panel for each scenario."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from collapipe_env.evaluation.comparison import ScenarioComparison, notes
from collapipe_env.evaluation.delay_profile import delay_profile
from collapipe_env.evaluation.learning_curve import learning_curve
from collapipe_env.evaluation.panels import (
    Comparisons,
    Legend,
    Looks,
    band,
    line_style,
    most_episodes,
    name_rows,
    panels_of,
    widest_name,
)
from collapipe_env.evaluation.pareto import pareto_front
from collapipe_env.evaluation.plotting import (
    DASHES,
    FAINT,
    INK,
    MUTED,
    RC,
    WARNING,
    footer,
    line_key,
    log_axis,
    save,
    spread,
    spread_keys,
    whole_numbers,
)
from collapipe_env.evaluation.resampling import Estimate
from collapipe_env.evaluation.run_directory import folder_name
from collapipe_env.evaluation.statistics import Summary, measure_name
from collapipe_env.evaluation.typical_rounds import gantt_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE = 8.0
"""Ratio of the largest to the smallest value beyond which an axis is logarithmic."""
DOTS = 250
"""Most dots in a row of the memory picture."""
SQUARE = (5.0, 4.3)
"""Width and height of a panel with two scales [inch]."""


def comparison_pictures(
    comparisons: Comparisons, gantt: Sequence[str] = (), history: Sequence[Mapping[str, float]] = ()
) -> dict[str, Callable[[Path], None]]:
    """Functions that draw all pictures, by name, the most interesting picture first.

    Args:
        comparisons: One for each scenario that some scheduler could play.
        gantt: Schedulers whose typical rounds are drawn side by side; empty for the best few.
        history: Validations of the training of the agent that plays in the only scenario; may be empty.
    """
    if not comparisons:
        return {}
    makers: dict[str, Callable[[], Figure]] = {
        "delay": lambda: delay_bars(comparisons),
        "energy_delay": lambda: energy_against_delay(comparisons),
        "delay_cdf": lambda: delay_distribution(comparisons),
        "delay_per_round": lambda: over_rounds(comparisons, "delay", "round delay (s)"),
        "backlog": lambda: over_rounds(comparisons, "backlog", "energy queues, sum of z (budgets)"),
        "memory": lambda: memory_per_device(comparisons),
        "loss_time": lambda: loss_over_time(comparisons),
    }
    if all(math.isfinite(e.energy_j[-1]) for c in comparisons for es in c.results.values() for e in es):
        makers["loss_energy"] = lambda: loss_over_energy(comparisons)
    held = [comparison for comparison in comparisons if comparison.reference in comparison.results]
    if held:
        makers["delay_profile"] = lambda: delay_profile(held)
    if len(history) > 1:
        makers["learning_curve"] = lambda: learning_curve(
            history, comparisons[0].summaries, comparisons[0].name
        )
    explained = notes(comparisons)
    drawers: dict[str, Callable[[Path], None]] = {
        name: partial(_draw, make, explained) for name, make in makers.items()
    }
    for comparison in comparisons:
        make = partial(gantt_figure, comparison, gantt)
        drawers[f"gantt-{folder_name(comparison.name)}"] = partial(_draw, make, ())
    return drawers


def _draw(make: Callable[[], Figure], explained: Sequence[str], path: Path) -> None:
    import matplotlib

    with matplotlib.rc_context(RC):
        figure = make()
        footer(figure, explained)
        save(figure, path)


def delay_bars(comparisons: Comparisons) -> Figure:
    """Priced delay with its interval, the mean round delay, and the energy over budget in words."""
    most = max(len(c.summaries) + len(c.impossible) for c in comparisons)
    size = 4.9 + widest_name(comparisons), 0.34 * most + 1.5
    return panels_of(comparisons, size, _delay_panel, title="{}: priced delay and energy")


def _delay_panel(axes: Axes, comparison: ScenarioComparison, looks: Looks) -> None:
    lines = comparison.summaries
    measures = [s.measure.mean for s in lines]
    ends = [float(np.nanmax([s.measure.mean, s.measure.high])) for s in lines]
    # One poor scheduler would squeeze the others against the axis: its bar is cut and marked.
    limit = min(max(ends), 2.5 * float(np.median(measures)))
    for y, summary in enumerate(lines):
        _delay_bar(axes, y, summary, limit, looks[summary.scheduler].colour)
    for y in range(len(lines), len(lines) + len(comparison.impossible)):
        axes.annotate(
            "not possible", (0.0, y), xytext=(4, 0), textcoords="offset points", va="center", color=FAINT
        )
    name_rows(axes, [*(s.label for s in lines), *comparison.impossible])
    axes.set_xlim(0.0, 1.85 * limit)
    axes.set_xticks([tick for tick in axes.get_xticks() if 0.0 <= tick <= 1.05 * limit])
    axes.set_xlabel(
        f"{measure_name(lines)} (s); whisker: 95 % bootstrap interval{_tick_note(lines)}\n"
        f"energy: worst node's mean against its budget; red: over its energy budget",
        fontsize=8.5,
    )


def _delay_bar(axes: Axes, y: int, summary: Summary, limit: float, colour: str) -> None:
    mean, delay = summary.measure, summary.delay_mean.mean
    shown = min(mean.mean, limit)
    axes.barh(y, shown, height=0.62, color=colour)
    if mean.mean > limit:
        axes.plot([0.97 * limit, 0.985 * limit], [y + 0.4, y - 0.4], color="white", linewidth=2.5)
    elif not math.isnan(mean.low):
        error = [[max(mean.mean - mean.low, 0.0)], [max(min(mean.high, limit) - mean.mean, 0.0)]]
        axes.errorbar(mean.mean, y, xerr=error, color=INK, capsize=3, linewidth=1.1)
    if delay <= limit and not summary.by_progress:
        axes.plot(delay, y, marker="|", markersize=12, color=INK, markeredgewidth=1.5)
    end = shown if math.isnan(mean.high) else max(shown, min(mean.high, limit))
    axes.annotate(
        f"{_short(mean.mean)} s, energy {100.0 * summary.energy_excess.mean:+.1f} %",
        (end, y),
        xytext=(8, 0),
        textcoords="offset points",
        va="center",
        fontsize=8.5,
        color=WARNING if summary.gate.failed else INK,
    )


def _tick_note(summaries: Sequence[Summary]) -> str:
    return "" if any(summary.by_progress for summary in summaries) else ", tick: mean round delay"


def energy_against_delay(comparisons: Comparisons) -> Figure:
    """Worst node's mean energy over its budget against the mean round delay, with the Pareto front."""
    extra = [
        line_key("Pareto front", marker="o", markersize=11, markerfacecolor="none", markeredgecolor=INK),
        line_key("budget", color=MUTED, linestyle=DASHES),
    ]
    if any(not math.isnan(s.delay_mean.low) for c in comparisons for s in c.summaries):
        extra.append(
            line_key("95 % bootstrap interval", color=INK, marker="+", markersize=11, linestyle="none")
        )
    return panels_of(comparisons, SQUARE, _energy_panel, legend=Legend(extra, lines=False))


def _energy_panel(axes: Axes, comparison: ScenarioComparison, looks: Looks) -> None:
    points = [(s.delay_mean.mean, 1.0 + s.energy_excess.mean) for s in comparison.summaries]
    for summary, (x, y) in zip(comparison.summaries, points, strict=True):
        look = looks[summary.scheduler]
        axes.errorbar(
            x, y, xerr=_error(summary.delay_mean), yerr=_error(summary.energy_excess),
            color=look.colour, marker=look.marker, markersize=7.5, linestyle="none", elinewidth=1.0,
            markeredgecolor="white", markeredgewidth=0.6,
        )  # fmt: skip
    front = [points[i] for i in pareto_front(points)]
    axes.plot(*zip(*front, strict=True), color=FAINT, linewidth=1.2, drawstyle="steps-post", zorder=1)
    axes.plot(
        *zip(*front, strict=True),
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


def delay_distribution(comparisons: Comparisons) -> Figure:
    """Cumulative distribution of the round delay over all rounds of all episodes."""
    return panels_of(comparisons, SQUARE, _distribution_panel, legend=Legend())


def _distribution_panel(axes: Axes, comparison: ScenarioComparison, looks: Looks) -> None:
    everything = []
    for summary in comparison.summaries:
        look = looks[summary.scheduler]
        delays = np.sort(np.concatenate([e.delay for e in comparison.results[summary.scheduler]]))
        share = np.arange(1, len(delays) + 1) / len(delays)
        axes.step(
            np.concatenate(([delays[0]], delays)), np.concatenate(([0.0], share)), where="post",
            linewidth=1.5, **line_style(look, len(delays), 5),
        )  # fmt: skip
        everything += [float(delays[0]), float(np.percentile(delays, 99.5))]
    axes.set_xlim(0.95 * min(everything), 1.03 * max(everything))
    if spread(everything) > WIDE:
        log_axis(axes, "x")
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
            band(axes, rounds, values, looks[summary.scheduler], 10)
            lowest, highest = min(lowest, float(values.min())), max(highest, float(values.max()))
        if spread([lowest, highest]) > WIDE and lowest > 0.0:
            log_axis(axes, "y")  # one poor scheduler would squeeze the others against the axis
        else:
            axes.set_ylim(bottom=0.0)
        axes.margins(x=0.01)
        whole_numbers(axes)
        axes.set_xlabel("round")
        axes.set_ylabel(label)

    return panels_of(comparisons, SQUARE, panel, legend=Legend(spread_keys(most_episodes(comparisons))))


def memory_per_device(comparisons: Comparisons) -> Figure:
    """Peak memory of every device in every episode against what the device offers."""
    most = max(len(c.summaries) for c in comparisons)
    size = 4.7 + widest_name(comparisons), 0.34 * most + 1.5
    panel = partial(_memory_panel, random=np.random.default_rng(0))
    return panels_of(comparisons, size, panel, title="{}: memory of every device")


def _memory_panel(
    axes: Axes, comparison: ScenarioComparison, looks: Looks, random: np.random.Generator
) -> None:
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
    name_rows(axes, [s.label for s in comparison.summaries])
    axes.set_xlim(-3.0, 155.0)
    axes.set_xticks([0, 25, 50, 75, 100])
    axes.set_xlabel(
        "peak memory, % of what the device offers; dot: a device in an episode\n"
        "bar: middle half of the devices, tick: median; idle: no blocks in any round",
        fontsize=8.5,
    )


def loss_over_time(comparisons: Comparisons) -> Figure:
    """Smoothed evaluation loss against simulated time: the mean over episodes, and their range."""
    panel = partial(_loss_panel, column="delay", unit=60.0, label="simulated time (min)")
    return panels_of(comparisons, SQUARE, panel, legend=Legend(spread_keys(most_episodes(comparisons))))


def loss_over_energy(comparisons: Comparisons) -> Figure:
    """Smoothed evaluation loss against the energy of all nodes: the mean over episodes, and their range."""
    panel = partial(_loss_panel, column="energy_j", unit=1e3, label="energy of all nodes (kJ)")
    return panels_of(comparisons, SQUARE, panel, legend=Legend(spread_keys(most_episodes(comparisons))))


def _loss_panel(
    axes: Axes, comparison: ScenarioComparison, looks: Looks, *, column: str, unit: float, label: str
) -> None:
    ends, reached = [], []
    for summary in comparison.summaries:
        spent, losses = mean_loss_curve(comparison, summary.scheduler, column)
        spent = spent / unit
        band(axes, spent, losses, looks[summary.scheduler], 6)
        ends.append(float(spent[-1]))
        below = np.flatnonzero(losses.mean(axis=0) <= comparison.target)
        reached += [float(spent[below[0]])] if below.size else []
    # Rounds long after the target, and the slowest schedulers, would squeeze the rest against the axis.
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
    axes.set_xlabel(label)
    axes.set_ylabel("evaluation loss, smoothed (nat)")


def mean_loss_curve(
    comparison: ScenarioComparison, scheduler: str, column: str = "delay", points: int = 121
) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], np.ndarray[tuple[int, int], np.dtype[np.float64]]]:
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


def _error(estimate: Estimate) -> list[list[float]] | None:
    if math.isnan(estimate.low):
        return None
    return [[max(estimate.mean - estimate.low, 0.0)], [max(estimate.high - estimate.mean, 0.0)]]


def _short(value: float) -> str:
    return f"{value:.3g}" if value < 999.5 else f"{value:.0f}"
