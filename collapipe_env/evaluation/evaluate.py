"""``collapipe_env.evaluate``: the command's evaluation as one call in Python."""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from rich.console import Console

from collapipe_env.evaluation.agent_runs import require_runs
from collapipe_env.evaluation.comparison import ScenarioComparison, summarise_scenario
from collapipe_env.evaluation.own_code import is_reference
from collapipe_env.evaluation.own_scheduler import is_policy
from collapipe_env.evaluation.plan import EvaluationPlan
from collapipe_env.evaluation.pool import leave_unless_guarded
from collapipe_env.evaluation.provenance import started
from collapipe_env.evaluation.report import (
    explanation,
    heading,
    markdown_report,
    notes_below,
    print_report,
    write_files,
)
from collapipe_env.evaluation.rounds import LARGEST_ROUNDS, lasting
from collapipe_env.evaluation.run_directory import RunDirectory
from collapipe_env.evaluation.runner import evaluate_all
from collapipe_env.evaluation.scheduler_loading import (
    ReadyMade,
    full_names,
    make_scheduler,
    require_scheduler,
)
from collapipe_env.evaluation.statistics import Results, Summary
from collapipe_env.ground.errors import CheckpointError, ScenarioError, SchedulerError, nearest_name, shown
from collapipe_env.ground.files import without_nan, write_text
from collapipe_env.learners.factory import LEARNERS
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.schedulers import DEFAULT_SCHEDULERS, LEARNED, SCHEDULERS, Factory, Scheduler
from collapipe_env.zoo.shipped_agents import agent_path

Player: TypeAlias = str | Factory | Scheduler
"""A scheduler as :func:`evaluate` takes it: a name, a factory, or a scheduler itself."""


@dataclass(frozen=True, eq=False)
class Evaluation(Mapping[str, Summary]):
    """Result of :func:`evaluate`: a mapping from each scheduler's name to its summary, in the given order.

    ``print(evaluation)`` prints the table of ``collapipe evaluate``; notebooks display it as a table.

    Attributes:
        comparison: The comparison of the schedulers on the scenario.
    """

    comparison: ScenarioComparison

    @property
    def summaries(self) -> tuple[Summary, ...]:
        """Summary of each scheduler: means over episodes with 95 % bootstrap intervals."""
        return tuple(self.comparison.as_asked)

    @property
    def episodes(self) -> Results:
        """Each scheduler's episodes by its name, with every round's figures."""
        return self.comparison.results

    @property
    def reference(self) -> str:
        """Name of the scheduler to which the others are compared."""
        return self.comparison.reference

    @property
    def target_loss(self) -> float:
        """Target loss of ``time_to_target`` [nat]; NaN if there is none."""
        return self.comparison.target

    @property
    def title(self) -> str:
        """Scenario, episodes, rounds and learner."""
        return heading(self.comparison.plan)

    @property
    def caption(self) -> str:
        """Meaning of the columns, the target, and marks."""
        return "\n\n".join([*notes_below(self.comparison), explanation([self.comparison])])

    @property
    def scenario(self) -> Scenario:
        """The scenario, as it was played."""
        return self.comparison.plan.scenario

    def __getitem__(self, name: str) -> Summary:
        """The summary of a scheduler, by its requested name or its title in the table."""
        for summary in self.summaries:
            if name in (summary.scheduler, summary.title):
                return summary
        raise KeyError(f"{name!r} did not play: {nearest_name(name, self.episodes)}")

    def __iter__(self) -> Any:
        """Names of the schedulers."""
        return iter(self.episodes)

    def __len__(self) -> int:
        """Number of schedulers that played."""
        return len(self.episodes)

    def table(self, width: int | None = None) -> str:
        """The table as text, at most as wide as asked or the terminal; 80 characters without a terminal."""
        text = io.StringIO()
        columns = shutil.get_terminal_size().columns if width is None else width
        console = Console(file=text, width=columns, highlight=False, force_terminal=False)
        print_report(console, [self.comparison])
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    def markdown(self) -> str:
        """The table in Markdown, with all columns."""
        return markdown_report([self.comparison])

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data for JSON; ``None`` where there is no number."""
        content = {"scenario": self.scenario.to_dict(), **self.comparison.to_dict()}
        plain: dict[str, Any] = without_nan(content)
        return plain

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return f"<Evaluation of {', '.join(self.episodes)} on {self.title}>"

    def _repr_markdown_(self) -> str:
        return self.markdown()


def evaluate(
    schedulers: Player | Iterable[Player] = DEFAULT_SCHEDULERS,
    scenario: str | Path | Mapping[str, Any] | Scenario = "medium",
    *,
    seeds: int = 5,
    rounds: int | None = None,
    learner: str = "surrogate",
    agent: str | Path | Sequence[str | Path] | None = None,
    reference: str | None = None,
    processes: int = 1,
    threads: int = 1,
    out: str | Path | None = None,
    fresh: bool = False,
) -> Evaluation:
    """Play schedulers on the same held-out episodes of one scenario, as ``collapipe evaluate`` does.

    Nothing is written unless ``out`` is given. A scheduler is one of:

    * a name: a scheduler of the package, one registered with :func:`~collapipe_env.register_scheduler`, or an
      agent of the zoo, with or without ``zoo:``;
    * ``"package.module:Name"`` or ``"path/to/file.py:Name"``;
    * a class or function that is called with the scenario alone and returns a scheduler;
    * a scheduler itself: anything with ``name``, ``reset`` and ``act``.

    Args:
        schedulers: One or several. ``"agent"`` means the file given as ``agent``.
        scenario: A shipped scenario, a YAML file, a mapping or an object.
        seeds: Held-out episodes of each scheduler, the same ones for all, >= 1.
        rounds: Rounds of an episode, >= 1, possibly more than the scenario's; the scenario's by default.
        learner: ``"surrogate"`` for the fitted loss, ``"real"`` to train a model in every round, or a
            registered name.
        agent: A saved agent of ``collapipe train``, or ``"zoo:NAME"``; or several training runs of one
            learned scheduler, over which the intervals then extend.
        reference: Scheduler to which the others are compared; by default DSSRA if it plays, otherwise the
            first.
        processes: Episodes played at once. With more than one, each is played in a process of its own:
            schedulers then have to be names, or classes and functions at the top level of a module, and a
            script needs ``if __name__ == "__main__":``.
        threads: PyTorch threads during play.
        out: Folder for the files that the command writes, except pictures. The same call in the same folder
            plays only episodes that are missing or have changed.
        fresh: Start over in that folder.

    Returns:
        Summaries, tables and episodes.

    Raises:
        CollaPipeError: For bad input, a scheduler that cannot play, or a file that cannot be read or written.
    """
    names, factories = _named(schedulers)
    chosen = load_scenario(scenario)
    seeds, processes = _within("seeds", seeds, 100_000), _within("processes", processes, 1024)
    threads = _within("threads", threads, 1024)
    rounds = None if rounds is None else _within("rounds", rounds, LARGEST_ROUNDS)
    files = _paths(agent)
    if out is not None and not isinstance(out, str | Path):
        raise ScenarioError(f"out = {shown(out)}: give a path")
    if processes > 1:
        leave_unless_guarded()
    LEARNERS.require(learner)
    played, length = lasting(chosen, rounds), rounds or chosen.dynamics.rounds
    if files and LEARNED not in names:
        names = (LEARNED, *names)
    if not files and LEARNED in names:
        raise CheckpointError(f"schedulers name {LEARNED!r}: give its file with agent=")
    if reference is not None and reference not in names:
        (reference,) = full_names([reference])
    if reference is not None and reference not in names:
        raise ScenarioError(f"reference = {reference!r} does not play: name one of {', '.join(names)}")
    for name in names:  # refuse bad schedulers before anything is played or written
        if name == LEARNED:
            require_runs("agent", files, played)
        else:
            make_scheduler(name, played, None, factories)
    with ExitStack() as cleanup:
        run = None
        if out is None:
            folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="collapipe-")))
        else:
            run = RunDirectory(Path(out), out_option="out", fresh_option="fresh=True")
            asked = {"kind": "evaluation in Python", "scenario": chosen.to_dict()}
            cleanup.enter_context(started(run, "collapipe_env.evaluate", asked, fresh=fresh))
            write_text(run / "scenario.yaml", played.to_yaml())
            folder = run.episodes_of(learner, length)
        plan = EvaluationPlan(
            scenario=played,
            schedulers=names,
            agents=files,
            episodes=seeds,
            rounds=length,
            learner=learner,
            folder=folder,
            threads=threads,
            factories=factories,
            own_learner=LEARNERS.get(learner) if learner in LEARNERS.added() else None,
        )
        (outcome,) = evaluate_all([plan], processes, lines=False)
        found = Evaluation(summarise_scenario(plan, outcome, reference))
        if run is not None:
            write_files([found.comparison], (), {"scenario": played.to_dict()}, run, whole=True)
    return found


def _paths(agent: object) -> tuple[Path, ...]:
    """The files of the learned scheduler's runs."""
    given = [] if agent is None else agent if isinstance(agent, list | tuple) else [agent]
    wrong = [path for path in given if not isinstance(path, str | Path)]
    if wrong or (agent is not None and not given):
        raise ScenarioError(f"agent = {shown(wrong[0] if wrong else agent)}: give a path, or a list of paths")
    return tuple(map(agent_path, given))


def _within(option: str, value: Any, largest: int) -> int:
    """A number as a plain integer, within the command line's limits."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not 1 <= value <= largest:
        raise ScenarioError(f"{option} = {shown(value)}: use a whole number from 1 to {largest:,}")
    return int(value)


def _named(schedulers: Player | Iterable[Player]) -> tuple[tuple[str, ...], dict[str, Factory]]:
    """Names of all schedulers, and the factories of those given as objects."""
    single = isinstance(schedulers, str) or callable(schedulers) or _is_scheduler(schedulers)
    if not single and not isinstance(schedulers, Iterable):
        raise SchedulerError(f"schedulers = {schedulers!r}: give a list of names, factories or schedulers")
    given: Any = [schedulers] if single else list(schedulers)  # type: ignore[arg-type]
    if not given:
        raise SchedulerError("schedulers is empty: give at least one, for instance 'dssra'")
    for player in given:
        if isinstance(player, str):
            require_scheduler(player, learned=True)
    given = [full_names([player])[0] if isinstance(player, str) else player for player in given]
    texts = [player for player in given if isinstance(player, str)]
    twice = next((text for text in texts if texts.count(text) > 1), None)
    if twice is not None:
        raise SchedulerError(f"schedulers name {twice!r} more than once: name it once")
    names: list[str] = []
    factories: dict[str, Factory] = {}
    for player in given:
        name, number = player, 1
        if not isinstance(player, str):
            factory, wanted = _factory(player)
            name = wanted
            while name in (*SCHEDULERS.names(), LEARNED, *texts, *names) or is_reference(name):
                number += 1
                name = f"{wanted.replace(':', ' ').removesuffix('.py')} {number}"
            factories[name] = factory
        names.append(name)
    return tuple(names), factories


def _factory(player: Any) -> tuple[Factory, str]:
    """The factory of a scheduler given as an object, and a name for it."""
    kind = type(player).__name__
    if _is_scheduler(player):
        return ReadyMade(player), str(getattr(player, "name", kind))
    if is_policy(player):
        raise SchedulerError(f"{kind} is a policy and no scheduler: wrap it in collapipe_env.PolicyScheduler")
    if not callable(player):
        raise SchedulerError(
            f"{player!r} is not a scheduler: give a name, a class or function that is called with the "
            "scenario, or an object with name, reset and act"
        )
    return player, str(getattr(player, "__name__", kind))


def _is_scheduler(player: object) -> bool:
    """Whether an object is a scheduler itself rather than a factory."""
    return not isinstance(player, type | str) and hasattr(player, "act")
