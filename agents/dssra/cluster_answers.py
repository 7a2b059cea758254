"""Every cluster's best answer to the others' present plans, and a first guess for all clusters ([R]).

At the prices of ``round_plan``, every cluster improves its segments, micro-batches and powers on its own.
"""

from __future__ import annotations

import math

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled_inner, compiled_leaf
from collapipe_env.kernels.cluster_chain import chain_size
from collapipe_env.physics.parameters import Numbers

from .cluster_costs import delay_price, noise_of, reprice_cluster, summarise_cluster
from .power_search import cluster_cost, search_powers, starting_power
from .round_input import (
    ClusterTerms,
    RoundInput,
    fits_option,
    is_open,
    other_setting,
    server_blocks_of,
    update_bits_of,
    with_next_size,
    with_server_blocks,
)
from .round_plan import RoundPlan, interference_prices
from .segment_dp import best_segments
from .segment_problem import ONE, plan_cost, segment_problem

FIRST_SHARES = 40  # steps in which the first shares' uploads come to end together
LEAST_WEIGHT = 0.02  # of an equal part of V: a cluster with time to spare still prefers the faster plan


@compiled_leaf
def with_option(terms: ClusterTerms, option: int) -> ClusterTerms:
    """The terms with another option."""
    return ClusterTerms(option, terms.noise_w, terms.share, terms.delay_weight, terms.interference_price)


@compiled_leaf
def worth_of_delay(weight: float, clusters: int, inputs: RoundInput, parameters: Numbers) -> float:
    """Worth of a second of a cluster's delay to the cluster itself [1/s].

    Args:
        weight: Its worth to the round, ``w_n`` [1/s].
        clusters: ``N``.
    """
    return max(weight, LEAST_WEIGHT * delay_price(inputs, parameters) / clusters)


@compiled_inner
def best_option(
    n: int,
    segments: IntArray,
    power: FloatArray,
    terms: ClusterTerms,
    inputs: RoundInput,
    parameters: Numbers,
) -> ClusterTerms:
    """The terms with the option, micro-batches and recomputation, that suits segments and powers best.

    Args:
        segments: Blocks of each device (K,).
        power: Powers of the CU and the devices (K+1,) [W].
        terms: Terms left by the rest of the plan, and prices.
    """
    if inputs.choices.shape[0] == 1:
        return terms
    summary = np.empty(chain_size(power.shape[0]))
    best = cluster_cost(n, segments, power, terms, inputs, parameters, summary)
    kept = server_blocks_of(terms.option, inputs)
    for choice in range(inputs.choices.shape[0]):
        if not fits_option(n, segments, inputs.choices[choice], inputs):
            continue
        other = with_option(terms, with_server_blocks(inputs.choices[choice], kept, inputs))
        cost = cluster_cost(n, segments, power, other, inputs, parameters, summary)
        if cost < best:
            best, terms = cost, other
    return terms


@compiled_inner
def planned_segments(
    n: int,
    segments: IntArray,
    power: FloatArray,
    terms: ClusterTerms,
    step: int,
    inputs: RoundInput,
    parameters: Numbers,
) -> tuple[IntArray, ClusterTerms]:
    """Exact segments at given powers, also under other options with the same number of micro-batches.

    Args:
        segments: The segments at hand (K,), or zeros.
        power: Powers of the CU and the devices (K+1,) [W].
        terms: Terms left by the rest of the plan, and its option.
        step: Most blocks by which the server's number may change.

    Returns:
        The best segments, and the terms with their option.
    """
    problem = segment_problem(n, power, terms, inputs, parameters)
    value, planned = best_segments(problem, plan_cost(problem, segments))
    best, kept, most = terms, server_blocks_of(terms.option, inputs), inputs.common[0].most_server
    if not is_open(inputs) and most == 0:
        return planned, best
    value += problem.constant
    for blocks in range(max(kept - step, 0), min(kept + step, most) + 1):
        for setting in range(2 if is_open(inputs) else 1):
            if blocks == kept and setting == 0:
                continue
            option = with_server_blocks(terms.option, blocks, inputs)
            if setting == 1:
                option = other_setting(option, inputs)
            other = with_option(terms, option)
            problem = segment_problem(n, power, other, inputs, parameters)
            found = best_segments(problem, value - problem.constant)
            if found[0] + problem.constant < value:
                value, planned, best = found[0] + problem.constant, found[1], other
    return planned, best


@compiled_inner
def segments_of_near_sizes(
    n: int,
    segments: IntArray,
    power: FloatArray,
    terms: ClusterTerms,
    inputs: RoundInput,
    parameters: Numbers,
) -> tuple[IntArray, ClusterTerms]:
    """Exact segments at given powers, under the present and both neighbouring numbers of micro-batches.

    Args:
        segments: The segments at hand (K,), which are feasible under the option.
        power: Powers of the CU and the devices (K+1,) [W].
        terms: Terms left by the rest of the plan, and its option.

    Returns:
        The best segments, and the terms with their option; those at hand where none are better.
    """
    problem = segment_problem(n, power, terms, inputs, parameters)
    value, planned, best = plan_cost(problem, segments) + problem.constant, segments, terms
    for step in (0, -1, 1):
        option = with_next_size(terms.option, step, inputs)
        if step != 0 and option == terms.option:
            continue
        other = with_option(terms, option)
        problem = segment_problem(n, power, other, inputs, parameters)
        found = best_segments(problem, value - problem.constant)
        if found[0] + problem.constant < value:
            value, planned, best = found[0] + problem.constant, found[1], other
    return planned, best


@compiled_inner
def improve_cluster(
    n: int,
    segments: IntArray,
    power: FloatArray,
    terms: ClusterTerms,
    replans: int,
    inputs: RoundInput,
    parameters: Numbers,
) -> tuple[float, int]:
    """Better segments and powers of one cluster at given prices, in place.

    The exact segments for the present powers compete with the present segments, each after a search of its
    powers. The winner is replanned until its segments stay the same.

    Args:
        segments: Blocks of each device (K,).
        power: Powers of the CU and the devices (K+1,) [W].
        terms: Terms left by the rest of the plan, and prices.
        replans: Most changes of the segments; 0 for the powers alone.

    Returns:
        The fall of the cluster's cost at these prices, and its option.
    """
    scratch = np.empty(chain_size(power.shape[0]))
    before = cluster_cost(n, segments, power, terms, inputs, parameters, scratch)
    terms = best_option(n, segments, power, terms, inputs, parameters)
    cost, kept = np.inf, terms
    planned, trial = segments, power.copy()
    for attempt in range(replans + 1):
        if attempt > 0:
            for k in range(segments.shape[0]):
                if segments[k] == 0:
                    power[k + 1] = starting_power(
                        n, k + 1, terms.delay_weight, terms.noise_w, inputs, parameters
                    )
            kept = terms
            planned, terms = planned_segments(n, segments, power, terms, ONE, inputs, parameters)
            stays = terms.option == kept.option
            for k in range(segments.shape[0]):
                stays = stays and planned[k] == segments[k]
            if stays:
                break
            for i in range(power.shape[0]):
                trial[i] = power[i]
        if inputs.common[0].exact > 0.0:
            option, noise = terms.option, terms.noise_w
            summarise_cluster(n, planned, trial, option, noise, inputs, parameters, scratch)
            reprice_cluster(n, terms.share, scratch, inputs, parameters)
        found = search_powers(n, planned, trial, terms, inputs, parameters, scratch)
        if found >= cost:
            if attempt > 0:
                terms = kept
            break
        cost = found
        for k in range(segments.shape[0]):
            segments[k] = planned[k]
        for i in range(power.shape[0]):
            power[i] = trial[i]
        if attempt > 0:
            terms = best_option(n, segments, power, terms, inputs, parameters)
    return before - cost, terms.option


@compiled_inner
def propose(
    plan: RoundPlan, weight: FloatArray, replans: int, inputs: RoundInput, parameters: Numbers
) -> tuple[IntArray, FloatArray, IntArray, FloatArray]:
    """Every cluster's best answer to the others' present plans.

    Args:
        weight: ``w`` to use (N,) [1/s].
        replans: Most changes of a cluster's segments; 0 for the powers alone.

    Returns:
        New segments (N, K), powers (N, K+1), options (N,) and the expected fall of every cluster's cost (N,).
    """
    clusters = weight.shape[0]
    prices = interference_prices(plan, weight, inputs, parameters)
    segments, power, option = plan.segments.copy(), plan.power.copy(), plan.option.copy()
    gain = np.empty(clusters)
    for n in range(clusters):
        worth = worth_of_delay(weight[n], clusters, inputs, parameters)
        terms = ClusterTerms(option[n], plan.noise[n], plan.share[n], worth, prices[n])
        gain[n], option[n] = improve_cluster(n, segments[n], power[n], terms, replans, inputs, parameters)
    return segments, power, option, gain


@compiled_inner
def first_guess(inputs: RoundInput, parameters: Numbers) -> tuple[IntArray, FloatArray, IntArray, FloatArray]:
    """Closed-form powers, each cluster's exact segments for them, and shares that end all uploads together.

    Returns:
        Segments (N, K), powers (N, K+1), options (N,) and shares (N,).
    """
    clusters, devices = inputs.cap.shape[1:]
    option = inputs.option.copy()
    weight = delay_price(inputs, parameters) / clusters
    segments = np.empty((clusters, devices), dtype=np.int64)
    power = np.empty((clusters, devices + 1))
    typical = math.sqrt(parameters.power_min_w * parameters.power_max_w)
    for n in range(clusters):
        power[n, 0] = typical
        for k in range(devices):
            segments[n, k], power[n, k + 1] = 0, typical
    noise = noise_of(segments, power, inputs, parameters)
    share = np.full(clusters, 1.0 / clusters)
    for n in range(clusters):
        for i in range(devices + 1):
            power[n, i] = starting_power(n, i, weight, noise[n], inputs, parameters)
    for _ in range(FIRST_SHARES):
        together = 0.0
        for n in range(clusters):
            snr = power[n, 0] * inputs.system.uplink_gain[n] / parameters.uplink_noise_w / share[n]
            # A dead uplink gets most of the band.
            share[n] = update_bits_of(option[n], inputs, parameters) / max(math.log1p(snr), 1e-200)
            together += share[n]
        for n in range(clusters):
            share[n] /= together
    for n in range(clusters):
        share[n] = parameters.bandwidth_floor + (1.0 - clusters * parameters.bandwidth_floor) * share[n]
        terms = ClusterTerms(option[n], noise[n], share[n], weight, 0.0)
        most = inputs.common[0].most_server
        planned, terms = planned_segments(n, segments[n], power[n], terms, most, inputs, parameters)
        for k in range(devices):
            segments[n, k] = planned[k]
        terms = best_option(n, segments[n], power[n], terms, inputs, parameters)
        option[n] = terms.option
    return segments, power, option, share
