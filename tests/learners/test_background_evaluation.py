"""Rounds and figures of evaluations, which the background does not change."""

import os
import threading
import time
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from learner_support import B, N, single_outcome, small_learner
from torch import nn

from collapipe_env.models.architecture import Architecture
from collapipe_env.scenario.learning import LearningSpec
from collapipe_env.tasks import Split, TaskData, TaskSpec
from collapipe_env.training import held_out_evaluation as evaluation
from collapipe_env.training.held_out_evaluation import Evaluation, EvaluationDesk, Evaluator, metrics_due

ROUND = single_outcome([[4, 0, 0]] * N, np.ones((N, 1, B), dtype=bool))


def history(rounds, **learning):
    """Reports of a reset and the rounds after it."""
    learner = small_learner(1, evaluation_samples=300, **learning)
    desk = learner._prepared[1]
    reports = [(desk.loss[0], desk.metrics["accuracy"][0], np.nan)]
    for _ in range(rounds):
        report = learner.train_round(ROUND)
        reports.append((report.loss[0], report.metrics["accuracy"][0], report.train_loss[0]))
    return np.array(reports)


def evaluation_rounds(every, rounds):
    return [number for number in range(1, rounds + 1) if number == 1 or number % every == 0]


@pytest.mark.parametrize("every", [1, 3])
def test_background_reports_are_those_of_inline_one_evaluation_later(every):
    settings = {"evaluate_every": every, "metric_every": 2 * every}
    inline, background = history(9, **settings), history(9, evaluation="background", **settings)
    np.testing.assert_array_equal(background[:, 2], inline[:, 2])
    expected = inline[0]
    due = [0, *evaluation_rounds(every, 9)]
    for number in range(10):
        if number in due[1:]:
            expected = inline[due[due.index(number) - 1]]
        np.testing.assert_array_equal(background[number, :2], expected[:2])
    assert len(set(inline[:, 0])) == len(due)


def test_training_goes_on_while_a_copy_is_evaluated(monkeypatch):
    """The thread waits until another round has moved the weights, and still evaluates those it was given."""
    reference = small_learner(1, evaluate_every=1)
    after_first = reference.train_round(ROUND).loss[0]
    go_on, call = threading.Event(), Evaluator.__call__

    def held_up(self, *arguments, **options):
        if threading.current_thread() is not threading.main_thread():
            assert go_on.wait(10)
        return call(self, *arguments, **options)

    monkeypatch.setattr(Evaluator, "__call__", held_up)
    subject = small_learner(1, evaluate_every=3, evaluation="background")
    reports = [subject.train_round(ROUND).loss[0] for _ in range(2)]
    assert len(set(reports)) == 1
    go_on.set()
    assert subject.train_round(ROUND).loss[0] == after_first != reports[0]


def test_metrics_are_due_as_often_as_asked_for():
    def due(evaluate_every, metric_every):
        return [
            number
            for number in evaluation_rounds(evaluate_every, 15)
            if metrics_due(number, evaluate_every, metric_every)
        ]

    assert due(1, 5) == [1, 5, 10, 15]
    assert due(5, 5) == due(5, 1) == [1, 5, 10, 15]
    assert due(3, 5) == [1, 6, 12, 15]
    assert due(4, 100) == [1]


def test_metrics_are_repeated_in_between():
    found = history(9, evaluate_every=1, metric_every=4, learning_rate=0.1, metric_samples=300)
    assert len(set(found[:, 0])) == 10
    for start, stop in ((1, 4), (4, 8), (8, 10)):
        assert len(set(found[start:stop, 1])) == 1
    assert len(set(found[:, 1])) > 2


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


def toy_evaluator(samples, metric_samples, split="test"):
    rng = np.random.default_rng(1)
    tokens = rng.integers(0, 5, (200, 3))
    targets = np.where(np.arange(200) < 60, tokens.sum(axis=-1), 1 + tokens.sum(axis=-1))
    parts = {name: Split(np.empty((0, 3), dtype=int), np.empty(0, dtype=int)) for name in ("dev", "test")}
    parts[split] = Split(tokens, targets)
    data = TaskData(parts[split], **parts, strata=targets, lengths=targets)
    learning = LearningSpec(evaluation_samples=samples, metric_samples=metric_samples, evaluation_split=split)
    spec = TaskSpec(Architecture(1, 2, 2, 1, 3, 64), 1)
    order = np.random.default_rng(0).permutation(200)
    evaluator = Evaluator(WordCount(), spec, data, learning, torch.device("cpu"))
    return evaluator, tokens[order], targets[order]


@pytest.mark.parametrize(("samples", "metric_samples"), [(150, 70), (64, 1000), (1000, 1)])
@pytest.mark.parametrize("split", ["test", "dev"])
def test_loss_is_a_mean_over_units_and_metrics_take_their_samples(samples, metric_samples, split):
    evaluator, tokens, targets = toy_evaluator(samples, metric_samples, split)
    model, head = nn.Identity(), Sum()
    found = evaluator(model, head)
    assert model.training
    assert head.training
    sums = tokens.sum(axis=-1)[:samples]
    assert found.loss == pytest.approx((sums * targets[:samples]).sum() / targets[:samples].sum())
    scored = min(samples, metric_samples)
    assert found.metrics == {"hits": pytest.approx(np.mean(sums[:scored] == targets[:scored]))}
    assert evaluator(model, head, metrics=False) == Evaluation(found.loss, {})


def test_generated_rows_of_unequal_length_are_joined():
    parts = [torch.ones(2, 3, dtype=torch.long), torch.full((1, 2), 7)]
    expected = [[1, 1, 1], [1, 1, 1], [7, 7, 0]]
    np.testing.assert_array_equal(evaluation._joined(parts), expected)


def desk_of(work, **learning):
    settings = LearningSpec(evaluation="background", evaluate_every=1, metric_every=1, **learning)
    return EvaluationDesk(work, settings, 1, ("score",))


def test_errors_of_the_thread_reach_the_caller():
    def work(model, head, *, metrics=True):
        if threading.current_thread() is not threading.main_thread():
            raise OverflowError("too much")
        return Evaluation(1.0, {"score": 0.5})

    desk = desk_of(work)
    desk.begin_run(0, nn.Identity(), nn.Identity())
    desk.end_round(0, nn.Identity(), nn.Identity())
    with pytest.raises(OverflowError, match="too much"):
        desk.end_round(0, nn.Identity(), nn.Identity())
    assert desk.loss[0] == 1.0


def test_a_reset_forgets_what_is_under_way():
    subject = small_learner(1, evaluate_every=1, evaluation="background")
    first = [subject.reset([np.random.default_rng(11)]).loss[0]]
    first += [subject.train_round(ROUND).loss[0] for _ in range(3)]
    again = [subject.reset([np.random.default_rng(11)]).loss[0]]
    again += [subject.train_round(ROUND).loss[0] for _ in range(3)]
    assert first == again


def test_one_thread_computes_at_a_time_and_none_is_left():
    active, most = [0], [0]

    def work(model, head, *, metrics=True):
        active[0] += 1
        most[0] = max(most[0], active[0])
        time.sleep(0.01)
        active[0] -= 1
        return Evaluation(0.0, {})

    settings = LearningSpec(evaluation="background", evaluate_every=1)
    desk = EvaluationDesk(work, settings, 4, ())
    before = threading.active_count()
    for env in range(4):
        desk.end_round(env, nn.Identity(), nn.Identity())
    for env in range(4):
        desk.end_round(env, nn.Identity(), nn.Identity())
    assert most == [1]
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.005)
    assert threading.active_count() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_fork_computes_what_its_parent_had_under_way():
    release = threading.Event()

    def work(model, head, *, metrics=True):
        if threading.current_thread() is not threading.main_thread():
            release.wait(10)
        return Evaluation(2.5, {})

    desk = desk_of(work)
    desk.end_round(0, nn.Identity(), nn.Identity())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of forks beside threads
        child = os.fork()
    if child == 0:
        desk.end_round(0, nn.Identity(), nn.Identity())
        os._exit(0 if desk.loss[0] == 2.5 else 1)
    release.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_evaluation_leaves_training_modes_alone():
    learner = small_learner(1, evaluate_every=1)
    learner.train_round(ROUND)
    model, head = learner._runs[0].common_model
    assert all(module.training for part in (model, head) for module in part.modules())
    frozen = SimpleNamespace(model=nn.Sequential(nn.Identity().eval(), nn.Identity()), head=Sum())
    toy_evaluator(10, 10)[0](frozen.model, frozen.head)
    assert [m.training for m in frozen.model] == [False, True]
