"""Where the clusters stand: rejection sampling of centres that keep their distance."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from collapipe_env.errors import ScenarioError

if TYPE_CHECKING:
    from collapipe_env.scenario.schema import ClusterSpec

TRIES_PER_CLUSTER = 4096
"""Candidates for one cluster's centre before the whole placement starts again."""

RESTARTS = 16
"""Fresh starts before the geometry counts as impossible; an unlucky first cluster may block the rest."""

DISTANCES = 20_000_000
"""Distances that are looked at before it counts as impossible, a fraction of a second's work."""

CHUNKS = (0, 8, 64, 576, 1088, 2112, TRIES_PER_CLUSTER)
"""Candidates are looked at in such parts, since a free one is mostly among the first."""

ROUNDING = 1e-9
"""Relative margin of the quick look at squared distances; what passes is looked at exactly."""


def place_clusters(cluster: ClusterSpec, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw the clusters' centres around the base station at the origin.

    Each centre has a uniform distance in ``[cu_distance_min_m, cu_distance_max_m]`` and a uniform angle and
    is redrawn until it is at least ``cluster_separation_min_m`` from all earlier ones.

    Args:
        cluster: Number of clusters, distances and separation.
        rng: Source of randomness.

    Returns:
        Centres (N, 2) [m].

    Raises:
        ScenarioError: If no placement is found after many tries.
    """
    best, left = 0, DISTANCES
    for _ in range(RESTARTS):
        centres, placed = np.empty((cluster.clusters, 2)), 0
        while placed < cluster.clusters and left >= 0:
            found, looked = _free_candidate(cluster, centres[:placed], rng)
            left -= looked
            if found is None:
                break
            centres[placed] = found
            placed += 1
        if placed == cluster.clusters:
            return centres
        best = max(best, placed)
    raise ScenarioError(
        f"cluster: only {best} of clusters = {cluster.clusters} could be placed "
        f"cluster_separation_min_m = {cluster.cluster_separation_min_m:g} m apart between "
        f"cu_distance_min_m = {cluster.cu_distance_min_m:g} m and "
        f"cu_distance_max_m = {cluster.cu_distance_max_m:g} m; lower the separation or the number of "
        "clusters, or widen the distances"
    )


def _free_candidate(
    cluster: ClusterSpec, centres: NDArray[np.float64], rng: np.random.Generator
) -> tuple[NDArray[np.float64] | None, int]:
    """The first candidate that keeps its distance from ``centres``, and how many distances it took."""
    span = cluster.cu_distance_max_m - cluster.cu_distance_min_m
    separation = cluster.cluster_separation_min_m
    looked, drawn = 0, np.empty((0, 2))
    for start, stop in pairwise(CHUNKS):
        if stop > len(drawn):
            # A small batch is nearly always enough.
            size = 64 if stop <= 64 else TRIES_PER_CLUSTER - 64
            distance = cluster.cu_distance_min_m + span * rng.random(size)
            angle = 2.0 * np.pi * rng.random(size)
            drawn = np.concatenate(
                (drawn, np.stack([distance * np.cos(angle), distance * np.sin(angle)], axis=1))
            )
        candidates = drawn[start:stop]
        x, y = (candidates[:, None, axis] - centres[None, :, axis] for axis in (0, 1))
        looked += x.size
        near = x * x + y * y < (1.0 - ROUNDING) * separation**2
        for index in np.flatnonzero(~near.any(axis=1)).tolist():
            if (np.hypot(x[index], y[index]) >= separation).all():
                return candidates[index], looked
    return None, looked
