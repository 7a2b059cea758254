"""Rates of gains over rates as capacities: against closed forms, and the page's table."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from tables import traces as tool  # noqa: E402


@pytest.mark.parametrize("share", [1.0, 0.25, 0.01])
@pytest.mark.parametrize("power", [1.0, 0.1])
def test_the_ratio_is_that_of_logarithms(share, power):
    """``log2(1 + p snr / beta) / log2(1 + snr)``, as the declared link has the scenario's band and noise."""
    rates = np.array([0.5e6, 5e6, 40e6])
    snr = 2.0 ** (rates / (0.6 * 20e6)) - 1.0
    expected = np.log2(1.0 + power * snr / share) / np.log2(1.0 + snr)
    np.testing.assert_allclose(tool.over_capacity(rates, share, power), expected, rtol=1e-9)


def test_weak_links_gain_from_narrow_bands_and_lose_with_power():
    """At small SNR a rate of a gain hardly depends on the share, and is proportional to power."""
    weak = np.array([0.1e6])
    assert tool.over_capacity(weak, 0.25, 1.0) == pytest.approx(4.0, rel=0.02)
    assert tool.over_capacity(weak, 0.25, 0.1) == pytest.approx(0.4, rel=0.02)
    # Rates that are clipped lose what is above the limit.
    most = 0.95 * math.log2(1.0 + 1e3)
    assert tool.over_capacity(np.array([2.0 * most * 0.6 * 20e6]), 1.0, 1.0) == pytest.approx(0.5, rel=1e-9)


def test_the_page_shows_the_table():
    assert tool.table() in (ROOT / "docs" / "traces.md").read_text(encoding="utf-8")
