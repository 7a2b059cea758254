"""Training, dev and test parts of data sets: by name, and by a fixed random choice for missing parts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from collapipe_env.ground.arrays import IntArray
from collapipe_env.ground.errors import DataError

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


def choose_named(names: Sequence[str], source: str, remedy: str = "keep one") -> dict[str, str]:
    """Return the name of each part.

    A name that is only the part's word takes precedence over one with further words.

    Args:
        names: Names of files without ending, or of splits.
        source: Name of the data set, for errors.
        remedy: Advice on two of a kind, for errors.

    Raises:
        DataError: If two names fit a part equally well.
    """
    chosen: dict[str, str] = {}
    for part in PARTS:
        exact = [name for name in names if name.lower() in PART_WORDS[part]]
        found = exact or [name for name in names if part_of(name) == part]
        if len(found) > 1:
            raise DataError(f"{source}: both {found[0]} and {found[1]} could be the {part} part; {remedy}")
        if found:
            chosen[part] = found[0]
    return chosen


def held_out(
    samples: int, missing: Sequence[str], source: str, classes: Sequence[str] | None = None
) -> dict[str, IntArray]:
    """Choose samples of a training part for the parts that a data set lacks, always the same ones.

    The choice is random, since files are often sorted by label or by source. With classes it is stratified:
    every class keeps its share of the samples in every part, rounded, and at least one of its samples stays
    in the training part, wherever in the file it stands.

    Args:
        samples: Samples in the training part.
        missing: Parts that are missing.
        source: Name of the data set, for errors.
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
        order: All samples.
        parts: Number of parts that the end is cut into later.
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


def move_unknown(parts: Mapping[str, IntArray], kinds: Sequence[frozenset[str]]) -> dict[str, IntArray]:
    """Move held-out samples with a kind that no training sample has to the training part.

    Args:
        parts: Indices for ``"train"`` and for other parts.
        kinds: Kinds in every sample, for instance its types of entities.

    Returns:
        The parts with sorted indices; one may have become empty.
    """
    known = {kind for i in parts["train"].tolist() for kind in kinds[i]}
    moved: list[int] = []
    found = {}
    for part, indices in parts.items():
        kept = []
        for i in indices.tolist():
            if kinds[i] <= known:
                kept.append(i)
            else:
                known |= kinds[i]
                moved.append(i)
        found[part] = np.array(kept, dtype=np.int64)
    found["train"] = np.sort(np.concatenate([parts["train"], np.array(moved, dtype=np.int64)]))
    return found
