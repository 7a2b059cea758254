"""Performance profile of a comparison: share of episodes by priced delay over the reference's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapipe_env.evaluation.comparison import ScenarioComparison, common_labels
from collapipe_env.evaluation.panels import Comparisons, line_style
from collapipe_env.evaluation.plotting import (
    DASHES,
    MUTED,
    legend_beside,
    line_key,
    looks_of,
    new_figure,
    short_name,
)
from collapipe_env.evaluation.resampling import performance_profile
from collapipe_env.evaluation.statistics import relative_differences

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS = 161
"""Largest number of steps of a curve."""
CUT = 2.0
"""Largest ratio shown, as a multiple of the schedulers' median ratio."""
MARGIN = 1.02
"""Factor between the ends of the curves and those of the axis."""
SIZE = (6.2, 4.3)
"""Width and height without the legend [inch]."""
COMPARED = {False: "priced delay", True: "priced time per progress"}
"""Name of the compared quantity, by whether a scenario opens participation or local steps."""

Ratios = list[npt.NDArray[np.float64]]
"""Ratios to the reference in the same episodes, (R, E) for each scenario."""


def delay_profile(comparisons: Comparisons) -> Figure:
    """Draw the share of all episodes with a priced delay within each factor of the reference's.

    Where a scenario opens participation or local steps, the priced time per unit of progress replaces it.

    A scenario that a scheduler cannot play, or where it is over its energy budget, counts as outside every
    factor. A scheduler that counts in no scenario is left out.

    Args:
        comparisons: One for each scenario, in all of which the reference played.
    """
    summaries = [summary for comparison in comparisons for summary in comparison.summaries]
    every = {name: _ratios(comparisons, name) for name in dict.fromkeys(s.scheduler for s in summaries)}
    ratios = {name: found for name, found in every.items() if np.isfinite(_together(found)).any()}
    figure = new_figure(*SIZE)
    axes = figure.subplots()
    looks = looks_of(every)
    low, high = _ends(ratios)
    for name, found in ratios.items():
        values = _together(found)
        steps = np.unique(values[values < high])
        if steps.size > POINTS:
            steps = np.quantile(steps, np.linspace(0.0, 1.0, POINTS), method="higher")
        profile = performance_profile(found, np.array([low, *steps, high]))
        style = line_style(looks[name], steps.size + 2, 5)
        axes.fill_between(
            profile.thresholds, profile.low, profile.high,
            step="post", color=looks[name].colour, alpha=0.12, linewidth=0,
        )  # fmt: skip
        axes.step(profile.thresholds, profile.share, where="post", linewidth=1.5, **style)
    axes.axvline(1.0, color=MUTED, linewidth=1.0, linestyle=DASHES)
    axes.set_xlim(low, high)
    axes.set_ylim(-0.02, 1.02)
    axes.set_title(", ".join(comparison.name for comparison in comparisons), loc="left", fontsize=10.5)
    by_progress = {summary.by_progress for summary in summaries}
    compared = " or ".join(COMPARED[own] for own in sorted(by_progress))
    axes.set_xlabel(f"{compared} over the reference's in the same episode, at most")
    axes.set_ylabel("share of episodes; band: 95 % interval")
    handles = [
        line_key(
            short_name(label), color=looks[name].colour, marker=looks[name].marker, linestyle=looks[name].line
        )
        for name, label in common_labels(summaries).items()
        if name in ratios
    ]
    legend_beside(figure, [*handles, line_key("reference", color=MUTED, linestyle=DASHES)])
    return figure


def _ratios(comparisons: Comparisons, name: str) -> Ratios:
    """A scheduler's ratios; infinite where it does not count."""
    runs = max(s.runs for c in comparisons for s in c.summaries if s.scheduler == name)
    return [_of(comparison, name, runs) for comparison in comparisons]


def _of(comparison: ScenarioComparison, name: str, runs: int) -> npt.NDArray[np.float64]:
    reference = comparison.results[comparison.reference]
    counts = any(s.scheduler == name and not s.gate.failed for s in comparison.summaries)
    if not counts:
        return np.full((runs, len({result.episode for result in reference})), math.inf)
    return relative_differences(comparison.results[name], reference) + 1.0


def _together(found: Ratios) -> npt.NDArray[np.float64]:
    return np.concatenate([values.ravel() for values in found])


def _ends(ratios: dict[str, Ratios]) -> tuple[float, float]:
    """Ends of the axis: one poor scheduler would squeeze the others, so its curve is cut."""
    finite = [flat[np.isfinite(flat)] for flat in map(_together, ratios.values())]
    typical = float(np.median([values.mean() for values in finite]))
    longest = max(float(values.max()) for values in finite)
    return min(float(values.min()) for values in finite) / MARGIN, min(longest, CUT * typical) * MARGIN
