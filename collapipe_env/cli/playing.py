"""Play episodes and report them: all of evaluate and compare, and the second half of train."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from collapipe_env.cli.common import chosen_learners, say_data
from collapipe_env.cli.option_types import (
    PROCESSES,
    Count,
    Episodes,
    Fresh,
    Learner,
    Rounds,
    Threads,
    Within,
    about,
)
from collapipe_env.evaluation.rounds import lasting
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

    episodes: Episodes = 5
    rounds: Rounds = None
    learner: Learner = "surrogate"
    processes: Annotated[
        Count, PROCESSES, about(default="2, or 1 on a single core; depends on the engine with --executor")
    ] = None
    """Number of episodes played at once, each in its own process or job."""
    samples: Annotated[
        Count,
        Within(0, 100),
        about(default=f"{USUAL_SAMPLES} if a language model is really trained, otherwise 0"),
    ] = None
    """Continuations of held-out texts that each trained language model writes at the end."""
    save_models: bool = False
    """Save each language model (style gpt2 or llama) of the first episode as a Hugging Face folder."""

    def require_models(self, scenarios: Iterable[Scenario], learner: str) -> None:
        """Refuse samples that no model can write, and models that cannot be saved.

        Raises:
            ScenarioError: If the learner trains no model, a task writes no text, or a model is of a kind that
                cannot be saved.
        """
        asked = [f"--samples {self.samples}"] * bool(self.samples) + ["--save-models"] * self.save_models
        if not asked:
            return
        if learner != "real":
            raise ScenarioError(
                f"{asked[0]} needs a trained model, and --learner {learner} has none: add --learner real"
            )
        from collapipe_env.models.style_fields import CAUSAL
        from collapipe_env.tasks import get_task
        from collapipe_env.tasks.base import require_writing, trained_architecture

        for scenario in scenarios:
            task = scenario.workload.task
            if self.samples:
                require_writing(get_task(task))
            if not self.save_models:
                continue
            style = trained_architecture(scenario).style
            if not task_traits(task).causal or style not in CAUSAL:
                raise ScenarioError(
                    f"--save-models: scenario {scenario.name!r} trains blocks of style {style!r} on task "
                    f"{task!r}, but only language-modelling with style "
                    f"{' or '.join(map(repr, CAUSAL))} can be saved: set learning.proxy.style (or "
                    "workload.style, with the proxy off), or leave the option out"
                )

    def samples_of(self, scenario: Scenario, learner: str) -> int:
        """Continuations that each model of a scenario writes."""
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
            agents: Files of the learned scheduler, one for each training run.
            folder: Returns the folder of finished episodes for the learner and the rounds.
        """
        from collapipe_env.evaluation.plan import EvaluationPlan

        rounds = self.rounds or scenario.dynamics.rounds
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

    threads: Threads = 1
    """PyTorch threads per process."""
    fresh: Fresh = False
    no_figures: bool = False
    """Draw no figures."""

    def usable_learner(self, scenarios: Collection[Scenario]) -> str:
        """Return the registered name of the learner, and print a line about the user's own data.

        Raises:
            CollaPipeError: If the learner, the data, or an option of trained models cannot be used.
        """
        (learner,) = chosen_learners(scenarios, self.learner)
        self.require_models(scenarios, learner)
        say_data(scenarios)
        return learner


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
