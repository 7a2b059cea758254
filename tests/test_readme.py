"""The README's examples of own schedulers run as they stand there, only shorter.

DSSRA is left out: the README's point is the others, and its loops take long to compile.
"""

import json
import re
import runpy
import shlex
from pathlib import Path

import pytest

from collapipe_env.cli.main import main

README = Path(__file__).parents[1] / "README.md"
SHORTER = {
    "dssra": "random",
    "seeds=3": "seeds=1, rounds=2",
    "100_000": "1",
    "num_envs=64": "num_envs=2",
    "512": "64",
}
QUICK = ["--seeds", "1", "--rounds", "2", "--processes", "1", "--no-figures"]


@pytest.fixture
def blocks() -> list[tuple[str, str]]:
    section = re.search(r"^## Writing a scheduler\n(.*?)^## ", README.read_text(), re.DOTALL | re.MULTILINE)
    assert section is not None
    return re.findall(r"^```(\w+)\n(.*?)^```", section[1], re.DOTALL | re.MULTILINE)


def test_own_schedulers_of_the_readme_are_played_and_compared(
    blocks, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    commands: list[list[str]] = []
    for number, (language, text) in enumerate(blocks):
        if language == "bash":
            for line in text.splitlines():
                program, *arguments = shlex.split(line.replace("dssra", "random"))
                assert program == "collapipe"
                commands.append(arguments)
                assert main([*arguments, *QUICK]) == 0, capsys.readouterr().err
            continue
        assert language == "python"
        for shown, run in SHORTER.items():
            text = text.replace(shown, run)
        named = re.match(r"# (\w+\.py)\n", text)
        path = tmp_path / (named[1] if named else f"block_{number}.py")
        path.write_text(text)
        if not named:
            runpy.run_path(str(path), run_name="__main__")
    assert [command[0] for command in commands] == ["evaluate", "compare", "evaluate"]
    printed = capsys.readouterr().out
    assert "Estimate(mean=" in printed
    compared = json.loads((tmp_path / "runs/compare-small-medium/summary.json").read_text())
    titles = {s["title"] for s in compared["scenarios"]["medium"]["summary"]}
    assert titles == {"Random", "PipeLine", "half power"}
    trained = json.loads((tmp_path / "runs/evaluate-medium/results.json").read_text())
    assert [s["title"] for s in trained["summary"]] == ["Random", "PipeLine", "my PPO"]
