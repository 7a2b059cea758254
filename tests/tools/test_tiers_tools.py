"""The tables of the tiers and the figures of what moves: what they say agrees with what was played."""

import re
from pathlib import Path

import make_dynamics_figures as figures
import make_tiers_table as tables
import numpy as np
import pytest
from matplotlib.image import imread

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.names import TIERED


@pytest.fixture
def short(monkeypatch) -> None:
    monkeypatch.setattr(tables, "ROUNDS", 3)
    monkeypatch.setattr(tables, "EPISODES", 2)
    monkeypatch.setattr(figures, "ROUNDS", 3)


@pytest.mark.usefixtures("short")
def test_a_row_is_what_the_episodes_say() -> None:
    rows = [line.split(" | ") for line in tables.table("thermal", ["small"]).splitlines()[2:]]
    assert [row[1] for row in rows] == ["even split", "random", "graph net", "DSSRA", "DSSRA+"]
    for row, name in ((rows[0], "pipeline"), (rows[3], "dssra")):
        found = tables.played("small-thermal", name)
        assert float(row[2].split()[0]) == pytest.approx(found.delay_s.mean(), abs=0.005)
    # No budget binds, so queues are empty and nothing is added for them.
    assert rows[0][2] == rows[0][3]
    other = tables.played("small-migration", "random")
    assert (other.priced_s > other.delay_s).all()


@pytest.mark.usefixtures("short")
def test_the_oracle_plays_on_the_truth_where_it_is_hidden() -> None:
    rows = tables.table("channel", ["small"]).splitlines()
    assert any("DSSRA on the truth" in row for row in rows)
    truth, known = (tables.played("small-channel", name) for name in ("dssra-truth", "dssra"))
    assert (truth.delay_s < known.delay_s).all()


@pytest.mark.usefixtures("short")
def test_devices_that_fail_have_two_columns_more() -> None:
    head, _, *rows = (line.strip("| ").split(" | ") for line in tables.table("churn", ["small"]).splitlines())
    assert head[-2:] == ["failed", "sat out"]
    assert "DSSRA on the truth" not in {row[1] for row in rows}
    # Who is there does not depend on who schedules.
    assert len({row[-1] for row in rows}) == 1
    found = tables.played("small-churn", "pipeline")
    able, scenario = [], load_scenario("small-churn")
    env = CollaPipeVectorEnv(tables.EPISODES, scenario, "surrogate")
    env.reset(seed=tables.SEED)
    for _ in range(tables.ROUNDS):
        able.append(env.state.memory_cap.sum(axis=-1) >= scenario.blocks)
        env.step(env.action_space.sample())
    np.testing.assert_allclose(found.sat_out, 1.0 - np.mean(able, axis=(0, 2)))
    assert "share of clusters' rounds with a failure" in tables.stamp("churn", ["small"])
    assert f"xlarge` {tables.XLARGE_EPISODES} episodes" in tables.stamp("wild", ["small", "xlarge"])
    assert "failure" not in tables.stamp("thermal", ["small"])


def test_rows_of_sizes_that_are_not_played_stay() -> None:
    head = "| scenario | delay |\n|---|---|"
    page = f"a\n<!-- generated: churn -->\n{head}\n| `small-churn` | 1 s |\n| `large-churn` | 3 s |\n<!-- end"
    fresh = f"{head}\n| `large-churn` | 4 s |"
    expected = f"{head}\n| `small-churn` | 1 s |\n| `large-churn` | 4 s |"
    assert tables.with_other_sizes(fresh, page, "churn") == expected
    # A page without the tier has nothing to keep.
    assert tables.with_other_sizes(fresh, page, "thermal") == head
    assert tables.with_other_sizes(fresh, "", "churn") == fresh


def test_every_tier_says_where_its_scalars_are_from() -> None:
    """Whoever changes a scalar has to say the command that found it; Mobile has none to tune."""
    folder = Path(__file__).parents[2] / "collapipe_env/scenario/presets"
    for name in TIERED:
        text = (folder / f"{name}.yaml").read_text()
        scenario = load_scenario(name)
        assert ("dssra_plus:\n  # collapipe tune " in text) == (not name.endswith("mobile")), name
        if not scenario.dssra_plus.is_neutral:
            assert re.search(r"# collapipe tune (small|medium|large|xlarge)-\w+", text), name


@pytest.mark.usefixtures("short")
def test_figures_show_the_rounds_that_were_played() -> None:
    scenario = load_scenario("medium-thermal")
    figure = figures.heat()
    above, below = figure.axes
    played = list(figures.rounds_of(scenario, "dssra"))
    hottest = [record.state.processes["heat"]["temperature"][0].max() for record in played]
    np.testing.assert_allclose(above.lines[0].get_ydata(), hottest)
    delays = [record.costs.delay[0] for record in played]
    np.testing.assert_allclose(below.lines[0].get_ydata(), delays)
    gain, present = figures.walks().axes
    assert len(gain.lines) == len(present.lines) == 1
    assert (present.lines[0].get_ydata() <= 20).all()


def test_the_readme_picture_is_drawn(tmp_path) -> None:
    figures.plain_round(tmp_path / "round.png")
    picture = imread(tmp_path / "round.png")
    assert min(picture.shape[:2]) > 300
    assert picture.std() > 0.05
