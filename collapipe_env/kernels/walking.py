"""Devices that walk, shadowing with them, and the gains and devices that follow, row by row.

The formulas are those of :mod:`collapipe_env.physics.motion`. Places are coordinates (R, N, K) [m]; a CU
stands at the centre of its cluster's square. Pairs of nodes have the order of ``System.link_gain``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from collapipe_env.ground.arrays import BoolArray, FloatArray
from collapipe_env.ground.compiled import compiled, inlined
from collapipe_env.ground.numbers import normal_rows
from collapipe_env.physics.memory import memory_cap_blocks
from collapipe_env.physics.motion import (
    MOST_LEGS,
    NUMBERS_PER_LEG,
    correlated,
    leaves_on_leg,
    length,
    paused_and_gone,
)


class WalkLaw(NamedTuple):
    """Numbers of walks and of shadowing.

    Attributes:
        side: Side of the square [m].
        pause_s: Mean of the pauses [s].
        slowest: Least speed of a leg [m/s].
        fastest: Greatest speed of a leg [m/s].
        reach: Distance from its CU beyond which a device is away; infinite where nobody leaves [m].
        announced_s: Longest time ahead for which a departure is foreseen [s].
        deviation_db: Standard deviation of the shadowing of pairs [dB].
        decorrelation_m: Way over which its correlation falls to 1/e [m].
        drift_db: Standard deviation of the changes with time alone [dB].
        drift_s: Their time constant [s].
    """

    side: float
    pause_s: float
    slowest: float
    fastest: float
    reach: float
    announced_s: float
    deviation_db: float
    decorrelation_m: float
    drift_db: float
    drift_s: float


@compiled
def walk_rows(
    record: Any,
    there: FloatArray,
    seconds: FloatArray,
    u: FloatArray,
    shadowing: FloatArray,
    drift: FloatArray,
    x: FloatArray,
    y: FloatArray,
    to_x: FloatArray,
    to_y: FloatArray,
    speed: FloatArray,
    pause: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Move devices and shadowing; see :meth:`collapipe_env.dynamics.mobility.Mobility.advance`.

    Args:
        record: :class:`WalkLaw` as a record (1,).
        there: 1 for slots of devices, 0 for others (N, K).
        seconds: Time to move by (R,) [s].
        u: Uniform numbers (R, ...): those of the legs, of the pairs and of the links.
        shadowing: Shadowing of the pairs (R, pairs) [dB]; no columns without it.
        drift: Changes with time alone of all links (R, links) [dB]; no columns without them.

    Returns:
        ``x`` to ``pause`` after that time, and the time until each device leaves (7, R, N, K); shadowing;
        drift.
    """
    law: WalkLaw = record[0]
    R, N, K = x.shape
    centre = 0.5 * law.side
    walk, gone = np.empty((7, R, N, K)), np.empty(K)
    after, lasting = np.empty(shadowing.shape), np.empty(drift.shape)
    first, pairs = N * K * MOST_LEGS * NUMBERS_PER_LEG, N * (K * (K + 1) // 2)
    normal_rows(u, first, np.empty((2, (shadowing.shape[1] + 1) // 2)), after)
    normal_rows(u, first + pairs + pairs % 2, np.empty((2, (drift.shape[1] + 1) // 2)), lasting)
    for r in range(R):
        at = pair = 0
        for n in range(N):
            for k in range(K):
                found = paused_and_gone(
                    law.side,
                    law.pause_s,
                    law.slowest,
                    law.fastest,
                    x[r, n, k],
                    y[r, n, k],
                    to_x[r, n, k],
                    to_y[r, n, k],
                    speed[r, n, k],
                    pause[r, n, k],
                    seconds[r] * there[n, k],
                    u[r],
                    at,
                )
                for i in range(6):
                    walk[i, r, n, k] = found[i]
                at += MOST_LEGS * NUMBERS_PER_LEG
                if law.reach < math.inf:
                    px, py, tx, ty, pace, _ = found
                    walk[6, r, n, k] = leaves_on_leg(
                        law.reach, law.announced_s, px - centre, py - centre, tx - px, ty - py, pace
                    )
                way = length(found[0] - x[r, n, k], found[1] - y[r, n, k])
                gone[k] = -math.expm1(-way / law.decorrelation_m) if way > 0.0 else 0.0
            if shadowing.shape[1] > 0:
                for i in range(-1, K):
                    for j in range(i + 1, K):
                        # The correlations of both ways multiply; CUs stand still, as most devices do.
                        both = gone[j] if i < 0 else gone[i] + (1.0 - gone[i]) * gone[j]
                        noise = law.deviation_db * after[r, pair]
                        old = shadowing[r, pair]
                        after[r, pair] = correlated(old, both, noise) if both > 0.0 else old
                        pair += 1
        faded = -math.expm1(-seconds[r] / law.drift_s)
        for link in range(drift.shape[1]):
            lasting[r, link] = correlated(drift[r, link], faded, law.drift_db * lasting[r, link])
    return walk, after, lasting


@compiled
def keep_rows(
    record: Any,
    memory: tuple[float, float, float, float],
    blocks: int,
    x: FloatArray,
    y: FloatArray,
    memory_bytes: FloatArray,
    present: BoolArray,
) -> BoolArray:
    """Return the devices that are present (R, N, K) where some walk out of reach.

    Args:
        record: :class:`WalkLaw` as a record (1,).
        memory: Numbers of :func:`collapipe_env.physics.memory.memory_cap_blocks` after the memory.
        blocks: Encoder depth ``L``.
        memory_bytes: Memory that each device offers (R, N, K) [byte].
        present: Devices that are present before any goes (R, N, K).
    """
    law: WalkLaw = record[0]
    R, N, K = x.shape
    stays, away, centre = present.copy(), np.empty(K), 0.5 * law.side
    for r in range(R):
        for n in range(N):
            outside = False
            for k in range(K):
                away[k] = length(x[r, n, k] - centre, y[r, n, k] - centre)
                outside = outside or away[k] > law.reach
            if outside:
                _keep(law.reach, memory, blocks, away, memory_bytes[r, n], present[r, n], stays[r, n])
    return stays


@inlined
def _keep(
    reach: float,
    memory: tuple[float, float, float, float],
    blocks: int,
    away: FloatArray,
    memory_bytes: FloatArray,
    present: BoolArray,
    stays: BoolArray,
) -> None:
    """Find who stays in a cluster, with the result of :func:`collapipe_env.dynamics.mobility.staying`."""
    K = len(away)
    for k in range(K):
        if not present[k] or away[k] <= reach:
            continue
        # Room on the devices inside, and on those outside that are kept before this one.
        before = 0.0
        for j in range(K):
            nearer = away[j] < away[k] or (away[j] == away[k] and j < k)
            if present[j] and nearer:
                before += memory_cap_blocks(memory_bytes[j], memory[0], memory[1], memory[2], memory[3])
        stays[k] = before < blocks
