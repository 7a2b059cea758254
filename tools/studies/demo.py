"""What ``make demo`` trains, in full size: the table of the README, and the numbers of the first page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from generated_parts import markdown_table, typed_command
from player import KEPT

from collapipe_env.cli.main import main as collapipe
from collapipe_env.evaluation.resampling import estimate
from collapipe_env.ground.errors import DataError
from studies.held_out import REFERENCE, Estimated, shown
from studies.suite import digest as digest
from studies.suite import played_runs

Entry = Mapping[str, Any]


def summaries(entry: Entry, quick: bool) -> tuple[dict[str, Mapping[str, Any]], str]:
    """Train and compare what is not finished; summaries by scheduler, and the command.

    Args:
        entry: Holds the ``train`` options.
        quick: Whether to train and play least.

    Raises:
        DataError: If the command fails.
    """
    options = {**entry["train"], **({"steps": 256, "episodes": 1, "rounds": 2} if quick else {})}
    command = [
        "train",
        *(word for name, value in options.items() for word in (f"--{name}", *str(value).split())),
    ]
    folder = KEPT / ("quick" if quick else "") / "demo"
    if collapipe([*command, "--out", str(folder)]):
        raise DataError(f"collapipe {' '.join(command)} failed")
    found = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return {one["scheduler"]: one for one in found["summary"]}, typed_command(["collapipe", *command])


def table(entry: Entry, quick: bool) -> str:
    """The comparison, a line for each scheduler, best first."""
    found, command = summaries(entry, quick)
    best_first = sorted(found.values(), key=lambda one: one["priced_delay"]["mean"])
    rows = [[one["title"], *(shown(text, one) for text in entry["columns"].values())] for one in best_first]
    return f"{markdown_table(['scheduler', *entry['columns']], rows, left=1)}\n\n`{command}`"


def numbers(entry: Entry, quick: bool) -> str:
    """Three numbers with intervals: DSSRA, PPO, and the graph net where learning wins."""
    from docs import entries

    trained, measured = (entries()[name] for name in entry["of"])
    found, _ = summaries(trained, quick)
    runs = next(played_runs({**measured, "scenarios": [entry["wins"]]}, quick))
    net = Estimated.of(estimate(runs.returns / runs.bar - 1.0)).percent
    even, agent, dssra = (found[name] for name in ("pipeline", "agent", REFERENCE))
    rows = [
        [
            "the even split",
            "DSSRA",
            "`medium`",
            f"{shown('{priced_delay:.2f~}', even)} s",
            f"{shown('{priced_delay:.2f~}', dssra)} s",
        ],
        [
            "DSSRA",
            "PPO after a minute of training",
            "`medium`",
            f"{shown('{priced_delay:.2f~}', dssra)} s",
            f"{shown('{difference.percent:+.1f~}', agent)} %",
        ],
        [
            "DSSRA+ with tuned scalars",
            f"the graph net, {len(runs.returns)} trainings",
            f"`{entry['wins']}`",
            "0",
            f"{net:+.1f~} %",
        ],
    ]
    return markdown_table(["against", "priced delay of", "scenario", "reference", "result"], rows, left=3)
