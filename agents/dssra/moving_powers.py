"""Powers of nodes that send moments, searched one after another by the cluster's whole cost ([X]).

``power_search`` covers only a node's pipeline messages. Few nodes send moments, and only in few rounds, so a
plain golden-section search of the true cost is good enough for them.
"""

from __future__ import annotations

import math

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled_inner
from collapipe_env.physics.parameters import Parameters

from .cluster_costs import SUMMARY
from .moving import sends_moments
from .power_search import cluster_cost
from .round_input import ClusterTerms, RoundInput

_GOLDEN = 0.5 * (math.sqrt(5.0) - 1.0)
_CUTS = 10  # cuts of the interval of a power's logarithm, to 1/120 of it


@compiled_inner
def search_moving_powers(
    n: int,
    segments: IntArray,
    power: FloatArray,
    terms: ClusterTerms,
    cost: float,
    inputs: RoundInput,
    parameters: Parameters,
) -> float:
    """Improve the powers of those nodes that send moments, in place.

    Args:
        segments: Blocks of each device (K,).
        power: Powers of the CU and the devices (K+1,) [W].
        terms: Terms left by the rest of the plan, and prices.
        cost: The cluster's cost as it is.
        inputs: The environment.
        parameters: The scenario.

    Returns:
        The cost afterwards, never more than before.
    """
    if inputs.held.shape[1] == 0:
        return cost
    summary = np.empty(SUMMARY + power.shape[0])
    relays = False
    for step in range(1, power.shape[0] + 1):
        node = step if step < power.shape[0] else 0  # the CU last: it sends if any device does
        sends = relays if node == 0 else sends_moments(n, node - 1, segments, inputs)
        if not sends:
            continue
        relays = parameters.through_cu
        kept = best = power[node]
        low, high = math.log(parameters.power_min_w), math.log(parameters.power_max_w)
        for cut in range(_CUTS):
            first, second = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
            power[node] = math.exp(first)
            left = cluster_cost(n, segments, power, terms, inputs, parameters, summary)
            power[node] = math.exp(second)
            right = cluster_cost(n, segments, power, terms, inputs, parameters, summary)
            if left < right:
                high, found, watts = second, left, math.exp(first)
            else:
                low, found, watts = first, right, math.exp(second)
            if found < cost:
                cost, best = found, watts
            if cut == 0 and kept == parameters.power_max_w:
                # Most senders stay at full power: one look below is enough to see it.
                power[node] = kept * 0.97
                if cluster_cost(n, segments, power, terms, inputs, parameters, summary) >= cost:
                    break
        power[node] = best
    return cost
