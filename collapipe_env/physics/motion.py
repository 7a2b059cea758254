"""Motion of devices: legs and pauses, courses out of a circle, shadowing ([X]).

The formulas hold for one device or for arrays of them.
"""

from __future__ import annotations

import math

from collapipe_env.ground.arrays import Array, at_least, at_most, log, possible, sqrt, where

MOST_LEGS = 8
"""Legs that a device may begin in one round; at the end of the last one it waits for the round to end."""
NUMBERS_PER_LEG = 4
"""Uniform numbers of a pause and the leg after it: pause, target (2), speed."""


def length(x: Array, y: Array) -> Array:
    """``sqrt(x^2 + y^2)`` [m]: for lengths in metres, whose squares do not overflow.

    Args:
        x: One component, of any shape [m].
        y: The other one.
    """
    return sqrt(x * x + y * y)


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
    needed = length(away_x, away_y) / where(walking, speed, 1.0)
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


def paused_and_gone(
    side: float,
    pause_s: float,
    slowest: float,
    fastest: float,
    x: Array,
    y: Array,
    to_x: Array,
    to_y: Array,
    speed: Array,
    pause: Array,
    left: Array,
    u: Array,
    at: int = 0,
) -> tuple[Array, Array, Array, Array, Array, Array]:
    """Walk of a device that pauses and goes straight to a uniform point of the square by turns.

    A device begins at most :data:`MOST_LEGS` legs. At the end of the last one it waits: its next pause begins
    in the next call.

    Args:
        side: Side of the square [m].
        pause_s: Mean of the pauses, which are exponential [s].
        slowest: Least speed of a leg [m/s].
        fastest: Greatest speed of a leg [m/s]; speeds are uniform between the two.
        x: Its place, in ``[0, side]``, of any shape [m].
        y: The other coordinate.
        to_x: End of its leg [m].
        to_y: The other coordinate.
        speed: Its speed, 0 in a pause [m/s].
        pause: Time left of its pause, 0 on a leg [s].
        left: Time to move by, >= 0 [s].
        u: Uniform numbers of that shape, leg by leg: a sequence of them.
        at: Place of the first one.

    Returns:
        ``x`` to ``pause`` after that time; for 0 s they stay as they are, to the bit.
    """
    for leg in range(MOST_LEGS + 1):
        first = at + leg * NUMBERS_PER_LEG
        if possible(speed > 0.0):
            x, y, left, arrives = walked(x, y, to_x, to_y, speed, left)
            if leg < MOST_LEGS and possible(arrives):
                speed = where(arrives, 0.0, speed)
                pause = where(arrives, -pause_s * log(u[first]), pause)
        if leg == MOST_LEGS or not possible(left > 0.0):
            break
        pause, left, departs = paused(speed, pause, left)
        if not possible(departs):
            break
        to_x = where(departs, side * u[first + 1], to_x)
        to_y = where(departs, side * u[first + 2], to_y)
        speed = where(departs, slowest + (fastest - slowest) * u[first + 3], speed)
    # Rounding may carry a place past its target.
    x, y = at_least(at_most(x, side), 0.0), at_least(at_most(y, side), 0.0)
    return x, y, to_x, to_y, speed, pause


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
    away: Array = most_s
    if possible(speed > 0.0):
        left = length(way_x, way_y)
        pace = speed / at_least(left, 1e-300)
        ahead = left / where(speed > 0.0, speed, 1.0)
        away = seconds_inside(radius, x, y, pace * way_x, pace * way_y)
        away = at_most(where(away <= ahead, away, most_s), most_s)
    return where(length(x, y) <= radius, away, 0.0)


def correlated(before: Array, gone: Array, noise: Array) -> Array:
    """``rho S + sqrt(1 - rho^2) noise``; for ``rho = 1`` ``S`` itself.

    Args:
        before: ``S``, any shape.
        gone: ``1 - rho``, in [0, 1], broadcast.
        noise: Independent numbers of the stationary law.
    """
    return (1.0 - gone) * before + sqrt(gone * (2.0 - gone)) * noise
