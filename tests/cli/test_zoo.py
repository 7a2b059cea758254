"""``collapipe zoo``, and agents of the zoo in the commands that play."""

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest
from zoo_support import SCENARIO, trained_agent, use_zoo

from collapipe_env import evaluate
from collapipe_env.agents.learned.agent_file import packed_agent, read_agent_file
from collapipe_env.baselines.random_feasible import RandomFeasible
from collapipe_env.cli.main import main
from collapipe_env.evaluation.scheduler_loading import full_names
from collapipe_env.ground.errors import SchedulerError
from collapipe_env.ground.files import write_bytes
from collapipe_env.schedulers import SCHEDULERS
from collapipe_env.zoo import shipped_agents as zoo

QUICK = ["--episodes", "1", "--rounds", "2", "--processes", "1", "--no-figures"]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory) -> dict[str, Path]:
    """Two agents of one algorithm, and one for other features."""
    found = {
        name: trained_agent(tmp_path_factory.mktemp(name), "ppo", seed=seed).best
        for name, seed in (("first", 0), ("second", 1))
    }
    moving = SCENARIO.with_overrides({"name": "moving", "dynamics.processes": {"migration": {}}})
    return {**found, "moving": trained_agent(tmp_path_factory.mktemp("moving"), "ppo", moving).best}


def put(**checkpoints: Path) -> None:
    """Fill the zoo."""
    agents = []
    for name, checkpoint in checkpoints.items():
        record, tensors = read_agent_file(checkpoint).playing
        content = packed_agent(record, tensors, name)
        write_bytes(zoo.FOLDER / f"{name}.safetensors", content)
        (zoo.FOLDER / f"{name}.md").write_text(f"# {name}\n\nThe card of {name}.\n")
        agents.append(
            zoo.ShippedAgent(
                name=name,
                sha256=hashlib.sha256(content).hexdigest(),
                size=len(content),
                algorithm=record.algorithm,
                trained_on=record.trained_on,
                description=f"Agent {name}.",
                figures="round delay 9.00 s",
                command="collapipe train",
            )
        )
    zoo.write_index(agents)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch, checkpoints: dict[str, Path]) -> Path:
    found = use_zoo(tmp_path / "zoo", monkeypatch)
    put(**checkpoints)
    return found


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    path = tmp_path / "tiny.yaml"
    path.write_text(SCENARIO.to_yaml())
    return str(path)


def refusal(capsys, *arguments: str) -> str:
    capsys.readouterr()
    assert main(list(arguments)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    return line


def test_an_empty_zoo_says_so(tmp_path: Path, monkeypatch, capsys) -> None:
    use_zoo(tmp_path / "zoo", monkeypatch)
    assert main(["zoo"]) == 0
    assert capsys.readouterr().out == "no agents are shipped yet: train your own with collapipe train\n"
    assert "no agent 'any': no agents are shipped yet" in refusal(capsys, "zoo", "show", "any")


@pytest.mark.parametrize("arguments", [["zoo"], ["zoo", "list"]])
def test_agents_are_listed_in_a_table(folder: Path, capsys, arguments: list[str]) -> None:
    assert main(arguments) == 0
    header, *rows = (line.split("  ") for line in capsys.readouterr().out.splitlines())
    columns = [cell.strip() for cell in header if cell.strip()]
    assert columns == ["name", "algorithm", "trained on", "size", "figures"]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    sizes = {name: (folder / f"{name}.safetensors").stat().st_size for name in ("first", "second", "moving")}
    trained_on = {"first": "tiny", "second": "tiny", "moving": "moving"}
    assert cells == [
        [name, "ppo", scenario, f"{sizes[name] / 1000:.0f} kB", "round delay 9.00 s"]
        for name, scenario in trained_on.items()
    ]


def test_long_figures_are_wrapped_below_each_other(folder: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    first = zoo.shipped_agents()["first"]
    zoo.write_index([dataclasses.replace(first, figures="round delay 9.00 s " * 6)])
    assert main(["zoo"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 3
    assert max(map(len, lines)) <= 80
    start = lines[0].index("figures")
    assert all(line[:start].strip() == "" and line[start] != " " for line in lines[2:])


def test_a_card_is_shown_with_the_path(folder: Path, capsys) -> None:
    for name in ("first", "zoo:first"):
        assert main(["zoo", "show", name]) == 0
        assert capsys.readouterr().out == f"# first\n\nThe card of first.\n\n{folder / 'first.safetensors'}\n"
    assert "no agent 'frist': did you mean 'first'?" in refusal(capsys, "zoo", "show", "frist")
    (folder / "first.md").unlink()
    assert "cannot read the card" in refusal(capsys, "zoo", "show", "first")
    (folder / "first.safetensors").write_bytes(b"")
    assert "is not the file of zoo:first" in refusal(capsys, "zoo", "show", "first")


def test_export_writes_what_plays(checkpoints, tmp_path: Path, capsys) -> None:
    out = tmp_path / "agent.safetensors"
    assert main(["zoo", "export", str(checkpoints["first"]), str(out)]) == 0
    tensors = read_agent_file(out).tensors
    weights = sum(value.size for value in tensors.values())
    assert f"ppo trained on tiny, {weights:,} weights" in capsys.readouterr().out
    again = tmp_path / "again.safetensors"
    assert main(["zoo", "export", str(out), str(again)]) == 0
    assert again.read_bytes() == out.read_bytes()
    assert "must end in .safetensors" in refusal(capsys, "zoo", "export", str(out), str(tmp_path / "a.zip"))
    assert "does not exist" in refusal(capsys, "zoo", "export", str(tmp_path / "no.zip"), str(out))


def delays(out: Path, scheduler: str) -> list[float]:
    results = json.loads((out / "results.json").read_text())
    return [delay for episode in results["episodes"][scheduler] for delay in episode["delay"]]


def test_evaluate_plays_an_agent_of_the_zoo(folder, scenario, checkpoints, tmp_path: Path, capsys) -> None:
    common = ["evaluate", "--scenario", scenario, "--schedulers", "agent", "random", *QUICK]
    by_name = [*common, "--agent", "zoo:first", "--out", str(tmp_path / "name")]
    assert main(by_name) == 0
    assert "PPO: trained agent, from zoo:first" in (tmp_path / "name" / "table.md").read_text()
    assert main([*common, "--agent", str(checkpoints["first"]), "--out", str(tmp_path / "file")]) == 0
    assert delays(tmp_path / "name", "agent") == delays(tmp_path / "file", "agent")
    assert "did you mean 'first'" in refusal(capsys, *common, "--agent", "zoo:frist")
    assert "feature migration_blocks is absent in this" in refusal(capsys, *common, "--agent", "zoo:moving")


def test_another_content_under_the_same_name_is_measured_anew(
    folder, scenario, checkpoints, tmp_path: Path, played
) -> None:
    command = ["evaluate", "--scenario", scenario, "--schedulers", "zoo:first", *QUICK]
    command += ["--out", str(tmp_path / "out")]
    assert main(command) == main(command) == 0
    assert len(played) == 1
    before = delays(tmp_path / "out", "zoo:first")
    put(first=checkpoints["second"])
    assert main(command) == 0
    assert len(played) == 2
    assert delays(tmp_path / "out", "zoo:first") != before


def test_a_folder_holds_the_results_of_one_agent(
    folder, scenario, checkpoints, tmp_path: Path, capsys
) -> None:
    command = ["evaluate", "--scenario", scenario, "--agent", "zoo:first", "--schedulers", "agent", *QUICK]
    command += ["--out", str(tmp_path / "one")]
    assert main(command) == main(command) == 0
    put(first=checkpoints["second"])
    assert "agent was" in refusal(capsys, *command)


def test_agents_of_the_zoo_play_without_the_prefix(folder, scenario, tmp_path: Path) -> None:
    """A name is written in full once, so results, marks and digests are those of the full one."""
    common = ["--schedulers", "random", "first", *QUICK]
    one = tmp_path / "one"
    assert main(["evaluate", "--scenario", scenario, *common, "--out", str(one)]) == 0
    assert "first: trained agent, from zoo:first" in (one / "table.md").read_text()
    marked = ["--reference", "first", "--gantt", "first", "--out", str(tmp_path / "compared")]
    assert main(["compare", "--scenarios", scenario, *common, *marked]) == 0
    summary = json.loads((tmp_path / "compared" / "summary.json").read_text())
    assert summary["reference"] == "zoo:first"


def test_names_without_the_prefix_are_those_of_python(folder, scenario, capsys, monkeypatch) -> None:
    found = evaluate(["random", "first"], scenario, seeds=1, rounds=2, reference="first")
    assert found["first"].title == "first"
    assert found.reference == found["first"].scheduler == "zoo:first"
    twice = ["evaluate", "--scenario", scenario, "--schedulers", "first", "zoo:first"]
    assert "--schedulers names zoo:first more than once" in refusal(capsys, *twice)
    with pytest.raises(SchedulerError, match="name 'zoo:first' more than once"):
        evaluate(["first", "zoo:first"], scenario)
    assert "did you mean 'second'" in refusal(capsys, *twice[:-2], "secnd")
    # A scheduler of that very name comes first.
    monkeypatch.setattr(SCHEDULERS, "_added", {"first": RandomFeasible})
    assert full_names(["first", "second", "dssra"]) == ("first", "zoo:second", "dssra")
    assert evaluate("first", scenario, seeds=1, rounds=2)["first"].title == "Random"


def test_compare_plays_agents_of_the_zoo(folder, scenario, tmp_path: Path, capsys) -> None:
    moving = tmp_path / "moving.yaml"
    moving.write_text("name: moving\nbase: small\ndynamics: {rounds: 4, processes: {migration: {}}}\n")
    out = tmp_path / "out"
    command = ["compare", "--scenarios", scenario, str(moving), "--schedulers", "random", "zoo:second"]
    command += QUICK
    assert main([*command, "--agent", "tiny=zoo:first", "moving=zoo:moving", "--out", str(out)]) == 0
    summary = json.loads((out / "summary.json").read_text())
    played = {
        name: {s["scheduler"] for s in found["summary"]} for name, found in summary["scenarios"].items()
    }
    assert played == {"tiny": {"agent", "random", "zoo:second"}, "moving": {"agent", "random"}}
    # It is reported where it cannot play, and the rest goes on.
    assert "feature migration_blocks is (2, 3) in this scenario, absent" in capsys.readouterr().out
    digests = {name: entry.sha256 for name, entry in zoo.shipped_agents().items()}
    assert summary["agent_digests"] == {"tiny": [digests["first"]], "moving": [digests["moving"]]}
    # Without a scenario it is for all of them; 'first' does not fit the second.
    assert "migration_blocks" in refusal(capsys, *command, "--agent", "zoo:first")
    assert "did you mean 'first'" in refusal(capsys, *command, "--agent", "tiny=zoo:frist")
