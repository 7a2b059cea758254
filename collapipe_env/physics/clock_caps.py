"""Caps on the clocks of devices, which a plan may set: slower, and with less energy ([X]).

A device runs at ``f = f_max min(s, c)``: ``s`` is the share of its full clock left by background load and
governor, ``c`` the cap. Its power follows the law of its profile (:func:`~.energy.compute_power`). With
``kappa f^3``, its time is proportional to ``1 / f`` and its energy to ``f^2``: a device that need not hurry
saves energy and stays cool. With a power proportional to the clock, a cap costs time and saves nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from collapipe_env.ground.arrays import Array, namespace


class RunningClocks(NamedTuple):
    """Clocks at which devices run under a plan.

    Attributes:
        speed: ``v`` (..., N, K) [FLOP/s].
        clock: ``f`` (..., N, K) [Hz].
        compute_power: ``P_act`` (..., N, K) [W].
    """

    speed: Array
    clock: Array
    compute_power: Array


def running_clocks(
    speed: Array, clock: Array, compute_power: Array, full_speed: Array, cubic_power: Array, cap: Array
) -> RunningClocks:
    """Clocks under caps, ``f = min(f, c f_max)``; caps of 1 leave every bit unchanged.

    Args:
        speed: ``v`` without caps (..., N, K) [FLOP/s], at most the full one.
        clock: ``f`` without caps (..., N, K) [Hz].
        compute_power: ``P_act`` without caps (..., N, K) [W].
        full_speed: ``v`` at the full clock (..., N, K) [FLOP/s].
        cubic_power: True where power grows with the cube of the clock (..., N, K), bool; False where in
            proportion.
        cap: ``c`` (..., N, K), in (0, 1].
    """
    xp = namespace(speed, cap)
    capped = xp.minimum(speed, cap * full_speed)
    ratio = capped / speed
    power = compute_power * xp.where(cubic_power, ratio * ratio * ratio, ratio)
    return RunningClocks(capped, clock * ratio, power)
