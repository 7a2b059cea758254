"""Worker processes: every failure is one clear error."""

import io
import multiprocessing
import os
import signal
import sys
import warnings
from types import SimpleNamespace

import pytest
from variants_support import mostly_slow

from collapipe_env.evaluation import pool
from collapipe_env.evaluation.executor import Hooks, Losses
from collapipe_env.evaluation.pool import run_tasks
from collapipe_env.feasibility import EnergyBudgetWarning
from collapipe_env.ground.errors import CollaPipeError, ScenarioError


def _fail(task: int, on_progress) -> None:
    on_progress()
    if task == 2:
        raise CollaPipeError("two is not possible")
    if task == 3:
        os._exit(7)


@pytest.mark.parametrize(
    ("tasks", "message"),
    mostly_slow([([1, 2], "two is not possible"), ([1, 3], "exit code 7")], [1]),
)
def test_failures_of_workers_become_one_error(tasks: list[int], message: str) -> None:
    ticks: list[int] = []
    with pytest.raises(CollaPipeError, match=message):
        run_tasks(_fail, tasks, 2, Hooks(progress=ticks.append))
    assert ticks


def _count(task: int, on_progress) -> int:
    on_progress()
    on_progress()
    if task in (2, 5):
        raise ScenarioError(f"{task} is not possible")
    return 10 * task


@pytest.mark.parametrize("processes", mostly_slow([1, 3]))
def test_tolerated_failures_do_not_stop_the_others(processes: int) -> None:
    ticks: list[int] = []
    done: list[tuple[int, int]] = []
    failed: list[tuple[int, str]] = []

    def on_failed(task: int, error: CollaPipeError) -> None:
        assert isinstance(error, ScenarioError)
        failed.append((task, str(error)))

    wanted = lambda task: task != 4  # noqa: E731
    hooks = Hooks(lambda task, result: done.append((task, result)), ticks.append, on_failed, wanted=wanted)
    run_tasks(_count, [1, 2, 3, 4, 5, 6], processes, hooks)
    assert sorted(done) == [(1, 10), (3, 30), (6, 60)]
    assert sorted(failed) == [(2, "2 is not possible"), (5, "5 is not possible")]
    assert sorted(ticks) == [1, 1, 2, 2, 3, 3, 5, 5, 6, 6]


def test_a_failure_that_is_not_tolerated_ends_everything() -> None:
    def on_failed(task: int, error: CollaPipeError) -> None:
        raise error

    done: list[int] = []
    with pytest.raises(ScenarioError, match="2 is not possible"):
        run_tasks(_count, [1, 2, 3], 1, Hooks(lambda task, _: done.append(task), failed=on_failed))
    assert done == [1]


def _die_at_first(task: tuple[int, str], _: object) -> int:
    number, mark = task
    if number == 2 and not os.path.exists(mark):
        open(mark, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_a_killed_worker_is_replaced_and_its_task_done_again(tmp_path) -> None:
    tasks = [(number, str(tmp_path / "mark")) for number in range(5)]
    done, again = [], []
    hooks = Hooks(lambda _, result: done.append(result), again=lambda *about: again.append(about))
    run_tasks(_die_at_first, tasks, 2, hooks)
    assert sorted(done) == [0, 1, 2, 3, 4]
    assert again == [(tasks[2], "a worker process ended with exit code -9")]


def test_a_task_is_lost_three_times_at_most() -> None:
    told = []
    losses = Losses(Hooks(again=lambda *about: told.append(about)), "what to do")
    for task in ("a", "b", "a"):
        losses.note(ord(task), task, "it died")
    assert told == [("a", "it died"), ("b", "it died"), ("a", "it died")]
    with pytest.raises(CollaPipeError, match=r"it died while it worked on a, .* each of 3 tries: what to do"):
        losses.note(ord("a"), "a", "it died")


def _raise_value_error(task: int, _: object) -> None:
    if task == 2:
        sys.stderr = io.StringIO()
        raise ValueError("a mistake")


@pytest.mark.slow
def test_a_mistake_is_not_made_again() -> None:
    again = []
    with pytest.raises(CollaPipeError, match="exit code 1 while it worked on 2: see the traceback above"):
        run_tasks(_raise_value_error, [1, 2], 2, Hooks(again=lambda *about: again.append(about)))
    assert not again


def test_a_worker_that_dies_between_two_tasks_loses_the_next_one(monkeypatch) -> None:
    here, there = multiprocessing.Pipe()
    there.close()
    again = []
    workers = pool._Pool(_count, iter([(0, "the task")]), Hooks(again=lambda *about: again.append(about)))
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
