"""Laws of the time that a device stays on, or off: quantiles, and residual times in the stationary law.

An episode begins in the middle of a stay. The remaining time has the density ``S(t) / m`` with the survival
function ``S`` and the mean ``m`` of the stay (equilibrium law of renewal theory).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from collapipe_env.ground.arrays import Array, Constant, namespace

GRID = 4096
"""Size of the table of residual times of a stay that is not exponential."""
LARGEST_EXPONENT = 37.0
"""``-ln u`` of the smallest uniform number, 2^-53, rounded up."""


@dataclass(frozen=True)
class WeibullStay:
    """Weibull law with a given mean; the exponential one at shape 1.

    Attributes:
        mean_s: Mean [s].
        shape: ``k`` > 0: above 1 long stays end sooner, below 1 later.
    """

    mean_s: float
    shape: float

    @property
    def scale_s(self) -> float:
        """Scale ``lambda = mean / Gamma(1 + 1 / k)`` [s]."""
        return self.mean_s / math.gamma(1.0 + 1.0 / self.shape)

    def drawn(self, u: Array) -> Array:
        """Stays [s] from uniform numbers in (0, 1), any shape: ``lambda (-ln u)^(1/k)``."""
        exponent = -namespace(u).log(u)
        if self.shape != 1.0:
            exponent = exponent ** (1.0 / self.shape)
        return self.scale_s * exponent

    def left(self, u: Array) -> Array:
        """Time left of a stay in the stationary law [s], from uniform numbers in (0, 1), any shape.

        Its distribution function is ``P(1/k, (t / lambda)^k)`` with the regularised incomplete gamma
        function, so its quantile is ``lambda P^-1(1/k, u)^(1/k)``. A table of it over ``-ln(1 - u)`` is read
        with linear interpolation. At shape 1 it is the law of the stay itself.
        """
        if self.shape == 1.0:
            return self.drawn(u)
        xp = namespace(u)
        # The upper tail in full precision: u stands for 1 - u, which has the same law.
        place = -xp.log(u) * (GRID / LARGEST_EXPONENT)
        index = xp.clip(xp.astype(xp.floor(place), xp.int64), 0, GRID - 1)
        table = self._table.like(u)
        low, high = table[index], table[index + 1]
        return low + (place - xp.astype(index, u.dtype)) * (high - low)

    @cached_property
    def _table(self) -> Constant:
        from scipy.special import gammaincinv  # slow to import, and few stays need it

        exponents = np.linspace(0.0, LARGEST_EXPONENT, GRID + 1)
        below = gammaincinv(1.0 / self.shape, -np.expm1(-exponents))
        return Constant(self.scale_s * below ** (1.0 / self.shape))


@dataclass(frozen=True)
class LognormalStay:
    """Lognormal law with a given mean.

    Attributes:
        mean_s: Mean [s].
        deviation: Standard deviation of the logarithm, >= 0; 0 for stays of the mean.
    """

    mean_s: float
    deviation: float

    def drawn(self, normal: Array) -> Array:
        """Stays [s] from standard normal numbers, any shape."""
        s = self.deviation
        return self.mean_s * namespace(normal).exp(s * normal - 0.5 * s * s)

    def left(self, u: Array, normal: Array) -> Array:
        """Time left of a stay in the stationary law [s]: a uniform fraction of a length-weighted stay.

        Weighted by its length, a lognormal stay is lognormal with the same deviation, and ``exp(s^2)`` times
        as long.

        Args:
            u: Uniform numbers in (0, 1), any shape.
            normal: Standard normal numbers of that shape.
        """
        return u * math.exp(self.deviation * self.deviation) * self.drawn(normal)
