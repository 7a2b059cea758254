"""Play episodes and report them: all of evaluate and compare, and the second half of train."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from collapipe_env.cli.common import LEARNER_OPTION, hint, require_within
from collapipe_env.evaluation.rounds import LARGEST_ROUNDS, lasting
from collapipe_env.evaluation.run_directory import RunDirectory
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.task_registry import task_traits

if TYPE_CHECKING:
    from collapipe_env.evaluation.executor import Executor
    from collapipe_env.evaluation.plan import EvaluationPlan

USUAL_SAMPLES = 2
"""Default number of continuations that a language model writes."""


@dataclass(frozen=True)
class EpisodeOptions:
    """Held-out episodes, the same options in train, evaluate and compare."""

    episodes: int = 5
    """Number of held-out episodes, the same for every scheduler."""
    rounds: Annotated[int | None, tyro.conf.arg(metavar="INT"), hint("default: the scenario's")] = None
    """Rounds per episode; may be more than the scenario's."""
    learner: Annotated[str, LEARNER_OPTION] = "surrogate"
    processes: Annotated[
        int | None,
        tyro.conf.arg(metavar="INT"),
        hint("default: 2, or 1 on a single core; depends on the engine with --executor"),
    ] = None
    """Number of episodes played at once, each in its own process or job."""
    samples: Annotated[
        int | None,
        tyro.conf.arg(metavar="INT"),
        hint(f"default: {USUAL_SAMPLES} if a language model is really trained, otherwise 0"),
    ] = None
    """Continuations of held-out texts that each trained language model writes at the end."""
    save_models: bool = False
    """Save each language model (style gpt2 or llama) of the first episode as a Hugging Face folder."""

    @property
    def workers(self) -> int:
        """Worker processes."""
        return min(2, os.cpu_count() or 1) if self.processes is None else self.processes

    def check(self) -> None:
        """Refuse values out of range.

        Raises:
            ScenarioError: Names the option, its value and the allowed values.
        """
        require_within(
            ("--episodes", self.episodes, 1, 100_000),
            ("--rounds", 1 if self.rounds is None else self.rounds, 1, LARGEST_ROUNDS),
            ("--processes", self.workers, 1, 1024),
            ("--samples", self.samples or 0, 0, 100),
        )

    def check_samples(self, scenarios: Iterable[Scenario], learner: str) -> None:
        """Refuse samples that no model can write.

        Args:
            scenarios: The scenarios that are played.

        Raises:
            ScenarioError: If the learner trains no model, or a task writes no text.
        """
        if not self.samples:
            return
        if learner != "real":
            raise ScenarioError(
                f"--samples {self.samples} needs a trained model, and --learner {learner} has none: add "
                "--learner real"
            )
        from collapipe_env.tasks import get_task
        from collapipe_env.tasks.base import require_writing

        for scenario in scenarios:
            require_writing(get_task(scenario.workload.task))

    def check_models(self, scenarios: Iterable[Scenario], learner: str) -> None:
        """Refuse to keep models that cannot be saved.

        Args:
            scenarios: The scenarios that are played.

        Raises:
            ScenarioError: If the learner trains no model, or a model of a kind that cannot be saved.
        """
        if not self.save_models:
            return
        if learner != "real":
            raise ScenarioError(
                f"--save-models needs a trained model, and --learner {learner} has none: add --learner real"
            )
        from collapipe_env.models.architecture import CAUSAL_STYLES
        from collapipe_env.tasks.base import trained_architecture

        for scenario in scenarios:
            style = trained_architecture(scenario).style
            if not task_traits(scenario.workload.task).causal or style not in CAUSAL_STYLES:
                raise ScenarioError(
                    f"--save-models: scenario {scenario.name!r} trains blocks of style {style!r} on task "
                    f"{scenario.workload.task!r}, but only language-modelling with style "
                    f"{' or '.join(map(repr, CAUSAL_STYLES))} can be saved: set learning.proxy.style (or "
                    "workload.style, with the proxy off), or leave the option out"
                )

    def samples_of(self, scenario: Scenario, learner: str) -> int:
        """Continuations that each model of a scenario writes.

        Args:
            scenario: The scenario that is played.
        """
        if self.samples is not None:
            return self.samples
        if learner != "real":
            return 0
        from collapipe_env.tasks import get_task
        from collapipe_env.tasks.base import writes_text

        return USUAL_SAMPLES if writes_text(get_task(scenario.workload.task)) else 0

    def plan(
        self,
        scenario: Scenario,
        schedulers: tuple[str, ...],
        agents: tuple[Path, ...],
        learner: str,
        folder: Callable[[str, int], Path],
        threads: int,
    ) -> EvaluationPlan:
        """Return the plan of the episodes.

        Args:
            scenario: The scenario; more rounds than it has make it longer.
            schedulers: The schedulers that play.
            agents: Files of the learned scheduler, one for each training run.
            folder: Returns the folder of finished episodes for the learner and the rounds.
            threads: Threads of PyTorch in each process.
        """
        from collapipe_env.evaluation.plan import EvaluationPlan

        rounds = scenario.dynamics.rounds if self.rounds is None else self.rounds
        return EvaluationPlan(
            scenario=lasting(scenario, self.rounds),
            schedulers=schedulers,
            agents=agents,
            episodes=self.episodes,
            rounds=rounds,
            learner=learner,
            own_learner=None if learner == self.learner else self.learner,
            folder=folder(learner, rounds),
            threads=threads,
            samples=self.samples_of(scenario, learner),
            save_models=self.save_models,
        )


@dataclass(frozen=True)
class PlayOptions(EpisodeOptions):
    """Episodes and how they are played: the same options in evaluate and compare."""

    threads: int = 1
    """PyTorch threads per process."""
    fresh: bool = False
    """Start over in the folder instead of resuming."""
    no_figures: bool = False
    """Draw no figures."""

    def check(self) -> None:
        """Refuse values out of range, as :meth:`EpisodeOptions.check` does."""
        super().check()
        require_within(("--threads", self.threads, 1, 1024))


def play_and_report(
    plans: Sequence[EvaluationPlan],
    run: RunDirectory,
    record: Callable[[], Mapping[str, Any]],
    *,
    executor: Executor,
    figures: bool,
    several: bool = False,
    reference: str | None = None,
    gantt: Sequence[str] = (),
    history: Sequence[Mapping[str, float]] = (),
) -> None:
    """Play the missing episodes, then print and write the report.

    Args:
        plans: The plans to play, one for each scenario.
        run: The folder, already open.
        record: Returns further contents of the JSON file; called at the end.
        executor: Plays the episodes.
        figures: Whether to draw.
        several: Whether there may be several scenarios. A scheduler that cannot play one of them is then
            reported while the rest continues, and ``summary.json`` is written; otherwise ``results.json``.
        reference: Scheduler to which the others are compared; DSSRA if it plays, otherwise the first.
        gantt: Schedulers whose typical rounds are drawn side by side; the best few by default.
        history: Validations of the agent's training; may be empty.

    Raises:
        CollaPipeError: If a scheduler cannot play, or a file cannot be read or written.
    """
    from collapipe_env.evaluation.comparison import summarise_scenario
    from collapipe_env.evaluation.own_parts import place_of
    from collapipe_env.evaluation.report import write_report
    from collapipe_env.evaluation.runner import evaluate_all

    names = list(dict.fromkeys(name for plan in plans for name in plan.schedulers))
    sizes = " or ".join(dict.fromkeys(plan.size for plan in plans))
    print(
        f"playing {', '.join(names)} on {', '.join(plan.scenario.name for plan in plans)}: {sizes} each, "
        f"{plans[0].learner} learner, {place_of(executor, [plan.scenario for plan in plans]).where}"
    )
    outcomes = evaluate_all(plans, executor, tolerant=several)
    comparisons = [
        summarise_scenario(plan, outcome, reference) for plan, outcome in zip(plans, outcomes, strict=True)
    ]
    write_report(comparisons, record(), run, whole=not several, figures=figures, gantt=gantt, history=history)
