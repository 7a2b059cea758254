"""The main job from end to end, on the smallest system."""

import contextlib
import io
import json
import re
import shutil
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
    *("--ppo.learning-rate", "0.001", "--learner", "surrogate"),
]
PLAY = [
    *("--episodes", "2", "--rounds", "3", "--processes", "1", "--no-figures"),
    *("--schedulers", "agent", "pipeline", "random"),
]


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


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    """A scenario file."""
    path = tmp_path_factory.mktemp("scenario") / "tiny.yaml"
    path.write_text("name: tiny\nbase: small\ndynamics: {rounds: 4}\n")
    return path


@pytest.fixture(scope="module")
def done(tiny: Path, tmp_path_factory) -> tuple[Path, str]:
    """Folder of a whole run, and what it printed."""
    folder, printed = tmp_path_factory.mktemp("done") / "run", io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert run("--scenario", tiny, "--out", folder, TINY, PLAY) == 0
    return folder, printed.getvalue()


@pytest.fixture
def command(tiny: Path, tmp_path: Path) -> list[object]:
    """The command of that run, in a folder of its own."""
    return ["--scenario", tiny, "--out", tmp_path / "run", *TINY, *PLAY]


def test_from_training_to_the_report(done) -> None:
    folder, output = done
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
    assert not list(folder.rglob("*.partial"))


def test_what_is_done_is_not_done_again_and_pictures_are_drawn_with_the_trainings_history(
    done, command, tmp_path: Path, capsys, monkeypatch
) -> None:
    shutil.copytree(done[0], tmp_path / "run")
    latest, drawn = tmp_path / "run" / "checkpoints" / "latest.safetensors", []
    history = read_agent_file(latest).record.history

    def pictures(_comparisons, _gantt, seen):
        assert seen == history
        return {"one": drawn.append}

    monkeypatch.setattr("collapipe_env.evaluation.figures.comparison_pictures", pictures)
    assert run([word for word in command if word != "--no-figures"]) == 0
    assert "training is done: 32 steps" in capsys.readouterr().out
    assert drawn == [tmp_path / "run" / "figures" / "one.png"]


def test_training_with_a_reward_and_a_learner_of_ones_own(command, tmp_path: Path, capsys) -> None:
    """Named by their file; a reward of another file is another one, and an agent keeps its own."""
    file = tmp_path / "mine.py"
    learner = Path(__file__).parents[1] / "learners" / "halving_learner.py"
    file.write_text(
        "def per_second(before, costs, after):\n    return (before.loss - after.loss) / costs.delay\n"
    )
    own = ["--reward", f"{file}:per_second", "--train-learner", f"{learner}:Halving", "--steps", 8]
    own += ["--envs", 1, "--episodes", 1]
    assert run(command, own) == 0
    asked = json.loads((tmp_path / "run" / "run.json").read_text())
    assert re.fullmatch("per_second_[0-9a-f]{8}", asked["reward"])
    assert re.fullmatch("halving_[0-9a-f]{8}", asked["learner"])
    other = file.with_name("other.py")
    other.write_text(file.read_text().replace("costs.delay", "1.0"))
    own[1] = f"{other}:per_second"
    assert run(command, own) == 2
    assert "reward was 'per_second_" in capsys.readouterr().err


def test_ctrl_c_keeps_the_work_and_the_same_command_goes_on(
    command, tmp_path: Path, capsys, monkeypatch
) -> None:
    step, steps = SystemCurves._on_step, []

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

    assert run(command, "--episodes", 1) == 0
    output = capsys.readouterr().out
    assert "continuing in" in output
    assert "from step 18" in output


def test_a_saved_agent_plays_the_same_in_evaluate(done, tiny: Path, tmp_path: Path, capsys) -> None:
    first = json.loads((done[0] / "results.json").read_text())
    agent = tmp_path / "best.safetensors"
    shutil.copy(done[0] / "checkpoints" / "best.safetensors", agent)
    words = ["evaluate", "--scenario", str(tiny), "--agent", str(agent), *PLAY, "--learner", "surrogate"]
    words += ["--out", str(tmp_path / "other")]
    assert collapipe(words) == 0
    second = json.loads((tmp_path / "other" / "results.json").read_text())
    assert second["episodes"]["agent"][0]["delay"] == first["episodes"]["agent"][0]["delay"]
    agent.write_bytes(agent.read_bytes()[:100])
    assert collapipe(words) == 2
    assert "is damaged" in capsys.readouterr().err


OWN = "name: small\nbase: medium\n"
"""Agents of the shipped scenario of that name do not fit it."""


@pytest.mark.parametrize(
    ("scenario", "algorithm", "beside"),
    [
        ("small", "ppo", ["zoo:graph", "zoo:small-sac"]),
        ("small", "graph", ["zoo:graph", "zoo:small-ppo", "zoo:small-sac"]),
        (OWN, "sac", ["zoo:graph"]),
        ("base: small\nbudgets: {per: second}\n", "ppo", []),  # the graph net knows budgets per round only
    ],
)
def test_agents_of_the_zoo_that_suit_the_scenario_play_beside_it(
    tmp_path: Path, scenario: str, algorithm: str, beside: list[str]
) -> None:
    if ":" in scenario:
        own = tmp_path / "own.yaml"
        own.write_text(scenario)
        scenario = str(own)
    call = Call("train", ("--scenario", scenario, "--algo", algorithm))
    played = Job(parse(Options, call), call).schedulers
    assert played == ("agent", "dssra", *beside, "pipeline", "random")


def test_a_finished_training_is_lengthened(done, command, tmp_path: Path, capsys, monkeypatch) -> None:
    shutil.copytree(done[0], tmp_path / "run")
    latest = tmp_path / "run" / "checkpoints" / "latest.safetensors"
    first, step = read_agent_file(latest).record, SystemCurves._on_step
    seen: list[tuple[int, float]] = []

    def watched(self) -> bool:
        """Keeps step count and Adam's step size at every step of the training."""
        (group,) = self.model.policy.optimizer.param_groups
        seen.append((self.num_timesteps, group["lr"]))
        return step(self)

    monkeypatch.setattr(SystemCurves, "_on_step", watched)
    assert run(command, "--steps", 64, "--episodes", 1) == 0
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


def test_steps_that_end_within_a_rollout_are_rounded_up_and_the_header_says_so(
    command, tmp_path: Path, capsys
) -> None:
    assert run(command, "--steps", 33, "--episodes", 1, "--rounds", 1) == 0
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
