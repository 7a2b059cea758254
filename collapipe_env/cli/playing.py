"""Play episodes and report them: all of evaluate and compare, and the second half of train."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from collapipe_env.cli.chosen import chosen_learner
from collapipe_env.cli.option_types import Count, Episodes, Learner, Processes, Rounds, Threads, Within, about
from collapipe_env.evaluation.rounds import lasting
from collapipe_env.evaluation.run_directory import RunDirectory
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.task_registry import task_traits

if TYPE_CHECKING:
    from collapipe_env.evaluation.executor import Executor
    from collapipe_env.evaluation.plan import EvaluationPlan


@dataclass(frozen=True)
class PlayOptions:
    """Held-out episodes, the same for every scheduler, and how they are played."""

    episodes: Episodes = 5
    rounds: Rounds = None
    learner: Learner = "surrogate"
    processes: Processes = None
    samples: Annotated[
        Count, Within(0, 100), about(default="2 if a language model is really trained, otherwise 0")
    ] = None
    """Continuations of held-out texts that each trained language model writes at the end."""
    save_models: bool = False
    """Save each language model (style gpt2 or llama) of the first episode as a Hugging Face folder."""
    threads: Threads = 1
    """PyTorch threads per process; one is fastest for models this small."""
    no_figures: bool = False
    """Draw no figures."""

    def learner_for(self, scenarios: Collection[Scenario]) -> str:
        """Return the registered name of the learner, which must be able to write what is asked for."""
        learner = chosen_learner(scenarios, self.learner)
        asked = [f"--samples {self.samples}"] * bool(self.samples) + ["--save-models"] * self.save_models
        if not asked:
            return learner
        if learner != "real":
            raise ScenarioError(
                f"{asked[0]} needs a trained model, and --learner {learner} has none: add --learner real"
            )
        from collapipe_env.models.style_fields import CAUSAL
        from collapipe_env.tasks import get_task
        from collapipe_env.tasks.base import require_writing, trained_architecture

        for scenario in scenarios:
            task, style = scenario.workload.task, trained_architecture(scenario).style
            if self.samples:
                require_writing(get_task(task))
            if self.save_models and not (task_traits(task).causal and style in CAUSAL):
                raise ScenarioError(
                    f"--save-models: scenario {scenario.name!r} trains blocks of style {style!r} on task "
                    f"{task!r}, but only language-modelling with style "
                    f"{' or '.join(map(repr, CAUSAL))} can be saved: set learning.proxy.style (or "
                    "workload.style, with the proxy off), or leave the option out"
                )
        return learner

    def plan(
        self,
        scenario: Scenario,
        schedulers: tuple[str, ...],
        agents: tuple[Path, ...],
        learner: str,
        run: RunDirectory,
        among: str | None = None,
    ) -> EvaluationPlan:
        """Return the plan of the episodes.

        Args:
            agents: Files of the learned scheduler, one for each training run.
            run: The folder.
            among: Name of the episodes' folder, where there are several scenarios.
        """
        from collapipe_env.evaluation.plan import EvaluationPlan
        from collapipe_env.tasks import get_task
        from collapipe_env.tasks.base import writes_text

        rounds, samples = self.rounds or scenario.dynamics.rounds, self.samples
        if samples is None:
            samples = 2 if learner == "real" and writes_text(get_task(scenario.workload.task)) else 0
        return EvaluationPlan(
            scenario=lasting(scenario, self.rounds),
            schedulers=schedulers,
            agents=agents,
            episodes=self.episodes,
            rounds=rounds,
            learner=learner,
            own_learner=None if learner == self.learner else self.learner,
            folder=run.episodes_of(learner, rounds) if among is None else run / "evaluation" / among,
            threads=self.threads,
            samples=samples,
            save_models=self.save_models,
        )


def play_and_report(
    plans: Sequence[EvaluationPlan],
    run: RunDirectory,
    record: Callable[[], Mapping[str, Any]],
    executor: Executor,
    *,
    figures: bool,
    several: bool = False,
    reference: str | None = None,
    gantt: Sequence[str] = (),
    history: Sequence[Mapping[str, float]] = (),
) -> None:
    """Play the missing episodes of each scenario, then print and write the report.

    Args:
        run: The folder, already open.
        record: Returns further contents of the JSON file; called at the end.
        executor: Plays the episodes.
        several: Whether there may be several scenarios. A scheduler that cannot play one of them is then
            reported while the rest continues, and ``summary.json`` is written; otherwise ``results.json``.
        reference: Scheduler to which the others are compared; DSSRA if it plays, otherwise the first.
        gantt: Schedulers whose typical rounds are drawn side by side; the best few by default.
        history: Validations of the agent's training; may be empty.

    Raises:
        ScenarioError: After the report, if no scheduler could play any of the scenarios.
    """
    from collapipe_env.evaluation.comparison import summarise_scenario
    from collapipe_env.evaluation.own_parts import knowing_all
    from collapipe_env.evaluation.report import write_report
    from collapipe_env.evaluation.runner import evaluate_all

    names = list(dict.fromkeys(name for plan in plans for name in plan.schedulers))
    sizes = " or ".join(dict.fromkeys(plan.size for plan in plans))
    place = knowing_all(executor, [plan.scenario for plan in plans], note=False)
    print(
        f"playing {', '.join(names)} on {', '.join(plan.scenario.name for plan in plans)}: {sizes} each, "
        f"{plans[0].learner} learner, {place.where}"
    )
    outcomes = evaluate_all(plans, executor, tolerant=several)
    comparisons = [
        summarise_scenario(plan, outcome, reference) for plan, outcome in zip(plans, outcomes, strict=True)
    ]
    write_report(comparisons, record(), run, whole=not several, figures=figures, gantt=gantt, history=history)
    if not any(outcome.results for outcome in outcomes):
        raise ScenarioError(f"none of {', '.join(names)} could play: the reasons are above, and in {run}")
