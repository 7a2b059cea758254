"""Partition of a training set over clusters: evenly at random, or skewed in labels, lengths or amounts."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import IntArray
from collapipe_env.ground.errors import DataError


def partition(
    name: str,
    strata: IntArray,
    lengths: IntArray,
    clusters: int,
    alpha: float,
    rng: np.random.Generator,
) -> list[IntArray]:
    """Spread the samples over the clusters; every sample goes to exactly one cluster.

    - ``"iid"``: evenly at random, in parts whose sizes differ by at most one.
    - ``"dirichlet"``: each class in proportions drawn from Dirichlet(alpha, ..., alpha), the usual label-skew
      benchmark (Hsu, Qi and Brown, 2019, arXiv 1909.06335, with proportions drawn per class). A cluster left
      without any sample takes one from the cluster that then has the most.
    - ``"length"``: each cluster gets one quantile of the lengths, the first the shortest, the last the
      longest. Sizes differ by at most one, and equally long samples are in random order, so lengths overlap
      only where a cut goes through samples of one length.
    - ``"quantity"``: sizes drawn from Dirichlet(alpha, ..., alpha), as in Li, Diao, Chen and He (2022, arXiv
      2102.02079): clusters differ in the amount of their data, not in its kind. Each cluster gets one sample,
      and the others in the drawn proportions, so its size differs from 1 + share * (samples - N) by at most
      one.

    Args:
        strata: Class of every training sample, shape (samples,).
        lengths: Real tokens of every training sample, shape (samples,).
        clusters: Number of clusters N, 1 to the number of samples.
        alpha: Concentration of the Dirichlet distributions, above 0; small values skew more.
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
    concentrations = np.full(clusters, alpha)
    if name == "dirichlet":
        found: list[list[int]] = [[] for _ in range(clusters)]
        for value in np.unique(strata):
            members = rng.permutation(np.flatnonzero(strata == value))
            ends = np.rint(np.cumsum(rng.dirichlet(concentrations))[:-1] * len(members)).astype(np.int64)
            for part, chosen in zip(found, np.split(members, ends), strict=True):
                part.extend(chosen.tolist())
        for part in found:
            if not part:
                part.append(max(found, key=len).pop())
        return [np.sort(np.array(part, dtype=np.int64)) for part in found]
    order = rng.permutation(samples)
    if name == "length":
        order = order[np.argsort(lengths[order], kind="stable")]
    parts = np.array_split(order, clusters)
    if name == "quantity":
        # Rounding the running total keeps the sum exact.
        totals = np.rint(np.cumsum(rng.dirichlet(concentrations))[:-1] * (samples - clusters))
        parts = np.split(order, totals.astype(np.int64) + np.arange(1, clusters))
    return [np.sort(part) for part in parts]
