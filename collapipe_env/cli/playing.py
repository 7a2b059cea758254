"""Plays the episodes of one scenario and reports them: the second half of training, all of evaluating."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from collapipe_env.evaluation.run_directory import RunDirectory

if TYPE_CHECKING:
    from collapipe_env.evaluation.runner import EvaluationPlan


def play_and_report(
    plan: EvaluationPlan,
    run: RunDirectory,
    history: Sequence[Mapping[str, float]],
    record: Callable[[], Mapping[str, Any]],
    *,
    figures: bool,
) -> None:
    """Play what is missing, then print and write the report.

    Args:
        plan: What to play.
        run: The folder, open already.
        history: Validations of the agent's training; may be empty.
        record: Gives further contents of ``results.json``, asked for at the end.
        figures: Whether to draw.

    Raises:
        CollaPipeError: If a scheduler cannot play, or a file cannot be read or written.
    """
    from collapipe_env.evaluation.report import write_report
    from collapipe_env.evaluation.runner import evaluate

    print(
        f"evaluating {', '.join(plan.schedulers)}: {plan.size} each, "
        f"{plan.learner} learner, {plan.processes} "
        f"process{'es' if plan.processes > 1 else ''}"
    )
    results = evaluate(plan)
    write_report(plan, results, history, record(), run, figures=figures)
