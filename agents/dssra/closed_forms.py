"""Closed form of the per-round problem: the transmit power of a single link (`algorithms.md` 1.5c, [R])."""

from __future__ import annotations

import math

from collapipe_env.ground.compiled import compiled_leaf


@compiled_leaf
def optimal_power(
    delay_weight: float,
    energy_price: float,
    gain: float,
    noise_w: float,
    power_min_w: float,
    power_max_w: float,
) -> float:
    """Transmit power of one link that minimises ``(delay_weight + energy_price p) / rate(p)``.

    ``p = (e^u - 1) noise / gain``, clipped to the limits, where ``(u - 1) e^u + 1`` is ``ratio = delay_weight
    gain / (energy_price noise)``: ``u = 1 + W_0((ratio - 1) / e)``. The payload and the bandwidth cancel.

    Args:
        delay_weight: Weight of the link's airtime in the objective [1/s], >= 0 (``V`` times the share of
            the airtime that delays the round).
        energy_price: Price of the sender's energy ``Q`` [1/J], >= 0; 0 gives full power.
        gain: Channel gain, > 0.
        noise_w: Noise plus interference in the link's band [W], > 0.
        power_min_w: Smallest power [W].
        power_max_w: Largest power [W].

    Returns:
        The power [W].
    """
    if energy_price <= 0.0:
        return power_max_w
    ratio = delay_weight * gain / (energy_price * noise_w)
    # Far beyond any real ratio, and short of overflow in the exponential below.
    if ratio > 1e250:
        return power_max_w
    # Newton's steps from above: the function is convex, so they only fall until rounding ends them.
    step = u = min(math.sqrt(2.0 * ratio), 1.0 + math.log1p(ratio))
    while step > 1e-14 * u:
        step = ((u - 1.0) * math.expm1(u) + u - ratio) / (u * math.exp(u))
        u -= step
    return min(max(math.expm1(u) * noise_w / gain, power_min_w), power_max_w)
