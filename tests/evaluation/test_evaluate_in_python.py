"""``collapipe_env.evaluate``: the same figures as the command's, from names, factories and objects."""

import csv
import inspect
import json
import pickle
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from even_support import IMPORT, Even
from variants_support import mostly_slow

import collapipe_env
from collapipe_env import evaluate, register_scheduler
from collapipe_env.evaluation import runner
from collapipe_env.evaluation.raw_results import rounds_csv
from collapipe_env.evaluation.run_directory import RunDirectory
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.evaluation.view.stored_run import read_run
from collapipe_env.ground.errors import (
    CheckpointError,
    DataError,
    ScenarioError,
    SchedulerError,
)
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import SCHEDULERS
from collapipe_env.simulator.learner import LearningReport, require_report

SMALL = {"base": "small", "dynamics": {"rounds": 2}}


class Twin(Even):
    """Has the title of another."""


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch):
    """A folder in which nothing may be written, and names that are forgotten afterwards."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(SCHEDULERS, "_added", {})
    yield
    assert not list(folder.iterdir())


def test_names_factories_and_objects_play_the_same_episodes(capsys) -> None:
    scenario = load_scenario(SMALL)
    threads = torch.get_num_threads()
    found = evaluate(
        ["pipeline", Even, Even(scenario), lambda s: Even(s), partial(Even), f"{__name__}:Twin"],
        scenario,
        seeds=np.int64(2),
        threads=threads + 1,
    )
    assert torch.get_num_threads() == threads
    assert list(found) == ["pipeline", "Even", "even", "<lambda>", "partial", f"{__name__}:Twin"]
    delays = [[e.delay for e in found.episodes[name]] for name in found]
    assert all(each == delays[0] for each in delays)
    assert [len(delay) for delay in delays[0]] == [2, 2]
    titles = [summary.title for summary in found.summaries]
    assert len(set(titles)) == len(titles)
    assert titles[:2] == ["PipeLine", "even (Even)"]
    assert found["Even"] is found["even (Even)"] is found.summaries[1]
    assert found.reference == "pipeline"
    assert found["Even"].difference.mean == 0.0
    assert capsys.readouterr().out == ""  # nothing but what is asked for


def test_the_result_prints_the_commands_table_and_is_plain_data(tmp_path: Path, capsys) -> None:
    from collapipe_env.cli.main import main

    file = tmp_path / "custom.yaml"
    file.write_text(json.dumps({"name": "custom", **SMALL}))
    found = evaluate(["pipeline", "random"], file, seeds=2)
    out = tmp_path / "out"
    quick = ["--episodes", "2", "--processes", "1", "--no-figures", "--out", str(out)]
    assert main(["evaluate", "--scenario", str(file), "--schedulers", "pipeline", "random", *quick]) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    decisions = next(i for i, line in enumerate(printed) if "decision (ms)" in line)
    begin = printed.index(found.title)
    table = str(found).splitlines()
    assert table[: decisions - begin] == printed[begin:decisions]  # all but the times of decisions
    assert all(len(line) <= 60 for line in found.table(width=60).splitlines())
    assert found.markdown().startswith("## custom: 2 held-out episodes of 2 rounds, surrogate learner\n")
    assert found.caption.startswith(f"Target loss {found.target_loss:.4f} (90 % of the way")
    assert all(paragraph in found.markdown() for paragraph in found.caption.split("\n\n"))
    content = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    stored = json.loads((out / "results.json").read_text())
    assert content["episodes"]["random"][1]["delay"] == stored["episodes"]["random"][1]["delay"]
    assert content["summary"][0]["delay_mean"] == stored["summary"][0]["delay_mean"]
    assert content["target_loss"] == stored["target_loss"]
    with pytest.raises(KeyError, match="did you mean 'random'"):
        found["randm"]


def test_spreadsheets_take_no_name_for_a_formula(tmp_path: Path) -> None:
    """Names of schedulers and of the scenario; the run is read back by the names as they were given."""
    names = ['=HYPERLINK("x")', "@SUM(A1)", "+1", "-1+1", "'=1", " =1", "'tis", "1-2"]
    players = [Even(load_scenario(SMALL)) for _ in names]
    for player, name in zip(players, names, strict=True):
        player.name = name
    found = evaluate(players, {"name": "=1+1", **SMALL}, seeds=1, out=tmp_path / "out")
    assert list(found) == names
    for file in ("episodes.csv", "results.csv"):
        with (tmp_path / "out" / file).open(newline="") as lines:
            rows = list(csv.DictReader(lines))
        assert {row["scenario"] for row in rows} == {"'=1+1"}
        cells = list(dict.fromkeys(row["scheduler"] for row in rows))
        assert cells == ['\'=HYPERLINK("x")', "'@SUM(A1)", "'+1", "'-1+1", "''=1", "' =1", "'tis", "1-2"]
    negative = {"tis": [replace(found.episodes["'tis"][0], loss=[-1.5, -2.0])]}
    lines = csv.DictReader(rounds_csv([replace(found.comparison, results=negative)]).splitlines())
    assert [row["loss_nat"] for row in lines] == ["-1.5", "-2.0"]
    stored = read_run(tmp_path / "out")
    assert {name: list(one.results) for name, one in stored.scenarios.items()} == {"=1+1": names}


def test_names_that_tables_cannot_show_are_refused() -> None:
    def odd(scenario):
        return Even(scenario)

    odd.__name__ = "a\x1b[31mb"
    with pytest.raises(SchedulerError, match=r"scheduler 'a\\x1b\[31mb': tables cannot show this"):
        evaluate(odd, SMALL, seeds=1)
    with pytest.raises(CheckpointError, match=r"agent 'a\\x1b\[31mb.zip': its path holds a control"):
        evaluate("agent", SMALL, agent="a\x1b[31mb.zip")
    with pytest.raises(ScenarioError, match=r"metric 'a\\u202eb' of the learner or task: name it by one"):
        require_report(LearningReport(*[np.zeros(1)] * 3, {"a\u202eb": np.zeros(1)}), 1)
    with pytest.raises(ScenarioError, match=r"returned loss as float64 \(2,\): return a real number"):
        require_report(LearningReport(*[np.zeros(2)] * 3), 1)


def test_a_folder_keeps_what_is_finished(tmp_path: Path, played) -> None:
    out = tmp_path / "out"
    file = tmp_path / "mine.py"
    source = f"{IMPORT}{inspect.getsource(Even)}"
    file.write_text(source)
    reference = f"{file}:Even"
    first = evaluate([reference, Even], SMALL, seeds=2, out=out)
    assert len(played) == 4
    assert (out / "table.md").read_text() == first.markdown()
    assert json.loads((out / "results.json").read_text())["reference"] == reference
    again = evaluate([reference, Even], SMALL, seeds=2, out=out)
    assert len(played) == 4
    assert [e.delay for e in again.episodes[reference]] == [e.delay for e in first.episodes[reference]]
    # Its file counts.
    file.write_text(source.replace('"pipeline"', '"random"'))
    evaluate([reference, Even], SMALL, seeds=2, out=out)
    assert len(played) == 6
    # An object's content is in no file: nobody knows whether it is still the same.
    evaluate(Even(load_scenario(SMALL)), SMALL, seeds=1, out=out)
    evaluate(Even(load_scenario(SMALL)), SMALL, seeds=1, out=out)
    assert len(played) == 8
    evaluate("pipeline", SMALL, seeds=1, out=out, fresh=True)
    assert len(played) == 9


@pytest.mark.parametrize("other", mostly_slow(["surrogate", "real"]))
def test_other_rounds_and_learners_in_the_same_folder_are_added(other: str, tmp_path: Path, played) -> None:
    out, delays = tmp_path / "out", []
    for rounds, learner in ((1, "surrogate"), (4, other), (1, "surrogate")):  # the scenario has 2
        found = evaluate("pipeline", SMALL, seeds=1, rounds=rounds, learner=learner, out=out)
        delays.append(found.episodes["pipeline"][0].delay)
        assert len(delays[-1]) == rounds
        assert load_scenario(out / "scenario.yaml") == found.scenario
        assert found.scenario.dynamics.rounds == max(rounds, 2)
    assert len(played) == 2
    assert {path.name for path in (out / "evaluation").iterdir()} == {"surrogate-1", f"{other}-4"}
    assert delays[0] == delays[1][:1] == delays[2]  # the same channels
    stored = json.loads((out / "run.json").read_text())["scenario"]
    assert stored == load_scenario(SMALL).to_dict()
    (session,) = json.loads((out / "versions.json").read_text())["sessions"]
    assert session["versions"]["collapipe-env"] == collapipe_env.__version__


def test_folders_that_cannot_be_used_are_refused_in_the_words_of_python(tmp_path: Path) -> None:
    out, other = tmp_path / "out", {**SMALL, "budgets": {"device_energy_j": 99.0}}
    evaluate("pipeline", SMALL, seeds=1, out=out)
    over = "other options .*choose another place with out, or start over there with fresh=True"
    with pytest.raises(DataError, match=over):
        evaluate("pipeline", other, seeds=1, out=out)
    with pytest.raises(DataError, match=r"^out '.*a\\nb': use a name"):
        evaluate("pipeline", SMALL, seeds=1, out=tmp_path / "a\nb")
    with RunDirectory(out).locked("one"), pytest.raises(DataError, match=r"another place with out$"):
        evaluate("pipeline", SMALL, seeds=1, out=out)


def test_names_that_are_asked_for_or_registered_stay_their_own() -> None:
    class Same(Even):
        name = "same"

    register_scheduler("same", Twin)
    thing = Same(load_scenario(SMALL))
    assert list(evaluate([thing, "same"], SMALL, seeds=1)) == ["same 2", "same"]
    assert list(evaluate(["same", thing], SMALL, seeds=1)) == ["same", "same 2"]
    found = evaluate([thing, thing], SMALL, seeds=1)
    assert list(found) == ["same 2", "same 3"]  # "same" is somebody else, who does not play


def test_other_weights_are_measured_again_and_a_fingerprint_that_fails_is_told(
    tmp_path: Path, played
) -> None:
    file, out = tmp_path / "mine.py", tmp_path / "out"
    method = "    def fingerprint(self):\n        return Path(__file__).with_suffix('.txt').read_text()\n"
    file.write_text(f"from pathlib import Path\n{IMPORT}{inspect.getsource(Even)}\n{method}")
    for text, count in (("a", 1), ("a", 1), ("b", 2), ("", 3)):
        file.with_suffix(".txt").write_text(text)
        evaluate(f"{file}:Even", SMALL, seeds=1, out=out)
        assert len(played) == count
    file.with_suffix(".txt").unlink()
    for _ in range(2):  # also not taken for one that has none
        with pytest.raises(
            SchedulerError, match=r"failed in fingerprint: FileNotFoundError: .*mine\.py, line"
        ):
            evaluate(f"{file}:Even", SMALL, seeds=1, out=out)


def test_registered_names_play_here_and_in_other_processes(tmp_path: Path) -> None:
    assert register_scheduler("even", Even) is Even

    @register_scheduler("odd")
    class Odd(Even):
        name = "odd"

    found = evaluate(["even", "odd", "pipeline"], SMALL, seeds=1)
    assert [s.title for s in found.summaries] == ["even", "odd", "PipeLine"]
    assert make_scheduler("even", load_scenario(SMALL)).name == "even"
    register_scheduler("even", Even)  # as by running a notebook's cell again
    with pytest.raises(SchedulerError, match="'agent' is taken by the package"):
        register_scheduler("agent", Even)
    with pytest.raises(
        SchedulerError, match=r"'odd' is not defined at the top level of a module.*processes=1"
    ):
        evaluate(["even", "odd"], SMALL, seeds=1, processes=2)
    plan = runner.EvaluationPlan(load_scenario(SMALL), ("even",), (), 1, 2, "surrogate", tmp_path)
    assert runner.evaluate_all([plan], 1)[0].results["even"][0].title == "even"


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"schedulers": []}, SchedulerError, "schedulers is empty"),
        ({"schedulers": 3}, SchedulerError, "schedulers = 3: give a list"),
        ({"schedulers": [3]}, SchedulerError, "3 is not a scheduler"),
        ({"schedulers": ["dsra"]}, ScenarioError, r"did you mean 'dssra'\? \(one of your own:"),
        ({"schedulers": ["random", "random"]}, SchedulerError, "'random' more than once"),
        ({"schedulers": "agent"}, CheckpointError, "give its file with agent="),
        ({"schedulers": "random", "agent": "none.zip"}, CheckpointError, "none.zip does not exist"),
        ({"schedulers": "random", "reference": "dssra"}, ScenarioError, "'dssra' does not play"),
        ({"scenario": "smal"}, ScenarioError, "did you mean 'small'"),
        ({"seeds": 0}, ScenarioError, "seeds = 0: use a whole number from 1 to 100,000"),
        ({"rounds": 1_000_001}, ScenarioError, "rounds = 1000001: use a whole number from 1 to 1,000,000"),
        ({"threads": 10**9}, ScenarioError, "threads = 1000000000: use a whole number from 1 to 1,024"),
        ({"out": 5}, ScenarioError, "out = 5: give a path"),
        ({"agent": ["a.zip", 3]}, ScenarioError, "agent = 3: give a path"),
        ({"agent": []}, ScenarioError, r"agent = \[\]: give a path"),
        ({"rounds": True}, ScenarioError, "rounds = True"),
        ({"processes": 0}, ScenarioError, "processes = 0"),
        ({"learner": "rael"}, ScenarioError, "did you mean 'real'"),
        (
            {"schedulers": torch.nn.Linear(2, 2)},
            SchedulerError,
            "Linear is a policy and no scheduler: wrap it in collapipe_env.PolicyScheduler",
        ),
        (
            {"schedulers": lambda _: torch.nn.Linear(2, 2)},
            SchedulerError,
            "is a Linear, which has no reset: wrap a policy in collapipe_env.PolicyScheduler",
        ),
    ],
)
def test_bad_input_is_one_clear_error(arguments, kind, message: str) -> None:
    with pytest.raises(kind, match=message):
        evaluate(**{"scenario": SMALL, "schedulers": "random", "seeds": 1, **arguments})


def test_objects_and_local_functions_do_not_travel(tmp_path: Path) -> None:
    for player in (Even(load_scenario(SMALL)), lambda scenario: Even(scenario)):
        with pytest.raises(SchedulerError, match="which other processes cannot import"):
            evaluate([player, "random"], SMALL, seeds=1, processes=2)
    assert pickle.loads(pickle.dumps(Even)) is Even


def test_what_an_interactive_session_defines_does_not_travel(monkeypatch) -> None:
    monkeypatch.setattr(Even, "__module__", "__main__")
    session = ModuleType("__main__")
    session.Even = Even
    monkeypatch.setitem(sys.modules, "__main__", session)
    assert len(evaluate(Even, SMALL, seeds=2)) == 1
    with pytest.raises(SchedulerError, match="'Even' is defined in an interactive session, which other"):
        evaluate(Even, SMALL, seeds=2, processes=2)


@pytest.mark.slow  # three processes import everything
def test_a_script_without_a_guard_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    call = f"evaluate(['pipeline', 'random'], {SMALL!r}, seeds=1, processes=2, out={str(tmp_path / 'out')!r})"
    script.write_text(f"from collapipe_env import evaluate\n{call}\n")
    ended = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert ended.returncode == 1
    assert ended.stderr.count("Traceback") == 1  # the script's own
    last = ended.stderr.splitlines()[-1]
    assert last.endswith('put its code below if __name__ == "__main__":, or use processes=1')


def test_the_import_stays_light() -> None:
    heavy = ("torch", "stable_baselines3", "scipy", "pydantic", "rich")
    code = f"import sys, collapipe_env; print([m for m in {heavy!r} if m in sys.modules])"
    code = code.replace("; print", "; collapipe_env.PolicyScheduler; print")
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
    assert {"evaluate", "register_scheduler", "PolicyScheduler"} <= set(collapipe_env.__all__)
