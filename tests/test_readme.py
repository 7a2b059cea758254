"""The README is short, and its examples and those of own schedulers run as they stand there, only shorter."""

import json
import re
import runpy
import shlex
from pathlib import Path

from collapipe_env.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
SCHEDULERS = ROOT / "docs" / "how_to_scheduler.md"
TRAINING = {
    "num_envs=64": "num_envs=2",
    "n_steps=16, batch_size=256": "n_steps=4, batch_size=8",
    "200_000": "1",
}
SHORTER = {"seeds=3": "seeds=1, rounds=2", **TRAINING}
QUICK = ["--episodes", "1", "--rounds", "2", "--processes", "1", "--no-figures"]


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of a page's code."""
    return re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) < 160


def test_the_examples_of_the_readme_run(capsys) -> None:
    first, second = (text for language, text in blocks(README) if language == "python")
    assert len(first.strip().splitlines()) <= 12
    names: dict = {}
    exec(first, names)
    printed = capsys.readouterr().out
    assert "'rounds': 100" in printed
    assert "'mean_delay'" in printed
    for shown, run in TRAINING.items():
        assert shown in second
        second = second.replace(shown, run)
    exec(second, names)
    assert names["env"].num_envs == 2


def test_the_readme_names_commands_and_targets_that_exist() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for language, text in blocks(README):
        if language != "bash":
            continue
        for line in text.splitlines():
            program, argument, *_ = shlex.split(line, comments=True)
            assert program in ("make", "collapipe"), line
            assert argument in (targets if program == "make" else (*COMMANDS, "--help")), line


def test_own_schedulers_are_played_and_compared(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    commands: list[list[str]] = []
    for number, (language, text) in enumerate(blocks(SCHEDULERS)):
        if language == "bash":
            for line in text.splitlines():
                program, *arguments = shlex.split(line)
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
    assert re.search(r"^[0-9.]+( \([0-9.]+…[0-9.]+\))?$", printed, re.MULTILINE)
    compared = json.loads((tmp_path / "runs/compare-small-medium/summary.json").read_text())
    titles = {s["title"] for s in compared["scenarios"]["medium"]["summary"]}
    assert titles == {"DSSRA", "PipeLine", "half power"}
    trained = json.loads((tmp_path / "runs/evaluate-medium/results.json").read_text())
    assert [s["title"] for s in trained["summary"]] == ["DSSRA", "PipeLine", "my PPO"]
