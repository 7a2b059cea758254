"""Forms of metrics: which are shares, and of which less is better."""

from collapipe_env.evaluation.metric_forms import FORMS, lower_is_better_note, metric_form
from collapipe_env.scenario.task_registry import task_names
from collapipe_env.tasks import get_task


def test_only_perplexity_and_bits_fall():
    names = {name for task in task_names() for name in get_task(task).metrics}
    assert {name for name in names if metric_form(name).lower_is_better} == {"perplexity", "bits_per_byte"}
    assert set(FORMS) <= names


def test_shares_are_shown_in_percent():
    form = metric_form("token_accuracy")
    assert (form.title, form.unit, form.scale, form.lower_is_better) == ("token accuracy", "%", 100.0, False)
    assert (metric_form("perplexity").unit, metric_form("perplexity").scale) == ("", 1.0)


def test_the_note_names_each_once():
    assert lower_is_better_note(["bleu", "mcc"]) == []
    assert lower_is_better_note(["perplexity", "bleu", "bits_per_byte", "perplexity"]) == [
        "Of perplexity and bits per byte, less is better."
    ]
