"""Schedulers of one's own on the command line of ``evaluate``, ``compare`` and ``train``."""

import json
from pathlib import Path

import pytest

from collapipe_env.cli.main import main

SOURCE = """
from collapipe_env.evaluation.scheduler_loading import make_scheduler

class Mine:
    name = "mine"

    def __init__(self, scenario):
        self.inner, self.scenario = make_scheduler("pipeline", scenario), scenario

    def reset(self, seed=None):
        self.inner.reset(seed)

    def act(self, observation, state):
        return self.inner.act(observation, state)

class Picky(Mine):
    def act(self, observation, state):
        if self.scenario.name == "two":
            raise ValueError("two is not mine")
        return self.inner.act(observation, state)

    def fingerprint(self):
        return 1 / (self.scenario.name != "odd")
"""
LINE = SOURCE.splitlines().index('            raise ValueError("two is not mine")') + 1
QUICK = ["--episodes", "1", "--rounds", "2", "--processes", "1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Folder with schedulers that no case changes, so one process plays each in all cases."""
    folder = tmp_path_factory.mktemp("here")
    for name in ("one", "two", "odd"):
        (folder / f"{name}.yaml").write_text(f"name: {name}\nbase: small\ndynamics: {{rounds: 2}}\n")
    for name in ("deep", "own_modules"):
        (folder / name).mkdir()
    for file in ("mine.py", "deep/mine.py", "own_modules/best.py"):
        (folder / file).write_text(SOURCE)
    return folder


@pytest.fixture
def here(folder: Path, monkeypatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


def test_titles_are_told_apart_by_folder_and_alike_in_progress_lines(here: Path, capsys) -> None:
    own = ["deep/mine.py:Mine", "mine.py:Mine", "deep/mine.py:Picky"]
    assert main(["evaluate", "--scenario", "one.yaml", "--schedulers", *own, *QUICK, "--no-figures"]) == 0
    titles = [f"mine ({reference})" for reference in own]
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("  episode 0")[0].strip() for line in lines if "  episode 0" in line] == titles
    summary = json.loads((here / "runs" / "evaluate-one" / "results.json").read_text())["summary"]
    assert [s["title"] for s in summary] == titles


def test_one_that_fails_in_a_scenario_is_listed_and_the_rest_goes_on(here: Path, capsys) -> None:
    command = [
        "compare",
        "--scenarios",
        "one.yaml",
        "two.yaml",
        "--schedulers",
        "deep/mine.py:Picky",
        "pipeline",
    ]
    assert main([*command, *QUICK, "--no-figures", "--out", "compared"]) == 0
    scenarios = json.loads((here / "compared" / "summary.json").read_text())["scenarios"]
    assert set(scenarios["two"]["impossible"]) == {"deep/mine.py:Picky"}
    reason = scenarios["two"]["impossible"]["deep/mine.py:Picky"]
    assert reason.endswith(f"ValueError: two is not mine ({here / 'deep' / 'mine.py'}, line {LINE})")
    assert [s["scheduler"] for s in scenarios["one"]["summary"]] in (
        ["deep/mine.py:Picky", "pipeline"],
        ["pipeline", "deep/mine.py:Picky"],
    )
    assert "deep/mine.py:Picky: not possible: " in (here / "compared" / "table.md").read_text()


def test_evaluate_and_train_play_a_module_of_the_current_folder(here: Path, capsys) -> None:
    base = ["--scenario", "one.yaml", "--schedulers", "random", "own_modules.best:Mine"]
    assert main(["evaluate", *base, *QUICK, "--no-figures", "--out", "out"]) == 0
    tiny = ["--steps", "8", "--envs", "2", "--ppo.rollout-steps", "4", "--ppo.minibatch", "8"]
    tiny += ["--episodes", "1", "--rounds", "1", "--learner", "surrogate", "--no-figures"]
    tiny += ["--ppo.hidden-units", "8", "--processes", "1", "--out", "run"]
    assert main(["train", *base, "agent", *tiny]) == 0
    summary = json.loads((here / "run" / "results.json").read_text())["summary"]
    assert [s["title"] for s in summary] == ["Random", "mine", "PPO"]


def test_one_that_cannot_play_is_refused_before_the_training(here: Path, capsys) -> None:
    before = sorted(here.rglob("*"))
    for scenario, message in (
        ("two", "failed in act: ValueError: two is not mine"),
        ("odd", "failed in fingerprint: ZeroDivisionE"),
    ):
        command = ["train", "--scenario", f"{scenario}.yaml", "--schedulers", "agent", "deep/mine.py:Picky"]
        assert main(command) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"'deep/mine.py:Picky' (name 'mine') {message}" in line
    assert sorted(here.rglob("*")) == before
