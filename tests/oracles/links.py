"""Rates and packet errors of a link in plain scalar Python (`system_model.md` sections 3 and 7)."""

import math


def efficiency(law, snr):
    """Mean over the fading within a round of the truncated, attenuated Shannon bound [bit/s/Hz]."""
    f = law.fades
    pairs = (f.low, f.low_weight), (f.middle, f.middle_weight), (f.high, f.high_weight)
    return sum(weight * _steady(law, gain * snr) for gain, weight in pairs if weight > 0.0)


def _steady(law, snr):
    found = min(law.attenuation * math.log2(1.0 + max(snr, law.snr_floor)), law.ceiling)
    return found if snr >= law.snr_floor else found * max(snr / law.snr_floor, 0.01)


def exponent(law, snr):
    """``-log`` of the probability that one transmission succeeds."""
    if law.adapted_exponent > 0.0:
        return law.adapted_exponent * min(max(law.snr_floor / snr, 1.0), 10.0) ** 8
    return law.waterfall_threshold / snr


def tries_and_success(p, snr):
    """Expected transmissions of a packet, and the probability that it arrives."""
    success = math.exp(-exponent(p.link, snr))
    tries = sum((1.0 - success) ** k for k in range(int(p.link.transmissions)))
    return tries, tries * success if p.lossy else 1.0
