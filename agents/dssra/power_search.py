"""Transmit powers of one cluster for given segments and share: a walk over the cluster's exact cost.

A node has one power for up to three links (activations to the next node, gradients to the previous one,
its segment to the CU; the CU: first hop, last hop, uplink) and perhaps for moments that it sends, so the
closed form for a single link (:func:`optimal_power`) is only the start. Node by node, a power moves
by steps of its logarithm while the cost ``w T_n + C_n + interference price x mean active power`` falls: first
by long steps, then, when a pass over all nodes brings little, by short ones.
"""

from __future__ import annotations

import math

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled_leaf
from collapipe_env.physics.parameters import Numbers

from .cluster_costs import delay_and_cost, exact_difference, mean_active_power, summarise_cluster
from .round_input import ClusterTerms, RoundInput

_STEPS = (0.3, 0.075)  # of a power's logarithm
_WORTHLESS = 1e-4  # relative gain of a pass over the nodes that is the last one with its step


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


@compiled_leaf
def starting_power(
    n: int, node: int, delay_weight: float, noise_w: float, inputs: RoundInput, parameters: Numbers
) -> float:
    """Closed-form power of a node of a cluster, for one typical link.

    The typical gain of a device is the geometric mean of its gains to the CU and to devices that can hold
    blocks. The CU's typical link is its uplink.

    Args:
        node: 0 for the CU, k + 1 for device k.
        delay_weight: ``w_n`` [1/s].
        noise_w: Noise plus interference of the device-to-device links [W].

    Returns:
        The power [W].
    """
    gain, noise = inputs.system.uplink_gain[n], parameters.uplink_noise_w / 4.0
    if node > 0:
        total, count = 0.0, 0
        for other in range(inputs.system.d2d_gain.shape[1]):
            if other != node and (other == 0 or inputs.cap[0, n, other - 1] > 0):
                total += math.log(max(inputs.system.d2d_gain[n, node, other], 1e-300))
                count += 1
        gain, noise = math.exp(total / count), noise_w
    return optimal_power(
        delay_weight * parameters.local_steps,
        inputs.price[n, node],
        gain,
        noise,
        parameters.power_min_w,
        parameters.power_max_w,
    )


@compiled_leaf
def cluster_cost(
    n: int,
    segments: IntArray,
    power: FloatArray,
    terms: ClusterTerms,
    inputs: RoundInput,
    parameters: Numbers,
    summary: FloatArray,
) -> float:
    """``w T_n + C_n + interference price x mean active power``.

    Args:
        segments: Blocks of each device (K,).
        power: Powers of the CU and the devices (K+1,) [W].
        terms: Terms left by the rest of the plan, and prices.
        summary: Receives the cluster's summary (SUMMARY + K + 1,).
    """
    summarise_cluster(n, segments, power, terms.option, terms.noise_w, inputs, parameters, summary)
    delay, cost = delay_and_cost(terms.share, summary, parameters)
    if inputs.common[0].exact > 0.0:
        cost += exact_difference(n, terms.share, summary, inputs.common[0].round_s, inputs, parameters)
    disturbing = terms.interference_price * mean_active_power(segments, power, parameters)
    return terms.delay_weight * delay + cost + disturbing


@compiled_leaf
def _walk(
    n: int,
    node: int,
    step: float,
    cost: float,
    segments: IntArray,
    power: FloatArray,
    terms: ClusterTerms,
    inputs: RoundInput,
    parameters: Numbers,
    summary: FloatArray,
) -> float:
    """Move one power by steps of its logarithm while the cost falls, in place; returns the cost."""
    for factor in (math.exp(step), math.exp(-step)):
        moved = False
        while True:
            here = power[node]
            power[node] = min(max(here * factor, parameters.power_min_w), parameters.power_max_w)
            if power[node] == here:
                break
            found = cluster_cost(n, segments, power, terms, inputs, parameters, summary)
            if found >= cost:
                power[node] = here
                break
            cost, moved = found, True
        if moved:
            break
    return cost


@compiled_leaf
def search_powers(
    n: int,
    segments: IntArray,
    power: FloatArray,
    terms: ClusterTerms,
    inputs: RoundInput,
    parameters: Numbers,
    summary: FloatArray,
) -> float:
    """Improve a cluster's powers in place; idle devices keep theirs.

    Args:
        segments: Blocks of each device (K,).
        power: Powers of the CU and the devices (K+1,) [W].
        terms: Terms left by the rest of the plan, and prices.
        summary: Receives the cluster's summary (SUMMARY + K + 1,).

    Returns:
        The cost ``w T_n + C_n + interference price x mean active power``.
    """
    cost = cluster_cost(n, segments, power, terms, inputs, parameters, summary)
    for step in _STEPS:
        before = math.inf
        while before - cost > _WORTHLESS * abs(cost):
            before = cost
            for node in range(power.shape[0]):
                if node == 0 or segments[node - 1] > 0:
                    cost = _walk(n, node, step, cost, segments, power, terms, inputs, parameters, summary)
    return cost
