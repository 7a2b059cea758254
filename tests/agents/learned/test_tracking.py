"""Trackers are told what TensorBoard is told, in one run of theirs for each folder."""

import sys
import types
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from collapipe_env.agents.learned.agent_training import TrainingPlan, train
from collapipe_env.agents.learned.hyperparameters import PPOParameters, usual
from collapipe_env.agents.learned.tracking import require_tracker
from collapipe_env.agents.learned.training_files import TrainingFiles
from collapipe_env.cli.main import main
from collapipe_env.ground.errors import DataError, MissingPackageError
from collapipe_env.scenario import load_scenario

Curves = dict[str, list[tuple[int, float]]]


def trained(folder: Path, track: str, steps: int = 48) -> Curves:
    """TensorBoard's curves of a training that tells a tracker."""
    plan = TrainingPlan(
        scenario=load_scenario({"base": "small", "dynamics": {"rounds": 5}}),
        algorithm="ppo",
        parameters=usual(PPOParameters, rollout_steps=4, minibatch=8, epochs=1, hidden_units=(8,)),
        steps=steps,
        envs=4,
        seed=3,
        learner="surrogate",
        reward="drift_plus_penalty",
        validate_every=16,
        validation_episodes=2,
        command="the command",
        track=track,
    )
    files = TrainingFiles(folder)
    train(plan, files, str)
    events = EventAccumulator(str(files.tensorboard)).Reload()
    return {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }


def alike(found: Curves, expected: Curves) -> None:
    assert set(found) == set(expected)
    assert len(expected) > 10
    for name, points in expected.items():
        assert [step for step, _ in found[name]] == [step for step, _ in points]
        # TensorBoard keeps single precision.
        assert [value for _, value in found[name]] == pytest.approx(
            [value for _, value in points], rel=1e-6, nan_ok=True
        )


class StandIn(types.ModuleType):
    """A module with the part of wandb's interface that is used, as its documentation has it."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.begun: list[dict] = []
        self.curves: Curves = {}
        self.finished = 0

    def init(self, **told):
        self.begun.append(told)
        return self

    def log(self, numbers: dict[str, float], step: int) -> None:
        for name, value in numbers.items():
            self.curves.setdefault(name, []).append((step, value))

    def finish(self) -> None:
        self.finished += 1


def test_wandb_is_told_what_tensorboard_is_told_in_one_run(tmp_path, monkeypatch) -> None:
    wandb = StandIn()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    folder = tmp_path / "my run"
    alike(wandb.curves, trained(folder, "wandb"))
    assert wandb.finished == 1
    alike(wandb.curves, trained(folder, "wandb", steps=96))
    first, second = wandb.begun
    assert (first["name"], first["project"], first["resume"]) == ("my run", "collapipe", "allow")
    assert first["id"] == second["id"]
    assert first["config"]["scenario"] == "custom"
    assert (first["config"]["steps"], second["config"]["steps"]) == (48, 96)
    trained(tmp_path / "other", "wandb")
    assert wandb.begun[-1]["id"] != first["id"]


@pytest.mark.filterwarnings("ignore")  # what wandb itself does is not ours to mend
def test_wandb_offline(tmp_path, monkeypatch) -> None:
    pytest.importorskip("wandb", reason="Weights & Biases is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    assert trained(tmp_path, "wandb")
    (kept,) = tmp_path.glob("tracking/wandb/offline-run-*/*.wandb")
    assert b"validation/mean_delay_s" in kept.read_bytes()


@pytest.mark.filterwarnings("ignore")  # likewise
def test_mlflow_is_told_what_tensorboard_is_told_in_one_run(tmp_path, monkeypatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    trained(tmp_path, "mlflow")
    expected = trained(tmp_path, "mlflow", steps=96)
    client = mlflow.MlflowClient(tracking_uri=(tmp_path / "tracking" / "mlflow").as_uri())
    experiment = client.get_experiment_by_name("collapipe")
    (run,) = client.search_runs([experiment.experiment_id])
    found = {
        name: sorted(
            (metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, name)
        )
        for name in run.data.metrics
    }
    alike(found, {name: sorted(points) for name, points in expected.items()})
    assert run.info.status == "FINISHED"
    assert run.data.params["command"] == "the command"


@pytest.mark.parametrize("tracker", ["wandb", "mlflow"])
def test_without_its_package_nothing_begins(tracker, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, tracker, None)
    with pytest.raises(MissingPackageError):
        require_tracker(tracker)
    out = tmp_path / "run"
    assert main(["train", "--scenario", "small", "--track", tracker, "--out", str(out)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert f"pip install 'collapipe-env[{tracker}]'" in line
    assert not out.exists()


def failing(**told):
    raise ZeroDivisionError("division by zero")


def test_a_tracker_that_cannot_begin_is_one_error(tmp_path, monkeypatch) -> None:
    wandb = StandIn()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setattr(wandb, "init", failing)
    with pytest.raises(DataError, match=r"--track wandb: .*division by zero.*leave --track out"):
        trained(tmp_path, "wandb")
