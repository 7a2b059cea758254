"""Shares of a common deadline, against bisection."""

import numpy as np
import pytest
from scipy.optimize import brentq

from collapipe_env.agents.learned.graph.shares import write_deadline_shares
from collapipe_env.ground.compiled import called_from_python

write = called_from_python(write_deadline_shares)


def shares(stays, inverse, floor):
    share = np.empty(len(stays))
    write(stays, inverse, floor, share)
    return share


def needs(number, seed, spread=1.0):
    rng = np.random.default_rng(seed)
    return np.exp(spread * rng.standard_normal((2, number)))


@pytest.mark.parametrize("number", [2, 4, 16, 64])
@pytest.mark.parametrize("floor", [0.0, 0.08, 0.5, 0.9])
@pytest.mark.parametrize("seed", range(3))
def test_shares_are_those_of_the_deadline_that_bisection_finds(number, floor, seed):
    stays, inverse = needs(number, seed)
    u, floor = inverse / number, floor / number
    ends = ((stays + u).max() - 1e-12, stays.max() + 2 * number * u.max())
    deadline = brentq(lambda d: np.maximum(u / (d - stays), floor).sum() - 1.0, *ends, xtol=1e-13)
    share = shares(stays, inverse, floor)
    np.testing.assert_allclose(share, np.maximum(u / (deadline - stays), floor), rtol=1e-8)
    assert share.sum() == pytest.approx(1.0, abs=1e-12)
    above = share > floor * 1.001
    np.testing.assert_allclose((stays + u / share)[above], deadline, rtol=1e-8)
    if floor * number == 0.9:
        assert not above.all()


@pytest.mark.parametrize(
    ("stays", "inverse"),
    [
        ([-6, 6, 0, 3], [6, -6, 0, 2]),
        ([6, 6, 6, 6], [-3, -3, -3, 3]),
        ([-6, -6, -6, -6], [6, -6, -6, -6]),
        ([-6] * 16, [6] + [-6] * 15),
        ([6] + [-6] * 63, [-5] + [6] * 63),
    ],
)
def test_very_different_sizes(stays, inverse):
    stays, inverse = 10.0 ** np.array(stays, float), 10.0 ** np.array(inverse, float)
    share = shares(stays, inverse, 0.0)
    assert np.isfinite(share).all()
    assert (share > 0.0).all()
    assert share.sum() == pytest.approx(1.0, abs=1e-12)
    ends = stays + inverse / len(stays) / share
    np.testing.assert_allclose(ends, ends.max(), rtol=1e-9)


def test_the_shares_of_those_who_end_long_before_a_dead_link_are_finite():
    """A cluster is busy for 5e34 s, and has all of the band: another needs 1e-35 of it to end as late."""
    stays, inverse = np.exp([80.0, 0.0, 1.0]), np.exp([2.0, 1.0, 80.0])
    np.testing.assert_allclose(shares(stays[:2], inverse[:2], 0.0), [1.0, np.exp(-79.0) / 2], rtol=1e-9)
    share = shares(stays, inverse, 0.1)  # what one is busy for, another uploads
    assert (share >= 0.1).all()
    assert share.sum() == pytest.approx(1.0, abs=1e-12)
