"""``collapipe tune``: what it prints and writes, going on, and bad input."""

import json
import sys
from pathlib import Path

import pytest

from collapipe_env.cli.main import main
from collapipe_env.evaluation import tuning
from collapipe_env.scenario import load_scenario

MINE = """# mine
base: small
radio: {d2d_bandwidth_hz: 2.0e+6}  # slow hops
dynamics:
  load_levels: [0.3, 1.0]
  processes:
    migration: {}
"""
QUICK = ["--candidates", "4", "--episodes", "2", "--check-episodes", "2", "--rounds", "4"]


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    file = tmp_path / "mine.yaml"
    file.write_text(MINE)
    return file


def test_it_prints_and_writes_what_it_found_and_goes_on(mine: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "run"
    command = ["tune", str(mine), *QUICK, "--out", str(out), "--write", str(mine)]
    assert main(command) == 0
    text = capsys.readouterr().out
    found = json.loads((out / "tuning.json").read_text())
    assert len(found["candidates"]) == 4
    assert found["candidates"][0]["scalars"] == {"migration_weight": 1.0}
    assert found["command"].startswith(f"collapipe tune {mine}")
    section = "\n".join(found["section"])
    assert section in text
    assert section in (out / "table.md").read_text()
    assert mine.read_text() == f"{MINE}\n{section}\n"
    assert load_scenario(mine).dssra_plus.migration_weight == found["chosen"]["migration_weight"]
    assert load_scenario(out / "scenario.yaml").name == "mine"
    # What the file says by now does not count.
    assert main(command) == 0
    again = capsys.readouterr().out
    assert again.startswith(f"continuing in {out}")
    assert again.count("(kept)") == 4 + 2 * (found["check"] is not None)
    assert json.loads((out / "tuning.json").read_text())["candidates"] == found["candidates"]
    assert mine.read_text() == f"{MINE}\n{section}\n"


def test_other_options_need_another_folder(mine: Path, tmp_path: Path, capsys) -> None:
    command = ["tune", str(mine), "--candidates", "1", "--episodes", "1", "--out", str(tmp_path / "run")]
    assert main([*command, "--rounds", "3"]) == 0
    assert main([*command, "--rounds", "2"]) == 2
    assert "rounds was 3, now 2" in capsys.readouterr().err
    assert main([*command, "--rounds", "2", "--fresh"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["small"], "scenario 'small' has nothing to tune"),
        (["boards", "--candidates", "0"], "--candidates = 0: use a number from 1 to 10,000"),
        (["boards", "--seed", "-1"], "--seed = -1: use a number from 0 to 4,999"),
        (["boards", "--scheduler", "dsra-plus"], "dssra-plus"),
        (["boards", "--write", "small.yaml"], "small.yaml: cannot be read"),
        (["nowhere"], "there is no shipped scenario 'nowhere'"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["tune", *arguments]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_missing_package_is_named_with_the_remedy(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "optuna", None)
    for name in ("tuning", "tuning_study"):
        monkeypatch.delitem(sys.modules, f"collapipe_env.evaluation.{name}", raising=False)
    assert main(["tune", "boards"]) == 2
    assert "needs the package optuna, which is not installed: pip install 'collapipe-env[tune]'" in (
        capsys.readouterr().err
    )


def test_a_section_that_cannot_be_replaced_is_told_of_before_the_search(
    tmp_path, capsys, monkeypatch
) -> None:
    file, out = tmp_path / "mine.yaml", tmp_path / "run"
    file.write_text("{base: small, dynamics: {processes: {migration: {}}}}\n")
    played = []
    monkeypatch.setattr(tuning, "play_candidate", lambda *given: played.append(given))
    assert main(["tune", str(file), *QUICK, "--out", str(out), "--write", str(file)]) == 2
    assert "its section dssra_plus cannot be replaced" in capsys.readouterr().err
    assert not played
    assert not out.exists()
