"""The folder of a run: which are refused, and what it says about scenario and versions."""

import hashlib
import json
import os
from pathlib import Path

import pytest
from variants_support import mostly_slow

import collapipe_env
from collapipe_env.cli.early_end import INTERRUPTED
from collapipe_env.cli.main import main
from collapipe_env.evaluation import pool, provenance, runner
from collapipe_env.evaluation.run_directory import RunDirectory
from collapipe_env.ground.errors import DataError
from collapipe_env.ground.files import write_bytes
from collapipe_env.learners.surrogate_fits import fits_file
from collapipe_env.scenario import load_scenario

QUICK = ["--episodes", "1", "--rounds", "1", "--processes", "1", "--no-figures"]
COMMANDS = {
    "train": [
        *("train", "--scenario", "small", "--steps", "8", "--envs", "2", "--learner", "surrogate"),
        *("--ppo.rollout-steps", "4", "--ppo.minibatch", "8", "--ppo.epochs", "1", "--ppo.hidden-units", "8"),
        *("--schedulers", "pipeline", *QUICK),
    ],
    "evaluate": ["evaluate", "--scenario", "small", "--schedulers", "pipeline", *QUICK],
    "compare": ["compare", "--scenarios", "small", "medium", "--schedulers", "pipeline", *QUICK],
}
EVALUATE = COMMANDS["evaluate"]


def refusal(capsys, command: list[str], out: str) -> str:
    capsys.readouterr()
    assert main([*command, "--out", out]) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert line.startswith("error: ")
    assert "with --out" in line or "--out '" in line
    assert len(line) < 300
    assert "evaluating" not in captured.out
    return line


def test_other_folders_that_cannot_be_used(capsys, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "nowhere").symlink_to(tmp_path / "absent" / "x")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    for out, message in (
        (tmp_path / "file", "is a file"),
        (tmp_path / "file" / "below", "Not a directory"),
        (tmp_path / "nowhere", "as a folder (File exists)"),
        (tmp_path / "round", "as a folder ("),
        (tmp_path / "a\nb", r"a\nb': use a name without line breaks"),
        (tmp_path / "a\0b", r"a\x00b': use a name without line breaks"),
        ("x" * 5000, "File name too long"),
    ):
        assert message in refusal(capsys, EVALUATE, str(out))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "nowhere", "round"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.parametrize("mode", [0o000, 0o500])
def test_a_folder_without_permission(mode: int, capsys, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode)
    try:
        for out in (closed, closed / "run"):
            assert "Permission denied" in refusal(capsys, EVALUATE, str(out))
    finally:
        closed.chmod(0o700)


def test_a_write_error_names_its_option(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    place = tmp_path / "file" / "x"
    with pytest.raises(DataError, match=r"choose another place with --out$"):
        write_bytes(place, b"")
    with pytest.raises(DataError, match=r"choose another place with --video$"):
        write_bytes(place, b"", "--video")


@pytest.mark.parametrize("name", list(COMMANDS))
def test_the_effective_scenario_and_the_versions_are_there_before_the_work(
    name: str, tmp_path: Path, monkeypatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pool.LocalExecutor, "run", interrupted)
    out = tmp_path / "run"
    assert main([*COMMANDS[name], "--out", str(out)]) == INTERRUPTED
    if name == "compare":
        assert {p.name for p in (out / "scenarios").iterdir()} == {"small.yaml", "medium.yaml"}
        assert load_scenario(out / "scenarios" / "medium.yaml") == load_scenario("medium")
    else:
        assert load_scenario(out / "scenario.yaml") == load_scenario("small")
    (session,) = json.loads((out / "versions.json").read_text())["sessions"]
    assert session["versions"]["collapipe-env"] == collapipe_env.__version__
    digest = hashlib.sha256(fits_file().read_bytes()).hexdigest()
    assert session["versions"]["surrogate-fits-sha256"] == digest


def test_episodes_with_other_fits_are_measured_again_and_a_warning_says_so(
    tmp_path: Path, capsys, monkeypatch, recwarn, played
) -> None:
    surrogate = [*EVALUATE, "--out", str(tmp_path / "run")]
    torch = [*surrogate[:-1], str(tmp_path / "torch"), "--learner", "real"]
    assert main(surrogate) == main(torch) == 0
    played.clear()
    assert main(surrogate) == main(torch) == 0
    assert played == []
    assert "warning" not in capsys.readouterr().err

    monkeypatch.setattr(runner, "fits_digest", lambda: "f" * 64)
    monkeypatch.setattr(provenance, "fits_digest", lambda: "f" * 64)
    monkeypatch.setattr("warnings.filters", [])
    assert main(surrogate) == main(torch) == 0
    assert [unit.plan.learner for unit in played] == ["surrogate"]  # the real learner does not know the fits
    errors = capsys.readouterr().err
    assert errors.count("warning: ") == 2
    assert "was written with other versions (surrogate-fits-sha256 was " in errors
    assert "now ffffffffffff): episodes are measured again" in errors
    sessions = json.loads((tmp_path / "run" / "versions.json").read_text())["sessions"]
    assert [s["versions"]["surrogate-fits-sha256"] == "f" * 64 for s in sessions] == [False, True]
    assert main([*surrogate, "--fresh"]) == 0
    assert len(json.loads((tmp_path / "run" / "versions.json").read_text())["sessions"]) == 1


def test_a_damaged_record_of_versions_is_named(tmp_path: Path, capsys) -> None:
    command = [*EVALUATE, "--out", str(tmp_path / "run")]
    assert main(command) == 0
    capsys.readouterr()
    for content in ("{", '{"sessions": 3}', '{"sessions": [3]}'):
        (tmp_path / "run" / "versions.json").write_text(content)
        assert main(command) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "versions.json" in line
        assert "delete it, or start over with --fresh" in line
    assert main([*command, "--fresh"]) == 0


def test_what_may_grow_may_not_shrink(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    made = {"scenario": {}, "algo": "ppo", "steps": 5, "seed": 1}
    run.open(made, fresh=False)
    (run / "checkpoints").mkdir()
    for asked in ({"steps": 4}, {"steps": 6, "seed": 2}, {"steps": None}):
        with pytest.raises(DataError, match="was made with other options"):
            run.open({**made, **asked}, fresh=False, growing="steps")
    with pytest.raises(DataError, match="steps was 5, now 6"):
        run.open({**made, "steps": 6}, fresh=False)
    assert run.open({**made, "steps": 6}, fresh=False, growing="steps") is True
    assert json.loads((run / "run.json").read_text()) == {**made, "steps": 6}


@pytest.mark.parametrize("name", mostly_slow(["train", "evaluate", "python"], [2]))
def test_other_rounds_and_learners_leave_finished_episodes_alone(
    name: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    out = tmp_path / "run"

    def play(rounds: int, learner: str) -> None:
        if name == "python":
            collapipe_env.evaluate("pipeline", "small", seeds=1, rounds=rounds, learner=learner, out=out)
            return
        options = ["--rounds", str(rounds), "--learner", learner, "--out", str(out)]
        assert main([*COMMANDS[name], *options]) == 0

    asked = [(1, "real"), (1, "surrogate"), (2, "surrogate"), (250, "surrogate")]  # small has 200 rounds
    for rounds, learner in asked:
        play(rounds, learner)
    assert {path.name for path in (out / "evaluation").iterdir()} == {
        "real-1", "surrogate-1", "surrogate-2", "surrogate-250"
    }  # fmt: skip

    def never(*_: object) -> None:
        raise AssertionError("an episode that was finished is played again")

    monkeypatch.setattr(runner, "_work", never)
    for rounds, learner in asked:
        play(rounds, learner)
