"""Scenarios for commands to work on, and the one line of a refusal."""

from pathlib import Path

from collapipe_env.cli.main import main

FILES = {
    "tiny.yaml": "name: tiny\nbase: small\ndynamics: {rounds: 2}\n",
    "moving.yaml": "name: moving\nbase: small\ndynamics: {rounds: 2, processes: {migration: {}}}\n",
    "odd.yaml": "name: odd\nbase: small\nworkload: {task: translation}\n",  # no classes to count early
    "lost.yaml": "base: small\nworkload: {task: translation}\nlearning: {dataset: absent}\n",
    "reviews.yaml": "base: small\nlearning: {proxy: {style: gpt2}}\n",
    "flow.yaml": "{base: small, dynamics: {processes: {migration: {}}}}\n",
    "misspelt.yaml": "radioo: {}\n",
    "broken.py": "\n1 / 0\n",
    "quick.yaml": "name: quick\nbase: small\ncluster: {clusters: 1, devices: 2}\nworkload: {batch_size: 8}\n"
    "learning:\n  evaluation_samples: 8\n  metric_samples: 8\n"
    "  proxy: {width: 8, feedforward: 8, heads: 1, sequence_length: 16}\n",
}


def written(folder: Path) -> None:
    for name, text in FILES.items():
        (folder / name).write_text(text)


def refused(capsys, arguments: list[str]) -> str:
    """The one line of a refusal."""
    capsys.readouterr()
    assert main(arguments) == 2
    (found,) = capsys.readouterr().err.splitlines()
    assert found.startswith("error: ")
    assert found.isprintable()
    assert len(found) < 1000
    return found
