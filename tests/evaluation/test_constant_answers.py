"""The line of a report that says what an answer that is always the same would reach."""

from pathlib import Path

import pytest

from collapipe_env.evaluation.constant_answers import constant_answer_notes
from collapipe_env.evaluation.plan import EvaluationPlan
from collapipe_env.scenario import load_scenario


def plan(learner="real", task="classification", **changes):
    scenario = load_scenario("small").with_task(task).with_overrides(changes)
    return EvaluationPlan(
        scenario=scenario, schedulers=("pipeline",), agents=(), episodes=1, rounds=1, learner=learner,
        folder=Path("unused"),
    )  # fmt: skip


@pytest.mark.parametrize(("part", "share"), [("test", 293 / 475), ("dev", 153 / 245)])
def test_classification_is_held_against_its_most_frequent_class(part, share):
    (line,) = constant_answer_notes(plan(**{"learning.evaluation_split": part}))
    assert f"right in {100 * share:.1f} % of the {part} part" in line


@pytest.mark.parametrize(
    "other", [{"learner": "surrogate"}, {"task": "ner"}, {"learning.dataset": "gone.tsv"}], ids=str
)
def test_there_is_no_line_where_nothing_is_trained_known_or_left(other):
    assert constant_answer_notes(plan(**other)) == []
