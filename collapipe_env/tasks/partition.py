"""How a training set is spread over clusters: evenly at random, or with a Dirichlet label skew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt

from collapipe_env.errors import DataError

IntArray = npt.NDArray[np.int64]
PartitionName = Literal["iid", "dirichlet"]


def partition(
    name: PartitionName, labels: IntArray, clusters: int, alpha: float, rng: np.random.Generator
) -> list[IntArray]:
    """Spread the samples over the clusters; every sample goes to exactly one cluster.

    Args:
        name: ``"iid"`` or ``"dirichlet"``.
        labels: Class of every training sample, shape (samples,).
        clusters: Number of clusters N, 1 to the number of samples.
        alpha: Concentration of the Dirichlet distribution (ignored by ``"iid"``), above 0.
        rng: Only source of randomness.

    Returns:
        For every cluster the sorted indices of its samples, at least one each.

    Raises:
        DataError: If there are fewer samples than clusters.
    """
    if len(labels) < clusters:
        raise DataError(
            f"the training set has {len(labels)} samples for {clusters} clusters; give every cluster at "
            "least one"
        )
    splitters: dict[str, Callable[[], list[IntArray]]] = {
        "iid": lambda: iid(len(labels), clusters, rng),
        "dirichlet": lambda: dirichlet(labels, clusters, alpha, rng),
    }
    return splitters[name]()


def iid(samples: int, clusters: int, rng: np.random.Generator) -> list[IntArray]:
    """Deal a random permutation out in parts whose sizes differ by at most one."""
    return [np.sort(part) for part in np.array_split(rng.permutation(samples), clusters)]


def dirichlet(labels: IntArray, clusters: int, alpha: float, rng: np.random.Generator) -> list[IntArray]:
    """Split each class over the clusters in proportions drawn from Dirichlet(alpha, ..., alpha).

    The usual label-skew benchmark (Hsu, Qi and Brown, 2019, arXiv 1909.06335, with proportions drawn per
    class). A cluster left without any sample takes one from the cluster that then has the most.

    Args:
        labels: Class of every sample, shape (samples,).
        clusters: Number of clusters N.
        alpha: Concentration, above 0; small values skew more.
        rng: Only source of randomness.

    Returns:
        For every cluster the sorted indices of its samples.
    """
    parts: list[list[int]] = [[] for _ in range(clusters)]
    for value in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == value))
        shares = rng.dirichlet(np.full(clusters, alpha))
        cuts = np.rint(np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
        for part, chosen in zip(parts, np.split(members, cuts), strict=True):
            part.extend(chosen.tolist())
    for part in parts:
        if not part:
            part.append(max(parts, key=len).pop())
    return [np.sort(np.array(part, dtype=np.int64)) for part in parts]
