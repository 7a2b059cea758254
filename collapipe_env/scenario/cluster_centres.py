"""Centres of the clusters: rejection sampling of points that keep their distance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collapipe_env.ground.arrays import FloatArray
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


def place_clusters(cluster: ClusterSpec, rng: np.random.Generator, starts: int = RESTARTS) -> FloatArray:
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
    cluster: ClusterSpec, centres: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray | None, int]:
    """Return the first candidate that keeps its distance from ``centres``, and the number drawn."""
    drawn, separation = 0, cluster.cluster_separation_min_m
    span = cluster.cu_distance_max_m - cluster.cu_distance_min_m
    for size in (64, TRIES_PER_CLUSTER - 64):  # a small batch is nearly always enough
        distance = cluster.cu_distance_min_m + span * rng.random(size)
        angle = 2.0 * np.pi * rng.random(size)
        candidates = np.stack([distance * np.cos(angle), distance * np.sin(angle)], axis=1)
        free = np.arange(size)
        if drawn and len(centres):
            # Few of many candidates are free: a tree, slow to import, quickly leaves out what is clearly too
            # near. Exact distances decide the rest.
            from scipy.spatial import cKDTree

            nearest, _ = cKDTree(centres).query(candidates)
            free = np.flatnonzero(nearest >= separation * (1.0 - 1e-9))
        drawn += size
        for index in free:
            gap = candidates[index] - centres
            if (np.hypot(gap[:, 0], gap[:, 1]) >= separation).all():
                return np.asarray(candidates[index]), drawn
    return None, drawn
