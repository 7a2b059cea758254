"""Generated parts: pages hold what the entries say, plays are the environment's, changes show as stale."""

import copy
import re
from dataclasses import replace
from pathlib import Path

import grid_tables
import numpy as np
import player
import pytest
from player import Play, Value, played

import docs as tool
from collapipe_env.baselines.even_split import PipeLine
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.names import TIERED

GRIDS = {name: entry for name, entry in tool.entries().items() if "rows" in entry}


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch):
    monkeypatch.setattr(player, "KEPT", tmp_path / "kept")


def cells_of(table: str) -> list[list[str]]:
    """Cells of a table, without the line below its head."""
    lines = [line for line in table.splitlines() if line.startswith("|") and not line.startswith("|--")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


@pytest.mark.parametrize("name", GRIDS)
def test_pages_show_the_rows_and_columns_of_the_entry(name):
    page, _, part = name.partition("/")
    text = tool.parts_of(tool.DOCS / f"{page}.md")[part]
    shown = cells_of(text)
    entry = GRIDS[name]
    dims = len(entry["rows"])
    heads = [*(row["head"] for row in entry["rows"]), *(column["head"] for column in entry["columns"])]
    labels = {labels for _, rows in grid_tables.grids(entry) for labels, _ in rows}
    assert [row for row in shown if row[0] == heads[0]] == [heads] * len(entry.get("tables", [0]))
    found = {tuple(row[:dims]) for row in shown} - {tuple(heads[:dims]), (grid_tables.BELOW,)}
    assert found == labels


def test_a_changed_entry_is_stale_and_the_command_is_named(monkeypatch, capsys):
    changed = copy.deepcopy(dict(tool.entries()))
    changed["heat/governors"]["rounds"] += 1
    monkeypatch.setattr(tool, "entries", lambda: changed)
    assert tool.main(["--check"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["heat/governors is not made from its present entry: python -m tools.docs heat/governors"]


def test_another_agent_or_scenario_of_a_study_is_stale(monkeypatch):
    """A part of another part's plays is stale with it."""
    known, named = tool.shipped_agent, tool.scenario_of
    monkeypatch.setattr(
        tool,
        "shipped_agent",
        lambda name: replace(known(name), sha256="") if "small-ppo" in name else known(name),
    )
    expected = {"learned_agents/trainings", "results/stated", "results/surrogate", "results/torch"}
    assert set(tool.stale()) == {*expected, "zoo/generalisation"}
    monkeypatch.setattr(tool, "scenario_of", lambda base: "" if base == "large-stale" else named(base))
    assert "learned_agents/uncertain" in tool.stale()
    monkeypatch.setattr(tool, "scenario_of", lambda base: "" if base == "medium" else named(base))
    assert {"prices/exact", "index/numbers"} <= set(tool.stale())


def test_the_table_of_the_readme_is_that_of_the_demo():
    options = tool.entries()["README/demo"]["train"]
    given = " ".join(f"--{name} {value}" for name, value in options.items())
    assert f"DEMO_ARGS ?= {given}\n" in (tool.DOCS.parent / "Makefile").read_text()


def test_parts_are_chosen_by_name():
    assert tool.chosen(["radio", "heat/clocks"]) == ["radio/links", "radio/links.png", "heat/clocks"]


@pytest.mark.slow
def test_a_part_is_made_and_written_between_its_marks(tmp_path, monkeypatch):
    text = (tool.DOCS / "heat.md").read_text()
    (tmp_path / "heat.md").write_text(text)
    short = {"heat/governors": {**tool.entries()["heat/governors"], **tool.QUICK}}
    monkeypatch.setattr(tool, "entries", lambda: short)
    monkeypatch.setattr(tool, "DOCS", tmp_path)
    assert tool.main(["heat/governors"]) == 0
    made = (tmp_path / "heat.md").read_text()
    assert "2 episodes x 2 rounds" in made
    head, rest = text.split("<!-- generated: governors -->")
    assert made.startswith(head)
    assert made.endswith(rest.split("<!-- end of generated: governors -->")[1])
    assert list(tool.stale()) == []


def test_a_play_is_what_the_environment_plays():
    scenario = load_scenario("small-churn")
    found = played(
        Play("small-churn", scheduler="pipeline", episodes=2, rounds=4, seed=5), ["delay", "sat_out"]
    )
    env, scheduler = CollaPipeVectorEnv(2, scenario, "surrogate"), PipeLine(scenario)
    env.reset(seed=5)
    delays, able = [], []
    for _ in range(4):
        able.append(env.state.memory_cap.sum(axis=-1) >= scenario.blocks)
        env.step_allocation(scheduler.act(None, env.state))
        delays.append(env.last_round.costs.delay)
    np.testing.assert_allclose(found["delay"].each, np.mean(delays, axis=0))
    np.testing.assert_allclose(found["sat_out"].each, 1.0 - np.mean(able, axis=(0, 2)))


def test_the_truth_and_filtered_gains_are_better_known():
    noisy = {"dynamics.processes.channel_knowledge": {"modes": ["noisy"], "noise_db": 6.0}}
    known, filtered, truth = (
        played(Play(changes=noisy, scheduler="nothing", sees=sees, episodes=3, rounds=8), ["link_error_db"])
        for sees in ("state", "filtered", "truth")
    )
    assert float(known["link_error_db"]) == pytest.approx(6.0, abs=0.3)
    assert float(filtered["link_error_db"]) < float(known["link_error_db"])
    assert float(truth["link_error_db"]) == 0.0


def test_queues_are_priced():
    found = played(Play("small-migration", scheduler="random", episodes=2, rounds=3), ["delay", "priced"])
    assert (found["priced"].each > found["delay"].each).all()


def test_finished_plays_are_kept_until_the_sources_change(monkeypatch):
    play = Play("small", scheduler="pipeline", rounds=1)
    first = played(play, ["delay"])
    monkeypatch.setattr(player, "rounds", None)
    assert float(played(play, ["delay"])["delay"]) == float(first["delay"])
    monkeypatch.setattr(player, "sources", lambda: "other")
    with pytest.raises(TypeError):
        played(play, ["delay"])


def test_budgets_are_raised_until_they_can_be_met():
    poor = {"budgets.device_energy_j": 0.01, "budgets.cu_energy_j": 20.0}
    scenario = Play("small", changes=poor, feasible={}).scenario()
    assert scenario.budgets.device_energy_j > 0.01
    assert scenario.budgets.cu_energy_j == 20.0
    raised = {**poor, "budgets.device_energy_j": scenario.budgets.device_energy_j}
    assert Play("small", changes=raised, feasible={}).scenario().budgets == scenario.budgets


def test_a_value_compares_with_its_base():
    value = Value(np.array([2.0, 6.0]), base=np.array([1.0, 4.0]))
    assert f"{value:.1f} {value.percent:.0f} {value.bold}" == "4.0 400 **"
    assert (value.change, value.least, value.most) == pytest.approx((60.0, 50.0, 100.0))
    assert value.paired.mean == 75.0
    # Differences of 40 and 80 % of the mean base: 60 +- 1.96 x 28.28 / sqrt(2).
    assert value.low == pytest.approx(60.0 - 39.2)
    assert value.high == pytest.approx(60.0 + 39.2)


def fake(monkeypatch, delays, energies=None):
    """Plays whose figures depend on the scheduler's name alone."""

    def play(one, names):
        if one.scheduler not in delays:
            raise ScenarioError("refused")
        figures = {"delay": delays, "nodes": energies or delays}
        return {name: Value(np.array([figures[name][one.scheduler]])) for name in names}

    monkeypatch.setattr(grid_tables, "played", play)


def rows(names):
    return [{"head": "who", "of": {name: {"scheduler": name} for name in names}}]


def test_a_line_divides_those_that_keep_to_budgets_from_those_that_do_not(monkeypatch):
    fake(monkeypatch, {"a": 1.0, "b": 3.0, "c": 2.0}, {"a": 1.06, "b": 1.04, "c": 0.5})
    entry = {
        "rows": rows("abc"), "columns": [{"head": "delay", "cell": "{delay:g}"}],
        "ranked": {"by": "delay", "within": ["nodes"], "most": 1.05},
    }  # fmt: skip
    assert cells_of(grid_tables.table(entry))[1:] == [
        ["c", "2"],
        ["b", "3"],
        ["*over a budget*", ""],
        ["a", "1"],
    ]


def test_the_front_holds_whom_nobody_beats(monkeypatch):
    fake(monkeypatch, {"a": 1.0, "b": 2.0, "c": 2.0}, {"a": 2.0, "b": 1.0, "c": 2.0})
    entry = {"rows": rows("abc"), "columns": [{"head": "front", "front": ["delay", "nodes"]}]}
    assert [row[1] for row in cells_of(grid_tables.table(entry))[1:]] == ["yes", "yes", "no"]


def test_cells_that_cannot_be_played_and_the_least_column(monkeypatch):
    fake(monkeypatch, {"a": 2.0, "b": 1.0})
    columns = [{"head": f"M = {name}", "scheduler": name, "with": {}} for name in "abx"]
    entry = {
        "cell": "{delay:g}", "cannot": "-", "rows": [{"head": "", "of": {"row": {}}}],
        "columns": [*columns, {"head": "best", "least": "delay"}],
    }  # fmt: skip
    assert cells_of(grid_tables.table(entry))[1] == ["row", "2", "1", "-", "b"]
    del entry["cannot"]
    with pytest.raises(ScenarioError):
        grid_tables.table(entry)


def test_patches_are_merged_and_null_takes_a_change_out():
    first = {"with": {"a": {"x": 1}, "b": 2}, "scheduler": "one"}
    found = grid_tables.merged(first, {"with": {"a": {"y": 3}, "b": None}, "scheduler": "two"})
    assert found == {"with": {"a": {"x": 1, "y": 3}}, "scheduler": "two"}


def test_every_tier_says_where_its_scalars_are_from():
    """Whoever changes a scalar has to say the command that found it; Mobile has none to tune."""
    folder = Path(__file__).parents[2] / "collapipe_env/scenario/presets"
    for name in TIERED:
        text = (folder / f"{name}.yaml").read_text()
        scenario = load_scenario(name)
        assert ("dssra_plus:\n  # collapipe tune " in text) == (not name.endswith("mobile")), name
        if not scenario.dssra_plus.is_neutral:
            assert re.search(r"# collapipe tune (small|medium|large|xlarge)-\w+", text), name
