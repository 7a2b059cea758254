"""Steps that the shipped tasks share: data kept until its files change, checks of the workload, arrays."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from tokenizers import Tokenizer

from collapipe_env.ground.arrays import IntArray
from collapipe_env.ground.errors import DataError, ScenarioError
from collapipe_env.ground.typed_paths import given_path
from collapipe_env.models.hf_tokenizer import checkpoint_tokenizer, special_ids
from collapipe_env.models.tokenization import LOWER_CASED, PADDING, Kind, train_tokenizer
from collapipe_env.tasks.base import Split, TaskData, TaskSpec
from collapipe_env.tasks.data_parts import Parts, Samples
from collapipe_env.tasks.hub import PREFIX

EMBEDDED = Path(__file__).resolve().parent.parent / "data"
"""Folder of the data that the package ships."""
LENGTH_STRATA = 5
"""Classes of length, with equally many samples in each, for partitions that skew by class."""
Stamp = tuple[tuple[str, int, int, int, int], ...]
"""Name, inode, size, and times of the last changes of content and of metadata, for every file."""

KEPT = 128
"""Most results of :func:`once` that a process keeps, outdated ones included."""

T = TypeVar("T")


def once(make: Callable[[TaskSpec], T], spec: TaskSpec) -> T:
    """Return ``make(spec)``; a process makes it again only if the data's or the checkpoint's files changed.

    Raises:
        DataError: If the data's path cannot be looked up.
    """
    key = replace(spec, beam_size=1)  # which changes no data
    return cast(T, _made(make, stamp_of(spec.dataset, spec.checkpoint), key))


@functools.lru_cache(maxsize=KEPT)
def _made(make: Callable[..., object], stamp: Stamp, *options: Hashable) -> object:  # noqa: ARG001
    return make(*options)


def stamp_of(dataset: str, checkpoint: str | None = None) -> Stamp:
    """Return the stamp of a data set's files; part of the key under which the data is kept.

    Args:
        dataset: As in :class:`~collapipe_env.tasks.base.TaskSpec`. Data that the package ships does not
            change, and a data set of the Hugging Face hub has a stamp only if it is a local folder.
        checkpoint: Local folder of a checkpoint, if its tokeniser is used.

    Raises:
        DataError: If the data's path cannot be looked up.
    """
    stamp: Stamp = () if checkpoint is None else _stamp(Path(os.path.expanduser(checkpoint)))
    if dataset.startswith(PREFIX):
        name = dataset.removeprefix(PREFIX).partition(":")[0]
        return (*stamp, *_stamp(Path(name), below=True)) if name else stamp
    return stamp if dataset == "embedded" else (*stamp, *_stamp(given_path(dataset)))


def _stamp(path: Path, *, below: bool = False) -> Stamp:
    """Stamp a file, or the files of a folder (and of those below it); empty if nothing is there."""
    try:
        if not path.is_dir():
            return (_entry(path),)
        files = path.rglob("*") if below else path.iterdir()
        return tuple(_entry(file) for file in sorted(files) if file.is_file())
    except (OSError, ValueError):  # a null character in the name
        return ()  # the reader reports the error


def _entry(path: Path) -> tuple[str, int, int, int, int]:
    found = os.stat(path)
    return str(path), found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def read_once(load: Callable[..., Parts], dataset: str, embedded: str, *columns: Hashable) -> Parts:
    """Return the samples of a task; a process reads files again only if they changed.

    Args:
        load: Takes the path of local data, or the name of a data set of the hub, and the columns.
        embedded: Folder of the task's own data, below :data:`EMBEDDED`.

    Raises:
        DataError: If the data cannot be read.
    """
    path: Path | str = dataset
    if not dataset.startswith(PREFIX):
        path = EMBEDDED / embedded if dataset == "embedded" else given_path(dataset)
    return cast(Parts, _made(load, stamp_of(dataset), path, *columns))


def tokenizer_of(spec: TaskSpec, texts: Sequence[str], kind: Kind = LOWER_CASED) -> Tokenizer:
    """Return the checkpoint's tokeniser if there is one, otherwise one learned from training texts."""
    if spec.checkpoint is None:
        return train_tokenizer(texts, spec.architecture.vocabulary, kind)
    return checkpoint_tokenizer(spec.checkpoint, spec.architecture.sequence_length)


def refuse_decoder(spec: TaskSpec, task: str) -> None:
    """Refuse decoder blocks of a task whose head is a linear layer."""
    if spec.decoder_blocks:
        raise ScenarioError(
            f"decoder_blocks is {spec.decoder_blocks}, but {task} has a linear head on the server and no "
            "decoder; set decoder_blocks: 0"
        )


def require_outputs(spec: TaskSpec, classes: Sequence[str], kind: str) -> None:
    """Refuse data with another number of classes, called ``kind``, than the head has outputs."""
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


def prepared(
    parts: Parts,
    split: Callable[[Samples], Split],
    tokenizer: Tokenizer,
    strata: IntArray | None = None,
    **more: Any,
) -> TaskData:
    """Return the data of a task whose samples are padded rows, in read-only arrays.

    Args:
        parts: Training, dev and test samples, which ``split`` turns into rows.
        strata: Class of every training sample; None takes classes of their lengths.
    """
    train, dev, test = (split(part) for part in parts)
    for one in (train, dev, test):
        shared(one.tokens)
        shared(one.targets)
    lengths = shared((train.tokens != PADDING).sum(axis=1))
    strata = shared(length_strata(lengths) if strata is None else strata)
    return TaskData(train, dev, test, strata, lengths, hidden=special_ids(tokenizer).hidden, **more)


def shared(array: IntArray) -> IntArray:
    """Return the array, read-only: every learner of the process gets the same one."""
    array.flags.writeable = False
    return array
