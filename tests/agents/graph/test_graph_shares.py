"""Shares of a common deadline: what they are, their gradient, and the compiled form."""

import numpy as np
import pytest
import torch
from scipy.optimize import brentq

from collapipe_env.agents.learned.graph.shares import deadline_shares, write_deadline_shares
from collapipe_env.compiled import called_from_python

write = called_from_python(write_deadline_shares)


def both(busy, weight, floor):
    """Shares of the PyTorch and of the compiled form."""
    loops = np.empty(len(busy))
    write(busy, weight, floor, loops)
    return deadline_shares(torch.from_numpy(busy), torch.from_numpy(weight), floor).numpy(), loops


def needs(number, seed, spread=1.0):
    rng = np.random.default_rng(seed)
    return spread * rng.standard_normal(number), spread * rng.standard_normal(number)


@pytest.mark.parametrize("number", [2, 4, 16, 64])
@pytest.mark.parametrize("seed", range(3))
def test_shares_are_those_of_the_deadline_that_bisection_finds(number, seed):
    busy, weight = needs(number, seed)
    a, u = np.exp(busy), np.exp(weight) / number
    deadline = brentq(lambda d: (u / (d - a)).sum() - 1.0, (a + u).max() - 1e-12, a.max() + number * u.max())
    for share in both(busy, weight, 0.0):
        np.testing.assert_allclose(share, u / (deadline - a), rtol=1e-9)
        np.testing.assert_allclose(a + u / share, deadline, rtol=1e-9)
        assert share.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("floor", [0.01, 0.1, 0.24])
def test_the_floor_is_a_part_that_all_have_and_the_rest_is_shared_as_without(floor):
    busy, weight = needs(4, 8)
    for share, free in zip(both(busy, weight, floor), both(busy, weight, 0.0), strict=True):
        assert (share >= floor).all()
        assert share.sum() == pytest.approx(1.0, abs=1e-12)
        np.testing.assert_allclose((share - floor) / (1.0 - 4 * floor), free, rtol=1e-9)


def test_one_cluster_has_the_whole_band():
    for share in both(np.array([0.3]), np.array([-2.0]), 0.05):
        np.testing.assert_allclose(share, [1.0], rtol=1e-15)


@pytest.mark.parametrize(
    ("busy", "weight"),
    [
        ([-6, 6, 0, 3], [6, -6, 0, 2]),
        ([6, 6, 6, 6], [-3, -3, -3, 3]),
        ([-6, -6, -6, -6], [6, -6, -6, -6]),
        ([-6] * 16, [6] + [-6] * 15),
        ([6] + [-6] * 63, [-5] + [6] * 63),
    ],
)
def test_very_different_sizes(busy, weight):
    busy, weight = np.log(10.0) * np.array(busy, float), np.log(10.0) * np.array(weight, float)
    for share in both(busy, weight, 0.0):
        assert np.isfinite(share).all()
        assert (share > 0.0).all()
        assert share.sum() == pytest.approx(1.0, abs=1e-12)
        ends = np.exp(busy) + np.exp(weight) / len(busy) / share
        np.testing.assert_allclose(ends, ends.max(), rtol=1e-9)


def test_the_shares_of_those_who_end_long_before_a_dead_link_are_finite():
    """A cluster is busy for 5e34 s, and has all of the band: another needs 1e-35 of it to end as late."""
    busy, weight = np.array([80.0, 0.0, 1.0]), np.array([2.0, 1.0, 80.0])
    for share in both(busy[:2], weight[:2], 0.0):
        np.testing.assert_allclose(share, [1.0, np.exp(1.0 - 80.0) / 2], rtol=1e-9)
    for share in both(busy, weight, 0.1):  # what one is busy for, another uploads
        assert (share >= 0.1).all()
        assert share.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("floor", [0.0, 0.05])
@pytest.mark.parametrize("argument", [0, 1])
def test_gradient_is_that_of_finite_differences(floor, argument):
    needed, of_shares = needs(6, 2), np.random.default_rng(3).standard_normal(6)
    tensors = [torch.from_numpy(x).requires_grad_() for x in needed]
    (deadline_shares(*tensors, floor) * torch.from_numpy(of_shares)).sum().backward()
    for n in range(6):
        values = []
        for side in (-1e-5, 1e-5):
            moved = [x.copy() for x in needed]
            moved[argument][n] += side
            values.append(both(*moved, floor)[1] @ of_shares)
        slope = (values[1] - values[0]) / 2e-5
        assert float(tensors[argument].grad[n]) == pytest.approx(slope, rel=1e-6, abs=1e-9)


def test_leading_axes_are_systems_of_their_own():
    busy, weight = needs(12, 5)
    together = deadline_shares(
        torch.from_numpy(busy.reshape(3, 4)), torch.from_numpy(weight.reshape(3, 4)), 0.01
    )
    for i in range(3):
        row = slice(4 * i, 4 * i + 4)
        np.testing.assert_allclose(together[i], both(busy[row], weight[row], 0.01)[1], rtol=1e-9)
