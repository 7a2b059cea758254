"""Training, dev and test parts of data sets: by name, and by a fixed random choice for missing parts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from collapipe_env.ground.arrays import IntArray
from collapipe_env.ground.errors import DataError
from collapipe_env.physics.apportionment import apportion

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
    """Samples of a part as they are in the data, before they become tokens.

    Attributes:
        inputs: Text of each sample, not empty; for tagging, the tuple of a sentence's words.
        answers: Label, translation or kind of each sample, or the tuple of its words' tags; empty if they
            have none.
        places: Place of each sample, as ``"file:line"``.
        languages: Languages of inputs and answers, as far as these are named.
    """

    inputs: tuple[Any, ...]
    answers: tuple[Any, ...] = ()
    places: tuple[str, ...] = field(default=(), compare=False)
    languages: tuple[str, str] | None = field(default=None, compare=False)

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.inputs)

    def subset(self, indices: Iterable[int]) -> Samples:
        """Return the samples at ``indices``, in that order."""
        chosen = list(indices)
        columns = (self.inputs, self.answers, self.places)
        inputs, answers, places = (tuple(c[i] for i in chosen if c) for c in columns)
        return Samples(inputs, answers, places, self.languages)


Parts: TypeAlias = tuple[Samples, Samples, Samples]
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


def complete(parts: Mapping[str, Samples], source: str, classes: Sequence[str] | None = None) -> Parts:
    """Return training, dev and test part; missing ones are taken from training, see :func:`held_out`."""
    missing = [part for part in PARTS if part not in parts]
    return parted(parts, held_out(len(parts["train"]), missing, source, classes))


def parted(parts: Mapping[str, Samples], chosen: Mapping[str, Iterable[int]]) -> Parts:
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
    chosen = apportion(taken, counts, counts - 1)  # at most all but one sample of a class
    by_class = order[np.argsort(kinds[order], kind="stable")]
    ends = np.cumsum(counts)
    out = np.concatenate([by_class[end - n : end] for end, n in zip(ends, chosen, strict=True)])
    # Dealt one by one, each class is spread evenly over the parts.
    dealt = np.concatenate([out[part::parts] for part in range(parts)])
    return np.concatenate([order[~np.isin(order, out)], dealt])
