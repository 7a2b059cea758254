"""Walks in a square: devices that pause and go, moved exactly over any time.

Places are coordinates in ``[0, side]``. A walk is a dictionary of float64 arrays (R, N, K); functions return
new arrays. Moving by 0 s leaves all of them as they are, to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from collapipe_env.ground.arrays import Array, at_least, at_most, namespace
from collapipe_env.physics.motion import MOST_LEGS, NUMBERS_PER_LEG, paused_and_gone

Walk = Mapping[str, Array]
"""Arrays (R, N, K) by name."""
NAMES = ("x", "y", "target_x", "target_y", "speed", "pause")
"""Names of the arrays of a walk."""

NUMBERS_TO_START = 7
"""Uniform numbers of a device that pauses and goes, at the start of an episode."""
MEAN_DISTANCE = (2.0 + math.sqrt(2.0) + 5.0 * math.asinh(1.0)) / 15.0
"""Mean distance of two uniform points of the unit square, 0.5214."""

_NEWTON_STEPS = 6


class PauseGo(NamedTuple):
    """Law of devices that pause and go.

    Attributes:
        side: Side of the square [m].
        pause_s: Mean of the pauses, which are exponential [s].
        slowest: Least speed of a leg [m/s].
        fastest: Greatest speed of a leg [m/s]; speeds are uniform between the two.
    """

    side: float
    pause_s: float
    slowest: float
    fastest: float

    @property
    def pausing_share(self) -> float:
        """Share of the time in which a device pauses, in (0, 1)."""
        slowest, fastest = self.slowest, self.fastest
        seconds_per_metre = 1.0 / slowest
        if fastest > slowest:
            seconds_per_metre = math.log(fastest / slowest) / (fastest - slowest)
        return self.pause_s / (self.pause_s + MEAN_DISTANCE * self.side * seconds_per_metre)


def start_pausing_and_going(law: PauseGo, x: Array, y: Array, u: Array) -> dict[str, Array]:
    """Walks in their stationary law, where the given places are uniform.

    A device that pauses stands at its place for an exponential time; the rest of such a pause has the law of
    a whole one. A device that walks is somewhere on a leg; long and slow legs take more of the time.

    Args:
        x: Places of devices that pause (R, N, K) [m].
        y: Other coordinate of these places [m].
        u: Uniform numbers (R, N, K, NUMBERS_TO_START).

    Returns:
        ``x``, ``y``, ``target_x``, ``target_y`` [m], ``speed`` [m/s], 0 in a pause, and ``pause``, the
        rest of the pause, 0 on a leg [s].
    """
    xp = namespace(u)
    pausing = u[..., 0] < law.pausing_share
    from_x, from_y, to_x, to_y = _stationary_leg(law.side, u[..., 1:6])
    # In time, the density of speeds falls like 1 / speed.
    speed = law.slowest * xp.exp(u[..., 6] * math.log(law.fastest / law.slowest))
    # A device that pauses needs no leg, so the leg's first number is free.
    pause = -law.pause_s * xp.log(u[..., 1])
    return {
        "x": xp.where(pausing, x, from_x),
        "y": xp.where(pausing, y, from_y),
        "target_x": xp.where(pausing, x, to_x),
        "target_y": xp.where(pausing, y, to_y),
        "speed": xp.where(pausing, 0.0, at_most(speed, law.fastest)),
        "pause": xp.where(pausing, pause, 0.0),
    }


def _stationary_leg(side: float, u: Array) -> tuple[Array, Array, Array, Array]:
    """Place on a leg between two uniform points at a random time, and the end of that leg.

    A chord of length ``c`` counts with ``c^4`` in the measure of lines: ``c^2`` for the two points on it,
    ``c`` for their change of coordinates, ``c`` for the time that a leg takes. On a chord of length 1 the
    place has the density ``6 s (1 - s)``, and the remaining way ``r <= 1 - s`` has one in proportion
    to ``s + 2 r``.

    Args:
        side: Side of the square [m].
        u: Uniform numbers (..., 5).

    Returns:
        Coordinates of the place and of the end (...) [m].
    """
    xp = namespace(u)
    # Chords y = b + t x of the unit square, 0 <= t <= 1; the other directions are turned from these.
    t = _chord_slope(u[..., 0])
    # Chords with b in [0, 1 - t] cross it. The others cut off a corner: they are w times as long, and with
    # the weight w^4 each corner counts as t / 5.
    corner, crossing = 0.2 * t, 1.0 - t
    q = u[..., 1] * (crossing + 2.0 * corner)
    low, high = q < corner, q > corner + crossing
    beside = at_least(xp.where(low, q, crossing + 2.0 * corner - q), 0.0)
    w = xp.where(low | high, at_most(beside / at_least(corner, 1e-300), 1.0) ** 0.2, 1.0)
    b = xp.where(low, t * (w - 1.0), xp.where(high, 1.0 - t * w, q - corner))
    first = xp.where(low, 1.0 - w, 0.0)
    # The inverse of 3 s^2 - 2 s^3, and that of r (s + r) / (1 - s).
    s = 0.5 - xp.sin(xp.asin(1.0 - 2.0 * u[..., 2]) / 3.0)
    v = u[..., 3] * (1.0 - s)
    r = 2.0 * v / (s + xp.sqrt(s * s + 4.0 * v))
    along = [first + w * s, first + w * (s + r)]
    ends = [(x, b + t * x) for x in along]
    # One of the square's eight symmetries.
    turn = xp.floor(8.0 * u[..., 4])
    swap, east, north = turn % 2.0 >= 1.0, turn % 4.0 >= 2.0, turn >= 4.0
    found = []
    for x, y in ends:
        x, y = xp.where(swap, y, x), xp.where(swap, x, y)
        found += [xp.where(east, 1.0 - x, x), xp.where(north, 1.0 - y, y)]
    x, y, end_x, end_y = (xp.clip(side * place, 0.0, side) for place in found)
    return x, y, end_x, end_y


def _chord_slope(u: Array) -> Array:
    """Slopes ``t`` in [0, 1] of density ``sqrt(1 + t^2) (1 - 0.6 t)``: the inverse of its integral."""
    xp = namespace(u)
    whole = 0.5 * (math.sqrt(2.0) + math.asinh(1.0)) - 0.2 * (2.0**1.5 - 1.0)
    t = u
    for _ in range(_NEWTON_STEPS):
        root = xp.sqrt(1.0 + t * t)
        integral = 0.5 * (t * root + xp.asinh(t)) - 0.2 * (root * root * root - 1.0)
        t = xp.clip(t - (integral - whole * u) / (root * (1.0 - 0.6 * t)), 0.0, 1.0)
    return t


def parts(walk: Walk) -> tuple[Array, Array, Array, Array, Array, Array]:
    """Return the arrays of a walk in the order of :data:`NAMES`."""
    return walk["x"], walk["y"], walk["target_x"], walk["target_y"], walk["speed"], walk["pause"]


def pause_and_go(law: PauseGo, walk: Walk, there: Array, seconds: Array, u: Array) -> dict[str, Array]:
    """Walks after some seconds; see :func:`collapipe_env.physics.motion.paused_and_gone`.

    Args:
        walk: As :func:`start_pausing_and_going` returns it; not written to.
        there: 1 for slots of devices, 0 for others (N, K), which do not move.
        seconds: Time to move by (R,), >= 0 [s].
        u: Uniform numbers (R, at least N K MOST_LEGS NUMBERS_PER_LEG): device by device, leg by leg.

    Returns:
        The walks, by the same names.
    """
    before = parts(walk)
    each = MOST_LEGS * NUMBERS_PER_LEG
    mine = namespace(u).reshape(u[:, : math.prod(there.shape) * each], (*before[0].shape, each))
    left = seconds[:, None, None] * there
    moved = paused_and_gone(*law, *before, left, [mine[..., i] for i in range(each)])
    return dict(zip(NAMES, moved, strict=True))
