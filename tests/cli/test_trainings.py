"""``--runs``: several trainings, side by side or elsewhere, each as if it had been asked for alone."""

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
    *["train", "--scenario", "small", "--steps", "16", "--envs", "2", "--ppo.rollout-steps", "4"],
    *["--ppo.minibatch", "4", "--schedulers", "agent", "--episodes", "1", "--rounds", "2"],
    *["--learner", "surrogate", "--no-figures", "--processes", "1"],
]


def weights(file: Path) -> torch.Tensor:
    return torch.cat([torch.from_numpy(array.flatten()) for array in read_agent_file(file).tensors.values()])


def best(folder: Path) -> Path:
    return folder / "checkpoints" / "best.safetensors"


def test_each_is_the_training_of_its_seed_and_they_share_a_row(tmp_path: Path, capsys, monkeypatch) -> None:
    assert main([*TRAINING, "--seed", "4", "--out", str(tmp_path / "alone")]) == 0
    out = tmp_path / "several"
    command = [*TRAINING, "--seed", "3", "--runs", "2", "--out", str(out)]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert f"seed 4: trained, in {out / 'trainings' / 'seed4'}" in printed
    assert "PPO (2 runs)" in printed
    here = {seed: weights(best(out / "trainings" / f"seed{seed}")) for seed in (3, 4)}
    assert torch.equal(here[4], weights(best(tmp_path / "alone")))
    assert not torch.equal(here[3], here[4])

    # Where workers do not see these files, what they wrote comes back.
    away = tmp_path / "away"
    executor = Pickling()
    monkeypatch.setattr(ExecutorOptions, "build", lambda *_, **__: executor)
    assert main([*command[:-1], str(away)]) == 0
    trainings = [task for task in executor.sent if isinstance(task, trainings_module.Training)]
    assert [str(task) for task in trainings] == ["the training with seed 3", "the training with seed 4"]
    for seed, tensor in here.items():
        assert torch.equal(tensor, weights(best(away / "trainings" / f"seed{seed}")))

    # One more is added to what is there; the others are not done again.
    executor.sent.clear()
    capsys.readouterr()
    assert main([*command[:-3], "3", "--out", str(away)]) == 0
    (added,) = [task for task in executor.sent if isinstance(task, trainings_module.Training)]
    assert str(added) == "the training with seed 5"
    assert "PPO (3 runs)" in capsys.readouterr().out


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
