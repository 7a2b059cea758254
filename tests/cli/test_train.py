"""The main job from end to end, on the smallest system."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import train_agent
from collapipe_env.agents.learned.agent_file import read_agent_file
from collapipe_env.agents.learned.callbacks import SystemCurves
from collapipe_env.agents.learned.graph.graph_parameters import (
    check_graph_parameters,
    recipe,
    require_scenarios,
)
from collapipe_env.agents.learned.training_files import TrainingFiles
from collapipe_env.cli.common import parse
from collapipe_env.cli.early_end import INTERRUPTED, Call
from collapipe_env.cli.main import main as collapipe
from collapipe_env.cli.train import Job
from collapipe_env.cli.train_options import Options
from collapipe_env.ground.errors import CheckpointError

TINY = [
    *("--steps", "32", "--envs", "2"),
    *("--ppo.rollout-steps", "4", "--ppo.minibatch", "8", "--ppo.epochs", "1", "--ppo.hidden-units", "8"),
    *("--episodes", "2", "--rounds", "3", "--processes", "1", "--no-figures"),
    *("--schedulers", "agent", "pipeline", "random"),
]
SURROGATE = ["--learner", "surrogate"]

COMPARED = (
    "delay.png", "energy_delay.png", "delay_cdf.png", "delay_per_round.png", "backlog.png", "memory.png",
    "loss_time.png", "loss_energy.png", "delay_profile.png",
)  # fmt: skip
"""Pictures of every comparison."""


@pytest.fixture
def scenario(tmp_path: Path) -> list[str]:
    path = tmp_path / "tiny.yaml"
    path.write_text("name: tiny\nbase: small\ndynamics: {rounds: 4}\n")
    return ["--scenario", str(path), "--out", str(tmp_path / "run")]


def run(*arguments: object) -> int:
    words = (a for part in arguments for a in (part if isinstance(part, list) else [part]))
    return train_agent.main(list(map(str, words)))


def refused(capsys, *arguments: object) -> str:
    """The one line that a refused command prints."""
    capsys.readouterr()
    assert run(*arguments) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert len(error) == 1
    assert error[0].startswith("error: ")
    return error[0]


def test_from_training_to_pictures(scenario, tmp_path: Path, capsys) -> None:
    assert run(scenario, [a for a in TINY if a != "--no-figures"], SURROGATE) == 0
    folder = tmp_path / "run"
    output = capsys.readouterr().out
    assert output.strip().splitlines()[-1] == f"everything is in {folder}/"
    for name in ("PPO", "PipeLine", "Random", "over budget"):
        assert name in output
        assert name in (folder / "table.md").read_text()
    results = json.loads((folder / "results.json").read_text())
    assert results["scenario"]["name"] == "tiny"
    assert results["command"].startswith("python train_agent.py --scenario ")
    assert results["versions"]["torch"]
    assert (results["made_for"]["steps"], results["made_for"]["seed"]) == (32, 0)
    assert [s["scheduler"] for s in results["summary"]] == ["agent", "pipeline", "random"]
    assert [len(e["delay"]) for e in results["episodes"]["agent"]] == [3, 3]
    assert len(results["training"]) >= 2
    pictures = {path.name for path in (folder / "figures").iterdir()}
    assert pictures == {*COMPARED, "learning_curve.png", "gantt-tiny.png"}
    for path in (folder / "figures").iterdir():
        assert path.read_bytes().startswith(b"\x89PNG")
    assert not list(folder.rglob("*.partial"))


def test_training_with_a_reward_and_a_learner_of_ones_own(scenario, tmp_path: Path, capsys) -> None:
    """Named by their file; a reward of another file is another one, and an agent keeps its own."""
    file = tmp_path / "mine.py"
    learner = Path(__file__).parents[1] / "learners" / "halving_learner.py"
    file.write_text(
        "def per_second(before, costs, after):\n    return (before.loss - after.loss) / costs.delay\n"
    )
    own = ["--reward", f"{file}:per_second", "--train-learner", f"{learner}:Halving", "--steps", 8]
    own += ["--envs", 1]
    assert run(scenario, TINY, SURROGATE, own, "--episodes", 1) == 0
    asked = json.loads((tmp_path / "run" / "run.json").read_text())
    assert re.fullmatch("per_second_[0-9a-f]{8}", asked["reward"])
    assert re.fullmatch("halving_[0-9a-f]{8}", asked["learner"])
    assert run(scenario, TINY, SURROGATE, own, "--episodes", 1) == 0  # nothing is left to do
    other = file.with_name("other.py")
    other.write_text(file.read_text().replace("costs.delay", "1.0"))
    own[1] = f"{other}:per_second"
    assert run(scenario, TINY, SURROGATE, own, "--episodes", 1) == 2
    assert "reward was 'per_second_" in capsys.readouterr().err


def test_ctrl_c_keeps_the_work_and_the_same_command_goes_on(
    scenario, tmp_path: Path, capsys, monkeypatch
) -> None:
    command = [*scenario, *TINY, *SURROGATE]
    step = SystemCurves._on_step
    steps = []

    def interrupted(self) -> bool:
        steps.append(1)
        if len(steps) == 9:
            raise KeyboardInterrupt
        return step(self)

    monkeypatch.setattr(SystemCurves, "_on_step", interrupted)
    assert run(command, "--fresh") == INTERRUPTED
    printed, message = capsys.readouterr()
    assert "all finished work is kept" in message
    assert "--fresh" not in message
    latest = tmp_path / "run" / "checkpoints" / "latest.safetensors"
    assert f"the training is kept at step 18: {latest}" in printed
    monkeypatch.setattr(SystemCurves, "_on_step", step)

    assert run(command) == 0
    output = capsys.readouterr().out
    assert "continuing in" in output
    assert "from step 18" in output
    assert run(command) == 0
    assert "training is done" in capsys.readouterr().out


def test_a_saved_agent_plays_the_same_in_evaluate(scenario, tmp_path: Path, capsys) -> None:
    assert run(scenario, TINY, SURROGATE) == 0
    first = json.loads((tmp_path / "run" / "results.json").read_text())
    agent = tmp_path / "run" / "checkpoints" / "best.safetensors"
    words = ["evaluate", *scenario[:2], "--agent", str(agent), *TINY[TINY.index("--episodes") :]]
    words += ["--out", str(tmp_path / "other")]
    assert collapipe(words) == 0
    second = json.loads((tmp_path / "other" / "results.json").read_text())
    assert second["episodes"]["agent"][0]["delay"] == first["episodes"]["agent"][0]["delay"]
    agent.write_bytes(agent.read_bytes()[:100])
    assert collapipe(words) == 2
    assert "is damaged" in capsys.readouterr().err


def test_agents_of_the_zoo_that_were_trained_on_the_scenario_play_beside_it(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("name: small\nbase: medium\n")  # agents of the shipped scenario do not fit it
    for scenario, algorithm, beside in (
        ("small", "ppo", ["zoo:small-sac"]),
        ("small", "graph", ["zoo:small-ppo", "zoo:small-sac"]),
        ("large", "ppo", []),
        (str(own), "sac", []),
    ):
        call = Call("train", ("--scenario", scenario, "--algo", algorithm))
        played = Job(parse(Options, call), call)._schedulers
        assert played == ("agent", "dssra", "zoo:graph", *beside, "pipeline", "random")


def test_a_net_that_knows_budgets_per_round_only_does_not_play_under_others_unasked(tmp_path: Path) -> None:
    scenario = tmp_path / "seconds.yaml"
    scenario.write_text("base: small\nbudgets: {per: second}\n")
    assert run(["--scenario", scenario, "--out", tmp_path / "out"], TINY[:-4], SURROGATE) == 0
    played = [s["scheduler"] for s in json.loads((tmp_path / "out" / "results.json").read_text())["summary"]]
    assert sorted(played) == ["agent", "dssra", "pipeline", "random"]


def learning_rates(monkeypatch) -> list[tuple[int, float]]:
    """Step count and Adam's step size at every step of the training that follows."""
    seen: list[tuple[int, float]] = []
    step = SystemCurves._on_step

    def watched(self) -> bool:
        (group,) = self.model.policy.optimizer.param_groups
        seen.append((self.num_timesteps, group["lr"]))
        return step(self)

    monkeypatch.setattr(SystemCurves, "_on_step", watched)
    return seen


def test_a_finished_training_is_lengthened(scenario, tmp_path: Path, capsys, monkeypatch) -> None:
    command = [*scenario, *TINY, *SURROGATE, "--ppo.learning-rate", "0.001"]
    assert run(command) == 0
    latest = tmp_path / "run" / "checkpoints" / "latest.safetensors"
    first = read_agent_file(latest).record
    seen = learning_rates(monkeypatch)
    capsys.readouterr()
    assert run(command, "--steps", 64) == 0
    output = capsys.readouterr().out
    assert "64 steps on 2 environments, surrogate learner, from step 32" in output
    assert "lengthened from 32 to 64 steps: the learning rate follows the longer schedule from here" in output
    longer = read_agent_file(latest).record
    assert (first.steps, longer.steps) == (32, 64)
    assert longer.history[: len(first.history)] == first.history
    assert len(longer.history) > len(first.history)
    assert longer.training["lengthened_from"] == [32]
    # A rollout has 8 steps; the rate of the first one was already in use at the end of the short training.
    assert seen[0][0] == 34
    assert {s: rate for s, rate in seen if s > 40} == {
        s: pytest.approx(0.001 * (1.0 - (s - 1) // 8 * 8 / 64)) for s in range(42, 65, 2)
    }
    assert json.loads((tmp_path / "run" / "run.json").read_text())["steps"] == 64
    assert "steps was 64, now 32" in refused(capsys, command)
    assert run(command, "--steps", 64) == 0
    assert "training is done: 64 steps" in capsys.readouterr().out


def test_steps_that_end_within_a_rollout_are_rounded_up_and_the_header_says_so(
    scenario, tmp_path: Path, capsys
) -> None:
    assert run(scenario, TINY, SURROGATE, "--steps", 33, "--episodes", 1, "--rounds", 1) == 0
    printed = capsys.readouterr().out
    # Rollouts of 4 steps in each of 2 environments.
    assert "33 steps on 2 environments" in printed
    assert "  rounded up to 40 steps" in printed
    assert read_agent_file(tmp_path / "run" / "checkpoints" / "latest.safetensors").record.steps == 40
    assert ": 1 held-out episode of 1 round each, surrogate learner" in printed
    assert (tmp_path / "run" / "table.md").read_text().startswith("## tiny: 1 held-out episode of 1 round, ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--scenario mediun", "did you mean 'medium'"),
        ("--steps 0", "--steps = 0: use a number from 1"),
        ("--envs 5000", "--envs = 5000: use a number from 1 to 4,096"),
        ("--seed -1", "--seed = -1"),
        ("--threads 0", "--threads = 0"),
        ("--rounds 1000001", "--rounds = 1000001: use a number from 1 to 1,000,000"),
        ("--schedulers random random", "random more than once"),
        ("--reward time_to_target", "needs dynamics.target_loss"),
        ("--ppo.gamma 2", "--ppo.gamma = 2.0"),
        ("--reward lyapunof", "reward 'lyapunof' is not known: did you mean 'lyapunov'? (one of your own"),
        ("--train-learner rael", "learner 'rael' is not known: did you mean 'real'? (one of your own"),
        ("--train-learner json:dumps", "learner 'json:dumps' cannot be built: TypeError: dumps() takes"),
        ("--algo sac --sac.hidden-units 0", "--sac.hidden-units = (0,)"),
        ("--sac.gamma 0.8", "--sac.* options with --algo ppo: they are of another algorithm"),
        (
            "--recipe wild",
            "--recipe wild with --algo ppo: it is a training of the graph net; give --algo graph",
        ),
        ("--algo graph --envs 3", "--envs 3 with --algo graph: it learns from the model"),
    ],
)
def test_every_option_is_checked_before_anything_is_written(
    arguments: str, message: str, capsys, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in refused(capsys, arguments.split())
    assert not list(tmp_path.iterdir())


def test_a_recipe_sets_what_is_not_given() -> None:
    given = ["--algo", "graph", "--recipe", "wild", "--graph.samples=12", "--graph.most_clusters", "9"]
    call = Call("train", tuple(given))
    options = parse(Options, call).with_recipe(call)
    assert options.steps == 4000
    wanted = replace(recipe("wild")[1], samples=12, most_clusters=9)
    assert options.graph == wanted
    check_graph_parameters(recipe("wild")[1], "")
    require_scenarios(recipe("wild")[1], "")
    longer = Call("train", (*given, "--steps", "7"))
    assert parse(Options, longer).with_recipe(longer).steps == 7


def test_a_net_to_start_from_is_read_before_anything_is_written_and_only_at_the_start(tmp_path) -> None:
    out = tmp_path / "run"
    given = ["--algo", "graph", "--graph.start-from", "zoo:medium-ppo", "--schedulers", "agent"]
    given += ["--out", str(out)]
    call = Call("train", tuple(given))
    options = parse(Options, call)
    with pytest.raises(CheckpointError, match="not a graph net"):
        Job(options, call)
    assert not out.exists()
    latest = TrainingFiles(out).latest
    latest.parent.mkdir(parents=True)
    latest.touch()  # a training that has begun goes on without that file
    Job(options, call)
    fresh = replace(options, training=replace(options.training, fresh=True))
    with pytest.raises(CheckpointError, match="not a graph net"):
        Job(fresh, call)
