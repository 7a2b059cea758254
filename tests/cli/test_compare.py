"""``collapipe compare``: complete, resumable, fair, and tolerant of schedulers that cannot play."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from variants_support import mostly_slow
from zoo_support import saved_agent

from collapipe_env.cli.main import main
from collapipe_env.evaluation import figures, plotting
from collapipe_env.evaluation.episode import HELD_OUT_SEED, play_episode
from collapipe_env.evaluation.figures import comparison_pictures
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.ground.errors import AllocationError
from collapipe_env.ground.files import write_bytes
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import NAMED_ONLY, SCHEDULERS, Decision, scheduler_names

TWO = ["--schedulers", "random", "pipeline"]


@pytest.fixture
def base(tmp_path: Path) -> list[str]:
    """Two small scenarios, two episodes of three rounds, one process."""
    for name, rounds in (("one", 3), ("two", 9)):
        (tmp_path / f"{name}.yaml").write_text(f"name: {name}\nbase: small\ndynamics: {{rounds: {rounds}}}\n")
    files = [str(tmp_path / "one.yaml"), str(tmp_path / "two.yaml")]
    short = ["--episodes", "2", "--rounds", "3", "--processes", "1"]
    return ["--scenarios", *files, *short, "--out", str(tmp_path / "out")]


class Broken:
    """Cannot play scenario ``two``, and notices in the second round."""

    name = "Broken"

    def __init__(self, scenario) -> None:
        self._scenario = scenario
        self._pipeline = make_scheduler("pipeline", scenario)
        self._round = 0

    def reset(self, seed: int | None = None) -> None:
        self._pipeline.reset(seed)
        self._round = 0

    def act(self, observation, state) -> Decision:
        self._round += 1
        if self._scenario.name == "two" and self._round == 2:
            raise AllocationError("three stages, but only two devices")
        return self._pipeline.act(observation, state)


@pytest.fixture
def broken(monkeypatch) -> None:
    monkeypatch.setitem(SCHEDULERS._shipped, "broken", f"{__name__}:Broken")


def name(unit) -> str:
    return f"{unit.plan.scenario.name}/{unit.scheduler}-{unit.episode}"


def run(*arguments: object) -> int:
    words = (a for part in arguments for a in (part if isinstance(part, list) else [part]))
    return main(["compare", *map(str, words)])


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("drawn", mostly_slow([False, True]))
def test_everything_is_written_and_named(drawn: bool, base, tmp_path: Path, capsys, monkeypatch) -> None:
    if not drawn:
        monkeypatch.setattr(plotting, "save", lambda _, path: write_bytes(path, b"drawn"))
        monkeypatch.setattr(figures, "comparison_pictures", few_pictures)
    assert run(base, "--schedulers", "dssra", "pipeline") == 0
    out = tmp_path / "out"
    printed = capsys.readouterr().out
    assert printed.strip().splitlines()[-1] == f"everything is in {out}/"
    for file in ("table.md", "results.csv", "episodes.csv", "figures/"):
        assert str(out / file) in printed
    table = (out / "table.md").read_text()
    for heading in ("## one: 2 held-out episodes of 3 rounds", "## two: ", "## All scenarios, against DSSRA"):
        assert heading in table
    summary = json.loads((out / "summary.json").read_text())
    assert summary["command"].startswith("collapipe compare --scenarios ")
    assert summary["versions"]["numpy"] == np.__version__
    assert len(set(summary["scenario_digests"].values())) == 2
    assert summary["reference"] == "dssra"
    pictures = {path.name for path in (out / "figures").iterdir()}
    assert not list(out.rglob("*.partial"))
    if not drawn:
        assert pictures == {"delay_cdf.png"}
        return
    assert pictures == {
        "delay.png", "energy_delay.png", "delay_cdf.png", "delay_per_round.png", "backlog.png",
        "memory.png", "loss_time.png", "loss_energy.png", "delay_profile.png",
        "gantt-one.png", "gantt-two.png",
    }  # fmt: skip


def few_pictures(*given, **how):
    """One of the pictures that a report draws."""
    return {"delay_cdf": comparison_pictures(*given, **how)["delay_cdf"]}


def test_raw_results_are_the_episodes_round_by_round(base, tmp_path: Path) -> None:
    assert run(base, TWO, "--no-figures") == 0
    rounds = read_csv(tmp_path / "out" / "results.csv")
    assert ",".join(rounds[0]) == (
        "scenario,scheduler,run,episode,seed,round,delay_s,reward,worst_energy_ratio,backlog,largest_backlog,"
        "loss_nat,smoothed_loss_nat,metric,peak_memory_bytes,decision_s,energy_j,expected_progress"
    )
    assert len(rounds) == 2 * 2 * 2 * 3
    scenario = load_scenario(tmp_path / "two.yaml")
    again = play_episode("pipeline", make_scheduler("pipeline", scenario), scenario, 1, 3, "surrogate").result
    lines = [r for r in rounds if (r["scenario"], r["scheduler"], r["episode"]) == ("two", "pipeline", "1")]
    assert [line["round"] for line in lines] == ["1", "2", "3"]
    assert {line["seed"] for line in lines} == {str(HELD_OUT_SEED + 1)}
    for column, values in (
        ("delay_s", again.delay),
        ("reward", again.reward),
        ("worst_energy_ratio", again.worst_energy),
        ("backlog", again.backlog),
        ("loss_nat", again.loss),
        ("smoothed_loss_nat", again.smoothed_loss),
        ("peak_memory_bytes", again.memory_bytes),
    ):
        assert [float(line[column]) for line in lines] == values
    assert {line["metric"] for line in lines} == {""}  # the surrogate has none
    assert all(float(line["decision_s"]) > 0.0 for line in lines)

    episodes = read_csv(tmp_path / "out" / "episodes.csv")
    assert ",".join(episodes[0]) == (
        "scenario,scheduler,run,episode,seed,rounds,priced_delay_s,return_per_round,mean_delay_s,p95_delay_s,"
        "seconds_per_progress,energy_j,simulated_time_s,worst_mean_energy_ratio,final_backlog,backlog_slope,initial_loss_nat,final_smoothed_loss_nat,"
        "final_metric,peak_memory_bytes,median_decision_s"
    )
    assert len(episodes) == 2 * 2 * 2
    (line,) = (
        e for e in episodes if (e["scenario"], e["scheduler"], e["episode"]) == ("two", "pipeline", "1")
    )
    assert float(line["mean_delay_s"]) == np.mean(again.delay)
    assert float(line["worst_mean_energy_ratio"]) == again.worst_energy_ratio
    assert float(line["peak_memory_bytes"]) == again.peak_memory_bytes


def test_only_what_is_missing_is_played_and_the_rest_is_the_same(base, played, tmp_path: Path) -> None:
    assert run(base, TWO, "--episodes", 1, "--no-figures") == 0
    assert len(played) == len({unit.key for unit in played}) == 4
    first = (tmp_path / "out" / "results.csv").read_text()
    played.clear()
    assert run(base, *TWO, "vanilla_fl", "--episodes", 2, "--no-figures") == 0
    assert sorted(map(name, played)) == sorted(
        f"{scenario}/{unit}"
        for scenario in ("one", "two")
        for unit in ("random-1", "pipeline-1", "vanilla_fl-0", "vanilla_fl-1")
    )
    now = (tmp_path / "out" / "results.csv").read_text()
    assert set(first.splitlines()) <= set(now.splitlines())


def test_a_scheduler_that_cannot_play_is_reported_and_the_rest_goes_on(
    base, broken, played, tmp_path: Path, capsys
) -> None:
    assert run(base, "--schedulers", "broken", "random", "pipeline", "--no-figures") == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    reason = "three stages, but only two devices"
    assert summary["scenarios"]["two"]["impossible"] == {"broken": reason}
    assert summary["scenarios"]["one"]["impossible"] == {}
    names = {
        name: sorted(s["scheduler"] for s in part["summary"]) for name, part in summary["scenarios"].items()
    }
    assert names == {"one": ["broken", "pipeline", "random"], "two": ["pipeline", "random"]}
    assert f"broken: not possible: {reason}" in (tmp_path / "out" / "table.md").read_text()
    assert f"broken: not possible: {reason}" in capsys.readouterr().out
    assert "two/broken-0" in map(name, played)
    assert "two/broken-1" not in map(name, played)  # one failure is enough
    (overall,) = (o for o in summary["overall"] if o["scheduler"] == "broken")
    assert overall["scenarios"] == ["one"]


@pytest.mark.slow
def test_a_reference_or_a_scenario_that_nobody_can_play_is_no_end(base, broken, tmp_path: Path) -> None:
    assert run(base, "--schedulers", "broken", "pipeline", "--no-figures") == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["reference"] == "broken"
    (line,) = summary["scenarios"]["two"]["summary"]
    assert line["difference"]["mean"] is None
    assert run(base, "--schedulers", "broken", "--fresh") == 0
    assert "No scheduler could play." in (tmp_path / "out" / "table.md").read_text()


def test_where_no_scheduler_could_play_anything_the_report_ends_in_an_error(
    base, broken, tmp_path: Path, capsys
) -> None:
    base[1:3] = base[2:3]
    assert run(base, "--schedulers", "broken") == 2
    assert "No scheduler could play." in (tmp_path / "out" / "table.md").read_text()
    assert "none of broken could play" in capsys.readouterr().err


def test_every_scheduler_meets_the_same_channels() -> None:
    scenario = load_scenario("small")
    seen: dict[str, list[np.ndarray]] = {}

    class Watched:
        def __init__(self, name: str) -> None:
            self._inner, self.name = make_scheduler(name, scenario), name

        def reset(self, seed: int | None = None) -> None:
            self._inner.reset(seed)

        def act(self, observation, state) -> Decision:
            gains = (state.uplink_gain, state.d2d_gain, state.memory_bytes)
            seen.setdefault(self.name, []).append(np.concatenate([np.ravel(g) for g in gains]))
            return self._inner.act(observation, state)

    names = ("dssra", "pipeline", "random", "vanilla_fl")
    delays = {
        name: play_episode(name, Watched(name), scenario, 0, 4, "surrogate").result.delay for name in names
    }
    for name in names[1:]:
        np.testing.assert_array_equal(seen[name], seen["dssra"])
        assert delays[name] != delays["dssra"]
    assert not np.array_equal(seen["dssra"][0], seen["dssra"][1])


def test_a_learned_agent_plays_in_its_own_scenario(base, tmp_path: Path, capsys) -> None:
    agent = saved_agent(load_scenario(tmp_path / "one.yaml"), tmp_path / "agent.safetensors", 0)
    for key, others in ((f"{tmp_path / 'one.yaml'}=", []), ("", ["two"])):  # without SCENARIO=: in both
        assert run(base, TWO, "--agent", f"{key}{agent}", "--episodes", 1, "--no-figures") == 0
        summary = json.loads((tmp_path / "out" / "summary.json").read_text())
        playing = {
            name: {s["scheduler"] for s in part["summary"]} for name, part in summary["scenarios"].items()
        }
        assert [name for name, names in playing.items() if "agent" in names] == ["one", *others]
        assert list(summary["agent_digests"]) == ["one", *others]
    capsys.readouterr()
    assert run(base, TWO, "--agent", f"one={agent}", f"one={agent}") == 2
    assert "hold the same agent: give each training run once" in capsys.readouterr().err


@pytest.mark.slow  # the command evaluate plays several, too
def test_several_files_are_the_training_runs_of_one_row(base, played, tmp_path: Path, capsys) -> None:
    scenario = load_scenario(tmp_path / "one.yaml")
    agents = [saved_agent(scenario, tmp_path / f"{seed}.safetensors", seed) for seed in range(3)]
    options = [*base[:2], *base[3:], "--schedulers", "pipeline", "--no-figures"]
    assert run(options, "--agent", *agents[:2]) == 0
    assert len(played) == 2 * (1 + 2)
    capsys.readouterr()
    played.clear()
    assert run(options, "--agent", *agents) == 0
    printed = capsys.readouterr()
    assert sorted((unit.run, unit.episode) for unit in played) == [(2, 0), (2, 1)]
    assert "PPO  run 2, episode 1" in printed.out
    for text in (printed.out, (tmp_path / "out" / "table.md").read_text()):
        assert "PPO (3 runs)" in " ".join(text.split())
        assert "3 training runs, from" in " ".join(text.split())
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert len(set(summary["agent_digests"]["one"])) == 3

    episodes = read_csv(tmp_path / "out" / "episodes.csv")
    delay = {(e["scheduler"], int(e["run"]), int(e["episode"])): float(e["priced_delay_s"]) for e in episodes}
    assert sorted(delay) == [
        *[("agent", r, e) for r in range(3) for e in range(2)],
        *[("pipeline", 0, e) for e in range(2)],
    ]
    each = np.array([[delay["agent", r, e] for e in range(2)] for r in range(3)])
    assert len(np.unique(each)) == 6  # other weights, other episodes
    ratio = each / [delay["pipeline", 0, e] for e in range(2)] - 1.0
    (line,) = (s for s in summary["scenarios"]["one"]["summary"] if s["scheduler"] == "agent")
    assert line["runs"] == 3
    assert line["priced_delay"]["mean"] == pytest.approx(each.mean())
    assert line["difference"]["mean"] == pytest.approx(ratio.mean())
    assert line["difference"]["high"] == pytest.approx(ratio.max(), rel=0.05)  # 1 of 27 x 4 choices is 1 %
    assert line["improvement"]["mean"] == pytest.approx(np.mean(ratio < 0.0))
    again = play_episode(
        "agent", make_scheduler("agent", scenario, agents[1]), scenario, 1, 3, "surrogate"
    ).result
    assert again.delay == [
        float(row["delay_s"])
        for row in read_csv(tmp_path / "out" / "results.csv")
        if (row["scheduler"], row["run"], row["episode"]) == ("agent", "1", "1")
    ]


def test_runs_of_one_row_are_of_one_algorithm(base, tmp_path: Path, capsys) -> None:
    scenario = load_scenario(tmp_path / "one.yaml")
    agents = [
        saved_agent(scenario, tmp_path / f"{name}.safetensors", 0, algorithm=name) for name in ("ppo", "sac")
    ]
    assert run(base, TWO, "--agent", *agents) == 2
    expected = f"--agent: {agents[0]} is of PPO, {agents[1]} of SAC: files that share a row"
    assert expected in capsys.readouterr().err


def test_all_schedulers_by_default() -> None:
    from collapipe_env.cli.compare import Options

    assert Options().names == tuple(name for name in scheduler_names() if name not in NAMED_ONLY)
    assert Options().held_against == "dssra"
    assert Options(schedulers=("random", "pipeline")).held_against == "random"
    every = Options(schedulers=("all",))
    assert every.names == Options().names
    for scenario in ("small", "small-channel"):
        more = ("dssra-plus", "dssra-truth") if scenario == "small-channel" else ()
        assert every.names_for(load_scenario(scenario)) == (*Options().names, *more)
    assert Options().names_for(load_scenario("small")) == Options().names


def test_a_few_schedulers_by_default_on_tiers() -> None:
    from collapipe_env.cli.compare import Options

    few = ("dssra", "pipeline", "random")
    channel, mobile = load_scenario("small-channel"), load_scenario("small-mobile")
    assert Options().names_for(channel) == (*few, "dssra-plus", "dssra-truth")
    assert Options().names_for(mobile) == few
    assert Options().names_for(load_scenario("xlarge-wild")) == (*few, "dssra-plus", "dssra-truth")
    assert Options().names_for(load_scenario("medium-churn")) == (*few, "dssra-plus")
    assert Options().names_for(load_scenario("small-churn")) == few
    assert Options().names_for(mobile.with_task("ner")) == few
    drawn = Options(gantt=("titanic",), reference="optpipe")
    assert set(drawn.names_for(mobile)) == {*few, "titanic", "optpipe"}
    assert Options(schedulers=("titanic",)).names_for(channel) == ("titanic",)


def test_the_output_says_how_to_get_all(tmp_path: Path, capsys) -> None:
    quick = ["--episodes", 1, "--rounds", 2, "--processes", 1, "--no-figures", "--out", tmp_path / "out"]
    assert run("--scenarios", "small-mobile", quick) == 0
    printed = capsys.readouterr().out
    others = len(scheduler_names()) - len(NAMED_ONLY) - 3
    said = f"small-mobile: dssra, pipeline, random play; --schedulers all adds {others} more"
    assert said in printed.splitlines()
    played = {row["scheduler"] for row in read_csv(tmp_path / "out" / "results.csv")}
    assert played == {"dssra", "pipeline", "random"}
