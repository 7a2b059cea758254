"""Curves of a training in Weights & Biases or MLflow, the same numbers as TensorBoard's.

Both are optional and imported where they are used. A run keeps its id in the folder of the training, so a
continued training writes into the same run there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import numpy as np
from stable_baselines3.common.logger import KVWriter

from collapipe_env.ground.errors import DataError, MissingPackageError, reason
from collapipe_env.ground.files import write_text
from collapipe_env.ground.interrupts import uninterrupted

Tracker = Literal["wandb", "mlflow"]
PROJECT = "collapipe"
"""Project, or experiment, of the runs, unless the tracker's own variable names another."""
_TITLES = {"wandb": "Weights & Biases", "mlflow": "MLflow"}


def require_tracker(tracker: Tracker) -> Any:
    """Import a tracker's package, which has its name.

    Raises:
        MissingPackageError: If it is not installed.
    """
    try:
        return import_module(tracker)
    except ImportError:
        raise MissingPackageError.of(f"curves by --track {tracker}", _TITLES[tracker], tracker) from None


def tracking_writer(tracker: Tracker, folder: Path, told: Mapping[str, Any]) -> KVWriter:
    """Begin a run of a tracker, or continue the run of this folder.

    Args:
        folder: Folder for its files and the run's id.
        told: Plain values that describe the training: algorithm, scenario and so on.

    Returns:
        A writer for Stable-Baselines3's logger.

    Raises:
        MissingPackageError: If the tracker is not installed.
        DataError: If it cannot begin, for instance because its server cannot be reached.
    """
    package = require_tracker(tracker)
    folder.mkdir(parents=True, exist_ok=True)
    kind = _WandbCurves if tracker == "wandb" else _MlflowCurves
    try:
        with uninterrupted():
            return kind(package, folder, folder / f"{tracker}-run", told)
    except Exception as error:  # trackers raise errors of many kinds
        raise DataError(
            f"--track {tracker}: {_TITLES[tracker]} cannot begin a run in {folder} ({reason(error)}): fix "
            "that, or leave --track out"
        ) from error


class _WandbCurves(KVWriter):
    """Curves in a run of Weights & Biases; ``WANDB_MODE=offline`` needs neither account nor network."""

    def __init__(self, wandb: Any, folder: Path, kept: Path, told: Mapping[str, Any]) -> None:
        name = kept.read_text("utf-8") if kept.exists() else uuid4().hex[:8]
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=folder.parent.name,
            id=name,
            resume="allow",
            dir=str(folder),
            config=dict(told),
        )
        write_text(kept, name)

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, Any], step: int = 0) -> None:
        self._run.log(_numbers(key_values, key_excluded), step=step)

    def close(self) -> None:
        self._run.finish()


class _MlflowCurves(KVWriter):
    """Curves in a run of MLflow, in files in the folder unless ``MLFLOW_TRACKING_URI`` names a place."""

    def __init__(self, mlflow: Any, folder: Path, kept: Path, told: Mapping[str, Any]) -> None:
        from mlflow.entities import Metric, Param

        self._metric = Metric
        where = os.environ.get("MLFLOW_TRACKING_URI") or (folder / "mlflow").resolve().as_uri()
        if where.startswith("file:"):
            # MLflow must be told to allow files; its database needs packages that mlflow-skinny leaves out.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        self._client = mlflow.MlflowClient(tracking_uri=where)
        if kept.exists():
            self._id = kept.read_text("utf-8")
            self._client.update_run(self._id, status="RUNNING")
            return
        title = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        experiment = self._client.get_experiment_by_name(title)
        number = experiment.experiment_id if experiment else self._client.create_experiment(title)
        self._id = str(self._client.create_run(number, run_name=folder.parent.name).info.run_id)
        params = [Param(name, str(value)) for name, value in told.items()]
        self._client.log_batch(self._id, params=params)
        write_text(kept, self._id)

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, Any], step: int = 0) -> None:
        now = int(1000 * time.time())
        numbers = _numbers(key_values, key_excluded)
        metrics = [self._metric(name, value, now, step) for name, value in numbers.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def close(self) -> None:
        self._client.set_terminated(self._id)


def _numbers(key_values: dict[str, Any], key_excluded: dict[str, Any]) -> dict[str, float]:
    """The numbers that TensorBoard's writer does not leave out."""
    return {
        name: float(value)
        for name, value in key_values.items()
        if "tensorboard" not in (key_excluded.get(name) or ())
        and isinstance(value, (int, float, np.number))
        and not isinstance(value, bool)
    }
