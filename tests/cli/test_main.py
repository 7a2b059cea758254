"""The console script: which command it runs, and what a wrong one is answered."""

import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import collapipe_env
from collapipe_env.__main__ import run
from collapipe_env.cli.main import COMMANDS, main

PRESETS = sorted(p.stem for p in (Path(collapipe_env.__file__).parent / "scenario/presets").iterdir())


def test_the_console_script_is_installed_with_the_package() -> None:
    (script,) = entry_points(group="console_scripts", name="collapipe")
    assert script.load() is run


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["help"]])
def test_help_lists_every_command(arguments: list[str], capsys) -> None:
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert all(f"  {name}" in text for name in COMMANDS)


def test_the_docs_name_every_shipped_scenario() -> None:
    text = (Path(__file__).parents[2] / "docs" / "environments.md").read_text()
    table = re.findall(r"^\|([^|]*)\|", text.partition("## Scenarios")[2], re.MULTILINE)
    assert sorted(re.findall("`([a-z-]+)`", "".join(table))) == PRESETS


def test_help_needs_no_heavy_library() -> None:
    heavy = ("torch", "matplotlib", "stable_baselines3", "scipy", "numba", "tyro")
    code = (
        "import sys\nfrom collapipe_env.cli.main import main\nmain(['--help'])\n"
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip().splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--version"], 0, f"collapipe-env {collapipe_env.__version__}\n"),
        (["--help"], 0, "usage: collapipe COMMAND"),
        ([], 2, "usage: collapipe COMMAND"),
        (["compere"], 2, "error: command 'compere' is not known: did you mean 'compare'?\n"),
    ],
)
def test_the_package_runs_as_the_console_script_does(
    arguments: list[str], status: int, said: str, capsys
) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "collapipe_env", *arguments], capture_output=True, text=True, check=False
    )
    assert result.returncode == main(arguments) == status
    assert (result.stdout, result.stderr) == tuple(capsys.readouterr())
    assert said in result.stdout + result.stderr
