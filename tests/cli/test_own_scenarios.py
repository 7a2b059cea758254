"""Scenarios in Python files on a command line, with processes and tasks of the user's own."""

import csv
import importlib
import re
import shutil
import sys

import numpy as np
import pytest

import collapipe_env
from collapipe_env.cli.main import main
from collapipe_env.evaluation import own_code
from collapipe_env.evaluation.executor import Executor
from collapipe_env.evaluation.own_parts import knowing_all
from collapipe_env.evaluation.own_scenario import named_scenario
from collapipe_env.evaluation.pool import LocalExecutor
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.task_registry import TASKS
from collapipe_env.simulator.process_registry import PROCESSES

RAIN = """
from collections import UserDict
from dataclasses import dataclass

import numpy as np

from collapipe_env import Process, register_process
from collapipe_env.scenario import load_scenario


@dataclass(frozen=True)
class Fields:
    clock: float = 0.5


@register_process
class Rain(Process):
    name = "rain"
    Spec = Fields
    endogenous = False

    def apply(self, system, carried):
        return system._replace(speed={factor} * self.spec.clock * system.speed)


wet = {{"base": "small", "dynamics": {{"processes": {{"rain": {{}}}}}}}}
named = {{**wet, "name": "drizzle"}}
dry = "small"
built = load_scenario("medium")
number = 3


def wetter():
    return {{"base": "small", "dynamics": {{"processes": {{"rain": {{"clock": 0.25}}}}}}}}


def broken():
    raise KeyError("no rain")


def leaving():
    raise SystemExit(0)


class Odd(UserDict):
    def __getitem__(self, key):
        leaving()


odd = Odd(base="small")
"""
TASK = """
import collapipe_env
from collapipe_env.tasks.classification import Classification


class Mine(Classification):
    name = "mine"


collapipe_env.register_task("mine", Mine)
own = {"base": "small", "workload": {"task": "mine"}}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written()
    yield tmp_path
    forget()
    TASKS._added.pop("mine", None)


def forget():
    """As in another process."""
    PROCESSES._added.pop("rain", None)
    for name in [name for name in sys.modules if name.startswith(own_code.OWN_FILE)]:
        del sys.modules[name]


def written(factor=1.0):
    forget()
    with open("rain.py", "w") as file:
        file.write(RAIN.format(factor=factor))


def delays(place, name="dssra"):
    with open(f"{place}/episodes.csv", newline="") as file:
        return [float(row["mean_delay_s"]) for row in csv.DictReader(file) if row["scheduler"] == name]


def evaluated(reference, *more, own=()):
    given = ["evaluate", "--scenario", reference, "--schedulers", "dssra", *own, "--no-figures"]
    return main([*given, "--episodes", "2", "--rounds", "3", *more])


def test_commands_play_what_python_plays(folder, capsys):
    assert evaluated("rain.py:wet", "--processes", "2") == 0
    shown = capsys.readouterr()
    assert "note: only this process knows what you register yourself" in shown.err
    assert "surrogate learner, 1 process\n" in shown.out
    assert "everything is in runs/evaluate-wet/" in shown.out
    wet = {"base": "small", "dynamics": {"processes": {"rain": {}}}}
    found = collapipe_env.evaluate(["dssra"], scenario=wet, seeds=2, rounds=3)
    expected = [np.mean(episode.delay) for episode in found.episodes["dssra"]]
    assert delays("runs/evaluate-wet") == pytest.approx(expected, rel=1e-12)
    dry = collapipe_env.evaluate(["dssra"], scenario="small", seeds=2, rounds=3)
    assert min(expected) > max(np.mean(episode.delay) for episode in dry.episodes["dssra"])


def test_schedulers_of_ones_own_play_it_in_their_process(folder):
    (folder / "mine.py").write_text(
        "from collapipe_env.agents.dssra.policy import DSSRA\nclass Mine(DSSRA):\n    name = 'mine'\n"
    )
    assert evaluated("rain.py:wet", own=["mine.py:Mine"]) == 0
    assert delays("runs/evaluate-wet", "mine.py:Mine") == delays("runs/evaluate-wet")


def test_its_run_is_viewed(folder, capsys):
    assert evaluated("rain.py:wet") == 0
    forget()
    assert main(["view", "runs/evaluate-wet"]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "for a scenario named as file.py:Name" in line
    assert line.endswith(
        "If the run used code of your own, add --scenario file.py:Name, the one you evaluated"
    )
    assert main(["view", "runs/evaluate-wet", "--scenario", "rain.py:built"]) == 2
    assert "medium" in capsys.readouterr().err
    forget()
    assert main(["view", "runs/evaluate-wet", "--scenario", "rain.py:wet"]) == 0
    assert (folder / "runs" / "evaluate-wet" / "view.html").stat().st_size > 10_000


def test_every_form_of_a_scenario(folder):
    assert named_scenario("rain.py:wet").name == "wet"
    assert named_scenario("rain.py:named").name == "drizzle"
    assert named_scenario("rain.py:dry") == load_scenario("small")
    assert named_scenario("rain.py:built") == load_scenario("medium")
    assert named_scenario("rain.py:wetter").dynamics.processes[0][1].clock == 0.25
    assert named_scenario("small") == load_scenario("small")
    (folder / "odd:name.yaml").write_text("base: small\n")
    assert named_scenario("odd:name.yaml").name == "odd:name"


def test_one_file_may_be_run_and_imported_but_two_may_not_share_a_name(folder, monkeypatch):
    named_scenario("rain.py:wet")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "rain", raising=False)
    importlib.import_module("rain")
    monkeypatch.delitem(sys.modules, "rain")
    shutil.copy("rain.py", "other.py")
    with pytest.raises(ScenarioError, match=r"process name 'rain' is taken by rain:Rain: choose another"):
        named_scenario("other.py:wet")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("rain.py", "'rain.py' names no object: write rain.py:Name, which is a mapping of fields"),
        ("rain.py:number", "is an object of type int: name a mapping of fields, a Scenario, or a function"),
        ("rain.py:broken", r"'rain\.py:broken' failed: KeyError: 'no rain' \(.*rain\.py, line \d+\)"),
        ("rain.py:leaving", r"'rain\.py:leaving' failed: SystemExit: 0 \(.*rain\.py, line \d+\)"),
        ("rain.py:odd", r"'rain\.py:odd' failed: SystemExit: 0 \(.*rain\.py, line \d+\)"),
        ("rain.py:Fields", "is an object of type Fields: name a mapping"),
        ("json:loads", "'json:loads' failed: TypeError: .*: name a mapping of fields"),
    ],
)
def test_what_is_no_scenario_is_one_clear_line(folder, capsys, reference, message):
    with pytest.raises(ScenarioError, match=message):
        named_scenario(reference)
    assert evaluated(reference) == 2
    assert capsys.readouterr().err.startswith("error: scenario '")


def test_a_task_of_ones_own_is_played_and_checked(folder, capsys):
    (folder / "task.py").write_text(TASK)
    assert main(["scenario", "check", "task.py:own"]) == 0
    assert "mine" in capsys.readouterr().out
    quick = ["--schedulers", "pipeline", "random", "--episodes", "1", "--rounds", "1", "--no-figures"]
    assert main(["evaluate", "--scenario", "task.py:own", *quick, "--learner", "real"]) == 0
    assert "note: only this process knows" in capsys.readouterr().err


def test_commands_that_need_other_processes_refuse_it(folder, capsys):
    assert main(["execute", "--scenario", "rain.py:wet", "--rounds", "1"]) == 2
    assert "collapipe execute cannot play your own Rain: " in capsys.readouterr().err
    assert not (folder / "runs").exists()


def test_only_scenarios_with_parts_of_ones_own_stay_in_this_process(folder, capsys):
    asked: Executor = LocalExecutor(3)
    assert knowing_all(asked, [load_scenario("small-wild"), load_scenario("medium")]) is asked
    assert capsys.readouterr().err == ""
    assert knowing_all(asked, [load_scenario("small"), named_scenario("rain.py:wet")]).jobs == 1
    assert "note: " in capsys.readouterr().err


def test_failures_of_a_process_are_one_clear_line(folder, capsys):
    text = (folder / "rain.py").read_text()
    before = "system._replace(speed=1.0 * self.spec.clock * system.speed)"
    assert before in text
    (folder / "rain.py").write_text(text.replace(before, "3"))
    assert evaluated("rain.py:wet") == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert re.search("^error: .*apply of the process 'rain' returned int: return the System", line)
    assert not (folder / "runs" / "evaluate-wet" / "results.json").exists()
    # The check of a scenario plays a round, too.
    assert main(["scenario", "check", "rain.py:wet"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"{line}\n"


def test_the_check_of_a_scenario_plays_a_round_with_ones_own_processes(folder, capsys):
    assert main(["scenario", "check", "rain.py:wet"]) == 0
    assert "\na round was played with your own Rain\n" in capsys.readouterr().out
    assert main(["scenario", "check", "rain.py:dry"]) == 0
    assert "a round was played" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("def begin(self): return {}", "begin of the process 'rain' cannot be called as begin"),
        (
            "def advance(self, *given): return None",
            "advance of the process 'rain' returned NoneType: return a",
        ),
    ],
)
def test_methods_of_a_process_are_checked(folder, capsys, method, message):
    text = (folder / "rain.py").read_text()
    (folder / "rain.py").write_text(text.replace("    endogenous = False", f"    {method}"))
    assert evaluated("rain.py:wet") == 2
    assert re.search(message, capsys.readouterr().err.splitlines()[-1])


def test_a_page_of_an_edited_process_is_refused(folder, capsys):
    assert evaluated("rain.py:wet") == 0
    written(factor=0.5)
    assert main(["view", "runs/evaluate-wet", "--scenario", "rain.py:wet"]) == 2
    assert "another version of the package, or of a process of your own, played it" in capsys.readouterr().err
    assert not (folder / "runs" / "evaluate-wet" / "view.html").exists()
