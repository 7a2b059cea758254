"""Steps that the shipped tasks share: reading their data, checks of the workload, strata, arrays for all."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import TypeVar, cast

import numpy as np

from collapipe_env.ground.arrays import IntArray
from collapipe_env.ground.errors import DataError, ScenarioError
from collapipe_env.ground.typed_paths import given_path
from collapipe_env.tasks.base import TaskSpec
from collapipe_env.tasks.file_stamps import once
from collapipe_env.tasks.hub import PREFIX

EMBEDDED = Path(__file__).resolve().parent.parent / "data"
"""Folder of the data that the package ships."""
LENGTH_STRATA = 5
"""Classes of length, with equally many samples in each, for partitions that skew by class."""


T = TypeVar("T")


def read_once(load: Callable[..., T], dataset: str, embedded: Path, *columns: Hashable) -> T:
    """Return the data of a task; a process reads files again only if they changed.

    Args:
        load: Takes the path of local data, or the name of a data set of the hub, and the columns.
        embedded: The task's own data.
        columns: Requested columns or languages.

    Raises:
        DataError: If the data cannot be read.
    """
    return cast(T, once(_read, dataset, None, load, embedded, *columns))


def _read(dataset: str, _: None, load: Callable[..., object], embedded: Path, *columns: Hashable) -> object:
    if dataset.startswith(PREFIX):
        return load(dataset, *columns)
    return load(embedded if dataset == "embedded" else given_path(dataset), *columns)


def refuse_decoder(spec: TaskSpec, task: str) -> None:
    """Refuse decoder blocks of a task whose head is a linear layer."""
    if spec.decoder_blocks:
        raise ScenarioError(
            f"decoder_blocks is {spec.decoder_blocks}, but {task} has a linear head on the server and no "
            "decoder; set decoder_blocks: 0"
        )


def require_outputs(spec: TaskSpec, classes: Sequence[str], kind: str) -> None:
    """Refuse data with another number of classes than the head has outputs.

    Args:
        kind: Name of the classes, for the error.
    """
    if len(classes) != spec.outputs:
        named = ", ".join(classes[:20]) + (", ..." if len(classes) > 20 else "")
        raise DataError(
            f"{spec.dataset}: {len(classes)} {kind} ({named}) where the workload has outputs {spec.outputs}; "
            f"set outputs: {len(classes)}"
        )


def length_strata(lengths: IntArray) -> IntArray:
    """Return the class of length of every sample, shape (samples,), below :data:`LENGTH_STRATA`."""
    borders = np.quantile(lengths, np.arange(1, LENGTH_STRATA) / LENGTH_STRATA)
    return np.searchsorted(borders, lengths).astype(np.int64)


def shared(array: IntArray) -> IntArray:
    """Return the array, read-only: every learner of the process gets the same one."""
    array.flags.writeable = False
    return array
