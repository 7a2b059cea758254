"""Gains from traces: check values, inverses, and agreement with the package's own channel."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapipe_env.physics.rates import PAPER_LINKS, link_rate, uplink_snr
from collapipe_env.physics.trace_gains import (
    rate_gain,
    resource_element_power_dbm,
    rsrp_gain,
)

NOISE = 10.0 ** (-17.4) * 1e-3
"""-174 dBm/Hz."""


def test_the_check_values_of_received_power():
    epre = resource_element_power_dbm(46.0, 100)
    # 39.8 W on 1200 subcarriers.
    assert epre == pytest.approx(10.0 * math.log10(1000.0 * 10.0**1.6 / 1200.0), rel=1e-12)
    assert round(epre, 1) == 15.2
    loss = -10.0 * math.log10(rsrp_gain(np.array(-99.0), epre, 15.0))
    assert round(loss, 1) == 129.2


@given(st.floats(-150.0, -30.0), st.floats(-10.0, 40.0), st.floats(0.0, 20.0))
def test_received_power_and_gain_are_each_others_inverse(rsrp, epre, antenna):
    gain = rsrp_gain(np.array(rsrp), epre, antenna)
    assert 10.0 * math.log10(gain) + epre + antenna == pytest.approx(rsrp, abs=1e-10)


@given(st.floats(1e5, 1e8), st.floats(0.3, 1.0))
def test_the_gain_of_a_rate_has_that_rate(rate, efficiency):
    """Shannon's rate at that gain, less what the link lost, is the measured one."""
    gain = rate_gain(np.array(rate), 20e6, efficiency, NOISE, 0.2, least_rate=1e3, most_snr=1e15)
    snr = 0.2 * gain / (NOISE * 20e6)
    assert efficiency * link_rate(PAPER_LINKS, 20e6, snr) == pytest.approx(rate, rel=1e-9)


def test_a_rate_of_our_own_uplink_gives_our_gain():
    """With the whole band, full power and no loss the conversion is the package's uplink turned round."""
    gain = np.array([1e-9, 1e-11, 3e-13])
    rate = link_rate(PAPER_LINKS, 20e6, uplink_snr(np.ones(3), np.full(3, 0.2), gain, NOISE * 20e6))
    back = rate_gain(rate, 20e6, 1.0, NOISE, 0.2, least_rate=1.0, most_snr=1e9)
    np.testing.assert_allclose(back, gain, rtol=1e-10)


def test_rates_are_clipped_at_both_ends():
    rates = np.array([0.0, 1e5, 2e5, 1e12])
    low, same, above, high = rate_gain(rates, 20e6, 0.6, NOISE, 1.0, least_rate=1e5, most_snr=1000.0)
    assert low == same < above < high
    most = 0.95 * 0.6 * 20e6 * math.log2(1001.0)
    expected = (2.0 ** (most / 12e6) - 1.0) * NOISE * 20e6
    assert high == pytest.approx(expected, rel=1e-12)
    # 95 % of the largest rate: below the largest SNR.
    assert high / (NOISE * 20e6) < 1000.0
