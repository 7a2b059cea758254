"""Partitions: every sample once, no cluster empty, repeatable, and skewed as promised."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collapipe_env.ground.errors import DataError
from collapipe_env.tasks.partition import partition

NAMES = ("iid", "dirichlet", "length", "quantity")


def split(name, strata, lengths=None, clusters=4, alpha=1.0, seed=0):
    lengths = np.zeros(len(strata), dtype=int) if lengths is None else lengths
    return partition(name, strata, lengths, clusters, alpha, np.random.default_rng(seed))


@settings(max_examples=120, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    samples=st.integers(8, 60),
    classes=st.integers(1, 5),
    clusters=st.integers(1, 8),
    alpha=st.sampled_from([1e-9, 0.01, 0.5, 100.0, 1e6]),
    seed=st.integers(0, 1000),
)
def test_every_sample_once_and_no_cluster_empty(name, samples, classes, clusters, alpha, seed):
    rng = np.random.default_rng(seed)
    data = rng.integers(0, classes, samples), rng.integers(1, 9, samples), clusters, alpha, seed
    parts = split(name, *data)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(samples))
    assert [len(part) for part in parts if not len(part)] == []
    assert len(parts) == clusters
    assert all((np.diff(part) > 0).all() for part in parts)
    assert all(np.array_equal(a, b) for a, b in zip(parts, split(name, *data), strict=True))


@pytest.mark.parametrize("name", ["iid", "length"])
def test_sizes_differ_by_at_most_one(name):
    assert sorted(len(part) for part in split(name, np.zeros(11, int))) == [2, 3, 3, 3]


def test_small_alpha_skews_labels_and_large_alpha_does_not():
    labels = np.repeat([0, 1], 2000)

    def skew(alpha):
        return np.mean(
            [abs(labels[part].mean() - 0.5) for part in split("dirichlet", labels, alpha=alpha, seed=1)]
        )

    assert skew(1e5) < 0.02
    assert skew(0.1) > 0.25


@settings(max_examples=60, deadline=None)
@given(lengths=st.lists(st.integers(1, 12), min_size=5, max_size=80), clusters=st.integers(1, 5))
def test_clusters_are_quantiles_of_the_length(lengths, clusters):
    lengths = np.array(lengths)
    parts = split("length", lengths * 0, lengths, clusters)
    for shorter, longer in itertools.pairwise(parts):
        assert lengths[shorter].max() <= lengths[longer].min()


def test_equal_lengths_are_dealt_at_random():
    lengths = np.full(400, 7)
    parts = split("length", lengths * 0, lengths)
    # A sort that kept the order of the file would give each cluster a block of it.
    assert all(150 < part.mean() < 250 for part in parts)


def test_quantity_follows_the_drawn_shares():
    samples, clusters = 10_000, 5
    parts = split("quantity", np.zeros(samples, int), None, clusters, alpha=0.7, seed=3)
    rng = np.random.default_rng(3)
    rng.permutation(samples)
    wanted = 1 + rng.dirichlet(np.full(clusters, 0.7)) * (samples - clusters)
    assert np.abs(np.array([len(part) for part in parts]) - wanted).max() <= 1.0


def test_quantity_does_not_skew_labels():
    labels = np.repeat([0, 1], 5000)
    big = [part for part in split("quantity", labels, clusters=5, alpha=1.0) if len(part) > 500]
    assert all(abs(labels[part].mean() - 0.5) < 4 * 0.5 / len(part) ** 0.5 for part in big)


def test_too_few_samples():
    with pytest.raises(DataError, match="3 samples for 4 clusters"):
        split("iid", np.zeros(3, int))
