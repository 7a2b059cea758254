"""Partition of a training set over clusters: evenly at random, or skewed in labels, lengths or amounts."""

from __future__ import annotations

from typing import Literal

import numpy as np

from collapipe_env.ground.arrays import IntArray
from collapipe_env.ground.errors import DataError

PartitionName = Literal["iid", "dirichlet", "length", "quantity"]


def partition(
    name: PartitionName,
    strata: IntArray,
    lengths: IntArray,
    clusters: int,
    alpha: float,
    rng: np.random.Generator,
) -> list[IntArray]:
    """Spread the samples over the clusters; every sample goes to exactly one cluster.

    Args:
        name: ``"iid"``, ``"dirichlet"`` (skewed classes), ``"length"`` (skewed sentence lengths) or
            ``"quantity"`` (skewed numbers of samples).
        strata: Class of every training sample, shape (samples,).
        lengths: Real tokens of every training sample, shape (samples,).
        clusters: Number of clusters N, 1 to the number of samples.
        alpha: Concentration of the Dirichlet distribution of ``"dirichlet"`` and ``"quantity"``, above 0.
        rng: Only source of randomness.

    Returns:
        For every cluster the sorted indices of its samples, at least one each.

    Raises:
        DataError: If there are fewer samples than clusters.
    """
    samples = len(strata)
    if samples < clusters:
        raise DataError(
            f"the training set has {samples} samples for {clusters} clusters; give every cluster at least one"
        )
    if name == "dirichlet":
        return dirichlet(strata, clusters, alpha, rng)
    if name == "length":
        return by_length(lengths, clusters, rng)
    if name == "quantity":
        return by_quantity(samples, clusters, alpha, rng)
    # Evenly at random: parts of a permutation whose sizes differ by at most one.
    return [np.sort(part) for part in np.array_split(rng.permutation(samples), clusters)]


def dirichlet(labels: IntArray, clusters: int, alpha: float, rng: np.random.Generator) -> list[IntArray]:
    """Split each class over the clusters in proportions drawn from Dirichlet(alpha, ..., alpha).

    The usual label-skew benchmark (Hsu, Qi and Brown, 2019, arXiv 1909.06335, with proportions drawn per
    class). A cluster left without any sample takes one from the cluster that then has the most.

    Args:
        labels: Class of every sample, shape (samples,).
        alpha: Concentration, above 0; small values skew more.
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


def by_length(lengths: IntArray, clusters: int, rng: np.random.Generator) -> list[IntArray]:
    """Give each cluster one quantile of the lengths: the first the shortest samples, the last the longest.

    Samples are put in the order of their lengths, equally long ones at random, and cut in parts whose sizes
    differ by at most one. So no sample of a cluster is longer than any of the next one, and lengths overlap
    only where a cut goes through samples of one length.

    Args:
        lengths: Length of every sample, shape (samples,).
    """
    shuffled = rng.permutation(len(lengths))
    order = shuffled[np.argsort(lengths[shuffled], kind="stable")]
    return [np.sort(part) for part in np.array_split(order, clusters)]


def by_quantity(samples: int, clusters: int, alpha: float, rng: np.random.Generator) -> list[IntArray]:
    """Deal out a random permutation in parts whose sizes are drawn from Dirichlet(alpha, ..., alpha).

    Quantity skew as in Li, Diao, Chen and He (2022, arXiv 2102.02079): clusters differ in the amount of their
    data, not in its kind. Each cluster gets one sample, and the others in the drawn proportions, so its size
    differs from 1 + share * (samples - N) by at most one.

    Args:
        alpha: Concentration, above 0; small values skew more.
    """
    order = rng.permutation(samples)
    spare = samples - clusters
    shares = rng.dirichlet(np.full(clusters, alpha))
    # Rounding the running total keeps the sum exact.
    ends = np.rint(np.cumsum(shares)[:-1] * spare).astype(np.int64) + np.arange(1, clusters)
    return [np.sort(part) for part in np.split(order, ends)]
