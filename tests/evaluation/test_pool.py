"""Engines: results, failures, and workers that are killed; Ray is skipped where it is not installed."""

import contextlib
import os
import signal
import sys
import time
from importlib.util import find_spec

import pytest
from executor_support import FOLDER, Task, work
from test_executor import plan, results

from collapipe_env.evaluation import pool
from collapipe_env.evaluation.executor import Hooks, Reply
from collapipe_env.evaluation.pool import LocalExecutor
from collapipe_env.evaluation.ray_executor import RayExecutor
from collapipe_env.evaluation.runner import evaluate_all
from collapipe_env.ground.errors import CollaPipeError, ScenarioError

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: extra 'ray'")
# What Ray leaves open when it ends is its own.
quiet = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(autouse=True)
def importable(monkeypatch) -> None:
    """Let workers import the tasks."""
    monkeypatch.setenv("PYTHONPATH", ":".join([str(FOLDER), *filter(None, sys.path)]))


ray = pytest.param(
    RayExecutor(2), "a Ray worker was lost", marks=[pytest.mark.slow, quiet, needs_ray], id="Ray"
)
processes = pytest.param(LocalExecutor(2), "a worker process ended with exit code -9", id="processes")


@pytest.mark.parametrize(("executor", "lost"), [processes, ray])
def test_tasks_are_done_and_those_of_killed_workers_again(executor, lost, tmp_path) -> None:
    tasks = [Task(1), Task(2, "SIGKILL", str(tmp_path / "mark")), Task(3, "impossible"), Task(4), Task(5)]
    done, failed, again = {}, [], []
    hooks = Hooks(
        lambda task, result: done.update({task.number: result}),
        failed=lambda _, error: failed.append(error),
        again=lambda task, reason: again.append((task.number, reason)),
        wanted=lambda task: task.number != 4,
    )
    executor.run(work, tasks, hooks)
    assert done == {1: 1, 2: 4, 5: 25}
    ((number, reason),) = again
    assert number == 2
    assert lost in reason
    (error,) = failed
    assert (type(error), str(error)) == (ScenarioError, "3 is not possible")


@pytest.mark.slow
@pytest.mark.parametrize(("executor", "lost"), [processes, ray])
def test_a_task_that_always_kills_its_worker_is_named(executor, lost) -> None:
    again = []
    tasks = [Task(7, "always"), Task(8)]
    with pytest.raises(CollaPipeError, match=rf"{lost}.* while it worked on task 7, as in each of 3 tries"):
        executor.run(work, tasks, Hooks(again=lambda *about: again.append(about)))
    assert len(again) == 2


@pytest.mark.slow
@quiet
@needs_ray
def test_episodes_are_those_played_here(tmp_path) -> None:
    here, away = plan(tmp_path / "here"), plan(tmp_path / "away")
    evaluate_all([here], 2)
    evaluate_all([away], RayExecutor(2))
    assert results(away.folder) == results(here.folder)


@needs_ray
@pytest.mark.parametrize("address", ["127.0.0.1:1", "auto"])
def test_a_cluster_that_is_not_there_is_named_at_once(address, monkeypatch, capfd) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    begun = time.monotonic()
    with pytest.raises(CollaPipeError, match=r"no Ray cluster to use at '127.0.0.1:1' .*refused"):
        RayExecutor(2, address).run(work, [Task(1)], Hooks())
    assert time.monotonic() - begun < 5.0
    assert capfd.readouterr() == ("", "")


def test_a_missing_package_is_named_with_the_remedy(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(CollaPipeError, match=r"which is not installed: pip install 'collapipe-env\[ray\]'"):
        RayExecutor(2).run(work, [Task(1)], Hooks())


@pytest.mark.parametrize("processes", [1, 2])
def test_a_failure_that_is_not_tolerated_ends_everything(processes: int) -> None:
    done, ticks = [], []
    hooks = Hooks(lambda task, _: done.append(task.number), ticks.append)
    with pytest.raises(ScenarioError, match="2 is not possible"):
        LocalExecutor(processes).run(work, [Task(1), Task(2, "impossible"), Task(3)], hooks)
    assert ticks
    assert processes > 1 or done == [1]


def test_workers_that_die_at_any_time_are_replaced() -> None:
    with contextlib.closing(pool._Processes(1)) as processes:
        processes.start(0, work, Task(3))
        assert ended(processes).content == 9
        os.kill(processes._idle[0].process.pid, signal.SIGKILL)
        processes.start(1, work, Task(4))
        reply = ended(processes)
        if reply.kind == "lost":  # its death was not noticed before
            assert reply.content == "a worker process ended with exit code -9"
            processes.start(1, work, Task(4))
            reply = ended(processes)
        assert reply.content == 16


def ended(processes) -> Reply:
    while True:
        for _, reply in processes.news():
            if reply.kind != "progress":
                return reply


def test_a_mistake_is_not_made_again(capfd) -> None:
    again = []
    with pytest.raises(CollaPipeError, match=r"on task 2 \(ValueError: a mistake\): see the traceback"):
        LocalExecutor(2).run(
            work, [Task(1), Task(2, "mistake")], Hooks(again=lambda *about: again.append(about))
        )
    assert not again
    assert "Traceback" in capfd.readouterr().err


@pytest.mark.slow
def test_a_task_that_ends_its_process_is_lost_with_its_exit_code() -> None:
    with pytest.raises(CollaPipeError, match="ended with exit code 3 while it worked on task 2, as in each"):
        LocalExecutor(2).run(work, [Task(1), Task(2, "exit")], Hooks())
