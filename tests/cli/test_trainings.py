"""``--runs``: several trainings, side by side or elsewhere, each as if it had been asked for alone."""

import contextlib
import io
import shutil
import sys
from pathlib import Path

import pytest
import torch

from collapipe_env.agents.learned.agent_file import read_agent_file
from collapipe_env.cli import trainings as trainings_module
from collapipe_env.cli.main import main
from collapipe_env.cli.option_types import ExecutorOptions

sys.path.insert(0, str(Path(__file__).parents[1] / "evaluation"))

from executor_support import Pickling

TRAINING = [
    *["train", "--steps", "8", "--envs", "2", "--ppo.rollout-steps", "4"],
    *["--ppo.minibatch", "4", "--ppo.epochs", "1", "--schedulers", "agent", "--episodes", "1"],
    *["--rounds", "2", "--learner", "surrogate", "--no-figures", "--processes", "1"],
]


def weights(file: Path) -> torch.Tensor:
    return torch.cat([torch.from_numpy(array.flatten()) for array in read_agent_file(file).tensors.values()])


def best(folder: Path) -> Path:
    return folder / "checkpoints" / "best.safetensors"


@pytest.fixture(scope="module")
def training(tmp_path_factory) -> list[str]:
    """The command but for seeds and folder."""
    tiny = tmp_path_factory.mktemp("scenario") / "tiny.yaml"
    tiny.write_text("name: tiny\nbase: small\ndynamics: {rounds: 3}\n")
    return [*TRAINING, "--scenario", str(tiny)]


@pytest.fixture(scope="module")
def several(training: list[str], tmp_path_factory) -> tuple[Path, str]:
    """Folder of the trainings with seeds 3 and 4, and what they printed."""
    out, printed = tmp_path_factory.mktemp("several"), io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main([*training, "--seed", "3", "--runs", "2", "--out", str(out)]) == 0
    return out, printed.getvalue()


def test_each_is_the_training_of_its_seed_and_they_share_a_row(training, several, tmp_path: Path) -> None:
    out, printed = several
    assert main([*training, "--seed", "4", "--out", str(tmp_path / "alone")]) == 0
    assert f"seed 4: trained, in {out / 'trainings' / 'seed4'}" in printed
    assert "PPO (2 runs)" in printed
    here = {seed: weights(best(out / "trainings" / f"seed{seed}")) for seed in (3, 4)}
    assert torch.equal(here[4], weights(best(tmp_path / "alone")))
    assert not torch.equal(here[3], here[4])


def test_what_workers_elsewhere_wrote_comes_back(training, several, tmp_path: Path, monkeypatch) -> None:
    executor = Pickling()
    monkeypatch.setattr(ExecutorOptions, "build", lambda *_, **__: executor)
    assert main([*training, "--seed", "3", "--runs", "2", "--out", str(tmp_path)]) == 0
    trainings = [task for task in executor.sent if isinstance(task, trainings_module.Training)]
    assert [str(task) for task in trainings] == ["the training with seed 3", "the training with seed 4"]
    for seed in (3, 4):
        found, wanted = (best(out / "trainings" / f"seed{seed}") for out in (tmp_path, several[0]))
        assert torch.equal(weights(found), weights(wanted))


def test_one_more_is_added_to_what_is_there(training, several, tmp_path: Path, capsys) -> None:
    """The others are not done again."""
    out = tmp_path / "copy"
    shutil.copytree(several[0], out)
    kept = best(out / "trainings" / "seed3").stat().st_mtime_ns
    assert main([*training, "--seed", "3", "--runs", "3", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "training: 1 seed," in printed
    assert "seed 5: trained" in printed
    assert "PPO (3 runs)" in printed
    assert best(out / "trainings" / "seed3").stat().st_mtime_ns == kept


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--runs", "0"], "--runs = 0: use a number from 1 to 1,000"),
        (["--ray-address", "auto"], "--ray-address with --executor local: it is an option of --executor ray"),
    ],
)
def test_bad_input_is_one_line(options, message, tmp_path: Path, capsys) -> None:
    assert main(["train", "--out", str(tmp_path / "run"), *options]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", [["compare"], ["evaluate"], ["tune", "boards"], ["train"]])
def test_a_missing_engine_is_named_with_the_remedy(command, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main([*command, "--executor", "ray"]) == 2
    assert "which is not installed: pip install 'collapipe-env[ray]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
