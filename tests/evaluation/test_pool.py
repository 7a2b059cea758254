"""Worker processes: every failure is one clear error."""

import multiprocessing
import warnings
from types import SimpleNamespace

import pytest
from executor_support import Task, work

from collapipe_env.evaluation import pool
from collapipe_env.evaluation.executor import Hooks, Losses
from collapipe_env.evaluation.pool import run_tasks
from collapipe_env.feasibility import EnergyBudgetWarning
from collapipe_env.ground.errors import CollaPipeError, ScenarioError


@pytest.mark.parametrize("processes", [1, 2])
def test_a_failure_that_is_not_tolerated_ends_everything(processes: int) -> None:
    done, ticks = [], []
    hooks = Hooks(lambda task, _: done.append(task.number), ticks.append)
    with pytest.raises(ScenarioError, match="2 is not possible"):
        run_tasks(work, [Task(1), Task(2, "impossible"), Task(3)], processes, hooks)
    assert ticks
    assert processes > 1 or done == [1]


def test_a_task_is_lost_three_times_at_most() -> None:
    told = []
    losses = Losses(Hooks(again=lambda *about: told.append(about)), "what to do")
    for task in ("a", "b", "a"):
        losses.note(ord(task), task, "it died")
    assert told == [("a", "it died"), ("b", "it died"), ("a", "it died")]
    with pytest.raises(CollaPipeError, match=r"it died while it worked on a, .* each of 3 tries: what to do"):
        losses.note(ord("a"), "a", "it died")


@pytest.mark.slow
def test_a_mistake_is_not_made_again() -> None:
    again = []
    with pytest.raises(CollaPipeError, match="code 1 while it worked on task 2: see the traceback above"):
        run_tasks(work, [Task(1), Task(2, "mistake")], 2, Hooks(again=lambda *about: again.append(about)))
    assert not again


def test_a_worker_that_dies_between_two_tasks_loses_the_next_one(monkeypatch) -> None:
    here, there = multiprocessing.Pipe()
    there.close()
    again = []
    workers = pool._Pool(work, iter([(0, "the task")]), Hooks(again=lambda *about: again.append(about)))
    workers.workers = {here: (SimpleNamespace(join=lambda: None, exitcode=-9), None)}
    added = []
    monkeypatch.setattr(workers, "add", added.append)
    workers.hand_out(here, workers.next())
    workers.listen(here)
    assert again == [("the task", "a worker process ended with exit code -9")]
    assert added == [(0, "the task")]


class OwnWarning(UserWarning):
    """Of a module that this process knows."""


def _warn_in_kinds(task: str, _: object) -> None:
    kinds = {"energy": EnergyBudgetWarning, "own": OwnWarning, "runtime": RuntimeWarning}
    warnings.warn(task, kinds.get(task) or type("Local", (RuntimeWarning,), {}), stacklevel=1)


@pytest.mark.slow
def test_warnings_of_worker_processes_keep_their_category() -> None:
    # Workers have filters of their own, not pytest's, so there they are warnings and no errors.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run_tasks(_warn_in_kinds, ["energy", "own", "runtime", "local"], 2, Hooks())
    assert {str(warning.message): warning.category for warning in caught} == {
        "energy": EnergyBudgetWarning,
        "own": OwnWarning,
        "runtime": RuntimeWarning,
        "local": UserWarning,  # which only the worker knows
    }
