"""Tutorial of fine-tuning a language model: its files and commands, as they stand on the page."""

import json
import math
import re
import sys
from pathlib import Path

import pages_support as support
import pytest

from collapipe_env.cli.main import main
from collapipe_env.scenario import load_scenario

PAGE = support.DOCS / "language_models.md"
QUICK = ("--processes", "1", "--no-figures")


def blocks(language):
    return [text for kind, text in support.code(PAGE) if kind == language]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the scenario files of the page."""
    monkeypatch.chdir(tmp_path)
    for text in blocks("yaml"):
        Path(re.match(r"# (\w+\.yaml)\n", text)[1]).write_text(text)
    return tmp_path


def test_scenarios_are_of_one_cluster_of_six(folder):
    found = {path.name: load_scenario(path.name) for path in folder.iterdir()}
    assert sorted(found) == ["own.yaml", "six_boards.yaml", "tiny.yaml"]
    for scenario in found.values():
        assert scenario.cluster.devices_per_cluster == (6,)
        assert scenario.workload.update_compression == "lora"
    assert (found["own.yaml"].workload.blocks, found["own.yaml"].workload.width) == (24, 896)


@pytest.mark.slow
def test_the_commands_end_as_the_page_says(folder, capsys, monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.syspath_prepend(str(support.ROOT / "tools"))
    make, check, price, train = support.lines(PAGE)
    assert make == ["python", "tools/make_tiny_checkpoint.py"]
    sys.modules.pop("make_tiny_checkpoint", None)
    import make_tiny_checkpoint

    make_tiny_checkpoint.main([])
    assert "wrote tiny-qwen2/ and my_texts.txt (177 stories)" in capsys.readouterr().out

    assert main(check[1:]) == 0
    printed = capsys.readouterr().out
    assert "encoder blocks  24, 37.4 MB of memory each, 106.4 MB beside them" in printed
    assert "energy budgets can be met in all 64 sampled episodes" in printed

    assert main([*price[1:], *QUICK]) == 0
    dssra, pipeline = json.loads(Path("runs/evaluate-six-boards/results.json").read_text())["summary"]
    assert dssra["scheduler"] == "dssra"
    assert pipeline["difference"]["mean"] > 0.05

    assert main([*train[1:], *QUICK]) == 0
    printed = capsys.readouterr().out
    assert "- top-p 0.9: " in printed
    (episode,) = json.loads(Path("runs/tuned/results.json").read_text())["episodes"]["dssra"]
    before, after = math.exp(episode["initial_loss"]), episode["metrics"]["perplexity"]
    assert before > 10.0
    assert after < 0.25 * before

    (load,) = blocks("python")
    place = re.search('folder = "(.*)"', load)[1]
    assert f"model:     {place}/" in printed
    exec(load, {})
    written = capsys.readouterr().out.strip()
    assert written.startswith("One day the shepherd asked")
    assert len(written) > 60
