"""Solve the miniatures, play schedulers in them, and write the tables of ``docs/evidence.md``.

Run ``python -m research.miniatures``; it takes a quarter of an hour. Each miniature's results are kept in
``runs/miniatures``, so an interrupted run resumes; ``--fresh`` begins anew. ``--only heat`` takes the
miniatures whose name contains the word, or whose tier it is, and prints their tables. ``--quick`` tries
everything in half a minute, prints the tables and writes nothing.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, TypeAlias

from tqdm import tqdm

from collapipe_env.ground.files import write_text
from collapipe_env.scenario.loading import scenario_digest
from research.miniatures import failing_table
from research.miniatures.cases import Miniature, failing_miniatures, miniatures
from research.miniatures.results import QUICK, Effort, result
from tools.generated_parts import markdown_table, write_parts

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "evidence.md"
RUNS = ROOT / "runs" / "miniatures"
PLAYED = {"dssra": "DSSRA", "pipeline": "even split", "random": "random"}
"""Registered schedulers of the tables and their titles; the optimum is compared with the first."""
TIERS = ("migration", "heat", "churn")


def kept_result(mini: Miniature, effort: Effort, folder: Path) -> dict[str, Any]:
    """Result of a miniature: the kept one if scenario and effort are the same, else a new one.

    Args:
        effort: Length of the play.
        folder: Where results are kept.
    """
    path = folder / f"{mini.name}.json"
    if path.is_file():
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        of = {"digest": scenario_digest(mini.scenario), "effort": vars(effort), "intervals": mini.intervals}
        if of.items() <= kept.items():
            return kept
    found = result(mini, effort, tuple(PLAYED))
    folder.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(found, indent=1))
    return found


Found: TypeAlias = list[tuple[Miniature, dict[str, Any]]]
"""Miniatures and their results."""


def table(found: Found) -> str:
    """Table of all schedulers' mean delays, and of the room that the optimum shows.

    Args:
        found: Miniatures of a tier.
    """
    first, *others = PLAYED.values()
    heads = [
        "miniature",
        "a block's move",
        "optimum",
        "one step",
        first,
        "best scalars",
        "DSSRA+",
        "best fixed",
    ]
    heads += [*others, "room over one step"]
    heads += [f"over {name}" for name in (first, "scalars", "DSSRA+", "fixed")]
    rows = []
    for mini, r in found:
        one, scalars, plus, fixed = (r[name] for name in ("one_step", "scalars", "plus", "fixed"))
        played, *rest = (r["schedulers"][name] for name in PLAYED)
        cells = [
            mini.title,
            f"{r['move_s']:.1f} s" if r["move_s"] else "free",
            f"{r['optimum_s']:.2f} s",
            f"{one['s']:.2f} s",
            f"{played['s']:.2f} s",
            f"{scalars['s']:.2f} s ({_scalars(scalars['of'], mini)})",
            f"{plus['s']:.2f} s",
            f"{fixed['s']:.2f} s ({_plan(fixed['of'])})",
            *(f"{part['s']:.2f} s" for part in rest),
            *map(_room, (one, played, scalars, plus, fixed)),
        ]
        rows.append(cells)
    return markdown_table(heads, rows)


def checks(found: Found) -> str:
    """Table of the optimum by value iteration and in the environment.

    Args:
        found: All miniatures.
    """
    heads = ["miniature", "speeds, GFLOP/s", "states", "actions", "half the intervals", "model", "played"]
    rows = []
    for mini, r in found:
        change = 100.0 * (r["model_s"] / r["model_coarse_s"] - 1.0)
        cells = [
            f"`{mini.name}`: {mini.title}",
            ", ".join(f"{speed:g}" for speed in r["speeds_gflops"]),
            f"{r['states']:,}",
            r["actions"],
            f"{r['model_coarse_s']:.2f} s ({change:+.2f} %)" if mini.intervals else "",
            f"{r['model_s']:.2f} s",
            f"{r['optimum_s']:.2f} ± {r['optimum_error_s']:.2f} s",
        ]
        rows.append(cells)
    return markdown_table(heads, rows)


def summary(found: Found) -> str:
    """Table of the least and the greatest room of every kind of miniature.

    Args:
        found: All miniatures.
    """
    first, *_ = PLAYED
    kinds: dict[str, Found] = {}
    for mini, r in found:
        kinds.setdefault(mini.kind, []).append((mini, r))
    heads = ["what", "miniatures", f"room over {PLAYED[first]}", "left by scalars", "left by DSSRA+"]
    heads += ["left by a fixed plan"]
    rows = []
    for kind, members in kinds.items():
        parts = [(r["schedulers"][first], r["scalars"], r["plus"], r["fixed"]) for _, r in members]
        ranges = ([part["room"] for part in column] for column in zip(*parts, strict=True))
        rows.append([kind, len(members), *(_range(min(column), max(column)) for column in ranges)])
    return markdown_table(heads, rows)


def _range(least: float, most: float) -> str:
    low, high = (f"{max(value, 0.0):.1f}" for value in (least, most))
    return f"{high} %" if low == high else f"{low} to {high} %"


def _room(part: dict[str, float]) -> str:
    return f"{abs(part['room']) if abs(part['room']) < 0.05 else part['room']:.1f} ± {part['error']:.1f} %"


def _scalars(of: tuple[float, float, float], mini: Miniature) -> str:
    weight, price, start = of
    if mini.tier != "heat":
        return f"{weight:g}"
    return f"{price:g} from {start:g}" + (f", {weight:g}" if weight != 1.0 else "")


def _plan(of: dict[str, Any]) -> str:
    blocks = "-".join(map(str, of["blocks"]))
    return blocks if of["micro_batches"] is None else f"{blocks}, M = {of['micro_batches']}"


def main(arguments: list[str] | None = None) -> None:
    """Solve, play, and write the tables.

    Args:
        arguments: Command line; that of this process by default.
    """
    parser = argparse.ArgumentParser(prog="python -m research.miniatures", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="try everything shortly, and write nothing")
    parser.add_argument("--fresh", action="store_true", help="leave kept results aside")
    parser.add_argument("--only", default="", metavar="WORD", help="miniatures of this name or tier")
    given = parser.parse_args(arguments)
    every = (*miniatures(), *failing_miniatures())
    chosen = [mini for mini in every if given.only in mini.name or given.only == mini.tier]
    if not chosen:
        parser.error(f"--only {given.only}: no miniature's name has this; tiers are {', '.join(TIERS)}")
    effort = QUICK if given.quick else Effort()
    found: Found = []
    failing: list[list[str]] = []
    for mini in (bar := tqdm(chosen, disable=None)):
        bar.set_description(mini.name)
        if mini.tier == "churn":
            failing.append(failing_table.row(mini, *((2, 6) if given.quick else failing_table.LENGTHS)))
        elif given.quick:
            found.append((mini, result(mini, effort, tuple(PLAYED))))
        else:
            if given.fresh:
                (RUNS / f"{mini.name}.json").unlink(missing_ok=True)
            found.append((mini, kept_result(mini, effort, RUNS)))
    long = f"{effort.episodes} episodes x {effort.rounds} rounds"
    short = f"{effort.few_episodes} episodes x {effort.few_rounds} rounds"
    parts = {
        tier: (table(members), length)
        for tier, length in (("migration", long), ("heat", short))
        if (members := [pair for pair in found if pair[0].tier == tier])
    }
    if found:
        parts["summary"] = summary(found), "from the tables below"
        parts["checks"] = checks(found), "standard errors over episodes"
    if failing:
        length = "{} episodes x {} rounds".format(*failing_table.LENGTHS)
        parts["churn"] = markdown_table(failing_table.HEADS, failing), length
    if given.quick or given.only:
        print("\n\n".join(part for part, _ in parts.values()))
        return
    command = "`python -m research.miniatures`"
    write_parts(PAGE, {name: f"{part}\n\n{command} ({length})" for name, (part, length) in parts.items()})
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
