"""Partitions: every sample once, no cluster empty, the same for the same generator state."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collapipe_env.errors import DataError
from collapipe_env.tasks.partition import partition


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(["iid", "dirichlet"]),
    samples=st.integers(8, 60),
    classes=st.integers(1, 5),
    clusters=st.integers(1, 8),
    alpha=st.sampled_from([0.01, 0.5, 100.0]),
    seed=st.integers(0, 1000),
)
def test_every_sample_once_and_no_cluster_empty(name, samples, classes, clusters, alpha, seed):
    labels = np.random.default_rng(seed).integers(0, classes, samples)
    parts = partition(name, labels, clusters, alpha, np.random.default_rng(seed))
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(samples))
    assert min(map(len, parts)) >= 1
    again = partition(name, labels, clusters, alpha, np.random.default_rng(seed))
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


def test_iid_sizes_differ_by_at_most_one():
    sizes = [len(part) for part in partition("iid", np.zeros(11, int), 4, 1.0, np.random.default_rng(0))]
    assert sorted(sizes) == [2, 3, 3, 3]


def test_small_alpha_skews_labels_and_large_alpha_does_not():
    labels = np.repeat([0, 1], 2000)

    def skew(alpha):
        parts = partition("dirichlet", labels, 4, alpha, np.random.default_rng(1))
        return np.mean([abs(labels[part].mean() - 0.5) for part in parts])

    assert skew(1e5) < 0.02
    assert skew(0.1) > 0.25


def test_too_few_samples():
    with pytest.raises(DataError, match="3 samples for 4 clusters"):
        partition("iid", np.zeros(3, int), 4, 1.0, np.random.default_rng(0))
