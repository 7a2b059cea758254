"""Power laws of the scaling study."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

CONFIDENCE = 0.95


@dataclass(frozen=True)
class PowerLaw:
    """``seconds ~ size^exponent`` over the upper half of a range.

    Attributes:
        exponent: By least squares of the logarithms.
        low: Lower end of the 95 % interval (Student's t over the points); NaN with fewer than 3 points.
        high: Its upper end.
        smallest: Smallest size that was used.
        largest: Largest size.
        whole: Exponent over the whole range.
    """

    exponent: float
    low: float
    high: float
    smallest: int
    largest: int
    whole: float


def power_law(values: Mapping[int, float]) -> PowerLaw:
    """Fit the sizes from the geometric mean of the range on, where fixed costs weigh least.

    Args:
        values: Positive values by size, at least two sizes.
    """
    sizes = sorted(values)
    upper = [size for size in sizes if size >= math.sqrt(sizes[0] * sizes[-1])]
    upper = upper if len(upper) > 1 else sizes[-2:]
    fit = stats.linregress(np.log(upper), np.log([values[size] for size in upper]))
    freedom = len(upper) - 2
    margin = stats.t.ppf(0.5 + CONFIDENCE / 2.0, freedom) * fit.stderr if freedom > 0 else math.nan
    whole = stats.linregress(np.log(sizes), np.log([values[size] for size in sizes]))
    return PowerLaw(
        exponent=float(fit.slope),
        low=float(fit.slope - margin),
        high=float(fit.slope + margin),
        smallest=upper[0],
        largest=upper[-1],
        whole=float(whole.slope),
    )
