"""``--samples``: text of the trained model in the terminal and in the folder."""

import json
from pathlib import Path

import pytest

from collapipe_env.cli.main import main
from collapipe_env.evaluation.table import markdown_text

TINY = """name: tiny
base: small
workload: {task: language-modelling, batch_size: 8}
learning:
  evaluation_samples: 8
  proxy: {width: 8, feedforward: 8, heads: 1, sequence_length: 16, vocabulary: 300}
"""


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(TINY)
    options = "--scenario tiny.yaml --schedulers pipeline --episodes 2 --rounds 1 --processes 1 --no-figures"
    return ["evaluate", *options.split(), "--out", "out"]


def times() -> dict[str, int]:
    """When the figures of each episode were written."""
    return {file.name: file.stat().st_mtime_ns for file in Path("out/evaluation").rglob("pipeline-?.npz")}


def test_samples_are_printed_and_kept(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--learner", "real", "--samples", "2"]) == 0
    printed = capsys.readouterr().out
    results = json.loads(Path("out/results.json").read_text())
    first, second = results["episodes"]["pipeline"]
    assert len(first["samples"]) == 2
    assert second["samples"] == []
    page = Path("out/samples.md").read_text()
    assert page in "\n".join(map(markdown_text, printed.splitlines()))  # the terminal shows no escapes
    for sample in first["samples"]:
        assert f"- beginning: {sample['prompt']}\n- the document: {sample['document']}\n" in printed
    assert page.count("- greedy: ") == page.count("- top-p 0.9: ") == 2
    table = Path("out/table.md").read_text()
    assert "| perplexity | bits per byte (bit) |" in table
    assert "Of perplexity and bits per byte, less is better." in table
    (line,) = results["summary"]
    assert line["metric"] == line["metrics"]["perplexity"]
    assert line["metric"]["mean"] > 1.0

    # The same again plays nothing, nor does the default, the same number; without samples, the second episode
    # is still known.
    before = times()
    assert main([*command, "--learner", "real", "--samples", "2"]) == 0
    assert main([*command, "--learner", "real"]) == 0
    assert times() == before
    assert main([*command, "--learner", "real", "--samples", "0"]) == 0
    assert times()["pipeline-0.npz"] > before["pipeline-0.npz"]
    assert times()["pipeline-1.npz"] == before["pipeline-1.npz"]
    assert not Path("out/samples.md").exists()


def test_language_models_are_trained_unless_another_learner_is_asked_for(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The defaults of a command that names a language model: table and samples."""
    seeds = command.index("--episodes")
    bare = [*command[:seeds], *command[seeds + 2 :]]  # without --episodes 2
    assert main(bare) == 0
    printed = capsys.readouterr().out
    assert "1 held-out episode of 1 round each, real learner" in printed
    assert "--learner surrogate only plays the schedulers" in printed
    results = json.loads(Path("out/results.json").read_text())
    (episode,) = results["episodes"]["pipeline"]
    assert len(episode["samples"]) == 2
    assert results["summary"][0]["metrics"]["perplexity"]["mean"] > 1.0
    assert results["options"]["play"]["learner"] == "real"

    surrogate = [*bare, "--learner", "surrogate", "--out", "quick"]
    assert main(surrogate) == 0
    printed = capsys.readouterr().out
    assert "5 held-out episodes of 1 round each, surrogate learner" in printed
    assert "really trained" not in printed
    assert not Path("quick/samples.md").exists()

    assert main([*command, "--task", "ner", "--out", "tagged"]) == 0
    assert "2 held-out episodes of 1 round each, surrogate learner" in capsys.readouterr().out
