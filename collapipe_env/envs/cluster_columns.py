"""Columns of the flat observation that belong to each cluster."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from collapipe_env.envs.observation import FlatPart, ObservationLayout
from collapipe_env.ground.arrays import IntArray


def is_of_clusters(feature: FlatPart, clusters: int) -> bool:
    """Return whether a feature has a part for each of ``N`` clusters; any other belongs to all clusters."""
    return feature.shape[:1] == (clusters,)


def feature_columns(feature: FlatPart, clusters: int) -> IntArray:
    """Return the columns of a feature that each cluster sees (N, numbers): its own, or all shared ones."""
    places = np.arange(feature.slice.start, feature.slice.stop)
    if is_of_clusters(feature, clusters):
        return places.reshape(clusters, -1)
    return np.broadcast_to(places, (clusters, len(places)))


def cluster_columns(layout: ObservationLayout, clusters: int) -> IntArray:
    """Return the columns of an observation that each cluster sees (N, F), in the order of the layout."""
    return np.concatenate([feature_columns(feature, clusters) for feature in layout.values()], axis=1)


def cluster_layout(layout: ObservationLayout, clusters: int) -> ObservationLayout:
    """Return the layout of the part that one cluster sees, the same for all ``N`` clusters."""
    features: dict[str, FlatPart] = {}
    start = 0
    for name, feature in layout.items():
        shape = feature.shape[1:] if is_of_clusters(feature, clusters) else feature.shape
        stop = start + int(np.prod(shape, dtype=np.int64))
        features[name] = replace(feature, slice=slice(start, stop), shape=shape)
        start = stop
    return ObservationLayout(features)
