"""Ray and submitit: results, failures, and workers that are killed. Skipped where they are not installed."""

import sys
from importlib.util import find_spec

import pytest
from executor_support import FOLDER, Task, work
from test_executor import plan, results

from collapipe_env.evaluation.executor import Hooks
from collapipe_env.evaluation.ray_executor import RayExecutor, require_ray
from collapipe_env.evaluation.runner import evaluate_all
from collapipe_env.evaluation.slurm_executor import Resumable, SlurmExecutor, require_submitit
from collapipe_env.ground.errors import CollaPipeError, ScenarioError

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: extra 'ray'")
needs_submitit = pytest.mark.skipif(
    find_spec("submitit") is None, reason="submitit is not installed: extra 'slurm'"
)
# What the engines leave open when they end is theirs.
quiet = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(autouse=True)
def importable(monkeypatch) -> None:
    """Let workers import the tasks."""
    monkeypatch.setenv("PYTHONPATH", ":".join([str(FOLDER), *filter(None, sys.path)]))


def engine(kind: str, folder):
    return (
        RayExecutor(2) if kind == "ray" else SlurmExecutor(folder / "slurm", 2, cluster="local", poll_s=0.1)
    )


KINDS = [
    pytest.param("ray", marks=[needs_ray, pytest.mark.slow]),
    pytest.param("slurm", marks=[needs_submitit, pytest.mark.slow]),
]


@quiet
@pytest.mark.parametrize("kind", KINDS)
def test_tasks_are_done_and_those_of_killed_workers_again(kind: str, tmp_path) -> None:
    tasks = [Task(1), Task(2, "SIGKILL", str(tmp_path / "mark")), Task(3, "impossible"), Task(4), Task(5)]
    done, failed, again = {}, [], []
    hooks = Hooks(
        lambda task, result: done.update({task.number: result}),
        failed=lambda _, error: failed.append(error),
        again=lambda task, reason: again.append((task.number, reason)),
        wanted=lambda task: task.number != 4,
    )
    engine(kind, tmp_path).run(work, tasks, hooks)
    assert done == {1: 1, 2: 4, 5: 25}
    ((number, reason),) = again
    assert number == 2
    assert {"ray": "a Ray worker was lost", "slurm": "ended without a result"}[kind] in reason
    (error,) = failed
    assert (type(error), str(error)) == (ScenarioError, "3 is not possible")


@quiet
@pytest.mark.parametrize("kind", KINDS)
def test_a_task_that_always_kills_its_worker_is_named(kind: str, tmp_path) -> None:
    again = []
    with pytest.raises(CollaPipeError, match=r"while it worked on task 7, as in each of 3 tries"):
        engine(kind, tmp_path).run(work, [Task(7, "always")], Hooks(again=lambda *a: again.append(a)))
    assert len(again) == 2


@quiet
@pytest.mark.parametrize("kind", KINDS)
def test_episodes_are_those_played_here(kind: str, tmp_path) -> None:
    here, away = plan(tmp_path / "here"), plan(tmp_path / "away")
    evaluate_all([here], 2)
    evaluate_all([away], engine(kind, tmp_path))
    assert results(away.folder) == results(here.folder)


@pytest.mark.slow
@quiet
@needs_submitit
def test_a_preempted_job_goes_back_into_the_queue(tmp_path) -> None:
    done, again = [], []
    task = Task(3, "SIGUSR2", str(tmp_path / "mark"))
    hooks = Hooks(lambda _, result: done.append(result), again=lambda *about: again.append(about))
    engine("slurm", tmp_path).run(work, [task], hooks)
    assert done == [9]
    assert not again  # the engine did it again, not we


class Job:
    """A job that ended in some way."""

    job_id = "12_3"

    def __init__(self, state: str, error: Exception) -> None:
        self.state, self._error = state, error
        self.paths = type("Paths", (), {"stderr": "12_3.err"})

    def done(self) -> bool:
        return True

    def exception(self) -> Exception:
        return self._error

    def cancel(self, check: bool) -> None:
        """Nothing is left."""


@needs_submitit
@pytest.mark.parametrize(
    ("state", "text", "message"),
    [
        ("TIMEOUT", "", "time limit of 60 minutes: give more with --slurm-minutes"),
        ("FAILED", "Job not requeued because: timed-out too many times.", "time limit of 60 minutes"),
        ("OUT_OF_MEMORY", "", "more than its 4 GB of memory: give more with --slurm-memory"),
        ("CANCELLED by 0", "", "it was cancelled: run the same command"),
        ("NODE_FAIL", "", "ended without a result .state NODE_FAIL. while it worked on task 1, as in"),
        ("FAILED", "ModuleNotFoundError: No module", "could not begin task 1: install the same versions"),
    ],
)
def test_ends_of_jobs_are_one_clear_error(state, text, message, tmp_path, monkeypatch) -> None:
    from submitit.core.utils import FailedJobError, UncompletedJobError

    submitted = []

    class Engine:
        def submit(self, function, errand) -> Job:
            assert isinstance(function, Resumable)
            submitted.append(errand.task)
            return Job(state, (FailedJobError if text else UncompletedJobError)(text))

    monkeypatch.setattr(SlurmExecutor, "prepared", lambda _: Engine())
    with pytest.raises(CollaPipeError, match=message):
        engine("slurm", tmp_path).run(work, [Task(1)], Hooks())
    assert len(submitted) == (3 if state == "NODE_FAIL" else 1)


@needs_submitit
def test_where_there_is_no_slurm_it_is_said(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CollaPipeError, match="there is no Slurm here"):
        SlurmExecutor(tmp_path / "slurm", 2).run(work, [Task(1)], Hooks())


@needs_ray
def test_a_cluster_that_is_not_there_is_named() -> None:
    with pytest.raises(CollaPipeError, match=r"no Ray cluster to use at '127.0.0.1:1'"):
        RayExecutor(2, "127.0.0.1:1").run(work, [Task(1)], Hooks())


@pytest.mark.parametrize(("module", "require"), [("ray", require_ray), ("submitit", require_submitit)])
def test_a_missing_package_is_named_with_the_remedy(module, require, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        CollaPipeError, match=r"which is not installed: pip install 'collapipe-env\[(ray|slurm)\]'"
    ):
        require()
