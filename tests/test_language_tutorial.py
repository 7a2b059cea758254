"""Tutorial of fine-tuning a language model: its files and commands, as they stand on the page."""

import json
import math
import re
import shlex
import sys
from pathlib import Path

import pytest

from collapipe_env.cli.main import main
from collapipe_env.scenario import load_scenario

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "fine_tune_language_model.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Code of the page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the scenario files of the page."""
    monkeypatch.chdir(tmp_path)
    for text in blocks("yaml"):
        name = re.match(r"# (\w+\.yaml)\n", text)
        assert name is not None, text
        Path(name[1]).write_text(text)
    return tmp_path


def test_scenarios_are_of_one_cluster_of_six(folder: Path) -> None:
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["own.yaml", "six_boards.yaml", "tiny.yaml"]
    for name in names:
        scenario = load_scenario(name)
        assert scenario.cluster.devices_per_cluster == (6,)
        assert scenario.workload.update_compression == "lora"
    assert load_scenario("own.yaml").workload.blocks == 24
    assert load_scenario("own.yaml").workload.width == 896


@pytest.mark.slow
def test_the_commands_end_as_the_page_says(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    commands = "".join(blocks("bash")).replace("\\\n", "")
    make, check, price, train = (shlex.split(line) for line in commands.splitlines())
    assert make == ["python", "tools/make_tiny_checkpoint.py"]
    sys.modules.pop("make_tiny_checkpoint", None)
    import make_tiny_checkpoint

    make_tiny_checkpoint.main([])
    assert "wrote tiny-qwen2/ and my_texts.txt (177 stories)" in capsys.readouterr().out

    assert main(check[1:]) == 0
    printed = capsys.readouterr().out
    assert "encoder blocks  24, 37.4 MB of memory each, 106.4 MB beside them" in printed
    assert "energy budgets can be met in all 64 sampled episodes" in printed

    quick = ["--processes", "1", "--no-figures"]
    assert main([*price[1:], *quick]) == 0
    results = json.loads(Path("runs/evaluate-six-boards/results.json").read_text())
    dssra, pipeline = results["summary"]
    assert dssra["scheduler"] == "dssra"
    assert pipeline["difference"]["mean"] > 0.05

    assert main([*train[1:], *quick]) == 0
    printed = capsys.readouterr().out
    assert "- top-p 0.9: " in printed
    (episode,) = json.loads(Path("runs/tuned/results.json").read_text())["episodes"]["dssra"]
    before, after = math.exp(episode["initial_loss"]), episode["metrics"]["perplexity"]
    assert before > 10.0
    assert after < 0.25 * before

    (load,) = blocks("python")
    place = re.search('folder = "(.*)"', load)
    assert place is not None
    assert f"model:     {place[1]}/" in printed
    exec(load, {})
    written = capsys.readouterr().out.strip()
    assert written.startswith("One day the shepherd asked")
    assert len(written) > 60
