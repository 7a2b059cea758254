"""Trackers that cannot begin, and those of which the package is there.

That a tracker is told what TensorBoard is told is in ``tests/contracts/test_learned_agents.py``.
"""

import sys
import types

import pytest

from collapipe_env.agents.learned.curves import curves_logger
from collapipe_env.agents.learned.tracking import require_tracker
from collapipe_env.cli.main import main
from collapipe_env.ground.errors import DataError, MissingPackageError


def told(folder, tracker: str, numbers: dict[str, float], steps=(8,)) -> None:
    """Tell a tracker some numbers, at each step by a logger of its own."""
    for step in steps:
        logger = curves_logger(folder / "tensorboard", tracker, {"command": "the command"})
        for name, value in numbers.items():
            logger.record(name, value)
        logger.record("words", "no number", exclude="tensorboard")
        logger.dump(step)
        logger.close()


@pytest.mark.filterwarnings("ignore")  # what wandb itself does is not ours to mend
def test_wandb_offline(tmp_path, monkeypatch) -> None:
    pytest.importorskip("wandb", reason="Weights & Biases is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    told(tmp_path, "wandb", {"validation/mean_delay_s": 3.0})
    (kept,) = tmp_path.glob("tracking/wandb/offline-run-*/*.wandb")
    assert b"validation/mean_delay_s" in kept.read_bytes()


@pytest.mark.filterwarnings("ignore")  # likewise
def test_mlflow_is_told_all_numbers_in_one_run(tmp_path, monkeypatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    numbers = {"validation/mean_delay_s": 3.0, "train/loss": -1.5}
    told(tmp_path, "mlflow", numbers, (8, 16))
    client = mlflow.MlflowClient(tracking_uri=(tmp_path / "tracking" / "mlflow").as_uri())
    experiment = client.get_experiment_by_name("collapipe")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.metrics == numbers
    for name, value in numbers.items():
        points = client.get_metric_history(run.info.run_id, name)
        assert sorted((point.step, point.value) for point in points) == [(8, value), (16, value)]
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
    wandb = types.ModuleType("wandb")
    wandb.init = failing
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    with pytest.raises(DataError, match=r"--track wandb: .*division by zero.*leave --track out"):
        told(tmp_path, "wandb", {})
