"""``collapipe leaderboard``: golden scores, going on, verification, and what is refused."""

import dataclasses
import hashlib
import json
import math
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML

from collapipe_env.cli.early_end import INTERRUPTED
from collapipe_env.cli.main import main
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation import runner
from collapipe_env.evaluation.leaderboard import anchor_files, board_results, season
from collapipe_env.evaluation.leaderboard.anchor_files import read_anchors
from collapipe_env.evaluation.leaderboard.board_claims import require_of_season
from collapipe_env.evaluation.leaderboard.board_folder import read_board
from collapipe_env.evaluation.leaderboard.board_table import board_markdown
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.ground.errors import DataError
from collapipe_env.ground.files import json_digest
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import load_scenario

EPISODES, ROUNDS = 2, 3
SHORT = ["--episodes", str(EPISODES), "--rounds", str(ROUNDS), "--processes", "1"]
QUICK, STATIC = ["--tier", "static", *SHORT], ["--tier", "static", "--processes", "1"]
CODE = """
from collapipe_env.baselines.even_split import PipeLine

def make(scenario):
    scheduler = PipeLine(scenario)
    scheduler.name = "Mine"
    return scheduler
"""
BLIND = """
import numpy as np

class Blind:
    name = "Blind"
    def __init__(self, scenario):
        self.size = scenario.clusters * (2 * scenario.max_devices + 3)
    def reset(self, seed=None):
        pass
    def act(self, observation, state):
        assert state is None
        return np.zeros((1, self.size), dtype=np.float32)

def make(scenario):
    return Blind(scenario)
"""


def leaderboard(*arguments: object) -> int:
    return main(["leaderboard", *map(str, arguments)])


def by_hand(name: str, cell: str) -> list[float]:
    """Mean delay of each episode, in the environment alone."""
    scenario = load_scenario(cell).with_overrides({"dynamics.rounds": 500})
    found = []
    for episode in range(EPISODES):
        scheduler = make_scheduler(name, scenario)
        env = CollaPipeVectorEnv(1, scenario, "surrogate", max_episode_steps=ROUNDS)
        observation, _ = env.reset(seed=1_300_000_000 + episode)
        seed = hashlib.sha256(f"collapipe scheduler|0|{episode}".encode()).hexdigest()[:8]
        scheduler.reset(int(seed, 16) // 2)
        delays = []
        for _ in range(ROUNDS):
            decision = scheduler.act(observation, env.state)
            step = env.step_allocation if isinstance(decision, Allocation) else env.step
            observation = step(decision)[0]
            delays.append(env.last_round.costs.delay[0])
        found.append(float(np.mean(delays)))
    return found


def test_golden_scores(tmp_path, capsys) -> None:
    cells = ("small", "small-wild")
    names = ("pipeline", "dssra-plus", "random", "dssra")
    delays = {(name, cell): by_hand(name, cell) for name in names for cell in cells}
    for name in names:
        out = tmp_path / name
        assert leaderboard("run", "--scheduler", name, "--tier", "static", "wild", *SHORT, "--out", out) == 0
        assert "Provisional: small, small-wild." in capsys.readouterr().out.replace("\n", " ")
        results, intact = read_board(out)
        assert intact
        assert not results.scored
        for cell in cells:
            own, even, plus = (delays[one, cell] for one in (name, "pipeline", "dssra-plus"))
            assert [e.delay_s for e in results.cells[cell].episodes] == pytest.approx(own, rel=1e-12)
            rows = [(t, e, p) for t, e, p in zip(own, even, plus, strict=True) if e - p >= 0.01 * e]
            scores = sorted(100.0 * (e - t) / (e - p) for t, e, p in rows)
            quarter = len(scores) // 4
            expected = float(np.mean(scores[quarter : len(scores) - quarter]))
            assert {"pipeline": 0.0, "dssra-plus": 100.0}.get(name, expected) == pytest.approx(expected)
            assert f"| {cell} (provisional) | {expected:.1f}" in (out / "table.md").read_text()


@pytest.fixture(scope="module")
def quick_results(tmp_path_factory) -> str:
    """Results of a quick run."""
    out = tmp_path_factory.mktemp("quick") / "run"
    assert leaderboard("run", "--scheduler", "dssra", *QUICK, "--out", out) == 0
    return (out / "leaderboard.json").read_text()


@pytest.fixture
def played(quick_results, tmp_path) -> Path:
    """A folder with results alone."""
    out = tmp_path / "played"
    out.mkdir()
    (out / "leaderboard.json").write_text(quick_results)
    return out


def verify(folder: Path, tmp_path: Path, *more: object) -> int:
    return leaderboard("verify", folder, "--processes", 1, "--out", tmp_path / "again", *more)


def rewritten(folder: Path, path: str, value: object) -> None:
    """Change one entry of the results, and give them a digest that fits, whatever reading them says."""
    file = folder / "leaderboard.json"
    content = json.loads(file.read_text())
    *parents, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    inner = content
    for part in parents:
        inner = inner[part]
    inner[last] = value(inner[last]) if callable(value) else value
    names = ("scenario_digest", "rounds", "episodes")
    cells = {
        name: {**{entry: cell[entry] for entry in names}, "impossible": bool(cell["impossible"])}
        for name, cell in content["cells"].items()
    }
    content["digest"] = json_digest({"season": content["season"], "cells": cells})
    file.write_text(json.dumps(content))


def with_unplayed_run(episodes: list[dict]) -> list[dict]:
    """Episodes, and those of a further training run that nobody played."""
    return episodes + [{**one, "run": 1, "delay_s": 0.1} for one in episodes]


EPISODES_OF = "cells/small/episodes"
DELAY, OTHER = f"{EPISODES_OF}/1/delay_s", ("cells/small/machine/processor", "other")
LITTLE, MORE = (DELAY, lambda delay: math.nextafter(delay, 0.0)), (DELAY, lambda delay: delay * (1.0 + 1e-8))
UNPLAYED = "small, run 1, episode 0 (seed 1300000000): episode is 'there' in the results, 'not played'"


@pytest.mark.parametrize(
    ("changes", "more", "messages"),
    [
        ([], [], ["verified: all episodes of small agree bit by bit"]),
        ([LITTLE], [], ["small, episode 1 (seed 1300000001): delay_s is ", "1 difference from the re-run"]),
        # Another machine may round otherwise, but no more than that.
        (
            [LITTLE, OTHER],
            [],
            [
                "verified",
                "(processor differ): numbers are compared to 1e-9",
                "agree to 1e-9; the digests of rounds were not compared, because the machine or versions "
                "differ (processor)\n",
            ],
        ),
        ([MORE, OTHER], [], ["1 difference from the re-run"]),
        ([MORE, OTHER], ["--episodes", 1], ["verified"]),
        ([(f"{EPISODES_OF}/0/rounds_sha256", "0" * 64)], [], ["episode 0 (seed 1300000000): rounds_sha256"]),
        ([(EPISODES_OF, with_unplayed_run)], [], [UNPLAYED, "run 1, episode 1 (seed 1300000001)"]),
        ([(EPISODES_OF, with_unplayed_run)], ["--episodes", 1], [UNPLAYED, "1 difference from the re-run"]),
        ([("name", "Best of all")], [], ["name is 'Best of all' in the results, 'DSSRA' in fact"]),
    ],
)
def test_verification_plays_again_and_finds_every_change(
    played, changes, more, messages, tmp_path, capsys
) -> None:
    for change in changes:
        rewritten(played, *change)
    same = messages[0].startswith("verified")
    assert verify(played, tmp_path, *more) == (0 if same else 2)
    told = capsys.readouterr()
    assert ("verified" in told.out) == same
    for message in messages:
        assert message in told.out + told.err


def with_21_episodes(cell: dict) -> dict:
    """A cell with more episodes than the season has."""
    first = cell["episodes"][0]
    episodes = [{**first, "episode": index, "seed": 1_300_000_000 + index} for index in range(21)]
    return {**cell, "anchors": None, "episodes": episodes}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("cells/small/anchors/zero", [1.0], "anchors: zero and hundred hold no delay for each episode"),
        ("cells/small/anchors", lambda a: {**a, "zero": [1.0], "hundred": [1.0]}, "anchors of 1 episodes, w"),
        ("cells/small/anchors/hundred/0", -1.0, "anchors.hundred[0] is -1.0: it should be greater than 0"),
        ("cells/small/anchors/scenario_digest", "0" * 64, "anchors belong to another scenario"),
        ("cells/small", with_21_episodes, "small: 21 episodes, where the season has 20"),
        ("cells/small/episodes", lambda e: [e[0], e[0]], "small: episodes are missing, or appear twice"),
        ("cells/small/episodes/1/seed", 1, "episode 1 has the seed 1, not 1300000001"),
        ("cells/small/episodes/0/delay_s", 0.0, "episodes[0].delay_s is 0.0: it should be greater than 0"),
        ("cells/small/episodes/0/worst_energy_ratio", None, "worst_energy_ratio is None: it should be a"),
        ("cells/small/episodes/0/backlog_slope", None, "backlog_slope is null where a number"),
        ("cells/small/episodes/0/rounds_sha256", "0", "rounds_sha256 is '0': "),
        ("cells/small/scenario_digest", "0" * 64, "it was changed, so scores would not compare"),
        ("cells/small/rounds", 0, "cells.small.rounds is 0: it should be greater than or equal to 1"),
        ("cells/small/rounds", 501, "501 rounds, where the season has 500"),
        ("cells/small/machine", lambda m: {n: m[n] for n in m if n != "torch"}, "machine does not say torch"),
        ("cells/small/machine", lambda m: {**m, "a\x1b[31m": ""}, "machine.'a\\x1b[31m'"),
        ("name", "a\x1b[31m", "name is 'a\\x1b[31m': it holds line breaks or control"),
        ("season", "1\nerror: all is well", "season is '1\\nerror: all is well': it holds line breaks"),
    ],
)
def test_malformed_results_are_one_line(played, path, value, message, tmp_path, capsys) -> None:
    rewritten(played, path, value)
    for command in (["table", played], ["verify", played, "--out", tmp_path / "again"]):
        assert leaderboard(*command) == 2
        told = capsys.readouterr()
        assert message in told.err
        assert told.err.count("\n") == 1
        assert told.err.strip("\n").isprintable()
        assert not told.out
    assert not (tmp_path / "again").exists()


def test_anchors_of_a_run_are_the_frozen_ones(played) -> None:
    """Where it has some of its own; only those of shorter episodes may differ."""
    results, _ = read_board(played)
    own = season.present_season()
    file = anchor_files.anchors_path(own)
    frozen = read_anchors(file, own)
    require_of_season(played, results, own, frozen)
    known = dataclasses.replace(frozen["small"], zero=frozen["small"].zero[:2], hundred=(8.0, 8.0))
    for anchors, fault in ((frozen["small"], None), (known, "anchor dssra-plus, episode 0: 8.0 s, where")):
        cell = dataclasses.replace(results.cells["small"], rounds=500, anchors=anchors)
        whole = dataclasses.replace(results, cells={"small": cell})
        if fault is None:
            require_of_season(played, whole, own, frozen)
        else:
            with pytest.raises(DataError, match=fault):
                require_of_season(played, whole, own, frozen)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["verify", "--tier", "static", "nope"], "--tier 'nope': the results of"),
        (["verify", "--tier", "wild"], "have none of it: they have static"),
        (["verify", "--size", "small", "large"], "--size 'large': the results of"),
    ],
)
def test_options_without_a_use_are_refused(arguments, message, played, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    command, *options = arguments
    before = sorted(tmp_path.rglob("*"))
    assert leaderboard(command, played, *options) == 2
    assert sorted(tmp_path.rglob("*")) == before
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1


def test_a_row_is_named_once(played, tmp_path, capsys) -> None:
    copy = tmp_path / "copy.json"
    copy.write_text((played / "leaderboard.json").read_text())
    capsys.readouterr()
    for others in ([played], [played / "leaderboard.json"], [copy]):
        assert leaderboard("table", played, *others) == 2
        assert f"(scheduler 'dssra') is in {played} already" in capsys.readouterr().err
    rewritten(played, "submission_sha256", "0" * 64)
    assert leaderboard("table", played, copy) == 0


def test_results_edited_by_hand_are_told(played, tmp_path, capsys) -> None:
    file = played / "leaderboard.json"
    file.write_text(file.read_text().replace('"peak_memory_bytes": ', '"peak_memory_bytes": 1', 1))
    assert verify(played, tmp_path) == 2
    assert "they were edited" in capsys.readouterr().out
    assert leaderboard("table", played) == 2


def test_the_digest_leaves_times_out(played) -> None:
    results, _ = read_board(played)
    cell = results.cells["small"]
    slower = {"small": dataclasses.replace(cell, decision_median_s=9.0, decision_p99_s=9.0)}
    assert dataclasses.replace(results, cells=slower).digest == results.digest
    fewer = {"small": dataclasses.replace(cell, episodes=cell.episodes[:1])}
    assert dataclasses.replace(results, cells=fewer).digest != results.digest


def test_ctrl_c_keeps_episodes_and_the_same_command_goes_on(tmp_path, capsys, monkeypatch) -> None:
    work, played = runner._work, []

    def stopped(unit, on_round) -> None:
        if len(played) == 4:
            raise KeyboardInterrupt
        played.append(str(unit))
        return work(unit, on_round)

    monkeypatch.setattr(runner, "_work", stopped)
    command = ["run", "--scheduler", "random", *QUICK, "--out", tmp_path / "run"]
    assert leaderboard(*command) == INTERRUPTED
    assert "collapipe leaderboard run --scheduler random" in capsys.readouterr().err
    assert not (tmp_path / "run" / "leaderboard.json").exists()
    files = (tmp_path / "run" / "evaluation" / "small").glob("*.npz")
    kept = {file: file.stat().st_mtime_ns for file in files}
    assert len(kept) == 4
    monkeypatch.setattr(runner, "_work", work)
    assert leaderboard(*command) == 0
    assert {file: file.stat().st_mtime_ns for file in kept} == kept
    assert len(read_board(tmp_path / "run")[0].cells["small"].episodes) == EPISODES


def submission(folder: Path, code: str, **fields: object) -> Path:
    folder.mkdir()
    data = {
        "name": "Mine", "authors": ["me"], "track": "model-based", "zero_shot": True, "tiers": ["static"],
        "sizes": ["small"], "training_transitions": 0, "cpu_hours": 0, "licence": "MIT", "commit": "0" * 40,
    }  # fmt: skip
    with (folder / "submission.yaml").open("w") as file:
        YAML(typ="safe").dump({**data, "cpu_hours": 0.0, **fields}, file)
    (folder / "scheduler.py").write_text(code)
    return folder


def test_a_submission_with_code(tmp_path, capsys) -> None:
    mine = submission(tmp_path / "mine", CODE)
    out = ["--out", mine / "results"]
    assert leaderboard("run", "--submission", mine, *SHORT, *out) == 0
    results, _ = read_board(mine)
    assert (results.name, results.scheduler) == ("Mine", "scheduler.py:make")
    text = (mine / "results" / "leaderboard.json").read_text()
    assert str(tmp_path) not in text.replace(results.command, "")
    assert verify(mine, tmp_path) == 2
    assert "--trust-code" in capsys.readouterr().err
    assert verify(mine, tmp_path, "--trust-code") == 0
    (mine / "scheduler.py").write_text(CODE + "\n")
    assert verify(mine, tmp_path, "--trust-code") == 2
    assert "changed after its results were made" in capsys.readouterr().err


def test_a_quick_look_leaves_a_submission_as_it_is(tmp_path, capsys) -> None:
    mine = submission(tmp_path / "mine", CODE)
    quick = ["--rounds", 2, "--processes", 1]
    assert leaderboard("run", "--submission", mine, "--episodes", 2, *quick, "--out", mine / "results") == 0
    assert leaderboard("run", "--submission", mine, "--episodes", 1, *quick) == 0
    assert (mine / "results-1x2" / "leaderboard.json").exists()
    assert verify(mine, tmp_path, "--trust-code") == 0
    for out in (mine / "more", mine, mine / "results" / ".." / "more"):
        assert leaderboard("run", "--submission", mine, *quick, "--out", out) == 2
        assert "would become part of the submission" in capsys.readouterr().err


def test_code_that_ends_the_process_is_told(tmp_path, capsys) -> None:
    mine = submission(tmp_path / "mine", "import os\n\ndef make(scenario):\n    os._exit(0)\n")
    assert leaderboard("run", "--submission", mine, "--episodes", 1, "--rounds", 2, "--processes", 1) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "small: not possible: " in told
    assert "os._exit(0) would end the whole run" in told


def test_the_track_observation_only_hides_the_state(tmp_path, capsys) -> None:
    mine = submission(tmp_path / "mine", BLIND, track="observation-only")
    quick = ["--episodes", 1, "--rounds", 2, "--processes", 1]
    assert leaderboard("run", "--submission", mine, *quick) == 0
    assert read_board(tmp_path / "mine" / "results-1x2")[0].cells["small"].episodes
    other = submission(tmp_path / "other", BLIND)
    assert leaderboard("run", "--submission", other, *quick) == 0
    assert "not possible" in capsys.readouterr().out
    (other / "scheduler.py").unlink()
    fields = YAML(typ="safe").load((other / "submission.yaml").read_text())
    with (other / "submission.yaml").open("w") as file:
        YAML(typ="safe").dump({**fields, "track": "observation-only", "scheduler": "dssra"}, file)
    assert leaderboard("run", "--submission", other, *quick, "--fresh") == 2
    assert "decides from the state" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scheduler", "dssra", "--submission", "x"], "give one of --scheduler"),
        (["--scheduler", "dsra"], "dssra"),
        (["--scheduler", "dssra-truth"], "sees the true system"),
        (["--scheduler", "dssra", "--tier", "X"], "--tier 'X' is not known"),
        (["--scheduler", "dssra", "--size", "xlarge"], "--size 'xlarge' is not known"),
        (["--scheduler", "dssra", "--rounds", "501"], "--rounds = 501"),
        (["--submission", "nowhere"], "nowhere is not a folder"),
    ],
)
def test_bad_options_are_one_line(arguments, message, tmp_path, capsys) -> None:
    assert leaderboard("run", *arguments, "--out", tmp_path / "run") == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("command", [["run", "--scheduler", "dssra"], ["verify", "nowhere"], ["freeze"]])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--processes", "-1"], "--processes = -1"),
        (["--ray-address", "auto"], "an option of --executor ray"),
    ],
)
def test_no_folder_is_made_for_an_engine_that_cannot_be(command, options, message, tmp_path, capsys) -> None:
    assert leaderboard(*command, *options, "--out", tmp_path / "run") == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.fixture
def tiny(tmp_path, monkeypatch) -> Path:
    """A season of its own, of 2 episodes of 3 rounds; returns its anchors' file."""
    content = json.loads((season.FOLDER / "season-1.json").read_text())
    content |= {"rounds": 3, "episodes": {"small": 2, "medium": 2, "large": 1}}
    (tmp_path / "season-1.json").write_text(json.dumps(content))
    own = season.present_season(tmp_path)
    monkeypatch.setattr(season, "present_season", lambda: own)
    monkeypatch.setattr(anchor_files, "FOLDER", tmp_path)
    return tmp_path / "season-1-anchors.json"


def test_freezing_and_scoring_a_season(tiny, tmp_path, capsys) -> None:
    freeze = ["freeze", *STATIC, "--size", "small", "--out", tmp_path / "anchors"]
    assert leaderboard(*freeze) == 0
    assert leaderboard(*freeze) == 0
    assert "small: as frozen before" in capsys.readouterr().out
    for name in ("pipeline", "dssra-plus", "dssra"):
        assert leaderboard("run", "--scheduler", name, *STATIC, "--out", tmp_path / name) == 0
        results, _ = read_board(tmp_path / name)
        assert results.scored
        assert results.cells["small"].anchors is None
    capsys.readouterr()
    assert leaderboard("table", *(tmp_path / name for name in ("pipeline", "dssra-plus"))) == 0
    table = capsys.readouterr().out
    assert "| `small` | DSSRA+ | 1 | 100.0 (100.0 to 100.0) |" in table
    assert "| `small` | PipeLine | 2 | 0.0 (0.0 to 0.0) |" in table
    # The scenario of the anchors is another one now.
    own = season.present_season()
    frozen = read_anchors(tiny, own)
    changed = {"small": dataclasses.replace(frozen["small"], scenario_digest="0" * 64)}
    anchor_files.write_anchors(tiny, own, changed)
    assert leaderboard("run", "--scheduler", "random", *STATIC, "--out", tmp_path / "random") == 2
    assert "anchors were frozen for 000000000000" in capsys.readouterr().err


def test_rows_of_the_board_are_ranked_and_gated(played) -> None:
    results, _ = read_board(played)
    own = dataclasses.replace(
        season.present_season(), rounds=500, episodes=dict.fromkeys(season.BOARD_SIZES, 2)
    )
    frozen = {"small": anchor_files.CellAnchors("0" * 64, (12.0, 12.0), (8.0, 8.0), own.seeds[:2])}

    def row(name: str, delay: float, excess: float = 0.0) -> board_results.BoardResults:
        cell = results.cells["small"]
        episodes = [
            dataclasses.replace(e, delay_s=delay, worst_energy_ratio=1.0 + excess, backlog_slope=excess)
            for e in cell.episodes
        ]
        cells = {"small": dataclasses.replace(cell, rounds=500, episodes=tuple(episodes))}
        return dataclasses.replace(results, name=name, cells=cells)

    rows = [row("slow", 11.0), row("greedy", 6.0, 0.5), row("twin", 9.0), row("quick", 9.0)]
    table = board_markdown(rows, own, frozen)
    lines = [line for line in table.splitlines() if line.startswith("| `small`")]
    assert [line.split(" | ")[1:3] for line in lines] == [
        ["twin", "1"], ["quick", "1"], ["slow", "3"], ["greedy", "‡"],
    ]  # fmt: skip
    assert "| – | greedy | – | (150.0) ‡ |" in table
    table = board_markdown([row("a|b <img src=x> [c](d) `e`", 9.0)], own, frozen)
    assert r"a\|b &lt;img src=x&gt; \[c\](d) \`e\` | 1 |" in table
    assert "<img" not in table
