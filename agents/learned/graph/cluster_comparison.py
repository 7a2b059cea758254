"""Costs from which the graph net learns: each cluster's part of the exact drift plus penalty.

The net's most likely plan is priced with its best shares of the uplink. That gives the worth of a second of
each cluster's delay and the price of a watt that disturbs the others. At these prices every cluster's cost
depends on its own plan only, so other counts of blocks and micro-batches are compared cluster by cluster.
"""

from __future__ import annotations

import numpy as np

from collapipe_env.agents.dssra.cluster_costs import (
    delay_and_cost,
    mean_active_power,
    node_drift,
    node_joules,
    summarise_cluster,
)
from collapipe_env.agents.dssra.round_input import RoundInput, environment_row
from collapipe_env.agents.dssra.round_plan import RoundPlan, evaluate, interference_prices, reprice
from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled, compiled_inner
from collapipe_env.kernels.cluster_chain import chain_size
from collapipe_env.physics.parameters import Numbers


@compiled_inner
def cluster_cost(
    n: int,
    segments: IntArray,
    power: FloatArray,
    option: int,
    noise: float,
    share: float,
    weight: float,
    deadline: float,
    disturbance: float,
    inputs: RoundInput,
    parameters: Numbers,
    summary: FloatArray,
) -> float:
    """A cluster's part of the drift plus penalty at the prices of a plan."""
    summarise_cluster(n, segments, power, option, noise, inputs, parameters, summary)
    delay = delay_and_cost(share, summary, parameters)[0]
    cost = weight * (delay - deadline)
    if weight == 0.0 and delay > deadline:
        # The cluster has time to spare under the plan, but only up to the deadline.
        cost = parameters.tradeoff_v / parameters.clusters * (delay - deadline)
    for i in range(power.shape[0]):
        joules = node_joules(i, share, summary, parameters)
        ratio = joules / inputs.system.budget[n, i]
        cost += node_drift(inputs.backlog[n, i], ratio, inputs.common[0].allowance)
    return cost + disturbance * mean_active_power(segments, power)


@compiled_inner
def deadline_of(plan: RoundPlan, inputs: RoundInput, parameters: Numbers, summary: FloatArray) -> float:
    """Delay of a plan's slowest cluster [s]."""
    deadline = 0.0
    for n in range(plan.power.shape[0]):
        option, noise = plan.option[n], plan.noise[n]
        summarise_cluster(n, plan.segments[n], plan.power[n], option, noise, inputs, parameters, summary)
        deadline = max(deadline, delay_and_cost(plan.share[n], summary, parameters)[0])
    return deadline


@compiled
def compare_counts(
    inputs: RoundInput,
    parameters: Numbers,
    segments: IntArray,
    power: FloatArray,
    option: IntArray,
    samples: IntArray,
    share: FloatArray,
    worth: FloatArray,
    sample_cost: FloatArray,
    choice_cost: FloatArray,
) -> None:
    """Price plans, and changes of single clusters' blocks or numbers of micro-batches.

    Args:
        inputs: The environments (E, ...), of the exact drift.
        segments: The plans' blocks (E, N, K).
        power: Their powers (E, N, K+1) [W].
        option: Their options (E, N).
        samples: Other blocks (E, N, S, K).
        share: First guess with sum 1 (E, N); receives the plans' best shares.
        worth: Receives the worth of a second of each cluster's delay (E, N) [1/s].
        sample_cost: Receives the costs of the samples (E, N, S).
        choice_cost: Receives the costs of the plan's blocks with each of the first options (E, N, C).
    """
    environments, clusters, nodes = power.shape
    summary = np.empty(chain_size(nodes))
    for e in range(environments):
        row = environment_row(inputs, e)
        _, plan = evaluate(segments[e], power[e], option[e], share[e], row, parameters)
        reprice(plan, row, parameters)
        disturbance = interference_prices(plan, plan.weight, row, parameters)
        deadline = deadline_of(plan, row, parameters, summary)
        for n in range(clusters):
            share[e, n], worth[e, n] = plan.share[n], plan.weight[n]
            terms = (plan.noise[n], plan.share[n], plan.weight[n], deadline, disturbance[n])
            for s in range(samples.shape[2]):
                sample_cost[e, n, s] = cluster_cost(
                    n, samples[e, n, s], power[e, n], option[e, n], *terms, row, parameters, summary
                )
            for c in range(choice_cost.shape[2]):
                choice_cost[e, n, c] = cluster_cost(
                    n, segments[e, n], power[e, n], c, *terms, row, parameters, summary
                )
