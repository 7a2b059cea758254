"""The baseline that learning has to beat: a constant answer."""

from __future__ import annotations

from collapipe_env.evaluation.plan import EvaluationPlan
from collapipe_env.ground.errors import CollaPipeError
from collapipe_env.tasks.base import get_task, task_spec


def constant_answer_notes(plan: EvaluationPlan) -> list[str]:
    """A sentence about the best constant answer to the task; empty if it is unknown or no model is trained.

    Args:
        plan: The plan that was played.
    """
    if plan.learner != "real":
        return []
    scenario = plan.scenario
    share_right = getattr(get_task(scenario.workload.task), "constant_answer", None)
    if share_right is None:
        return []
    part = scenario.learning.evaluation_split
    try:
        right = share_right(task_spec(scenario), part)
    except CollaPipeError:  # finished episodes can be reported where the data is gone
        return []
    return [
        f"Naming the most frequent class of training every time is right in {100.0 * right:.1f} % of the "
        f"{part} part."
    ]
