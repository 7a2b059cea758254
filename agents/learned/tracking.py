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
from typing import Any, Literal, get_args
from uuid import uuid4

import numpy as np
from stable_baselines3.common.logger import KVWriter

from collapipe_env.ground.errors import DataError, MissingPackageError, reason
from collapipe_env.ground.files import read_json, write_json
from collapipe_env.ground.interrupts import uninterrupted

Tracker = Literal["wandb", "mlflow"]
TRACKERS: tuple[Tracker, ...] = get_args(Tracker)
PROJECT = "collapipe"
"""Project, or experiment, of the runs, unless the tracker's own variable names another."""
_TITLES = {"wandb": "Weights & Biases", "mlflow": "MLflow"}


def require_tracker(tracker: Tracker) -> Any:
    """Import a tracker's package.

    Args:
        tracker: Name of the tracker, which is also its package's name.

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
            return kind(package, folder, told)
    except Exception as error:  # trackers raise errors of many kinds
        raise DataError(
            f"--track {tracker}: {_TITLES[tracker]} cannot begin a run in {folder} ({reason(error)}): fix "
            "that, or leave --track out"
        ) from error


class _Curves(KVWriter):
    """Part that both trackers share: which numbers are written."""

    def write(
        self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0
    ) -> None:
        numbers = {
            name: float(value)
            for name, value in key_values.items()
            # Numbers that TensorBoard's writer leaves out are left out here too.
            if "tensorboard" not in (key_excluded.get(name) or ())
            and isinstance(value, (int, float, np.number))
            and not isinstance(value, bool)
        }
        with uninterrupted():
            self._send(numbers, step)

    def _send(self, numbers: dict[str, float], step: int) -> None:
        raise NotImplementedError


class _WandbCurves(_Curves):
    """Curves in a run of Weights & Biases; ``WANDB_MODE=offline`` needs neither account nor network."""

    def __init__(self, wandb: Any, folder: Path, told: Mapping[str, Any]) -> None:
        name = kept_id(folder, "wandb") or uuid4().hex[:8]
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=folder.parent.name,
            id=name,
            resume="allow",
            dir=str(folder),
            config=dict(told),
        )
        keep_id(folder, "wandb", name)

    def _send(self, numbers: dict[str, float], step: int) -> None:
        self._run.log(numbers, step=step)

    def close(self) -> None:
        with uninterrupted():
            self._run.finish()


class _MlflowCurves(_Curves):
    """Curves in a run of MLflow, in files in the folder unless ``MLFLOW_TRACKING_URI`` names a place."""

    def __init__(self, mlflow: Any, folder: Path, told: Mapping[str, Any]) -> None:
        from mlflow.entities import Metric, Param

        self._metric = Metric
        where = os.environ.get("MLFLOW_TRACKING_URI") or (folder / "mlflow").resolve().as_uri()
        if where.startswith("file:"):
            # MLflow must be told to allow files; its database needs packages that mlflow-skinny leaves out.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        self._client = mlflow.MlflowClient(tracking_uri=where)
        self._id = kept_id(folder, "mlflow")
        if self._id is None:
            title = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
            experiment = self._client.get_experiment_by_name(title)
            number = experiment.experiment_id if experiment else self._client.create_experiment(title)
            run = self._client.create_run(number, run_name=folder.parent.name)
            self._id = str(run.info.run_id)
            params = [Param(name, str(value)) for name, value in told.items()]
            self._client.log_batch(self._id, params=params)
            keep_id(folder, "mlflow", self._id)
        else:
            self._client.update_run(self._id, status="RUNNING")

    def _send(self, numbers: dict[str, float], step: int) -> None:
        now = int(1000 * time.time())
        metrics = [self._metric(name, value, now, step) for name, value in numbers.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def close(self) -> None:
        with uninterrupted():
            self._client.set_terminated(self._id)


def kept_id(folder: Path, tracker: str) -> str | None:
    """Return the id of the run that a folder's training has with a tracker; ``None`` before it has one.

    Args:
        folder: Folder of the tracker's files.
    """
    path = folder / "runs.json"
    if not path.exists():
        return None
    found = read_json(path, "delete it to begin a new run").get(tracker)
    return found if isinstance(found, str) else None


def keep_id(folder: Path, tracker: str, name: str) -> None:
    """Keep the id of a run.

    Args:
        folder: Folder of the tracker's files.
        name: The id.
    """
    path = folder / "runs.json"
    kept = read_json(path, "delete it to begin a new run") if path.exists() else {}
    write_json(path, {**kept, tracker: name})
