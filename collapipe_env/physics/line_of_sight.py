"""Probabilities of a line of sight by distance: table 7.4.2-1 of 3GPP TR 38.901.

They depend on the distance and the heights of both antennas, are called as the path losses of
:mod:`.path_loss` are, and work on arrays of any library.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from collapipe_env.ground.arrays import Array, at_least, at_most, exp, where


class Antennas(NamedTuple):
    """Where a link's antennas are, and at which frequency they work.

    Attributes:
        carrier_ghz: Carrier ``f_c`` [GHz].
        higher_m: Height of the higher one ``h_BS`` [m].
        lower_m: Height of the lower one ``h_UT`` [m].
    """

    carrier_ghz: float
    higher_m: float
    lower_m: float


@dataclass(frozen=True)
class Street:
    """Probability of a line of sight in streets, ``18 / d + exp(-d / D)(1 - 18 / d)`` beyond 18 m.

    Attributes:
        decay_m: ``D``.
        roofs: Whether it grows for a lower antenna above 13 m (UMa's ``C'(h_UT)``, up to 23 m).
    """

    decay_m: float
    roofs: bool = False

    def __call__(self, distance_m: Array, antennas: Antennas) -> Array:
        """Probabilities of the shape of the distances."""
        ratio = 18.0 / at_least(distance_m, 18.0)
        seen = ratio + exp(-distance_m / self.decay_m) * (1.0 - ratio)
        if self.roofs and antennas.lower_m > 13.0:
            above = ((min(antennas.lower_m, 23.0) - 13.0) / 10.0) ** 1.5
            hundreds = distance_m / 100.0
            far = 1.25 * hundreds * hundreds * hundreds * exp(-distance_m / 150.0)
            seen = at_most(seen * (1.0 + above * far), 1.0)
        return seen


@dataclass(frozen=True)
class Office:
    """Probability of a line of sight in offices: 1, then two exponential falls.

    Attributes:
        first: Where the first fall begins, and its decay [m].
        second: The same of the second.
        rest: Factor of the second.
    """

    first: tuple[float, float]
    second: tuple[float, float]
    rest: float

    def __call__(self, distance_m: Array, antennas: Antennas) -> Array:  # noqa: ARG002 - one form for all
        """Probabilities of the shape of the distances."""
        near = exp(-at_least(distance_m - self.first[0], 0.0) / self.first[1])
        far = self.rest * exp(-at_least(distance_m - self.second[0], 0.0) / self.second[1])
        return where(distance_m < self.second[0], near, far)


@dataclass(frozen=True)
class Factory:
    """Probability of a line of sight among clutter, ``exp(-d / k)``, ``k = -size / ln(1 - density)``.

    With a height, ``k`` grows by the part of the path that runs above the clutter, ``(h_BS - h_UT) /
    (h_c - h_UT)``: not at all for a higher antenna within it, without bound for a lower one above it.

    Attributes:
        size_m: Typical size of the clutter.
        density: Share of the floor that it covers.
        height_m: Its height ``h_c``; 0 where both antennas are within it.
    """

    size_m: float
    density: float
    height_m: float = 0.0

    def __call__(self, distance_m: Array, antennas: Antennas) -> Array:
        """Probabilities of the shape of the distances."""
        fall = math.log(1.0 - self.density) / self.size_m
        if self.height_m > 0.0:
            within, rise = self.height_m - antennas.lower_m, antennas.higher_m - antennas.lower_m
            fall *= min(max(within, 0.0) / max(rise, 1e-9), 1.0)
        return exp(fall * distance_m)
