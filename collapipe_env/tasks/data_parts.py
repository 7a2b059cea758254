"""Training, dev and test parts of data sets: by name, and by a fixed random choice for missing parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import ClassVar, Self, TypeAlias, TypeVar

import numpy as np

from collapipe_env.ground.arrays import IntArray
from collapipe_env.ground.errors import DataError
from collapipe_env.ground.typed_paths import why_unusable

PARTS = ("train", "dev", "test")
"""Names of the parts."""
PART_WORDS = {
    "train": frozenset(("train", "training")),
    "dev": frozenset(("dev", "devel", "development", "val", "valid", "validation")),
    "test": frozenset(("test", "testing")),
}
"""Words that name a part."""
HELD_OUT_SHARE = 10
"""A part that a data set lacks gets one sample in this many."""


@dataclass(frozen=True)
class Samples:
    """Samples as columns: every field is a tuple with an entry for each sample, or empty."""

    of_all: ClassVar[frozenset[str]] = frozenset()
    """Fields that say something about all samples; never the first one."""

    def __len__(self) -> int:
        """Number of samples."""
        return len(getattr(self, fields(self)[0].name))

    def subset(self, indices: Iterable[int]) -> Self:
        """Return the samples at ``indices``, in that order."""
        chosen = list(indices)
        columns = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in self.of_all}
        return replace(
            self, **{n: tuple(column[i] for i in chosen if column) for n, column in columns.items()}
        )


S = TypeVar("S", bound=Samples)
Parts: TypeAlias = tuple[S, S, S]
"""Training, dev and test samples."""


def part_of(name: str) -> str | None:
    """Return the part that the name of a file or split stands for; None if it stands for none.

    One of its words decides: ``validation``, ``in_domain_train``, ``news.test``. If the name of a held-out
    part also says ``out_of_domain``, it is the test part, whatever its other word: CoLA names its two
    held-out parts so.
    """
    lowered = name.lower()
    words = set(re.split(r"[^a-z]+", lowered))
    found = [part for part in PARTS if words & PART_WORDS[part]]
    if "out_of_domain" in lowered and found and found != ["train"]:
        return "test"
    return found[0] if len(found) == 1 else None


def choose_named(
    names: Mapping[str, str], source: str, remedy: str = "keep one", *, first: bool = False
) -> dict[str, str]:
    """Return the name of each part.

    A name that is only the part's word takes precedence over one with further words.

    Args:
        names: Names of files or splits of ``source``; each with the text that tells its part.
        remedy: Advice on two of a kind, for errors.
        first: Whether the first of several is taken.

    Raises:
        DataError: If two names fit a part equally well.
    """
    chosen: dict[str, str] = {}
    for part in PARTS:
        exact = [name for name, text in names.items() if text.lower() in PART_WORDS[part]]
        found = exact or [name for name, text in names.items() if part_of(text) == part]
        if len(found) > 1 and not first:
            raise DataError(f"{source}: both {found[0]} and {found[1]} could be the {part} part; {remedy}")
        if found:
            chosen[part] = found[0]
    return chosen


def stem_of(file: Path, endings: Sequence[str]) -> str:
    """Return a file's name without ending (one of ``endings``, maybe ``.gz`` after it); else nothing."""
    name = file.name.lower().removesuffix(".gz")
    ending = Path(name).suffix
    return name.removesuffix(ending) if ending in endings else ""


def part_files(folder: Path, stem: Callable[[Path], str]) -> tuple[dict[str, Path], list[Path]]:
    """Return the file of each part of a folder, and all its files of data.

    Args:
        stem: Text that tells a file's part; empty for files that hold no data. Hidden files are left out.

    Raises:
        DataError: If two files fit a part equally well.
    """
    listed = {file: stem(file) for file in sorted(folder.iterdir()) if file.is_file()}
    files = {file.name: said for file, said in listed.items() if said and not file.name.startswith(".")}
    named = choose_named(files, str(folder))
    return {part: folder / name for part, name in named.items()}, [folder / name for name in files]


def require_path(path: Path, advice: str) -> None:
    """Refuse a path where neither a file nor a folder is, with the reason and the advice."""
    if not (path.is_file() or path.is_dir()):
        raise DataError(f"{path}: {why_unusable(path)}; {advice}")


def complete(parts: Mapping[str, S], source: str, classes: Sequence[str] | None = None) -> Parts[S]:
    """Return training, dev and test part; missing ones are taken from training, see :func:`held_out`."""
    missing = [part for part in PARTS if part not in parts]
    return parted(parts, held_out(len(parts["train"]), missing, source, classes))


def parted(parts: Mapping[str, S], chosen: Mapping[str, Iterable[int]]) -> Parts[S]:
    """Return training, dev and test part, those in ``chosen`` by their indices in the training part."""
    found = {**parts, **{part: parts["train"].subset(indices) for part, indices in chosen.items()}}
    return found["train"], found["dev"], found["test"]


def held_out(
    samples: int, missing: Sequence[str], source: str, classes: Sequence[str] | None = None
) -> dict[str, IntArray]:
    """Choose samples of a training part for the parts that a data set lacks, always the same ones.

    The choice is random, since files are often sorted by label or by source. With classes it is stratified:
    every class keeps its share of the samples in every part, rounded, and at least one of its samples stays
    in the training part, wherever in the file it stands.

    Args:
        samples: Number of samples in the training part.
        classes: Class of every sample; None where samples have none.

    Returns:
        Sorted indices for the training part and for every missing part, a tenth of the samples for each of
        the latter, at least one.

    Raises:
        DataError: If there are too few samples, or too few for one of each class in the training part.
    """
    if samples <= len(missing):
        raise DataError(
            f"{source}: {samples} sample{'s' * (samples != 1)} cannot be split into training and "
            f"{' and '.join(missing)}; add more"
        )
    order = np.random.default_rng(0).permutation(samples)
    share = max(1, samples // HELD_OUT_SHARE)
    cut = samples - share * len(missing)
    if classes is not None and missing:
        kinds = len(set(classes))
        if kinds > cut:
            raise DataError(
                f"{source}: {samples} samples of {kinds} classes cannot be split into training and "
                f"{' and '.join(missing)} so that training has one of each class; add more samples"
            )
        order = _stratified(order, len(missing), samples - cut, np.unique(classes, return_inverse=True)[1])
    parts = zip(missing, np.split(order[cut:], len(missing)), strict=True) if missing else ()
    return {"train": np.sort(order[:cut]), **{part: np.sort(indices) for part, indices in parts}}


def _stratified(order: IntArray, parts: int, taken: int, kinds: IntArray) -> IntArray:
    """Return ``order`` with a new end: the last samples of each class, spread over ``parts`` equal parts.

    Args:
        taken: Samples in all these parts together, a multiple of ``parts``; at least as many samples as there
            are classes remain.
        kinds: Class number of every sample.
    """
    counts = np.bincount(kinds)
    wanted = taken * counts / len(order)
    # Largest remainders: whole numbers next to the wanted ones, at most all but one sample of a class.
    chosen = np.minimum(wanted.astype(np.int64), counts - 1)
    while (short := taken - int(chosen.sum())) > 0:
        lacking = np.where(chosen < counts - 1, wanted - chosen, -np.inf)
        first = np.argsort(-lacking, kind="stable")[:short]
        chosen[first[np.isfinite(lacking[first])]] += 1
    by_class = order[np.argsort(kinds[order], kind="stable")]
    ends = np.cumsum(counts)
    out = np.concatenate([by_class[end - n : end] for end, n in zip(ends, chosen, strict=True)])
    # Dealt one by one, each class is spread evenly over the parts.
    dealt = np.concatenate([out[part::parts] for part in range(parts)])
    return np.concatenate([order[~np.isin(order, out)], dealt])
