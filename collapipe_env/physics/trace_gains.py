"""Gains of links from measured traces: from received power, from rates, and rates as capacities."""

from __future__ import annotations

import math

from collapipe_env.ground.arrays import Array, namespace

SUBCARRIERS = 12
"""Subcarriers of a resource block (3GPP TS 36.211 and 38.211)."""


def resource_element_power_dbm(bs_power_dbm: float, resource_blocks: int) -> float:
    """Energy per resource element, ``EPRE = P_bs - 10 log10(12 N_RB)`` [dBm].

    Args:
        bs_power_dbm: Power of the base station over its whole band [dBm].
        resource_blocks: Resource blocks of that band, ``N_RB``; 100 for 20 MHz of LTE.
    """
    return bs_power_dbm - 10.0 * math.log10(SUBCARRIERS * resource_blocks)


def rsrp_gain(rsrp_dbm: Array, epre_dbm: float, antenna_gain_db: float) -> Array:
    """Path gain of a reference signal's received power ([X]), ``10^((RSRP - EPRE - G_ant) / 10)``.

    It also holds for the uplink, because path loss and shadowing are the same both ways. With 46 dBm on 100
    resource blocks EPRE is 15.2 dBm; -99 dBm behind an antenna of 15 dBi is a path loss of 129.2 dB.

    Args:
        rsrp_dbm: Reference signal received power (RSRP), any shape [dBm].
        epre_dbm: Energy per resource element [dBm].
        antenna_gain_db: Gain of the base station's antenna, ``G_ant`` [dBi].
    """
    return 10.0 ** ((rsrp_dbm - epre_dbm - antenna_gain_db) / 10.0)


def rate_gain(
    rate: Array,
    bandwidth_hz: float,
    efficiency: float,
    noise_density: float,
    power_w: float,
    *,
    least_rate: float,
    most_snr: float,
) -> Array:
    """Path gain at which a declared link would have a measured rate ([X]).

    ``h = (2^(r / (eta W_tr)) - 1) N0 W_tr / P_tr``, with ``r`` clipped to ``[r_min, 0.95 eta W_tr
    log2(1 + SNR_max)]``. A measured rate also falls when a cell is busy: this takes load for a weak link.

    Args:
        rate: Measured rates, any shape [bit/s].
        bandwidth_hz: Bandwidth of the measured link, ``W_tr`` [Hz].
        efficiency: Share of Shannon's rate that the link reached, ``eta``, in (0, 1].
        noise_density: ``N0`` [W/Hz].
        power_w: Power that the measured link was sent with, ``P_tr`` [W].
        least_rate: ``r_min`` [bit/s], > 0.
        most_snr: ``SNR_max``, linear.
    """
    full = efficiency * bandwidth_hz
    most = 0.95 * full * math.log2(1.0 + most_snr)
    clipped = namespace(rate).clip(rate, least_rate, most)
    snr = namespace(rate).expm1(math.log(2.0) / full * clipped)
    return snr * (noise_density * bandwidth_hz / power_w)
