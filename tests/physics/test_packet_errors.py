"""Repeats on links, as one would write them on paper; decibels, and compute power."""

from decimal import Decimal, localcontext

import numpy as np
import pytest

from collapipe_env.physics import packet_errors, radio
from collapipe_env.physics.energy import compute_power


def test_decibels():
    assert radio.db_to_linear(30.0) == pytest.approx(1000.0)
    assert radio.db_to_linear(-3.0) == pytest.approx(0.501187, rel=1e-5)


@pytest.mark.parametrize("most", [1, 2, 3, 16, 1000])
def test_repeats_are_those_of_the_truncated_geometric_distribution(most):
    exponent = np.array([0.0, 1e-12, 1e-3, 0.3, 1.0, 4.0, 20.0, 40.0, 79.0])
    with localcontext(prec=80):  # where q is close to 0 or 1, doubles lose all digits
        qs = [1 - (-Decimal(x)).exp() for x in exponent]
        tries = [float(1 + sum(q**k for k in range(1, most))) for q in qs]
        lost = [float(q**most) for q in qs]
        arrives = [float(1 - q**most) for q in qs]
    np.testing.assert_allclose(packet_errors.expected_transmissions(exponent, most), tries, rtol=1e-13)
    found = packet_errors.survival(packet_errors.loss_exponent(exponent, most))
    np.testing.assert_allclose(found, arrives, rtol=1e-13)
    assert (found[np.array(lost) < 1e-17] == 1.0).all()
    hopeless = np.array([1e5, np.inf])
    np.testing.assert_allclose(packet_errors.expected_transmissions(hopeless, most), most, rtol=1e-13)
    assert (packet_errors.survival(packet_errors.loss_exponent(hopeless, most)) < 1e-31).all()


def test_a_bit_on_a_hop_is_repeated_until_it_arrives_or_is_given_up():
    rate, exponent = np.array([1e6, np.inf]), np.array([np.log(5.0), 0.0])
    np.testing.assert_allclose(packet_errors.seconds_per_bit(rate, exponent, 1.0), [1e-6, 0.0])
    np.testing.assert_allclose(packet_errors.seconds_per_bit(rate, exponent, 2.0), [1.8e-6, 0.0])
    np.testing.assert_allclose(packet_errors.seconds_per_bit(rate, exponent, 1e3), [5e-6, 0.0])


def test_compute_power_of_both_kinds_of_profile():
    speed = np.array([16e9, 8e9, 16e9, 8e9])
    power = compute_power(
        speed, np.full(4, 16.0), np.array([1e-27, 1e-27, 0, 0]), np.array([0, 0, 6.0, 6.0]), np.full(4, 16e9)
    )
    np.testing.assert_allclose(power, [1.0, 0.125, 6.0, 3.0])
