"""``collapipe tune``: the scalars of DSSRA+ for a scenario."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from collapipe_env.cli.common import (
    SCENARIO_OPTION,
    chosen_scenario,
    command_line,
    hint,
    record,
    require_within,
    run_command,
    say_folder,
)
from collapipe_env.cli.executor_options import ExecutorOptions
from collapipe_env.evaluation.provenance import started
from collapipe_env.evaluation.rounds import LARGEST_ROUNDS, lasting
from collapipe_env.evaluation.run_directory import RunDirectory, folder_name
from collapipe_env.evaluation.scheduler_loading import full_names, load_scheduler, require_scheduler
from collapipe_env.ground.files import write_json, write_text
from collapipe_env.scenario import Scenario

if TYPE_CHECKING:
    from collapipe_env.evaluation.tuning import Trial, TuningPlan

DESCRIPTION = """Tune the scalars of dssra-plus for a scenario.

Plays all candidates on the same episodes: a third are drawn at random, the others come from CMA-ES. The best
candidate and the neutral one, with which dssra-plus equals dssra, then play fresh episodes. Prints the result
as a section of a scenario file. After Ctrl-C or SIGTERM, finished work is kept and the same command resumes
there.

Examples:
  collapipe tune boards
  collapipe tune mine.yaml --candidates 24 --episodes 4
  collapipe tune mine.yaml --write mine.yaml
  collapipe tune boards --processes 4       # candidates side by side
"""


@dataclass(frozen=True)
class Options:
    """All options."""

    scenario: Annotated[tyro.conf.Positional[str], SCENARIO_OPTION]
    scheduler: Annotated[str, tyro.conf.arg(metavar="NAME")] = "dssra-plus"
    """Scheduler to tune: dssra-plus, or your own (file.py:Name) that reads the section dssra_plus."""
    candidates: int = 48
    """Number of candidates (sets of scalars), including the neutral one."""
    episodes: int = 8
    """Episodes per candidate, the same for all."""
    check_episodes: int = 16
    """Fresh episodes on which the best candidate is compared with the neutral one."""
    rounds: Annotated[int | None, tyro.conf.arg(metavar="INT"), hint("default: the scenario's")] = None
    """Rounds per episode; may be more than the scenario's."""
    seed: int = 0
    """Seed of the search and of its episodes."""
    write: Annotated[Path | None, tyro.conf.arg(metavar="FILE"), hint("default: only print them")] = None
    """File of the same scenario into which to write the scalars; everything else in it stays."""
    out: Annotated[
        Path | None, tyro.conf.arg(metavar="FOLDER"), hint("default: runs/tune-<scenario>-seed<seed>")
    ] = None
    """Folder for finished candidates and the report."""
    fresh: bool = False
    """Start over in the folder instead of resuming."""
    processes: Annotated[
        int | None, tyro.conf.arg(metavar="INT"), hint("default: 1; depends on the engine with --executor")
    ] = None
    """Number of candidates played at once, each in its own process or job."""
    where: tyro.conf.OmitArgPrefixes[ExecutorOptions] = field(default_factory=ExecutorOptions)

    def check(self) -> None:
        """Refuse values out of range.

        Raises:
            ScenarioError: Names the option, its value and what is possible.
        """
        require_within(
            ("--candidates", self.candidates, 1, 10_000),
            ("--episodes", self.episodes, 1, 1000),
            ("--check-episodes", self.check_episodes, 1, 1000),
            ("--rounds", 1 if self.rounds is None else self.rounds, 1, LARGEST_ROUNDS),
            ("--seed", self.seed, 0, 4999),
            ("--processes", 1 if self.processes is None else self.processes, 1, 1024),
        )
        self.where.check()


def main(arguments: Sequence[str] | None = None, *, program: str = "collapipe tune") -> int:
    """Run the command line; see :func:`~collapipe_env.cli.common.run_command`."""
    return run_command(Options, _run, DESCRIPTION, arguments, program)


def _run(options: Options, program: str, given: Sequence[str]) -> None:
    # Imported late, so that --help and typing errors are answered at once.
    from rich.console import Console

    from collapipe_env.evaluation.tuning import TuningPlan, tune
    from collapipe_env.evaluation.tuning_report import tuning_page, tuning_record
    from collapipe_env.evaluation.tuning_search import require_cma
    from collapipe_env.evaluation.tuning_space import tunable
    from collapipe_env.scenario.section_writing import require_replaceable, section_lines, write_scalars

    options.check()
    scenario = chosen_scenario(options.scenario, None, None)
    names = tunable(scenario)
    require_cma()
    require_scheduler(options.scheduler)
    (scheduler,) = full_names([options.scheduler])
    load_scheduler(scheduler, scenario, None)
    if options.write is not None:
        require_replaceable(options.write, scenario, names)
    default = Path("runs") / f"tune-{folder_name(scenario.name)}-seed{options.seed}"
    run = RunDirectory(options.out or default)
    plan = TuningPlan(
        scenario=lasting(_untuned(scenario), options.rounds),
        scheduler=scheduler,
        names=names,
        candidates=options.candidates,
        episodes=options.episodes,
        check_episodes=options.check_episodes,
        rounds=scenario.dynamics.rounds if options.rounds is None else options.rounds,
        seed=options.seed,
        folder=run.candidates,
    )
    asked = {
        "kind": "tuning",
        "scenario": plan.scenario.to_dict(),
        "scheduler": plan.scheduler,
        "candidates": plan.candidates,
        "episodes": plan.episodes,
        "rounds": plan.rounds,
        "seed": plan.seed,
    }
    command = command_line(program, given)
    with started(run, command, asked, fresh=options.fresh) as continued:
        say_folder(run.path, continued)
        write_text(run.scenario, plan.scenario.to_yaml())
        print(
            f"tuning {', '.join(names)} of {scheduler} on {scenario.name}: {plan.candidates} candidates, "
            f"{plan.episodes} episodes of {plan.rounds} rounds each"
        )
        executor = options.where.build(options.processes, usual=1)
        with _Progress(plan) as progress:
            tuned = tune(plan, progress.round, progress.trial, executor, progress.again)
        page = tuning_page(plan, tuned)
        lines = section_lines(tuned.chosen, [command])
        write_json(run.tuning, {**record(program, given, **tuning_record(tuned)), "section": lines})
        write_text(run.table, page.markdown() + "\n```yaml\n" + "\n".join(lines) + "\n```\n")
        if options.write is not None:
            write_scalars(options.write, scenario, tuned.chosen, [command])
        console = Console(highlight=False)
        console.print()
        page.print(console)
        console.print()
        console.print("\n".join(lines), markup=False, soft_wrap=True)
        console.print()
        if options.write is not None:
            console.print(f"written:   {options.write}", markup=False, soft_wrap=True)
        console.print(f"table:     {run.table}", markup=False, soft_wrap=True)
        console.print(f"tuning:    {run.tuning}", markup=False, soft_wrap=True)


def _untuned(scenario: Scenario) -> Scenario:
    """The scenario with neutral scalars, so that its own do not affect the result."""
    return dataclasses.replace(scenario, dssra_plus=type(scenario.dssra_plus)())


class _Progress:
    """The progress bar over the rounds of all candidates, and a line for each finished one."""

    def __init__(self, plan: TuningPlan) -> None:
        from collapipe_env.ground.progress import progress_bar

        self._rounds = plan.rounds
        # Without the rounds of the check: only the end shows whether there is one.
        self._bar = progress_bar(plan.candidates * plan.rounds, "tuning", "rounds")

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def round(self) -> None:
        """Count a round of a candidate's episodes."""
        if self._bar.n == self._bar.total:
            self._bar.total += 2 * self._rounds  # of the check
        self._bar.update(1)

    def again(self, place: str, reason: str) -> None:
        """Report a restarted candidate."""
        self._bar.write(f"{place:>17}  restarted: {reason}")

    def trial(self, place: str, trial: Trial, known: bool) -> None:
        """Report a finished candidate."""
        from collapipe_env.evaluation.tuning_report import scalars_text

        self._bar.update(0 if not known else self._rounds)
        delay, priced = (sum(values) / len(values) for values in (trial.delay, trial.priced))
        over = "  over its energy budget" if trial.gate.failed else ""
        self._bar.write(
            f"{place:>17}  priced {priced:8.3f} s  delay {delay:8.3f} s  {scalars_text(trial.scalars)}"
            f"{over}{'  (kept)' if known else ''}"
        )
