"""Worker processes: every failure is one clear error."""

import multiprocessing
import os
import warnings
from types import SimpleNamespace

import pytest

from collapipe_env.errors import CollaPipeError, ScenarioError
from collapipe_env.evaluation import pool
from collapipe_env.evaluation.pool import run_tasks
from collapipe_env.simulator.feasibility import EnergyBudgetWarning


def _fail(task: int, on_progress) -> None:
    on_progress()
    if task == 2:
        raise CollaPipeError("two is not possible")
    if task == 3:
        os._exit(7)


@pytest.mark.parametrize(("tasks", "message"), [([1, 2], "two is not possible"), ([1, 3], "exit code 7")])
def test_failures_of_workers_become_one_error(tasks: list[int], message: str) -> None:
    ticks: list[int] = []
    with pytest.raises(CollaPipeError, match=message):
        run_tasks(_fail, tasks, 2, ticks.append, lambda _: None)
    assert ticks


def _count(task: int, on_progress) -> None:
    on_progress()
    on_progress()
    if task in (2, 5):
        raise ScenarioError(f"{task} is not possible")


@pytest.mark.parametrize("processes", [1, 3])
def test_tolerated_failures_do_not_stop_the_others(processes: int) -> None:
    ticks: list[int] = []
    done: list[int] = []
    failed: list[tuple[int, str]] = []

    def on_failed(task: int, error: CollaPipeError) -> None:
        assert isinstance(error, ScenarioError)
        failed.append((task, str(error)))

    wanted = lambda task: task != 4  # noqa: E731
    run_tasks(_count, [1, 2, 3, 4, 5, 6], processes, ticks.append, done.append, on_failed, wanted)
    assert sorted(done) == [1, 3, 6]
    assert sorted(failed) == [(2, "2 is not possible"), (5, "5 is not possible")]
    assert sorted(ticks) == [1, 1, 2, 2, 3, 3, 5, 5, 6, 6]


def test_a_failure_that_is_not_tolerated_ends_everything() -> None:
    def on_failed(task: int, error: CollaPipeError) -> None:
        raise error

    done: list[int] = []
    with pytest.raises(ScenarioError, match="2 is not possible"):
        run_tasks(_count, [1, 2, 3], 1, lambda _: None, done.append, on_failed)
    assert done == [1]


def _warn(task: str, _: object) -> None:
    warnings.warn(task, stacklevel=1)


def test_warnings_of_worker_processes_arrive_here() -> None:
    # Workers have filters of their own, not pytest's, so there they are warnings and no errors.
    with pytest.warns(UserWarning, match="first|second") as caught:
        run_tasks(_warn, ["first", "second"], 2, lambda _: None, lambda _: None)
    assert {str(warning.message) for warning in caught} == {"first", "second"}


def test_a_worker_that_dies_between_two_tasks_is_named() -> None:
    here, there = multiprocessing.Pipe()
    there.close()
    workers = {here: (SimpleNamespace(join=lambda: None, exitcode=-9), None)}
    pool._hand_out(workers, here, iter(["the task"]), lambda _: True)
    with pytest.raises(CollaPipeError, match="ended with exit code -9 while it worked on the task"):
        pool._listen(workers, here, pool._Hooks(*[lambda *_: None] * 3))
    here.close()


class OwnWarning(UserWarning):
    """Of a module that this process knows."""


def _warn_in_kinds(task: str, _: object) -> None:
    kinds = {"energy": EnergyBudgetWarning, "own": OwnWarning, "runtime": RuntimeWarning}
    warnings.warn(task, kinds.get(task) or type("Local", (RuntimeWarning,), {}), stacklevel=1)


def test_warnings_of_worker_processes_keep_their_category() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run_tasks(_warn_in_kinds, ["energy", "own", "runtime", "local"], 2, lambda _: None, lambda _: None)
    assert {str(warning.message): warning.category for warning in caught} == {
        "energy": EnergyBudgetWarning,
        "own": OwnWarning,
        "runtime": RuntimeWarning,
        "local": UserWarning,  # which only the worker knows
    }
