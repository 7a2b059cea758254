"""Draw real against surrogate loss curves under the held-out conditions, for ``docs/images``.

Everything drawn is shipped with the package: the fits, and the real losses that they were tested with. Run::

    python tools/make_surrogate_figure.py
    python tools/make_surrogate_figure.py --fits my_fits.json --output picture.png
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
import tyro
from fitting.conditions import HELD_OUT, Condition
from fitting.least_squares import (
    agreement,
    by_condition,
    predicted_losses,
    seed_noise,
)
from fitting.real_runs import EVALUATE_EVERY
from fitting.shipped_runs import HeldOutRuns, held_out_file, read_held_out

from collapipe_env.evaluation.plotting import COLOURS, INK, RC, new_figure, save
from collapipe_env.ground.errors import CollaPipeError
from collapipe_env.learners.surrogate_fits import SurrogateConstants, fits_file, read_fits
from collapipe_env.scenario import scenario_names
from collapipe_env.tasks import task_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DRAWN: tuple[tuple[Condition, str], ...] = (
    (HELD_OUT[0], "70 % of micro-batches arrive"),
    (HELD_OUT[1], "15 % arrive"),
    (HELD_OUT[4], "15 % arrive, all from half-way on"),
    (HELD_OUT[5], "70 % arrive, two local steps"),
)
"""Held-out conditions that are drawn, far enough apart to tell them from each other; errors are over all."""
DASHES = (0, (3.0, 1.5))
"""Dashes of the surrogate's curves, so that real ones show behind them."""


@dataclass(frozen=True)
class Options:
    """Real against surrogate loss curves."""

    fits: Path | None = None
    """File of the fits, with their held-out runs beside it; the shipped ones by default."""
    output: Path = Path(__file__).parents[1] / "docs" / "images" / "surrogate.png"
    """Picture (PNG) to write."""


def ordered(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """Each name once: the known ones in their order, then the others."""
    return sorted(set(names), key=lambda name: (known.index(name) if name in known else len(known), name))


def draw(fits: dict[str, tuple[SurrogateConstants, HeldOutRuns]]) -> Figure:
    """One panel for each fit: tasks from top to bottom, presets from left to right."""
    presets = ordered([key.partition("/")[0] for key in fits], scenario_names())
    tasks = ordered([key.partition("/")[2] for key in fits], task_names())
    columns, rows = len(presets), len(tasks)
    with mpl.rc_context(RC):
        figure = new_figure(max(3.6 * columns, 5.2), 2.9 * rows + 0.9)
        grid = figure.subplots(rows, columns, squeeze=False)
        for (row, task), (column, preset) in itertools.product(enumerate(tasks), enumerate(presets)):
            key = f"{preset}/{task}"
            if key in fits:
                draw_panel(grid[row, column], key, *fits[key])
            else:
                grid[row, column].set_axis_off()
        handles = [
            *(
                mpl.lines.Line2D([], [], color=COLOURS[i], linewidth=2.2, label=label)
                for i, (_, label) in enumerate(DRAWN)
            ),
            mpl.lines.Line2D([], [], color=INK, linewidth=2.0, linestyle=DASHES, label="surrogate"),
            mpl.lines.Line2D([], [], color=INK, linewidth=0.8, alpha=0.6, label="real, one line a seed"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=2 if columns < 3 else 3)
        figure.supylabel("evaluation loss (nat)")
    return figure


def draw_panel(axes: Axes, key: str, constants: SurrogateConstants, held_out: HeldOutRuns) -> None:
    """Curves of the drawn conditions and the errors over all held-out ones.

    Args:
        axes: Where to draw.
        key: ``"<scenario>/<task>"``.
        constants: The fit.
    """
    groups = by_condition(held_out.runs)
    rounds = np.arange(0, held_out.rounds + 1, EVALUATE_EVERY)
    shown: list[float] = []
    for index, (condition, _) in enumerate(DRAWN):
        for run in groups.get(condition, []):
            axes.plot(rounds[: len(run.losses)], run.losses, color=COLOURS[index], linewidth=0.8, alpha=0.6)
            shown += run.losses.tolist()
        if condition in groups:
            # Seeds also differ in what arrived; the surrogate's mean stands for them.
            curve = np.mean([predicted_losses(constants, run) for run in groups[condition]], axis=0)
            axes.plot(rounds[: len(curve)], curve, color=COLOURS[index], linewidth=2.0, linestyle=DASHES)
            shown += curve.tolist()
    if shown:
        # Single spikes, which real training has, would press the curves together.
        low, high = np.percentile(shown, [0.5, 99.5])
        axes.set_ylim(low - 0.08 * (high - low), high + 0.08 * (high - low))
    found, noise = agreement(constants, held_out.runs), seed_noise(held_out.runs)
    between = f", seeds {noise:.3f}" if np.isfinite(noise) else ""
    axes.set_xlabel("round")
    axes.set_title(
        f"{key.replace('/', ', ')}\nerror {found.rmse:.3f}{between}, $R^2$ {found.r2:.2f}",
        fontsize=9.5,
        parse_math=True,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the picture; returns the exit status, 2 for files that cannot be used."""
    options = tyro.cli(Options, description=__doc__, args=arguments)
    source = fits_file() if options.fits is None else options.fits
    try:
        fits = read_fits(source)
        runs = read_held_out(held_out_file(source))
        both = {key: (fit.constants, runs[key]) for key, fit in fits.items() if key in runs}
        if not both:
            print(
                f"error: {held_out_file(source)} has no runs of the fits in {source}; make a fit "
                "with `python tools/fit_surrogate.py`",
                file=sys.stderr,
            )
            return 2
        for key in sorted(set(fits) ^ set(both)):
            print(f"{key}: left out, because its held-out runs are missing")
        save(draw(both), options.output)
    except CollaPipeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"wrote {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
