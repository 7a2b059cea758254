"""The results page: its marked parts are filled from the comparisons, everything else stays."""

import csv
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import generated_parts
import make_results

from collapipe_env.cli.main import main as collapipe
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.schedulers import scheduler_names
from collapipe_env.zoo.shipped_agents import shipped_agents

PARTS = ("commands", "surrogate", "stated", "torch")
RIVALS = ["pipeline", "titanic", "vanilla_fl"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two small comparisons where the command expects them; the second stands for real training."""
    work = tmp_path_factory.mktemp("results")
    for name in ("surrogate", "torch-small"):
        arguments = ["--scenarios", "small", "--schedulers", "dssra", *RIVALS]
        arguments += ["--episodes", "2", "--rounds", "3"]
        assert collapipe(["compare", *arguments, "--processes", "1", "--out", str(work / name)]) == 0
    return work


@pytest.fixture
def page(folder, tmp_path, monkeypatch):
    """The page as written from these comparisons."""
    path = tmp_path / "results.md"
    shown = ("delay.png", "energy_delay.png", "torch-small-loss_time.png")
    pictures = [f"![picture](pictures/{name})" for name in shown]
    marked = [f"{generated_parts.BEGIN.format(p)}\nold\n{generated_parts.END.format(p)}" for p in PARTS]
    path.write_text("\n".join(["# Words before", *marked, *pictures, "Words after", ""]))
    monkeypatch.setattr(make_results, "PAGE", path)
    monkeypatch.setattr(make_results, "PICTURES", tmp_path / "pictures")
    options = make_results.Options(scenarios=("small",), torch_episodes=(2,), work=folder)
    make_results.write_page(options, make_results.comparisons(options))
    return path


@pytest.mark.slow
def test_words_stay_and_parts_are_replaced(page):
    text = page.read_text()
    assert text.startswith("# Words before\n<!-- generated: commands -->\n```bash\n")
    assert text.endswith("Words after\n")
    assert "old" not in text.split("\n")


def test_schedulers_that_use_the_server_are_marked(folder):
    summary = json.loads((folder / "surrogate" / "summary.json").read_text())
    for table in (make_results.scenario_table, make_results.torch_table):
        assert "†" not in table(summary, "small")
    summary["scenarios"]["small"]["summary"][1]["server_blocks"] = 3
    title = summary["scenarios"]["small"]["summary"][1]["title"]
    for table in (make_results.scenario_table, make_results.torch_table):
        text = table(summary, "small")
        assert text.count("†") == 2
        assert f"| {title} † |" in text
        assert text.splitlines()[-1].startswith("† also trains encoder blocks on the edge server")


def test_who_overdraws_stands_below_the_line_without_a_place(folder):
    summary = json.loads((folder / "surrogate" / "summary.json").read_text())
    entry = summary["scenarios"]["small"]
    assert "below the line" not in make_results.scenario_table(summary, "small")
    first = entry["summary"][0]
    first["gate"]["verdict"], first["runs"] = "failed", 3
    entry["rounds"] = 500
    rows = [row for row in make_results.scenario_table(summary, "small").splitlines() if row.startswith("|")]
    cells = [[cell.strip() for cell in row.split("|")[1:3]] for row in rows[2:]]
    assert [place for place, _ in cells] == ["1", "2", "3", "", "–"]
    assert cells[-2:] == [
        ["", "*below the line: over its energy budget*"],
        ["–", f"{first['title']} (3 runs)"],
    ]
    assert len({row.count("|") for row in rows}) == 1


def test_numbers_are_those_of_the_rounds(page, folder):
    with (folder / "surrogate" / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    delay = {
        name: np.mean([float(row["delay_s"]) for row in rows if row["scheduler"] == name])
        for name in ("dssra", *RIVALS)
    }
    memory = {
        name: max(float(row["peak_memory_bytes"]) for row in rows if row["scheduler"] == name)
        for name in ("dssra", "vanilla_fl")
    }
    text = page.read_text()
    line = next(line for line in text.splitlines() if line.startswith("| `small` |"))
    for name in RIVALS:
        assert f" {100.0 * (delay['dssra'] / delay[name] - 1.0):+.1f} % " in line
    assert f" {100.0 * (delay['vanilla_fl'] / delay['dssra'] - 1.0):+.0f} % " in line
    assert f" {100.0 * (memory['dssra'] / memory['vanilla_fl'] - 1.0):+.0f} % " in line
    priced = np.mean([-float(row["reward"]) for row in rows if row["scheduler"] == "dssra"])
    priced *= CollaPipeVectorEnv(1, "small").reference_delay
    assert f"| 1 | DSSRA | {priced:.2f} (" in text
    assert "2 held-out episodes of 3 rounds" in text


def test_pictures_lie_where_the_page_shows_them(page):
    pictures = {path.name for path in (page.parent / "pictures").iterdir()}
    shown = (Path(__file__).parents[2] / "docs" / "results.md").read_text()
    assert pictures == {
        "delay.png",
        "energy_delay.png",
        "torch-small-loss_time.png",
    }  # not all that there are
    for name in re.findall(r"images/results/([\w.-]+)", shown):
        assert (make_results.DOCS / "images" / "results" / name).exists()
    for part in PARTS:
        assert shown.count(generated_parts.BEGIN.format(part)) == 1


def test_a_page_without_its_marks_is_refused(folder, tmp_path, monkeypatch):
    path = tmp_path / "results.md"
    path.write_text("nothing to fill\n")
    monkeypatch.setattr(make_results, "PAGE", path)
    options = make_results.Options(scenarios=("small",), torch_episodes=(2,), work=folder)
    with pytest.raises(SystemExit, match="generated: surrogate"):
        make_results.write_page(options, make_results.comparisons(options))
    assert path.read_text() == "nothing to fill\n"


def test_the_commands_are_those_that_are_run():
    alone = make_results.Options(torch_episodes=(10, 3, 0))
    assert not any("--agent" in words for _, words in make_results.comparisons(alone))
    options = make_results.Options(torch_episodes=(10, 3, 0), agent_runs=1)
    runs = dict(make_results.comparisons(options))
    assert [path.name for path in runs] == ["surrogate", "torch-small", "torch-medium"]
    torch_medium = runs[options.work / "torch-medium"]
    assert torch_medium[:3] == ["--scenarios", "medium", "--schedulers"]
    agent = torch_medium.index("--agent")
    assert torch_medium[agent + 1] == f"medium={make_results.agent_of(options, 'medium')}"
    playing = torch_medium[3:agent]
    assert len(set(playing)) == len(playing)
    assert json.dumps(torch_medium).count("torch") == 1
    assert torch_medium[torch_medium.index("--learner") + 1] == "real"
    assert {*playing} == {
        *scheduler_names(),
        *(f"zoo:{name}" for name in shipped_agents() if name not in ("graph-llm", "graph-wild")),
    }
    trained = {name: make_results.training(options, name, 0) for name in ("medium", "large")}
    steps = {name: words[words.index("--steps") + 1] for name, words in trained.items()}
    assert steps == {"medium": "600000", "large": "260000"}


def test_shipped_agents_of_other_scenarios_are_not_reported(folder):
    summary = json.loads((folder / "surrogate" / "summary.json").read_text())
    entry = summary["scenarios"]["small"]
    before = make_results.scenario_table(summary, "small")
    entry["impossible"] = {"zoo:medium-sac": "trained on medium"}
    assert make_results.scenario_table(summary, "small") == before
    entry["impossible"]["OptPipe"] = "no plan"
    assert "OptPipe: not possible: no plan" in make_results.scenario_table(summary, "small")


def test_further_training_runs_share_the_row_under_the_surrogate_learner_alone():
    options = make_results.Options(scenarios=("small",), torch_episodes=(10,), agent_runs=3)
    (_, surrogate), (_, torch) = make_results.comparisons(options)
    first, *others = (make_results.training(options, "small", seed) for seed in range(3))
    assert "--seed" not in first
    assert [arguments[arguments.index("--seed") + 1] for arguments in others] == ["1", "2"]
    made = [
        f"{arguments[arguments.index('--out') + 1]}/checkpoints/best.zip" for arguments in (first, *others)
    ]
    assert len(set(made)) == 3
    expected = [f"small={path}" for path in made]
    start = surrogate.index("--agent") + 1
    assert surrogate[start : start + 4] == [*expected, "--episodes"]
    start = torch.index("--agent") + 1
    assert torch[start : start + 2] == [expected[0], "--episodes"]
