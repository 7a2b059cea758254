"""The seam between tasks and engines: answers of workers, and files that travel."""

import json
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from executor_support import Pickling, Task, work

import collapipe_env
from collapipe_env.evaluation.episode_files import FIGURES
from collapipe_env.evaluation.executor import Hooks
from collapipe_env.evaluation.folder_content import files_below, write_below
from collapipe_env.evaluation.plan import EvaluationPlan
from collapipe_env.evaluation.pool import LocalExecutor
from collapipe_env.evaluation.ray_executor import run_there
from collapipe_env.evaluation.runner import decisions_of, evaluate_all
from collapipe_env.evaluation.tuning import TuningPlan, tune
from collapipe_env.feasibility import EnergyBudgetWarning
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import LEARNED
from collapipe_env.zoo.shipped_agents import agent_path


def results(folder: Path) -> dict[str, object]:
    """Contents of all finished episodes but for wall-clock times."""
    found: dict[str, object] = {}
    for path in folder.iterdir():
        with zipfile.ZipFile(path) as archive:
            found |= {f"{path.name}/{name}": archive.read(name) for name in archive.namelist()}
            figures = json.loads(archive.read(FIGURES).replace(b"NaN", b"null"))
        del figures["decision_s"]
        found[f"{path.name}/{FIGURES}"] = figures
    return found


def plan(folder: Path) -> EvaluationPlan:
    return EvaluationPlan(
        scenario=load_scenario("small"),
        schedulers=(LEARNED, "random"),
        agents=(agent_path("zoo:small-ppo"), agent_path("zoo:small-sac")),
        episodes=1,
        rounds=2,
        learner="surrogate",
        folder=folder,
    )


def test_episodes_that_travelled_are_those_played_here(tmp_path: Path) -> None:
    here, away = plan(tmp_path / "here"), plan(tmp_path / "away")
    evaluate_all([here], 1)
    executor = Pickling()
    (outcome,) = evaluate_all([away], executor)
    assert results(away.folder) == results(here.folder)
    assert len(list(away.folder.iterdir())) == 3  # of 2 runs, and random
    assert len(executor.sent) == len(outcome.results[LEARNED]) + 1 == 3
    assert len(decisions_of(away, "random", 0)) == 2
    # Nothing is played again, wherever it was played.
    evaluate_all([away], executor)
    assert len(executor.sent) == 3


def test_an_agent_travels_with_its_episodes(tmp_path: Path) -> None:
    lost = tmp_path / "agent.safetensors"
    lost.write_bytes(agent_path("zoo:small-ppo").read_bytes())
    asked = replace(plan(tmp_path / "out"), agents=(lost,), schedulers=(LEARNED,))

    class Unlinking(Pickling):
        def run(self, work, tasks, hooks) -> None:
            lost.unlink()  # after it was packed: a worker does not need it
            super().run(work, tasks, hooks)

    evaluate_all([asked], Unlinking())
    assert (tmp_path / "out" / "agent-0.npz").exists()


def test_candidates_that_travelled_are_those_played_here(tmp_path: Path) -> None:
    def tuned(folder: str, executor=None):
        kept, boards = tmp_path / folder / "kept.db", load_scenario("boards")
        return tune(TuningPlan(boards, "dssra-plus", ("heat_price",), 2, 1, 1, 3, 0, kept), executor=executor)

    executor = Pickling()
    assert tuned("away", executor) == tuned("here")
    assert len(executor.sent) >= 2


def test_files_travel_with_their_paths(tmp_path: Path) -> None:
    write_below(tmp_path / "in", {"a/b": b"1", "c": b"2"})
    assert files_below(tmp_path / "in") == {"a/b": b"1", "c": b"2"}


@pytest.mark.parametrize("executor", [LocalExecutor(1), Pickling()], ids=lambda executor: executor.where)
def test_failures_that_are_tolerated_do_not_stop_the_others(executor) -> None:
    done, ticks, failed = {}, [], {}
    hooks = Hooks(
        lambda task, result: done.update({task.number: result}),
        lambda task: ticks.append(task.number),
        lambda task, error: failed.update({task.number: (type(error), str(error))}),
        wanted=lambda task: task.number != 4,
    )
    tasks = [Task(1), Task(2, "impossible"), Task(3), Task(4), Task(5, "impossible"), Task(6)]
    executor.run(work, tasks, hooks)
    assert done == {1: 1, 3: 9, 6: 36}
    assert failed == {number: (ScenarioError, f"{number} is not possible") for number in (2, 5)}
    assert sorted(ticks) == ([] if executor.apart else [1, 2, 3, 5, 6])


class OwnWarning(UserWarning):
    """Of a module that this process knows."""


def _warn_in_kinds(task: str, _: object) -> None:
    kinds = {"energy": EnergyBudgetWarning, "own": OwnWarning, "runtime": RuntimeWarning}
    warnings.warn(task, kinds.get(task) or type("Local", (RuntimeWarning,), {}), stacklevel=1)


def test_warnings_of_workers_come_once_each_in_their_category() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Pickling().run(_warn_in_kinds, ["energy", "own", "own", "runtime", "local"], Hooks())
    assert [(str(warning.message), warning.category) for warning in caught] == [
        ("energy", EnergyBudgetWarning),
        ("own", OwnWarning),
        ("runtime", RuntimeWarning),
        ("local", UserWarning),  # which only the worker knows
    ]


def test_workers_of_another_version_are_refused() -> None:
    reply = run_there(work, Task(1), "0.0.1", "/")
    assert reply.kind == "failed"
    assert f"has collapipe-env {collapipe_env.__version__}, but this is 0.0.1" in str(reply.content)


def test_relative_paths_mean_the_same_in_a_worker(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir("/")
    for folder in (tmp_path, tmp_path / "nowhere"):
        reply = run_there(_here, None, collapipe_env.__version__, str(folder))
        assert reply.content == str(tmp_path)


def _here(*_: object) -> str:
    return str(Path.cwd())
