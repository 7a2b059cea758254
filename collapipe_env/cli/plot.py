"""Draw a finished run for a paper: vector formats, a style for two columns, LaTeX.

Shows runs of train, evaluate and compare. The pictures are those of the run's
folder "figures", drawn anew; nothing is played again but the rounds of the
Gantt charts. With --latex, the table is written for the package booktabs.

Examples:
  collapipe plot runs/compare-small-medium
  collapipe plot runs/evaluate-medium --format svg --pictures delay energy_delay
  collapipe plot runs/evaluate-medium --style ieee --latex
  collapipe plot runs/evaluate-medium --schedulers dssra pipeline
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from collapipe_env.cli.option_types import about


@dataclass(frozen=True)
class Options:
    """All options."""

    run: Annotated[tyro.conf.Positional[Path], about("RUN")]
    """Folder of the run."""
    out: Annotated[Path | None, about("FOLDER", "RUN/paper")] = None
    """Folder for pictures and table."""
    format: Literal["pdf", "svg", "png"] = "pdf"
    """Format of the pictures."""
    style: Literal["default", "ieee"] = "default"
    """Style: that of the package, or one column of the IEEE's journals."""
    pictures: Annotated[tuple[str, ...], about("NAME ...", "all")] = ()
    """Pictures to draw, named as in the run's folder "figures"."""
    schedulers: Annotated[tuple[str, ...], about("NAME ...", "all")] = ()
    """Schedulers to show."""
    latex: bool = False
    """Write the table of each scenario in LaTeX, too."""


def run(options: Options, *_: object) -> None:
    """Draw, and write the table."""
    from collapipe_env import plots

    folder = options.out or options.run / "paper"
    files = plots.draw(
        options.run,
        folder,
        names=options.pictures,
        schedulers=options.schedulers,
        format=options.format,
        style=options.style,
    )
    if options.latex:
        files.append(plots.write_latex(options.run, folder / "table.tex", schedulers=options.schedulers))
    for file in files:
        print(file)
