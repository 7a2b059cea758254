"""Rates of the four links: attenuated, truncated Shannon (`system_model.md` section 3).

At an SNR a link carries ``min(a log2(1 + SNR), ceiling)`` bit/s/Hz, as 3GPP TR 36.942 annex A maps SNR to
throughput [X]: ``a`` stands for what real codes and pilots lose, and the ceiling for the largest format.
Below the floor the most robust format is repeated, so that a bit keeps its energy: the rate falls with the
SNR, down to a hundredth, and packets fail (:mod:`.packet_errors`). The paper's form is ``a = 1`` without
floor and ceiling [R].

The gain of a round is a mean over the round. What fading is left between the packets of a round is averaged
over: their gains are that of the round times ``g``, Gamma distributed with mean 1 and ``k`` branches, and the
sender adapts to each. The mean ``E[min(a log2(1 + SNR g), ceiling)]`` is taken at three nodes of the
Gauss-Laguerre rule of that distribution.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from collapipe_env.ground.arrays import Array, at_least, at_most, log1p

LN2 = math.log(2.0)
MOST_REPEATED = 0.01
"""Least rate below the floor, over that at the floor: repetition gains at most 20 dB."""


class Fades(NamedTuple):
    """Three gains of packets over that of their round, with their weights, which sum to 1.

    Attributes:
        low: The least gain; 1 where the gain of a round is that of all its packets.
    """

    low: float
    middle: float
    high: float
    low_weight: float
    middle_weight: float
    high_weight: float


STEADY = Fades(1.0, 1.0, 1.0, 1.0, 0.0, 0.0)
"""No fading within a round."""


class LinkLaw(NamedTuple):
    """How SNR becomes rate and packet errors, on all links alike; the defaults are :data:`PAPER_LINKS`.

    Attributes:
        attenuation: ``a``, in (0, 1].
        ceiling: Largest spectral efficiency [bit/s/Hz]; infinite for none.
        snr_floor: SNR of the most robust format (linear); 0 for none.
        fades: Fading within a round.
        waterfall_threshold: ``m`` of the paper's packet errors (linear).
        adapted_exponent: ``-log(1 - target)`` of links that adapt to a target error rate; 0 for others.
        transmissions: Most transmissions of a packet ``R``: 1 unless lost ones are sent again.
    """

    attenuation: float = 1.0
    ceiling: float = math.inf
    snr_floor: float = 0.0
    fades: Fades = STEADY
    waterfall_threshold: float = 0.0
    adapted_exponent: float = 0.0
    transmissions: float = 1.0

    @property
    def most_snr(self) -> float:
        """SNR from which on a steady link is no faster (linear)."""
        efficiency = self.ceiling / self.attenuation
        return 2.0**efficiency - 1.0 if efficiency < 1000.0 else math.inf


PAPER_LINKS = LinkLaw()
"""Shannon's rate, and links that lose nothing."""


def fades_of(branches: float | None) -> Fades:
    """Gauss-Laguerre nodes of Gamma-distributed gains with mean 1.

    They give means of polynomials up to the fifth degree exactly.

    Args:
        branches: ``k``, > 0: 1 is Rayleigh fading; ``None`` for no fading.
    """
    if branches is None:
        return STEADY
    from scipy.special import roots_genlaguerre

    nodes, weights = roots_genlaguerre(3, branches - 1.0)
    return Fades(*(nodes / branches).tolist(), *(weights / weights.sum()).tolist())


def steady_efficiency(link: LinkLaw, snr: Array) -> Array:
    """``min(a log2(1 + max(SNR, floor)), ceiling)`` [bit/s/Hz], of the shape of ``snr``.

    Below the floor it is times ``max(SNR / floor, 0.01)``.
    """
    efficiency = at_most((link.attenuation / LN2) * log1p(at_least(snr, link.snr_floor)), link.ceiling)
    if link.snr_floor > 0.0:
        efficiency = efficiency * at_most(at_least(snr / link.snr_floor, MOST_REPEATED), 1.0)
    return efficiency


def spectral_efficiency(link: LinkLaw, snr: Array) -> Array:
    """Mean spectral efficiency over the fading within a round [bit/s/Hz], of the shape of ``snr``.

    Args:
        snr: Signal to noise-plus-interference ratio at the round's gain, >= 0.
    """
    fades = link.fades
    if fades.low == 1.0:
        return steady_efficiency(link, snr)
    return (
        fades.low_weight * steady_efficiency(link, fades.low * snr)
        + fades.middle_weight * steady_efficiency(link, fades.middle * snr)
        + fades.high_weight * steady_efficiency(link, fades.high * snr)
    )


def efficiency_and_slope(link: LinkLaw, snr: float) -> tuple[float, float]:
    """:func:`spectral_efficiency` at one SNR and its slope ``d / d log SNR`` [bit/s/Hz], 0 at the ceiling."""
    fades = link.fades
    low, low_slope = _steady_and_slope(link, fades.low * snr)
    if fades.low == 1.0:
        return low, low_slope
    middle, middle_slope = _steady_and_slope(link, fades.middle * snr)
    high, high_slope = _steady_and_slope(link, fades.high * snr)
    efficiency = fades.low_weight * low + fades.middle_weight * middle + fades.high_weight * high
    slope = fades.low_weight * low_slope + fades.middle_weight * middle_slope + fades.high_weight * high_slope
    return efficiency, slope


def _steady_and_slope(link: LinkLaw, snr: float) -> tuple[float, float]:
    efficiency = steady_efficiency(link, snr)
    if snr < link.snr_floor:
        return efficiency, efficiency if snr > MOST_REPEATED * link.snr_floor else 0.0
    if efficiency >= link.ceiling:
        return efficiency, 0.0
    return efficiency, (link.attenuation / LN2) * snr / (1.0 + snr)


def link_rate(link: LinkLaw, bandwidth_hz: Array, snr: Array) -> Array:
    """Rate of a link [bit/s].

    Args:
        bandwidth_hz: Its band [Hz].
        snr: Signal to noise-plus-interference ratio in that band, >= 0.
    """
    return bandwidth_hz * spectral_efficiency(link, snr)


def uplink_snr(bandwidth_share: Array, power: Array, gain: Array, noise_w: float) -> Array:
    """SNR of an OFDMA uplink, ``P h / (beta (N0 W + I_ext))``, with the whole power in the share.

    Args:
        bandwidth_share: ``beta`` (..., N), in (0, 1].
        power: CU powers (..., N) [W].
        gain: ``h`` (..., N).
        noise_w: ``N0 W_up + I_ext`` over the whole band [W].
    """
    return power * gain / (bandwidth_share * noise_w)


def full_band_rate(link: LinkLaw, bs_power: float, gain: Array, noise_w: float, bandwidth_hz: float) -> Array:
    """Downlink rate with the whole band, at ``P_bs h / (N0 W_dl + I_ext)`` [bit/s].

    The power is spread over the band: a cluster's share ``beta`` of it has ``beta`` times this rate.

    Args:
        bs_power: ``P_bs`` [W].
        gain: ``h`` of any shape; for a broadcast that of the weakest CU.
        noise_w: ``N0 W_dl + I_ext`` [W].
        bandwidth_hz: ``W_dl`` [Hz].
    """
    return link_rate(link, bandwidth_hz, (bs_power / noise_w) * gain)
