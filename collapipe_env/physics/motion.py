"""Motion of devices: legs and pauses, courses out of a circle, shadowing ([X]).

The formulas hold for one device or for arrays of them.
"""

from __future__ import annotations

import math

from collapipe_env.ground.arrays import Array, at_least, at_most, expm1, hypot, sqrt, where

MOST_LEGS = 8
"""Legs that a device may begin in one round; at the end of the last one it waits for the round to end."""
NUMBERS_PER_LEG = 4
"""Uniform numbers of a pause and the leg after it: pause, target (2), speed."""


def walked(
    x: Array, y: Array, to_x: Array, to_y: Array, speed: Array, left: Array
) -> tuple[Array, Array, Array, Array]:
    """Place of a device that walks straight to its target, until it arrives or the time is over.

    Args:
        x: Its place, of any shape [m].
        y: The other coordinate.
        to_x: Its target [m].
        to_y: The other coordinate.
        speed: Its speed, 0 where it stands [m/s].
        left: Time to move by, >= 0 [s].

    Returns:
        ``x``, ``y`` [m], the time that is left [s], and whether the device has arrived with time left.
    """
    walking = speed > 0.0
    away_x, away_y = to_x - x, to_y - y
    needed = hypot(away_x, away_y) / where(walking, speed, 1.0)
    arrives = walking & (needed < left)
    part = where(walking & (needed >= left), at_most(left / at_least(needed, 1e-200), 1.0), 0.0)
    x = where(arrives, to_x, x + part * away_x)
    y = where(arrives, to_y, y + part * away_y)
    return x, y, where(arrives, left - needed, where(walking, 0.0, left)), arrives


def paused(speed: Array, pause: Array, left: Array) -> tuple[Array, Array, Array]:
    """Pause of a device that stands, until the pause ends or the time is over.

    Args:
        speed: Its speed, 0 where it stands, of any shape [m/s].
        pause: Time left of its pause [s].
        left: Time to move by, >= 0 [s].

    Returns:
        The time left of the pause, the time that is left after it [s], and whether the device departs.
    """
    stands = speed == 0.0
    departs, waits = stands & (pause < left), stands & (pause >= left)
    rest = where(departs, 0.0, where(waits, pause - left, pause))
    return rest, where(departs, left - pause, where(waits, 0.0, left)), departs


def seconds_inside(radius: float, x: Array, y: Array, velocity_x: Array, velocity_y: Array) -> Array:
    """Time until a straight course from inside leaves a circle [s], infinite for a device that stands still.

    The greater root of ``|place + velocity t| = radius``; it is meaningless for places outside.

    Args:
        radius: Radius of the circle around the origin [m].
        x: Place, of any shape [m].
        y: The other coordinate.
        velocity_x: Velocity [m/s].
        velocity_y: The other component.
    """
    square, along = velocity_x * velocity_x + velocity_y * velocity_y, x * velocity_x + y * velocity_y
    moves = square > 0.0
    room = at_least(radius * radius - x * x - y * y, 0.0)
    root = sqrt(along * along + square * room)
    # The one of its two forms without cancellation.
    ahead = where(
        along > 0.0, room / at_least(along + root, 1e-300), (root - along) / where(moves, square, 1.0)
    )
    return where(moves, ahead, math.inf)


def leaves_on_leg(
    radius: float, most_s: float, x: Array, y: Array, way_x: Array, way_y: Array, speed: Array
) -> Array:
    """Time until a device that walks straight to its target leaves a circle [s].

    Args:
        radius: Radius of the circle around the origin [m].
        most_s: Longest time to report [s].
        x: Its place, of any shape [m].
        y: The other coordinate.
        way_x: Way from there to its target [m].
        way_y: The other component.
        speed: Its speed, 0 where it stands [m/s].

    Returns:
        At most ``most_s``, which is also the value where the target is inside; 0 outside.
    """
    left = hypot(way_x, way_y)
    pace = speed / at_least(left, 1e-300)
    ahead = left / where(speed > 0.0, speed, 1.0)
    away = seconds_inside(radius, x, y, pace * way_x, pace * way_y)
    away = where(away <= ahead, away, most_s)
    return where(hypot(x, y) <= radius, at_most(away, most_s), 0.0)


def weights_of(forgotten: Array) -> tuple[Array, Array]:
    """Weights ``rho`` of the past and ``sqrt(1 - rho^2)`` of the new noise.

    Args:
        forgotten: ``1 - rho``, in [0, 1], of any shape.
    """
    return 1.0 - forgotten, sqrt(forgotten * (2.0 - forgotten))


def correlated(before: Array, lag: Array, noise: Array) -> Array:
    """``rho S + sqrt(1 - rho^2) noise`` with ``rho = exp(-lag)``; for a lag of 0 ``S`` itself.

    Args:
        before: ``S``, any shape.
        lag: Distances or times in decorrelation lengths, >= 0, broadcast.
        noise: Independent numbers of the stationary law.
    """
    kept, fresh = weights_of(-expm1(-lag))
    return kept * before + fresh * noise
