"""Tune the scalars of dssra-plus for a scenario.

Plays all candidates on the same episodes: a third are drawn at random, Optuna
proposes the others. The best candidate and the neutral one, with which
dssra-plus equals dssra, then play fresh episodes. Prints the result as a
section of a scenario file. After Ctrl-C or SIGTERM, finished work is kept and
the same command resumes there.

Examples:
  collapipe tune boards
  collapipe tune mine.yaml --candidates 24 --episodes 4
  collapipe tune mine.yaml --write mine.yaml
  collapipe tune boards --processes 4       # candidates side by side
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from collapipe_env.cli.chosen import chosen_scenario
from collapipe_env.cli.common import opened, print_pages, run_folder, say_files
from collapipe_env.cli.early_end import Call
from collapipe_env.cli.option_types import (
    ExecutorOptions,
    Folder,
    Fresh,
    Processes,
    Rounds,
    Source,
    Within,
    about,
)
from collapipe_env.evaluation.rounds import lasting
from collapipe_env.evaluation.scheduler_loading import full_names, make_scheduler
from collapipe_env.ground.files import write_json, write_text
from collapipe_env.ground.progress import progress_bar

if TYPE_CHECKING:
    from collapipe_env.evaluation.tuning_trial import Trial


@dataclass(frozen=True)
class Options:
    """All options."""

    scenario: tyro.conf.Positional[Source]
    scheduler: Annotated[str, about("NAME")] = "dssra-plus"
    """Scheduler to tune: dssra-plus, or your own (file.py:Name) that reads the section dssra_plus."""
    candidates: Annotated[int, Within(1, 10_000)] = 48
    """Number of candidates (sets of scalars), including the neutral one."""
    episodes: Annotated[int, Within(1, 1000)] = 8
    """Episodes per candidate, the same for all."""
    check_episodes: Annotated[int, Within(1, 1000)] = 16
    """Fresh episodes on which the best candidate is compared with the neutral one."""
    rounds: Rounds = None
    seed: Annotated[int, Within(0, 4999)] = 0
    """Seed of the search and of its episodes."""
    write: Annotated[Path | None, about("FILE", "only print them")] = None
    """File of the same scenario into which to write the scalars; everything else in it stays."""
    out: Annotated[Folder, about(default="runs/tune-<scenario>-seed<seed>")] = None
    fresh: Fresh = False
    processes: Annotated[
        Processes,
        about("INT", "1; depends on the engine with --executor", "Number of candidates played at once."),
    ] = None
    where: tyro.conf.OmitArgPrefixes[ExecutorOptions] = field(default_factory=ExecutorOptions)


def run(options: Options, call: Call) -> None:
    """Search, check and write the scalars."""
    # Imported late, so that --help and typing errors are answered at once.
    from collapipe_env.evaluation.tuning import TuningPlan, tune
    from collapipe_env.evaluation.tuning_report import tuning_page, tuning_record
    from collapipe_env.evaluation.tuning_space import tunable
    from collapipe_env.evaluation.tuning_trial import scalars_text
    from collapipe_env.scenario.section_writing import require_replaceable, section_lines, write_scalars

    executor = options.where.build(options.processes, usual=1)
    scenario = chosen_scenario(options.scenario)
    names = tunable(scenario)
    (scheduler,) = full_names([options.scheduler])
    make_scheduler(scheduler, scenario)
    if options.write is not None:
        require_replaceable(options.write, scenario, names)
    run = run_folder(options.out, "tune", scenario.name, f"seed{options.seed}")
    # Its own scalars do not affect the result.
    neutral = dataclasses.replace(scenario, dssra_plus=type(scenario.dssra_plus)())
    deciding: dict[str, Any] = {
        "scheduler": scheduler,
        "candidates": options.candidates,
        "episodes": options.episodes,
        "rounds": options.rounds or scenario.dynamics.rounds,
        "seed": options.seed,
    }
    plan = TuningPlan(
        scenario=lasting(neutral, options.rounds),
        names=names,
        check_episodes=options.check_episodes,
        store=run / "candidates.db",
        **deciding,
    )
    asked = {"kind": "tuning", "scenario": plan.scenario.to_dict(), **deciding}
    with opened(run, call, asked, plan.scenario, fresh=options.fresh):
        print(
            f"tuning {', '.join(names)} of {scheduler} on {scenario.name}: {plan.candidates} candidates, "
            f"{plan.episodes} episodes of {plan.rounds} rounds each"
        )
        # Without the rounds of the check: only the end shows whether there is one.
        bar = progress_bar(plan.candidates * plan.rounds, "tuning", "rounds")

        def on_round() -> None:
            if bar.n == bar.total:
                bar.total += 2 * plan.rounds  # of the check
            bar.update(1)

        def on_trial(place: str, trial: Trial, known: bool) -> None:
            bar.update(plan.rounds if known else 0)
            over = "  over its energy budget" if trial.gate.failed else ""
            bar.write(
                f"{place:>17}  priced {trial.score:8.3f} s  delay {mean(trial.delay):8.3f} s  "
                f"{scalars_text(trial.scalars)}{over}{'  (kept)' if known else ''}"
            )

        def on_again(place: str, reason: str) -> None:
            bar.write(f"{place:>17}  restarted: {reason}")

        with bar:
            tuned = tune(plan, on_round, on_trial, executor, on_again)
        page = tuning_page(plan, tuned)
        lines = section_lines(tuned.chosen, [str(call)])
        write_json(run / "tuning.json", {**call.record(**tuning_record(tuned)), "section": lines})
        write_text(run / "table.md", page.markdown() + "\n```yaml\n" + "\n".join(lines) + "\n```\n")
        print_pages(page)
        print("\n".join(lines), end="\n\n")
        if options.write is not None:
            write_scalars(options.write, scenario, tuned.chosen, [str(call)])
            print(f"written:   {options.write}")
        say_files(run, table="table.md", tuning="tuning.json")
