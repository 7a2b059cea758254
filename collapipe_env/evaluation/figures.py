"""Pictures of an evaluation on one scenario."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from collapipe_env.evaluation.episode import EpisodeResult, replay, typical_round
from collapipe_env.evaluation.episode_files import file_stem
from collapipe_env.evaluation.labels import notes, result_labels
from collapipe_env.evaluation.plotting import (
    DASHES,
    INK,
    MUTED,
    RC,
    RED_MEANS,
    energy_note,
    footer,
    legend_beside,
    line_key,
    looks_of,
    name_width,
    new_figure,
    save,
    short_name,
    spread_keys,
    whole_numbers,
)
from collapipe_env.evaluation.runner import EvaluationPlan, decisions_of
from collapipe_env.evaluation.statistics import Results, Summary
from collapipe_env.schedulers import LEARNED

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_evaluation(
    plan: EvaluationPlan,
    results: Results,
    summaries: Sequence[Summary],
    target: float,
    history: Sequence[Mapping[str, float]],
    folder: Path,
    on_picture: Callable[[], None] = lambda: None,
) -> list[Path]:
    """Draw and save every picture of an evaluation.

    Args:
        plan: What was evaluated.
        results: Each scheduler's episodes.
        summaries: Their summaries, in the order of the table.
        target: Target loss [nat].
        history: Validations of the training, as :meth:`Score.to_dict` gives them; may be empty.
        folder: Where to.
        on_picture: Called after each picture.

    Returns:
        The files, in the order in which they are worth looking at.
    """
    import matplotlib

    for outdated in folder.glob("*.png"):
        outdated.unlink()
    name = plan.scenario.name
    makers: list[tuple[str, Callable[[], Figure]]] = [
        ("delay", lambda: delay_bars(summaries, name)),
        ("delay_per_round", lambda: curves(results, "delay", "round delay (s)", name)),
        ("backlog", lambda: curves(results, "backlog", "energy queues, sum of z (budgets)", name)),
        ("loss", lambda: loss_over_time(results, target, name)),
    ]
    if len(history) > 1:
        makers.append(("learning_curve", lambda: learning_curve(history, summaries, name)))
    files = []
    explained = notes([(plan, results)])
    for stem, make in makers:
        with matplotlib.rc_context(RC):
            figure = make()
            footer(figure, explained)
            files.append(save(figure, folder / f"{stem}.png"))
        on_picture()
    for scheduler in results:
        files.append(
            save(
                typical_round_figure(plan, results[scheduler][0]),
                folder / f"round-{file_stem(scheduler)}.png",
            )
        )
        on_picture()
    return files


def picture_count(results: Results, history: Sequence[Any]) -> int:
    """How many pictures :func:`draw_evaluation` draws."""
    return 4 + (len(history) > 1) + len(results)


def delay_bars(summaries: Sequence[Summary], title: str) -> Figure:
    """Mean round delay with its interval, the 95th percentile, and the energy excess in words."""
    names = [short_name(summary.label) for summary in summaries]
    figure, axes = _figure(6.0 + name_width(names), 0.62 * len(summaries) + 1.9)
    at = np.arange(len(summaries))[::-1]
    looks = looks_of(summary.scheduler for summary in summaries)
    for y, summary in zip(at, summaries, strict=True):
        mean = summary.delay_mean
        axes.barh(y, mean.mean, height=0.55, color=looks[summary.scheduler].colour)
        if not np.isnan(mean.low):
            error = [[max(mean.mean - mean.low, 0.0)], [max(mean.high - mean.mean, 0.0)]]
            axes.errorbar(mean.mean, y, xerr=error, color=INK, capsize=4, linewidth=1.2)
        axes.plot(summary.delay_p95.mean, y, marker="|", markersize=17, color=INK, markeredgewidth=1.6)
        words, colour = energy_note(summary.energy_excess.mean)
        axes.annotate(
            f"{mean.mean:.2f} s, {words}",
            (max(summary.delay_p95.mean, mean.mean), y),
            xytext=(9, 0),
            textcoords="offset points",
            va="center",
            color=colour,
        )
    axes.set_yticks(at, names)
    axes.grid(False, axis="y")
    longest = max(max(s.delay_p95.mean, s.delay_mean.mean) for s in summaries)
    axes.set_xlim(0.0, 1.55 * longest)
    axes.set_ylim(-0.6, len(summaries) - 0.4)
    axes.set_xlabel(
        "mean round delay (s); whisker: 95 % bootstrap interval, tick: 95th percentile\n"
        f"energy: worst node's mean against its budget; {RED_MEANS}"
    )
    axes.set_title(f"{title}: round delay and energy", loc="left", fontsize=10.5)
    return figure


def curves(results: Results, column: str, label: str, title: str) -> Figure:
    """One quantity over rounds: the mean over episodes, and their range as a band."""
    figure, axes = _figure(6.8, 3.9)
    looks, labels = looks_of(results), result_labels(results)
    for name, episodes in results.items():
        values = np.array([getattr(episode, column) for episode in episodes])
        rounds = np.arange(1, values.shape[1] + 1)
        look = looks[name]
        axes.fill_between(
            rounds, values.min(axis=0), values.max(axis=0), color=look.colour, alpha=0.15, linewidth=0
        )
        axes.plot(
            rounds,
            values.mean(axis=0),
            color=look.colour,
            marker=look.marker,
            markevery=max(len(rounds) // 10, 1),
            markersize=4.5,
            linewidth=1.5,
            linestyle=look.line,
            label=short_name(labels[name]),
        )
    axes.set_xlabel("round")
    axes.set_ylabel(label)
    everything = [value for episodes in results.values() for e in episodes for value in getattr(e, column)]
    if min(everything) > 0.0 and max(everything) > 8.0 * min(everything):
        axes.set_yscale("log")  # one poor scheduler would press the others onto the axis
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if str(value)[0] in "25" else "")
    else:
        axes.set_ylim(bottom=0.0)
    axes.margins(x=0.01)
    whole_numbers(axes)
    count = max(len(episodes) for episodes in results.values())
    _legend_beside(figure, axes, title, spread_keys(count))
    return figure


def loss_over_time(results: Results, target: float, title: str) -> Figure:
    """Smoothed evaluation loss against simulated time, one thin line an episode."""
    figure, axes = _figure(6.8, 3.9)
    looks, labels = looks_of(results), result_labels(results)
    for name, episodes in results.items():
        look = looks[name]
        for number, episode in enumerate(episodes):
            minutes = np.concatenate(([0.0], np.cumsum(episode.delay))) / 60.0
            axes.plot(
                minutes,
                [episode.initial_loss, *episode.smoothed_loss],
                color=look.colour,
                linewidth=1.3,
                linestyle=look.line,
                marker=look.marker,
                markersize=4.0,
                markevery=max(len(minutes) // 6, 1),
                alpha=0.85,
                label=short_name(labels[name]) if number == 0 else None,
            )
    extra = []
    if not np.isnan(target):
        axes.axhline(target, color=MUTED, linewidth=1.0, linestyle=DASHES)
        extra.append(line_key(f"target loss {target:.3f}", color=MUTED, linestyle=DASHES))
    count = max(len(episodes) for episodes in results.values())
    if count > 1:
        extra.append(line_key(f"a line for each of {count} episodes", linewidth=1.3))
    axes.set_xlabel("simulated time (min)")
    axes.set_ylabel("evaluation loss, smoothed (nat)")
    axes.set_xlim(left=0.0)
    _legend_beside(figure, axes, title, extra)
    return figure


def learning_curve(
    history: Sequence[Mapping[str, float]], summaries: Sequence[Summary], title: str
) -> Figure:
    """Validations over training, with the other schedulers' delays for comparison."""
    figure, axes = _figure(6.8, 5.0, rows=2)
    delay_axes, energy_axes = axes
    looks = looks_of([LEARNED, *(summary.scheduler for summary in summaries)])
    agent = next((summary.label for summary in summaries if summary.scheduler == LEARNED), "agent")
    steps = np.array([score["steps"] for score in history])
    delay = np.array([score["mean_delay"] for score in history])
    ratio = np.array([score["energy_ratio"] for score in history])
    own = {"color": looks[LEARNED].colour, "marker": looks[LEARNED].marker, "markersize": 4}
    delay_axes.plot(steps, delay, label=f"{short_name(agent)}: validation", linewidth=1.5, **own)
    top, beyond = 1.08 * float(delay.max()), []
    for summary in sorted(summaries, key=lambda s: s.delay_mean.mean):
        level, look = summary.delay_mean.mean, looks[summary.scheduler]
        if summary.scheduler == LEARNED:
            continue
        if level > 1.25 * top:
            beyond.append(f"{summary.label} ({level:.3g} s)")
            continue
        top = max(top, 1.06 * level)
        delay_axes.plot(
            [0.0, float(steps[-1])], [level, level], color=look.colour, linewidth=1.1, linestyle=DASHES,
            marker=look.marker, markevery=[1], markersize=5, label=short_name(summary.label),
        )  # fmt: skip
    delay_axes.set_ylim(0.0, top)
    delay_axes.set_ylabel("round delay (s)")
    energy_axes.plot(steps, 100.0 * (ratio - 1.0), linewidth=1.5, **own)
    energy_axes.axhline(0.0, color=MUTED, linewidth=1.0, linestyle=DASHES)
    energy_axes.set_ylabel("worst node's energy\nabove budget (%)")
    energy_axes.set_xlabel("training steps")
    whole_numbers(energy_axes)
    energy_axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    energy_axes.set_xlim(left=0.0)
    _legend_beside(
        figure, delay_axes, f"{title}: validation during training",
        [line_key("budget (lower panel)", color=MUTED, linestyle=DASHES)],
    )  # fmt: skip
    told = "Dashed lines with markers: mean round delay of the other schedulers over the held-out episodes."
    footer(figure, [told, *([f"Beyond the axis: {', '.join(beyond)}."] if beyond else [])])
    return figure


def typical_round_figure(plan: EvaluationPlan, episode: EpisodeResult) -> Figure:
    """Pipelines, energy and allocation of the round with the episode's median delay."""
    from collapipe_env.rendering import round_figure
    from collapipe_env.rendering.round_view import round_view

    index = typical_round(episode.delay)
    decisions = decisions_of(plan, episode.scheduler, episode.episode)
    record = replay(plan.scenario, episode.episode, decisions, index)
    return round_figure(
        round_view(
            record,
            plan.scenario.workload.local_steps,
            f"{plan.scenario.name}, {episode.title}, typical round",
            loss_history=episode.loss[: index + 1],
            delay_history=episode.delay[: index + 1],
        )
    )


def _legend_beside(figure: Figure, axes: Axes, title: str, extra: Sequence[Artist]) -> None:
    """The title, and what the axes' lines and ``extra`` mean, on the right."""
    axes.set_title(title, loc="left", fontsize=10.5)
    legend_beside(figure, [*axes.get_legend_handles_labels()[0], *extra])


def _figure(width: float, height: float, rows: int = 1) -> tuple[Figure, Any]:
    """A figure and its axes."""
    figure = new_figure(width, height)
    return figure, figure.subplots(rows, 1, sharex=True)
