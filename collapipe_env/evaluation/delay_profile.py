"""Performance profile of a comparison: share of episodes by priced delay over the reference's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from collapipe_env.evaluation import plotting
from collapipe_env.evaluation.comparison import ScenarioComparison, common_labels
from collapipe_env.evaluation.looks import Style, looks_of
from collapipe_env.evaluation.plotting import MARK
from collapipe_env.evaluation.resampling import performance_profile
from collapipe_env.evaluation.statistics import relative_differences

POINTS = 161
"""Largest number of steps of a curve."""
CUT = 2.0
"""Largest ratio shown, as a multiple of the schedulers' median ratio: one poor scheduler would squeeze the
others."""
MARGIN = 1.02
"""Factor between the ends of the curves and those of the axis."""

Ratios = list[npt.NDArray[np.float64]]


def delay_profile(comparisons: Sequence[ScenarioComparison]) -> Figure:
    """Draw the share of all episodes with a priced delay within each factor of the reference's.

    Where a scenario opens participation or local steps, the priced time per unit of progress replaces it.

    A scenario that a scheduler cannot play, or where it is over its energy budget, counts as outside every
    factor. A scheduler that counts in no scenario is left out.

    Args:
        comparisons: One for each scenario, in all of which the reference played.
    """
    summaries = [summary for comparison in comparisons for summary in comparison.summaries]
    labels = common_labels(summaries)
    every = {name: _ratios(comparisons, name) for name in labels}
    finite = {name: flat[np.isfinite(flat)] for name, flat in ((n, _flat(r)) for n, r in every.items())}
    finite = {name: values for name, values in finite.items() if values.size}
    typical = float(np.median([values.mean() for values in finite.values()]))
    low = min(float(values.min()) for values in finite.values()) / MARGIN
    high = min(max(float(values.max()) for values in finite.values()), CUT * typical) * MARGIN
    looks = looks_of(every)
    figure = plotting.new_figure(6.2, 4.3)
    axes = figure.subplots()
    for name, values in finite.items():
        steps = np.unique(values[values < high])
        if steps.size > POINTS:
            steps = np.quantile(steps, np.linspace(0.0, 1.0, POINTS), method="higher")
        limits = np.array([low, *steps, high])
        share, least, most = performance_profile(every[name], limits)
        band: Style = {"step": "post", "color": looks[name].colour, "alpha": 0.12, "linewidth": 0}
        axes.fill_between(limits, least, most, **band)
        axes.step(limits, share, where="post", linewidth=1.5, **looks[name].along(limits.size, 5))
    axes.axvline(1.0, **MARK)
    axes.set_xlim(low, high)
    axes.set_ylim(-0.02, 1.02)
    axes.set_title(", ".join(comparison.name for comparison in comparisons), loc="left", fontsize=10.5)
    measures = {False: "priced delay", True: "priced time per progress"}
    compared = " or ".join(measures[own] for own in sorted({summary.by_progress for summary in summaries}))
    axes.set_xlabel(f"{compared} over the reference's in the same episode, at most")
    axes.set_ylabel("share of episodes; band: 95 % interval")
    keys = [
        plotting.line_key(plotting.short_name(labels[name]), **looks[name].style())
        for name in labels
        if name in finite
    ]
    plotting.legend_beside(figure, [*keys, plotting.mark_key("reference")])
    return figure


def _ratios(comparisons: Sequence[ScenarioComparison], name: str) -> Ratios:
    """Ratios to the reference in the same episodes, (R, E) a scenario; infinite where it does not count."""
    runs = max(s.runs for c in comparisons for s in c.summaries if s.scheduler == name)
    found = []
    for comparison in comparisons:
        reference = comparison.results[comparison.reference]
        if any(s.scheduler == name and not s.gate.failed for s in comparison.summaries):
            found.append(relative_differences(comparison.results[name], reference) + 1.0)
        else:
            found.append(np.full((runs, len({episode.episode for episode in reference})), np.inf))
    return found


def _flat(ratios: Ratios) -> npt.NDArray[np.float64]:
    return np.concatenate([values.ravel() for values in ratios])
