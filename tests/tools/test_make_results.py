"""The results page: its marked parts are filled from the comparisons, everything else stays."""

import csv
import json

import make_results
import numpy as np
import pytest
from tool_support import filled, page_of

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
    path = page_of(tmp_path / "results.md", *PARTS)
    shown = ("delay.png", "energy_delay.png", "torch-small-loss_time.png")
    words = "".join(f"![picture](pictures/{name})\n" for name in shown)
    path.write_text(path.read_text().replace("Words after", f"{words}Words after"))
    monkeypatch.setattr(make_results, "PAGE", path)
    monkeypatch.setattr(make_results, "PICTURES", tmp_path / "pictures")
    options = make_results.Options(scenarios=("small",), torch_episodes=(2,), work=folder)
    make_results.write_page(options, make_results.comparisons(options))
    return path


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
    text = filled(page)
    line = next(line for line in text.splitlines() if line.startswith("| `small` |"))
    for name in RIVALS:
        assert f" {100.0 * (delay['dssra'] / delay[name] - 1.0):+.1f} % " in line
    assert f" {100.0 * (delay['vanilla_fl'] / delay['dssra'] - 1.0):+.0f} % " in line
    assert f" {100.0 * (memory['dssra'] / memory['vanilla_fl'] - 1.0):+.0f} % " in line
    priced = np.mean([-float(row["reward"]) for row in rows if row["scheduler"] == "dssra"])
    priced *= CollaPipeVectorEnv(1, "small").reference_delay
    assert f"| 1 | DSSRA | {priced:.2f} (" in text
    assert "2 held-out episodes of 3 rounds" in text
    # Pictures lie where the page shows them, and those that it does not show do not.
    pictures = {path.name for path in (page.parent / "pictures").iterdir()}
    assert pictures == {"delay.png", "energy_delay.png", "torch-small-loss_time.png"}


def test_all_schedulers_and_agents_of_its_size_play_each_scenario():
    options = make_results.Options(torch_episodes=(10, 3, 0), agent_runs=1)
    runs = dict(make_results.comparisons(options))
    assert [path.name for path in runs] == ["surrogate", "torch-small", "torch-medium"]
    torch_medium = runs[options.work / "torch-medium"]
    agent = torch_medium.index("--agent")
    assert torch_medium[agent + 1] == f"medium={make_results.agent_of(options, 'medium')}"
    assert torch_medium[torch_medium.index("--learner") + 1] == "real"
    assert sorted(torch_medium[torch_medium.index("--schedulers") + 1 : agent]) == sorted(
        [
            *scheduler_names(),
            *(f"zoo:{name}" for name in shipped_agents() if name not in ("graph-llm", "graph-wild")),
        ]
    )
