"""Rates from SNR, against integrals and 3GPP's table of throughput."""

import math

import numpy as np
import pytest
from oracles.links import efficiency, exponent
from round_support import ADAPTED
from scipy import integrate, stats

from collapipe_env.physics import packet_errors, rates
from collapipe_env.physics.rates import PAPER_LINKS, LinkLaw, fades_of

LAWS = [PAPER_LINKS, LinkLaw(ceiling=5.0), LinkLaw(0.6, 4.4, 0.1), LinkLaw(**ADAPTED)]
SNRS = 10.0 ** np.linspace(-4.0, 6.0, 101)


@pytest.mark.parametrize("law", LAWS)
def test_efficiency_is_the_scalar_one_and_its_slope_is_a_difference(law):
    found = rates.spectral_efficiency(law, SNRS)
    np.testing.assert_allclose(found, [efficiency(law, snr) for snr in SNRS], rtol=1e-12)
    edge = [0.01 * law.snr_floor, law.snr_floor, law.most_snr]
    corners = [at / gain for at in edge for gain in law.fades[:3]]
    for snr in SNRS:
        if all(abs(math.log(snr / at)) > 1e-4 for at in corners if 0.0 < at < math.inf):
            above, below = (efficiency(law, snr * math.exp(step)) for step in (1e-5, -1e-5))
            slope = rates.efficiency_and_slope(law, float(snr))[1]
            assert slope == pytest.approx((above - below) / 2e-5, rel=1e-6, abs=1e-9)


def test_the_truncated_bound_is_that_of_the_standard():
    """3GPP TR 36.942 table A.2: a = 0.6, floor -10 dB, ceiling 4.4 bit/s/Hz, which is reached at 22 dB."""
    law = LinkLaw(0.6, 4.4, 0.1)
    table = {-10: 0.08, -5: 0.24, 0: 0.6, 5: 1.23, 10: 2.08, 15: 3.02, 20: 4.00, 22: 4.39, 23: 4.4, 30: 4.4}
    for decibel, wanted in table.items():
        assert rates.spectral_efficiency(law, np.array(10.0 ** (decibel / 10))) == pytest.approx(
            wanted, abs=0.01
        )
    assert 10.0 * math.log10(law.most_snr) == pytest.approx(22.0, abs=0.1)


@pytest.mark.parametrize("branches", [1.0, 2.0, 4.0, 16.0])
def test_three_fades_give_the_mean_over_gamma_fading(branches):
    law = LinkLaw(0.75, 7.4, 0.1, fades_of(branches))
    gamma = stats.gamma(branches, scale=1.0 / branches)
    for power in range(6):
        moment = sum(w * g**power for g, w in zip(law.fades[:3], law.fades[3:], strict=True))
        assert moment == pytest.approx(gamma.moment(power) if power else 1.0, rel=1e-10)
    steady = law._replace(fades=rates.STEADY)
    for snr in (0.3, 3.0, 30.0, 300.0, 3e4):
        corners = sorted({at / snr for at in (0.01 * law.snr_floor, law.snr_floor, law.most_snr)})
        inside = [at for at in corners if at < gamma.ppf(1.0 - 1e-12)]
        mean, _ = integrate.quad(
            lambda g, snr=snr: efficiency(steady, snr * g) * gamma.pdf(g), 0.0, 60.0, points=inside, limit=200
        )
        assert rates.spectral_efficiency(law, np.array(snr)) == pytest.approx(mean, rel=0.06 / branches)


@pytest.mark.parametrize("law", LAWS)
def test_failures_are_the_scalar_ones_with_their_steepness(law):
    law = law._replace(waterfall_threshold=0.3)
    found = packet_errors.failure_exponent(law, SNRS)
    np.testing.assert_allclose(found, [exponent(law, snr) for snr in SNRS], rtol=1e-12)
    for snr in SNRS:
        if all(abs(math.log(snr / at)) > 1e-4 for at in (law.snr_floor, law.snr_floor / 10.0) if at > 0.0):
            above, below = (math.log(exponent(law, snr * math.exp(step))) for step in (1e-5, -1e-5))
            steep = packet_errors.failure_steepness(law, float(snr))
            assert steep == pytest.approx((below - above) / 2e-5, rel=1e-6, abs=1e-9)


def test_links_that_adapt_lose_what_all_their_transmissions_lose():
    law = LinkLaw(**ADAPTED, transmissions=4.0)
    usual = packet_errors.failure_exponent(law, np.array([0.1, 1.0, 1e3]))
    lost = 1.0 - packet_errors.survival(packet_errors.loss_exponent(usual, law.transmissions))
    np.testing.assert_allclose(lost, 0.1**4, rtol=1e-9)
    far_below = packet_errors.failure_exponent(law, np.array(0.05))
    assert packet_errors.survival(packet_errors.loss_exponent(far_below, 4.0)) < 1e-5
    assert packet_errors.expected_transmissions(far_below, 4.0) == pytest.approx(4.0)
