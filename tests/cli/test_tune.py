"""``collapipe tune``: what it prints and writes, going on, and bad input."""

import json
from pathlib import Path

import pytest

from collapipe_env.cli.main import main
from collapipe_env.scenario import load_scenario

MINE = """# mine
base: small
radio: {d2d_total_hz: 8.0e+6}  # slow hops
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
