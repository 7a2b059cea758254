"""Tables of the shipped fits of the surrogate, and their curves beside those of real training.

Everything is shipped with the package: the fits, and the real losses that they were tested with.
"""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from fitting.conditions import HELD_OUT, Condition
from fitting.least_squares import agreement, by_condition, predicted_losses, seed_noise
from fitting.real_runs import EVALUATE_EVERY, Run
from fitting.shipped_runs import HeldOutRuns, held_out_file, read_held_out
from generated_parts import markdown_table, typed_command

from collapipe_env.evaluation.plotting import COLOURS, INK, new_figure
from collapipe_env.ground.files import read_json
from collapipe_env.learners.surrogate_fits import REMEDY, SurrogateConstants, fits_file, read_fits
from collapipe_env.scenario import scenario_names
from collapipe_env.tasks import task_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STEPS = ((1, True), (2, True), (8, True), (16, True), (1, False), (4, False))
"""Local steps of held-out runs, and whether their data are spread evenly."""


def number(value: float | None, digits: str) -> str:
    """A number as text, a dash for ``None`` and NaN."""
    return "–" if value is None or math.isnan(value) else format(value, digits)


def estimate(entry: Mapping[str, Any], name: str) -> str:
    """A constant of a fit and its range over seeds."""
    value, each = entry["constants"].get(name, 0.0), entry.get("by_seed", {}).get(name)
    if not each:
        return f"{value:.2g}, not from pairs" if name == "drift" else "–"
    seeds = f" ({min(each):.2g} to {max(each):.2g})" if len(each) > 1 else ""
    return f"{value:.2g}{seeds}"


def row(key: str, entry: Mapping[str, Any]) -> list[str]:
    """The row of a fit, by its key ``"<scenario>/<task>"``."""
    return [
        f"`{key}`",
        f"{entry['fitted_conditions']} + {entry['held_out_conditions']}",
        str(entry["seeds"]),
        number(entry["rmse_fitted_nat"], ".3f"),
        number(entry["rmse_held_out_nat"], ".3f"),
        number(entry["seed_noise_held_out_nat"], ".3f"),
        number(entry["r2_held_out"], ".2f"),
        number(entry.get("ranks_held_out"), ".2f"),
        number(entry.get("ranks_of_times_held_out"), ".2f"),
        estimate(entry, "drift"),
        estimate(entry, "sitting_out"),
    ]


def steps_row(key: str, runs: Sequence[Run]) -> list[str]:
    """Mean error of a fit's last losses by local steps, over whole runs; a dash where no run has so many."""
    constants = read_fits(fits_file())[key].constants
    cells = [f"`{key}`"]
    for steps, even in STEPS:
        errors = [
            predicted_losses(constants, run)[-1] - run.losses[-1]
            for run in runs
            if run.condition.local_steps == steps
            and (run.condition.partition == "iid") == even
            and run.condition.taking_part == 1.0
        ]
        cells.append(number(float(np.mean(errors)) if errors else None, "+.2f"))
    return cells


DRAWN: tuple[tuple[Condition, str], ...] = (
    (HELD_OUT[0], "70 % of micro-batches arrive"),
    (HELD_OUT[1], "15 % arrive"),
    (HELD_OUT[4], "15 % arrive, all from half-way on"),
    (HELD_OUT[5], "70 % arrive, two local steps"),
)
"""Held-out conditions that are drawn, far enough apart to tell them from each other; errors are over all."""
DASHES = (0, (3.0, 1.5))
"""Dashes of the surrogate's curves, so that real ones show behind them."""


def fits(entry: Mapping[str, Any], quick: bool) -> str:
    """The table of the shipped fits, and the commands that made them."""
    found = read_json(fits_file(), REMEDY)["fits"]
    names = (
        "fit", "conditions", "seeds", "RMSE fitted (nat)", "held out (nat)", "seed noise (nat)",
        "R² held out", "ranks, last loss", "ranks, rounds to a target", "drift (by seed)",
        "sitting out (by seed)",
    )  # fmt: skip
    table = markdown_table(names, [row(key, found[key]) for key in sorted(found)])
    # What counts in a stored command are its options.
    options = (shlex.split(found[key]["command"].partition(" --")[2]) for key in sorted(found))
    typed = (
        typed_command(["python", "tools/fit_surrogate.py", "--" + first, *rest]) for first, *rest in options
    )
    return "\n".join([f"{table}\n\n```bash", *typed, "```"])


def steps(entry: Mapping[str, Any], quick: bool) -> str:
    """The table of mean errors by local steps."""
    heads = [f"H = {steps}" + ("" if even else ", skewed") for steps, even in STEPS]
    held_out = read_held_out(held_out_file(), whole=True)
    return markdown_table(["fit", *heads], [steps_row(key, held_out[key].runs) for key in sorted(held_out)])


def ordered(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """Each name once: the known ones in their order, then the others."""
    return sorted(set(names), key=lambda name: (known.index(name) if name in known else len(known), name))


def draw(fits: dict[str, tuple[SurrogateConstants, HeldOutRuns]]) -> Figure:
    """One panel for each fit: tasks from top to bottom, presets from left to right."""
    presets = ordered([key.partition("/")[0] for key in fits], scenario_names())
    tasks = ordered([key.partition("/")[2] for key in fits], task_names())
    columns, rows = len(presets), len(tasks)
    figure = new_figure(max(3.6 * columns, 5.2), 2.9 * rows + 0.9)
    grid = figure.subplots(rows, columns, squeeze=False)
    for (row, task), (column, preset) in itertools.product(enumerate(tasks), enumerate(presets)):
        key = f"{preset}/{task}"
        if key in fits:
            draw_panel(grid[row, column], key, *fits[key])
        else:
            grid[row, column].set_axis_off()
    looks = [
        *({"color": COLOURS[i], "linewidth": 2.2, "label": label} for i, (_, label) in enumerate(DRAWN)),
        {"color": INK, "linewidth": 2.0, "linestyle": DASHES, "label": "surrogate"},
        {"color": INK, "linewidth": 0.8, "alpha": 0.6, "label": "real, one line a seed"},
    ]
    handles = [mpl.lines.Line2D([], [], **look) for look in looks]
    figure.legend(handles=handles, loc="outside lower center", ncols=2 if columns < 3 else 3)
    figure.supylabel("evaluation loss (nat)")
    return figure


def draw_panel(axes: Axes, key: str, constants: SurrogateConstants, held_out: HeldOutRuns) -> None:
    """Curves of the drawn conditions and the errors over all held-out ones."""
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
    title = f"{key.replace('/', ', ')}\nerror {found.rmse:.3f}{between}, $R^2$ {found.r2:.2f}"
    axes.set_title(title, fontsize=9.5, parse_math=True)


def picture() -> Figure:
    """Real against surrogate loss curves of the shipped fits."""
    runs = read_held_out(held_out_file())
    return draw(
        {key: (fit.constants, runs[key]) for key, fit in read_fits(fits_file()).items() if key in runs}
    )
