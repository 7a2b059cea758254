"""Rounds and figures of evaluations, which the background does not change."""

import os
import threading
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from collapipe_env.models.architecture import Architecture
from collapipe_env.scenario.learning import LearningSpec
from collapipe_env.tasks import Split, TaskData, TaskSpec
from collapipe_env.training import held_out_evaluation
from collapipe_env.training.held_out_evaluation import Evaluation, EvaluationDesk, Evaluator, metrics_due


class Model(nn.Module):
    """A model that is one number, which is also its loss."""

    def __init__(self):
        super().__init__()
        self.number = nn.Parameter(torch.zeros(()))


def figures(model, _, *, metrics=True):
    number = model.number.item()
    return Evaluation(number, {"score": -number} if metrics else {})


def desk_of(work=figures, envs=1, evaluation="background", evaluate_every=1, metric_every=1):
    settings = LearningSpec(
        evaluation=evaluation, evaluate_every=evaluate_every, metric_every=metric_every
    )  # fmt: skip
    return EvaluationDesk(work, settings, envs, ("score",))


def history(**settings):
    """Figures of a reset and of nine rounds, each of which adds one to the model."""
    desk, model = desk_of(**settings), Model()
    desk.begin_run(0, model, model)
    seen = [(desk.loss[0], desk.metrics["score"][0])]
    for _ in range(9):
        model.number.data += 1.0
        desk.end_round(0, model, model)
        seen.append((desk.loss[0], desk.metrics["score"][0]))
    return seen


def test_figures_stay_until_the_next_evaluation():
    losses, scores = np.transpose(history(evaluation="inline", evaluate_every=3, metric_every=6))
    assert losses.tolist() == [0, 1, 1, 3, 3, 3, 6, 6, 6, 9]
    assert (-scores).tolist() == [0, 1, 1, 1, 1, 1, 6, 6, 6, 6]


@pytest.mark.parametrize("every", [1, 3])
def test_background_figures_are_those_of_inline_one_evaluation_later(every):
    settings = {"evaluate_every": every, "metric_every": 2 * every}
    inline, background = history(evaluation="inline", **settings), history(**settings)
    due = [0, *(number for number in range(1, 10) if number == 1 or number % every == 0)]
    expected = inline[0]
    for number, found in enumerate(background):
        if number in due[1:]:
            expected = inline[due[due.index(number) - 1]]
        assert found == expected


def test_metrics_are_due_as_often_as_asked_for():
    def due(every, metric_every):
        rounds = (n for n in range(1, 16) if n == 1 or n % every == 0)
        return [n for n in rounds if metrics_due(n, every, metric_every)]

    assert due(1, 5) == due(5, 5) == due(5, 1) == [1, 5, 10, 15]
    assert due(3, 5) == [1, 6, 12, 15]
    assert due(4, 100) == [1]


def in_background():
    return threading.current_thread() is not threading.main_thread()


def test_a_copy_is_evaluated_while_training_goes_on_and_one_thread_at_a_time():
    """The threads wait until all rounds have moved the weights, and evaluate those that they were given."""
    go_on, active, most = threading.Event(), [0], [0]

    def held_up(model, head, *, metrics=True):
        active[0] += 1
        most[0] = max(most[0], active[0])
        assert go_on.wait(10)
        active[0] -= 1
        return figures(model, head, metrics=metrics)

    desk, model = desk_of(held_up, envs=4), Model()
    for env in range(4):
        model.number.data += 1.0
        desk.end_round(env, model, model)
    go_on.set()
    for env in range(4):
        desk.end_round(env, model, model)
    assert desk.loss.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert most == [1]
    left = [thread for thread in threading.enumerate() if thread.name == "evaluation"]
    for thread in left:
        thread.join(10)
    assert not any(thread.is_alive() for thread in left)


def test_errors_of_the_thread_reach_the_caller():
    def work(model, head, *, metrics=True):
        if in_background():
            raise OverflowError("too much")
        return Evaluation(1.0, {"score": 0.5})

    desk = desk_of(work)
    desk.begin_run(0, Model(), nn.Identity())
    desk.end_round(0, Model(), nn.Identity())
    with pytest.raises(OverflowError, match="too much"):
        desk.end_round(0, Model(), nn.Identity())
    assert desk.loss[0] == 1.0


def test_a_reset_forgets_what_is_under_way():
    desk, model = desk_of(), Model()
    for _ in range(2):
        model.number.data.fill_(0.0)
        desk.begin_run(0, model, model)
        model.number.data += 5.0
        desk.end_round(0, model, model)
        assert desk.loss[0] == 0.0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_fork_computes_what_its_parent_had_under_way():
    release = threading.Event()

    def work(model, head, *, metrics=True):
        if in_background():
            release.wait(10)
        return Evaluation(2.5, {})

    desk = desk_of(work)
    desk.end_round(0, Model(), nn.Identity())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of forks beside threads
        child = os.fork()
    if child == 0:
        desk.end_round(0, Model(), nn.Identity())
        os._exit(0 if desk.loss[0] == 2.5 else 1)
    release.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class WordCount:
    """A toy task: the model returns token ids, the head their sum, which should be the target."""

    name, metrics = "toy", ("hits",)

    def units(self, targets):
        return targets.double()

    def loss(self, outputs, targets):
        return (outputs * targets).sum() / targets.sum()

    def predict(self, head, hidden, mask, _):
        return head(hidden, mask).long()

    def score(self, predictions, split, _):
        assert len(predictions) == len(split)
        return {"hits": float(np.mean(predictions == split.targets))}


class Sum(nn.Module):
    def forward(self, hidden, mask, *_):
        assert not self.training
        return (hidden * mask).sum(dim=-1).double()


@pytest.mark.parametrize(("samples", "metric_samples"), [(150, 70), (64, 1000), (1000, 1)])
@pytest.mark.parametrize("split", ["test", "dev"])
def test_loss_is_a_mean_over_units_and_metrics_take_their_samples(samples, metric_samples, split):
    tokens = np.random.default_rng(1).integers(0, 5, (200, 3))
    targets = np.where(np.arange(200) < 60, tokens.sum(axis=-1), 1 + tokens.sum(axis=-1))
    parts = {name: Split(np.empty((0, 3), dtype=int), np.empty(0, dtype=int)) for name in ("dev", "test")}
    parts[split] = Split(tokens, targets)
    data = TaskData(parts[split], **parts, strata=targets, lengths=targets)
    learning = LearningSpec(evaluation_samples=samples, metric_samples=metric_samples, evaluation_split=split)
    spec = TaskSpec(Architecture(1, 2, 2, 1, 3, 64), 1)
    evaluator = Evaluator(WordCount(), spec, data, learning, torch.device("cpu"))
    order = np.random.default_rng(0).permutation(200)
    tokens, targets = tokens[order], targets[order]
    # Frozen parts stay as they are.
    model, head = nn.Sequential(nn.Identity().eval(), nn.Identity()), Sum()
    found = evaluator(model, head)
    assert [part.training for part in (model, *model, head)] == [True, False, True, True]
    sums = tokens.sum(axis=-1)[:samples]
    assert found.loss == pytest.approx((sums * targets[:samples]).sum() / targets[:samples].sum())
    scored = min(samples, metric_samples)
    assert found.metrics == {"hits": pytest.approx(np.mean(sums[:scored] == targets[:scored]))}
    assert evaluator(model, head, metrics=False) == Evaluation(found.loss, {})


class Copying(WordCount):
    """Writes as many tokens of each row as the row's first one says."""

    def predict(self, _, hidden, *__):
        return hidden[:, : int(hidden[:, 0].max())].long()

    def score(self, predictions, *_):
        return {"hits": predictions.tolist()}


def test_generated_rows_of_unequal_length_are_joined(monkeypatch):
    monkeypatch.setitem(held_out_evaluation.EVALUATION_BATCH, "cpu", 2)
    tokens = np.array([[3, 1, 1], [2, 7, 7], [3, 1, 1], [2, 7, 7]])  # read in the order 2, 0, 1, 3
    split = Split(tokens, np.ones(4, dtype=int))
    data = TaskData(split, split, split, strata=tokens[:, 0], lengths=tokens[:, 0])
    spec = TaskSpec(Architecture(1, 2, 2, 1, 3, 64), 1)
    evaluator = Evaluator(Copying(), spec, data, LearningSpec(), torch.device("cpu"))
    found = evaluator(nn.Identity(), Sum()).metrics["hits"]
    assert found == [[3, 1, 1], [3, 1, 1], [2, 7, 0], [2, 7, 0]]
