"""Generalisation matrix: cells against the episodes, rows of runs, dashes, and what is never overwritten."""

import csv
from pathlib import Path

import make_generalisation
import numpy as np
import pytest
from generalisation_columns import COLUMNS
from tool_support import filled, page_of

from collapipe_env.agents.learned.agent_file import write_agent_file
from collapipe_env.agents.learned.hyperparameters import PPOParameters, usual
from collapipe_env.agents.learned.sb3_models import build_model, saved_model
from collapipe_env.envs.sb3 import CollaPipeVecEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation import runner
from collapipe_env.evaluation.episode import play_episode
from collapipe_env.evaluation.episode_files import EpisodeFiles
from collapipe_env.evaluation.scheduler_loading import load_scheduler, make_scheduler
from collapipe_env.scenario import load_scenario

SLOW = '''
from collapipe_env.evaluation.scheduler_loading import make_scheduler


class Slow:
    """The even split under another name."""

    name = "slow"

    def __init__(self, scenario):
        self._inner = make_scheduler("pipeline", scenario)

    def reset(self, seed=None):
        self._inner.reset(seed)

    def act(self, observation, state):
        return self._inner.act(observation, state)
'''


@pytest.fixture(scope="module")
def agents(tmp_path_factory) -> list[Path]:
    """Two untrained agents for ``small``, which fit no other size."""
    folder = tmp_path_factory.mktemp("agents")
    scenario, parameters = load_scenario("small"), usual(PPOParameters, hidden_units=(8,))
    env = CollaPipeVecEnv(CollaPipeVectorEnv(2, scenario, "surrogate", autoreset_mode="SameStep"))
    paths = [folder / f"{seed}.safetensors" for seed in range(2)]
    for seed, path in enumerate(paths):
        saved = saved_model(build_model(parameters, env, seed), "ppo", parameters, scenario, {}, [])
        write_agent_file(path, *saved.playing)
    return paths


@pytest.fixture
def slow(tmp_path: Path) -> str:
    (tmp_path / "slow.py").write_text(SLOW)
    return f"{tmp_path / 'slow.py'}:Slow"


def run(tmp_path: Path, agents: list[str], columns: list[str], *more: object, seeds: int = 2) -> int:
    given = ["--agents", *agents, "--columns", *columns, "--episodes", seeds, "--rounds", 3, "--processes", 1]
    return make_generalisation.main([*map(str, given), "--out", str(tmp_path / "out"), *map(str, more)])


def lines(tmp_path: Path) -> dict[tuple[str, str], dict[str, str]]:
    with (tmp_path / "out" / "matrix.csv").open(newline="") as file:
        return {(line["row"], line["column"]): line for line in csv.DictReader(file)}


def test_cells_are_those_of_the_episodes_and_misfits_have_a_dash(
    agents, slow, tmp_path: Path, capsys
) -> None:
    page = page_of(tmp_path / "page.md", "generalisation")
    rows = [f"even={slow}", f"net={agents[0]}", f"net={agents[1]}"]
    assert run(tmp_path, rows, ["small", "V-half"], "--page", page) == 0
    found = lines(tmp_path)
    assert list(found) == [(row, c) for row in ("dssra", "even", "net") for c in ("small", "V-half")]
    # The same episodes, played by hand.
    scenario = load_scenario("small")

    def delays(name: str, agent: Path | None = None) -> list[float]:
        plays = (
            play_episode(name, load_scheduler(name, scenario, agent), scenario, e, 3, "surrogate").result
            for e in range(2)
        )
        return [result.priced_delay for result in plays]

    base = np.array(delays("dssra"))
    expected = np.mean(np.array(delays("pipeline")) / base) - 1.0
    assert float(found["even", "small"]["difference"]) == pytest.approx(expected, rel=1e-12)
    runs = np.array([delays("agent", agent) for agent in agents])
    assert float(found["net", "small"]["difference"]) == pytest.approx(np.mean(runs / base) - 1.0, rel=1e-12)
    assert found["net", "small"]["runs"] == "2"
    assert float(found["net", "small"]["priced_delay_s"]) == pytest.approx(runs.mean(), rel=1e-12)
    assert float(found["dssra", "small"]["priced_delay_s"]) == pytest.approx(base.mean(), rel=1e-12)
    half = load_scenario("medium").with_overrides({"budgets.tradeoff_v": 0.7})
    played = play_episode("dssra", make_scheduler("dssra", half), half, 0, 3, "surrogate").result
    stored = EpisodeFiles(tmp_path / "out/evaluation/V-half/dssra", "dssra", 0).read()
    assert stored.energy_ratio == played.energy_ratio
    # PPO of one size has no answer elsewhere, and the reason is told.
    assert found["net", "V-half"]["difference"] == found["net", "V-half"]["runs"] == ""
    assert "small" in found["net", "V-half"]["reason"]
    text = (tmp_path / "out" / "matrix.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith("| net (2 runs) |"))
    assert row.split("|")[3].strip() == "–"
    assert row.split("|")[2].strip().startswith(f"{100.0 * (np.mean(runs / base) - 1.0):+.1f} (")
    assert f"net does not play V-half: {found['net', 'V-half']['reason']}" in text
    assert "Episodes have 3 rounds, and energy queues are still filling" in text
    assert row in filled(page)


def test_more_is_added_and_less_never_overwrites(agents, slow, played, tmp_path: Path, capsys) -> None:
    assert run(tmp_path, [f"net={agents[0]}"], ["small"], seeds=1) == 0
    assert len(played) == 2
    played.clear()
    assert run(tmp_path, [f"net={agents[0]}", f"even={slow}"], ["small", "8x6"]) == 0
    names = sorted(
        f"{unit.plan.scenario.name}/{unit.scheduler.split('/')[-1]}-{unit.episode}" for unit in played
    )
    assert names == sorted(
        [f"8x6/{one}-{e}" for one in ("dssra", "slow.py:Slow") for e in (0, 1)]
        + ["small/agent-1", "small/dssra-1", "small/slow.py:Slow-0", "small/slow.py:Slow-1"]
    )
    before = (tmp_path / "out" / "matrix.csv").read_text()
    played.clear()
    capsys.readouterr()
    for rows, columns, seeds, lost in (
        ([f"net={agents[0]}"], ["small", "8x6"], 2, "row 'even'"),
        ([f"net={agents[0]}", f"even={slow}"], ["small"], 2, "column '8x6'"),
        ([f"net={agents[0]}", f"even={slow}"], ["small", "8x6"], 1, "2 episodes"),
    ):
        assert run(tmp_path, rows, columns, seeds=seeds) == 2
        assert f"holds {lost}, which this run leaves out" in capsys.readouterr().err
    assert run(tmp_path, [f"net={agents[0]}", f"even={slow}"], ["small", "8x6"], "--rounds", 2) == 2
    assert "rounds was 3, now 2" in capsys.readouterr().err
    assert played == []
    assert (tmp_path / "out" / "matrix.csv").read_text() == before


def test_an_interrupted_run_writes_no_table_and_goes_on(slow, played, tmp_path: Path, monkeypatch) -> None:
    counted = runner._work

    def interrupted(unit, on_round):
        if len(played) == 3:
            raise KeyboardInterrupt
        return counted(unit, on_round)

    monkeypatch.setattr(runner, "_work", interrupted)
    assert run(tmp_path, [f"even={slow}"], ["small"]) == 130
    assert not (tmp_path / "out" / "matrix.csv").exists()
    assert not (tmp_path / "out" / "matrix.md").exists()
    monkeypatch.setattr(runner, "_work", counted)
    assert run(tmp_path, [f"even={slow}"], ["small"]) == 0
    assert len(played) == 4


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_share_what_the_ladder_shares(name: str) -> None:
    scenario, medium = COLUMNS[name](), load_scenario("medium")
    N = scenario.cluster.clusters
    assert scenario.radio.uplink_bandwidth_hz == pytest.approx(5e6 * N)
    assert scenario.cluster.server_flops == pytest.approx(0.5e12 * N)
    assert scenario.radio.bs_power_w == pytest.approx(5.0 * N)
    assert scenario.budgets.bandwidth_floor == pytest.approx(0.08 / N)
    if "x" in name and name != "xlarge":
        assert name == f"{N}x{scenario.cluster.devices}"
    if name.startswith("budgets"):
        by = float(name.partition("-")[2])
        assert scenario.budgets.device_energy_j == pytest.approx(by * medium.budgets.device_energy_j)
        assert scenario.budgets.cu_energy_j == pytest.approx(by * medium.budgets.cu_energy_j)
