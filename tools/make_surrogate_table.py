"""Write the table of the shipped fits, and the commands that made them, into ``docs/surrogate.md``.

Run ``python tools/make_surrogate_table.py``; everything is in the files of the fits and their held-out runs.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fitting.least_squares import predicted_losses
from fitting.real_runs import Run
from fitting.shipped_runs import held_out_file, read_held_out
from generated_parts import markdown_table, typed_command, write_parts

from collapipe_env.ground.files import read_json
from collapipe_env.learners.surrogate_fits import REMEDY, fits_file, read_fits

STEPS = ((1, True), (2, True), (8, True), (16, True), (1, False), (4, False))
"""Local steps of held-out runs, and whether their data are spread evenly."""
PAGE = Path(__file__).parents[1] / "docs" / "surrogate.md"


def number(value: float | None, digits: str) -> str:
    """Return a number as text, a dash where there is none.

    Args:
        value: The number; ``None`` and NaN for none.
        digits: Its format.
    """
    return "–" if value is None or math.isnan(value) else format(value, digits)


def estimate(entry: Mapping[str, Any], name: str) -> str:
    """Return a constant and its range over seeds.

    Args:
        entry: A fit.
        name: The constant.
    """
    value, each = entry["constants"].get(name, 0.0), entry.get("by_seed", {}).get(name)
    if not each:
        return f"{value:.2g}, not from pairs" if name == "drift" else "–"
    seeds = f" ({min(each):.2g} to {max(each):.2g})" if len(each) > 1 else ""
    return f"{value:.2g}{seeds}"


def row(key: str, entry: Mapping[str, Any]) -> list[str]:
    """Return the row of a fit.

    Args:
        key: ``"<scenario>/<task>"``.
        entry: The fit.
    """
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
    """Return the mean error of a fit's last losses by local steps, a dash where no run has so many.

    Args:
        key: ``"<scenario>/<task>"``.
        runs: Its whole held-out runs.
    """
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


def main() -> None:
    """Write all parts of the page."""
    fits = read_json(fits_file(), REMEDY)["fits"]
    names = (
        "fit", "conditions", "seeds", "RMSE fitted (nat)", "held out (nat)", "seed noise (nat)",
        "R² held out", "ranks, last loss", "ranks, rounds to a target", "drift (by seed)",
        "sitting out (by seed)",
    )  # fmt: skip
    table = markdown_table(names, [row(key, fits[key]) for key in sorted(fits)])
    # What counts in a stored command are its options.
    options = (shlex.split(fits[key]["command"].partition(" --")[2]) for key in sorted(fits))
    typed = (
        typed_command(["python", "tools/fit_surrogate.py", "--" + first, *rest]) for first, *rest in options
    )
    commands = "\n".join(["```bash", *typed, "```"])
    held_out = read_held_out(held_out_file(), whole=True)
    heads = [f"H = {steps}" + ("" if even else ", skewed") for steps, even in STEPS]
    by_steps = markdown_table(
        ["fit", *heads], [steps_row(key, held_out[key].runs) for key in sorted(held_out)]
    )
    write_parts(PAGE, {"fits": f"{table}\n\n{commands}", "steps": by_steps})
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
