"""Centres of the clusters: rejection sampling of points that keep their distance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from collapipe_env.ground.errors import ScenarioError

if TYPE_CHECKING:
    from collapipe_env.scenario.sections import ClusterSpec

TRIES_PER_CLUSTER = 4096
"""Candidates for one cluster's centre before the whole placement starts again."""

TRIES_AT_ALL = 2**20
"""Candidates after which placement does not start again. Many tightly packed clusters use them up in a single
start, which takes seconds."""

RESTARTS = 16
"""Fresh starts before the geometry counts as impossible; an unlucky first cluster may block the rest."""


def place_clusters(
    cluster: ClusterSpec, rng: np.random.Generator, starts: int = RESTARTS
) -> NDArray[np.float64]:
    """Draw the clusters' centres around the base station at the origin.

    Each centre has a uniform distance in ``[cu_distance_min_m, cu_distance_max_m]`` and a uniform angle and
    is redrawn until it is at least ``cluster_separation_min_m`` from all earlier ones.

    Args:
        starts: Fresh starts before giving up; the result of the first one does not depend on it.

    Returns:
        Centres (N, 2) [m].

    Raises:
        ScenarioError: If no placement is found after many tries.
    """
    best = tries = 0
    for _ in range(starts):
        if tries > TRIES_AT_ALL:
            break
        centres = np.empty((0, 2))
        while len(centres) < cluster.clusters:
            found, drawn = _free_candidate(cluster, centres, rng)
            tries += drawn
            if found is None:
                break
            centres = np.vstack([centres, found])
        if len(centres) == cluster.clusters:
            return centres
        best = max(best, len(centres))
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
    """Return the first candidate that keeps its distance from ``centres``, and the number drawn."""
    drawn = 0
    span = cluster.cu_distance_max_m - cluster.cu_distance_min_m
    for size in (64, TRIES_PER_CLUSTER - 64):  # a small batch is nearly always enough
        distance = cluster.cu_distance_min_m + span * rng.random(size)
        angle = 2.0 * np.pi * rng.random(size)
        candidates = np.stack([distance * np.cos(angle), distance * np.sin(angle)], axis=1)
        drawn += size
        for index in np.flatnonzero(_may_be_free(cluster, centres, candidates)):
            gap = candidates[index] - centres
            if (np.hypot(gap[:, 0], gap[:, 1]) >= cluster.cluster_separation_min_m).all():
                return np.asarray(candidates[index]), drawn
    return None, drawn


def _may_be_free(
    cluster: ClusterSpec, centres: NDArray[np.float64], candidates: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Return False for candidates that are clearly too near to a centre; exact distances decide the rest.

    Few of many candidates are free. A tree finds the nearest centre in a time that hardly grows with the
    number of centres.
    """
    if len(candidates) < TRIES_PER_CLUSTER // 2 or not len(centres):
        return np.ones(len(candidates), dtype=bool)
    from scipy.spatial import cKDTree  # only for crowded clusters: it takes a moment to import

    nearest, _ = cKDTree(centres).query(candidates)
    return np.asarray(nearest >= cluster.cluster_separation_min_m * (1.0 - 1e-9))
