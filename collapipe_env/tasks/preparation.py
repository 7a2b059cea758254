"""The path that the shipped tasks share: samples are read, kept until files change, and become tokens."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
from tokenizers import Tokenizer

from collapipe_env.ground.arrays import IntArray
from collapipe_env.ground.errors import DataError
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
"""Most samples and data that a process keeps, outdated ones included."""


class DataTask:
    """Base of tasks whose samples are read from files or the hub, as the class says, and become tokens."""

    embedded: ClassVar[str]
    """Folder of the task's own data, below :data:`EMBEDDED`."""
    read: ClassVar[Callable[..., Parts]]
    """Takes the path of local data, or the name of a data set of the hub, and the columns."""
    columns: ClassVar[tuple[str, ...]] = ("text_column", "label_column")
    """Fields of a specification that say which columns are read."""

    def samples(self, spec: TaskSpec) -> Parts:
        """Return the samples as they are in the data; a process reads files again only if they changed.

        Raises:
            DataError: If the data cannot be read.
        """
        path: Path | str = spec.dataset
        if not spec.dataset.startswith(PREFIX):
            path = EMBEDDED / self.embedded if path == "embedded" else given_path(spec.dataset)
        columns = [getattr(spec, name) for name in self.columns]
        return cast(Parts, _made(self.read, stamp_of(spec.dataset), path, *columns))

    def load(self, spec: TaskSpec) -> TaskData:
        """Return the samples as tokens; a process prepares them again only if files changed.

        The tokeniser is the checkpoint's if there is one, otherwise it is learned from the training part.
        """
        key = replace(spec, beam_size=1)  # which changes no data
        return cast(TaskData, _made(type(self)._fitting, stamp_of(spec.dataset, spec.checkpoint), key))

    @classmethod
    def _fitting(cls, spec: TaskSpec) -> TaskData:
        cls().check(spec)
        return cls().prepare(spec)

    def check(self, spec: TaskSpec) -> None:
        """Refuse a workload that does not fit the task, with a ``ScenarioError``."""

    def prepare(self, spec: TaskSpec) -> TaskData:
        """Return the data of a workload that fits."""
        raise NotImplementedError

    def classes(self, spec: TaskSpec) -> tuple[str, ...]:
        """Return no names, for outputs that are a vocabulary; the data is read all the same."""
        self.samples(spec)
        return ()


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
        folder = path.is_dir()
        files = sorted(path.rglob("*") if below else path.iterdir()) if folder else [path]
        found = [(str(file), file.stat()) for file in files if file.is_file() or not folder]
    except (OSError, ValueError):  # a null character in the name
        return ()  # the reader reports the error
    return tuple((name, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for name, s in found)


def tokenizer_of(spec: TaskSpec, texts: Sequence[str], kind: Kind = LOWER_CASED) -> Tokenizer:
    """Return the checkpoint's tokeniser if there is one, otherwise one learned from training texts.

    It cuts texts to rows of the architecture, but keeps what closes them.
    """
    if spec.checkpoint is None:
        tokenizer = train_tokenizer(texts, spec.architecture.vocabulary, kind)
    else:
        tokenizer = checkpoint_tokenizer(spec.checkpoint)
    tokenizer.enable_truncation(spec.architecture.sequence_length)
    return tokenizer


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
