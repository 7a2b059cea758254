"""Tables of held-out episodes: numbers are those of the episodes, played by hand or from the raw files."""

import csv
import json

import numpy as np
import pytest
from studies import held_out

import docs as tool
from collapipe_env.cli.main import main as collapipe
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.episode import play_episode
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.ground.errors import CheckpointError
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import scheduler_names

RIVALS = ["pipeline", "titanic", "vanilla_fl"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small comparison."""
    folder = tmp_path_factory.mktemp("comparison")
    arguments = ["--scenarios", "small", "--schedulers", "dssra", *RIVALS, "--episodes", "2", "--rounds", "3"]
    assert collapipe(["compare", *arguments, "--processes", "1", "--no-figures", "--out", str(folder)]) == 0
    return folder


def summary_of(folder):
    return json.loads((folder / "summary.json").read_text())["scenarios"]["small"]


def test_who_overdraws_stands_below_the_line_without_a_place(folder):
    entry, found = tool.entries()["results/surrogate"], summary_of(folder)
    assert "below the line" not in held_out.scenario_table(entry, found, "small")
    first = found["summary"][0]
    first["gate"]["verdict"], first["runs"] = "failed", 3
    found["rounds"] = 500
    table = held_out.scenario_table(entry, found, "small")
    rows = [row for row in table.splitlines() if row.startswith("|")]
    cells = [[cell.strip() for cell in row.split("|")[1:3]] for row in rows[2:]]
    assert [place for place, _ in cells] == ["1", "2", "3", "", "–"]
    line = "*below the line: over its energy budget*"
    assert cells[-2:] == [["", line], ["–", f"{first['title']} (3 runs)"]]
    assert len({row.count("|") for row in rows}) == 1


def test_numbers_are_those_of_the_rounds(folder, monkeypatch):
    with (folder / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    each = {name: [row for row in rows if row["scheduler"] == name] for name in ("dssra", *RIVALS)}
    delay = {name: np.mean([float(row["delay_s"]) for row in found]) for name, found in each.items()}
    memory = {name: max(float(row["peak_memory_bytes"]) for row in found) for name, found in each.items()}
    summary = {"scenarios": {"small": summary_of(folder)}}
    monkeypatch.setattr(held_out, "comparisons", lambda *_: [(summary, "")])
    line = held_out.stated(tool.entries()["results/stated"], False).splitlines()[-1]
    for name in RIVALS:
        assert f" {100.0 * (delay['dssra'] / delay[name] - 1.0):+.1f} % " in line
    assert f" {100.0 * (delay['vanilla_fl'] / delay['dssra'] - 1.0):+.0f} % " in line
    assert f" {100.0 * (memory['dssra'] / memory['vanilla_fl'] - 1.0):+.0f} % " in line
    priced = np.mean([-float(row["reward"]) for row in each["dssra"]])
    priced *= CollaPipeVectorEnv(1, "small").reference_delay
    table = held_out.scenario_table(tool.entries()["results/surrogate"], summary_of(folder), "small")
    assert f"| 1 | DSSRA | {priced:.2f} (" in table
    assert "2 held-out episodes of 3 rounds" in table


def test_all_schedulers_play_each_group_of_scenarios_with_its_episodes(tmp_path, monkeypatch):
    commands = []

    def run(command):
        commands.append(command)
        folder = tmp_path / "comparisons" / f"real-{command[2]}"
        folder.mkdir(parents=True)
        (folder / "summary.json").write_text("{}")
        return 0

    monkeypatch.setattr(held_out, "KEPT", tmp_path)
    monkeypatch.setattr(held_out, "collapipe", run)
    entry = {**tool.entries()["results/torch"], "scenarios": {"medium": 2, "small": 5}}
    list(held_out.comparisons(entry, quick=False))
    assert [(c[2], c[c.index("--episodes") + 1]) for c in commands] == [("small", "5"), ("medium", "2")]
    shipped = entry["shipped"]
    first = commands[0]
    assert first[first.index("--schedulers") + 1 : first.index("--episodes")] == [
        *scheduler_names(),
        *shipped,
    ]


def test_the_matrix_is_that_of_the_episodes_and_misfits_have_a_dash(tmp_path, monkeypatch):
    monkeypatch.setattr(held_out, "KEPT", tmp_path)
    monkeypatch.setattr(held_out, "PROCESSES", 1)
    entry = dict(tool.entries()["zoo/generalisation"])
    changes = {"base": "small", "with": {"budgets.tradeoff": 3.0}}
    entry |= {
        "episodes": 2,
        "rounds": 3,
        "columns": {"small": {}, "8x6": entry["columns"]["8x6"], "half": changes},
    }
    entry["agents"] = {"even": ["pipeline"], "ppo": ["zoo:small-ppo"]}
    head, _, reference, even, ppo, *below = held_out.matrix(entry, False).splitlines()
    scenario = load_scenario("small")

    def delays(name, agent=None):
        player = make_scheduler(name, scenario, agent)
        plays = (play_episode(name, player, scenario, e, 3, "surrogate").result for e in range(2))
        return np.array([result.priced_delay for result in plays])

    base = delays("dssra")
    assert [cell.strip() for cell in head.split("|")[2:-1]] == ["`small`", "`8x6`", "`half`"]
    assert reference.startswith(f"| DSSRA (s) | {base.mean():.2f} (")
    assert even.startswith(f"| even | {100.0 * (np.mean(delays('pipeline') / base) - 1.0):+.1f} (")
    change = np.mean(delays("zoo:small-ppo") / base) - 1.0
    assert ppo.startswith(f"| ppo | {100.0 * change:+.1f} (")
    assert ppo.split("|")[3].strip() == "–"
    assert any(line.startswith("ppo does not play 8x6: ") for line in below)
    assert any("Episodes have 3 rounds, and energy queues are still filling" in line for line in below)


def test_a_row_whose_files_are_missing_is_an_error(tmp_path):
    entry = dict(tool.entries()["zoo/generalisation"])
    entry["agents"] = {"lost": [str(tmp_path / "lost.safetensors")]}
    with pytest.raises(CheckpointError, match=r"lost fits no column: .*lost.safetensors"):
        held_out.matrix(entry, True)


def test_estimates_show_their_interval_where_they_have_one():
    value = held_out.Estimated(0.123, 0.1, 0.15)
    assert f"{value.percent:+.1f~}; {value:.2f}" == "+12.3 (+10.0…+15.0); 0.12"
    assert f"{value._replace(low=float('nan')):.1f~}" == "0.1"
    assert f"{held_out.Estimated.of({'mean': None, 'low': None, 'high': None}):.1f~}" == "–"
