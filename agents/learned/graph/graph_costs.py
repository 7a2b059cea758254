"""Costs of other plans of single clusters, in compiled loops: what the graph net learns from.

Where rounds are as they are known, a plan is priced with its best shares of the uplink. That gives the worth
of a second of each cluster's delay and the price of a watt that disturbs the others. At these prices every
cluster's cost depends on its own plan only, so other plans are compared cluster by cluster
(:func:`compare_counts`, :func:`cheaper_to_stay`).

Where rounds may differ from what is known, other plans of a cluster are priced with the others' held by
``V mean_s max_m T_m`` plus the cluster's mean drift (:func:`expected_costs`). Since delays differ from draw
to draw, a cluster that is seldom the slowest pays little for its delay.

The best shares answer a change of plan: at the known gains they make the clusters end together. A change
that would make one cluster ``d`` later at given shares therefore makes every cluster a little later, by
:func:`answer`. Without that answer each cluster would pay up to ``N`` times what a change costs. To first
order all clusters are ``w d`` later, where ``w`` is the cluster's part of the worth of all delays. Powers
follow that (the envelope theorem), and where gains are exact counts do, too: all clusters end together there,
and what is too dear for one alone may pay off for all at once. For a large change of one cluster alone that
price is far too low. A bound by what its uplink can make up for is right for one cluster, but the net trained
with it was worse in Churn (`docs/graph_net.md`).
"""

from __future__ import annotations

import numpy as np

from collapipe_env.agents.dssra.cluster_costs import (
    ENDLESS_S,
    allowance_of,
    delay_and_cost,
    delay_price,
    mean_active_power,
    node_drift,
    node_joules,
    noise_of,
    reprice_cluster,
    set_moving_noise,
    summarise_cluster,
)
from collapipe_env.agents.dssra.round_input import RoundInput, environment_row
from collapipe_env.agents.dssra.round_plan import (
    RoundPlan,
    evaluate,
    evaluate_at_length,
    interference_prices,
    reprice,
)
from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.ground.compiled import compiled, compiled_inner
from collapipe_env.kernels.cluster_chain import chain_size
from collapipe_env.physics.parameters import Numbers

_MORE, _LEAST_S, _HALVINGS = 1.05, 1e-9, 40


@compiled_inner
def _prices(
    plan: RoundPlan, row: RoundInput, parameters: Numbers, summary: FloatArray
) -> tuple[float, FloatArray]:
    """Delay of a plan's slowest cluster [s], and prices of a watt of each cluster's mean power (N,) [1/W].

    Args:
        plan: The plan, with its best shares, which was evaluated last.
        row: The environment; receives the prices of energy.
    """
    reprice(plan, row, parameters)
    disturbance, deadline = interference_prices(plan, plan.weight, row, parameters), 0.0
    for n in range(len(plan.share)):
        option, noise = plan.option[n], plan.noise[n]
        summarise_cluster(n, plan.segments[n], plan.power[n], option, noise, row, parameters, summary)
        deadline = max(deadline, delay_and_cost(plan.share[n], summary, parameters)[0])
    return deadline, disturbance


@compiled_inner
def _drift(
    n: int, nodes: int, share: float, inputs: RoundInput, parameters: Numbers, summary: FloatArray
) -> float:
    """Exact drift of a cluster's queues under a plan."""
    drift = 0.0
    for i in range(nodes):
        ratio = node_joules(i, share, summary, parameters) / inputs.system.budget[n, i]
        allowance = allowance_of(n, i, inputs.common[0].round_s, inputs, parameters)
        drift += node_drift(inputs.backlog[n, i], ratio, allowance)
    return drift


@compiled_inner
def _set_length(
    delay: FloatArray, share: FloatArray, row: RoundInput, parameters: Numbers, summary: FloatArray
) -> None:
    """Let idle radios be on as long as a round of some plans, and price a second by their queues after it.

    Args:
        delay: Delays of single clusters' plans, at 0 those of the round (N, C) [s].
        share: Shares of the uplink (N,).
        row: The environment; receives the length and the prices.
        summary: Summaries of the plans (N, C, ...).
    """
    N, nodes = row.backlog.shape
    longest = idle = 0.0
    for n in range(N):
        longest = max(longest, delay[n, 0])
    row.common[0].round_s = min(longest + row.common[0].heard_s, ENDLESS_S)
    for n in range(N):
        reprice_cluster(n, share[n], summary[n, 0], row, parameters)
        for i in range(nodes):
            idle += (row.price[n, i] - row.extra_price[n, i]) * row.idle_w[n, i]
    row.common[0].relief = -idle


@compiled_inner
def _cluster_cost(
    n: int,
    segments: IntArray,
    power: FloatArray,
    option: int,
    plan: RoundPlan,
    deadline: float,
    disturbance: FloatArray,
    inputs: RoundInput,
    parameters: Numbers,
    summary: FloatArray,
) -> float:
    """A cluster's part of the drift plus penalty under segments, powers and an option, at a plan's prices."""
    summarise_cluster(n, segments, power, option, plan.noise[n], inputs, parameters, summary)
    delay, weight = delay_and_cost(plan.share[n], summary, parameters)[0], plan.weight[n]
    if weight == 0.0 and delay > deadline:
        # The cluster has time to spare under the plan, but only up to the deadline.
        weight = delay_price(inputs, parameters) / parameters.clusters
    cost = weight * (delay - deadline) + disturbance[n] * mean_active_power(segments, power, parameters)
    return float(cost + _drift(n, power.shape[0], plan.share[n], inputs, parameters, summary))


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
    E, N, nodes = power.shape
    summary = np.empty(chain_size(nodes))
    for e in range(E):
        row = environment_row(inputs, e)
        _, plan = evaluate_at_length(segments[e], power[e], option[e], share[e], row, parameters)
        deadline, disturbance = _prices(plan, row, parameters, summary)
        prices = (plan, deadline, disturbance, row, parameters, summary)
        for n in range(N):
            share[e, n], worth[e, n] = plan.share[n], plan.weight[n]
            for s in range(samples.shape[2]):
                sample_cost[e, n, s] = _cluster_cost(n, samples[e, n, s], power[e, n], option[e, n], *prices)
            for c in range(choice_cost.shape[2]):
                choice_cost[e, n, c] = _cluster_cost(n, segments[e, n], power[e, n], c, *prices)


@compiled
def cheaper_to_stay(
    segments: IntArray,
    power: FloatArray,
    option: IntArray,
    stay: IntArray,
    stay_power: FloatArray,
    stay_option: IntArray,
    inputs: RoundInput,
    parameters: Numbers,
    stays: BoolArray,
) -> None:
    """Find the clusters that keep the previous round's segments in place of new ones.

    Each cluster is judged at the new plan's prices; all that would stay do so if the whole plan then costs
    less.

    Args:
        segments: The new plan's blocks (E, N, K).
        power: Powers that suit them (E, N, K+1) [W].
        option: Options that suit them (E, N).
        stay: Blocks of the previous round (E, N, K).
        stay_power: Powers that suit these (E, N, K+1) [W].
        stay_option: Options that suit these (E, N).
        inputs: The environments (E, ...), of the exact drift.
        stays: Receives whether the cluster stays (E, N).
    """
    E, N, nodes = power.shape
    summary = np.empty(chain_size(nodes))
    for e in range(E):
        row, even = environment_row(inputs, e), np.full(N, 1.0 / N)
        best, plan = evaluate_at_length(segments[e], power[e], option[e], even, row, parameters)
        deadline, disturbance = _prices(plan, row, parameters, summary)
        prices = (plan, deadline, disturbance, row, parameters, summary)
        mixed, mixed_power, mixed_option = segments[e].copy(), power[e].copy(), option[e].copy()
        for n in range(N):
            moving = _cluster_cost(n, segments[e, n], power[e, n], option[e, n], *prices)
            staying = _cluster_cost(n, stay[e, n], stay_power[e, n], stay_option[e, n], *prices)
            stays[e, n] = staying < moving
            if staying < moving:
                mixed[n], mixed_power[n] = stay[e, n], stay_power[e, n]
                mixed_option[n] = stay_option[e, n]
        value, _ = evaluate(mixed, mixed_power, mixed_option, plan.share, row, parameters)
        if value >= best:
            stays[e, :] = False


@compiled_inner
def answer(n: int, later: float, own: float, share: FloatArray, uplink: FloatArray) -> float:
    """Seconds by which all clusters end later if one would be later at its share, and shares are made anew.

    With delays ``a_m + u_m / b_m``, the shares ``b_m`` have the same sum if each cluster ends ``x`` later.

    Args:
        later: ``d``, by how much it would be later [s].
        own: ``u_n / b_n`` of its new plan [s], > 0.
        share: Shares ``b_m`` (N,).
        uplink: ``u_m / b_m`` of the plans so far (N, C) [s], > 0, in the first column.
    """
    whole, low = 0.0, later - own
    for m in range(len(share)):
        whole += share[m]
        if m != n:
            low = max(low, -uplink[m, 0])
    high = max(later, 0.0)
    for _ in range(_HALVINGS):
        x = 0.5 * (low + high)
        taken = share[n] * own / max(own + x - later, _LEAST_S)
        for m in range(len(share)):
            if m != n:
                taken += share[m] * uplink[m, 0] / max(uplink[m, 0] + x, _LEAST_S)
        if taken > whole:
            low = x
        else:
            high = x
    return high


@compiled_inner
def _summarise(
    row: RoundInput,
    parameters: Numbers,
    power: FloatArray,
    share: FloatArray,
    segments: IntArray,
    option: IntArray,
    summary: FloatArray,
    delay: FloatArray,
) -> None:
    """Write summaries (N, C, ...) and delays (N, C) of plans of single clusters."""
    N, C, _ = segments.shape
    noise = noise_of(segments[:, 0], power, row, parameters)
    set_moving_noise(segments[:, 0], power, row, parameters)
    for n in range(N):
        for c in range(C):
            summarise_cluster(
                n, segments[n, c], power[n], option[n, c], noise[n], row, parameters, summary[n, c]
            )
            delay[n, c] = delay_and_cost(share[n], summary[n, c], parameters)[0]


@compiled
def expected_costs(
    known: RoundInput,
    inputs: RoundInput,
    parameters: Numbers,
    power: FloatArray,
    share: FloatArray,
    part: FloatArray,
    segments: IntArray,
    option: IntArray,
    longer: FloatArray,
    exact: bool,
    cost: FloatArray,
) -> None:
    """Expected costs of other plans of single clusters: ``V mean_s max_m T_m + mean drift``.

    Args:
        known: Known states (E, ...).
        inputs: True states (E G, ...), the G draws of an environment's gains together.
        power: Powers (E, N, K+1) [W].
        share: Shares of the uplink (E, N).
        part: Each cluster's part of the worth of all delays (E, N); shares do not answer one without worth.
        segments: Blocks (E, N, C, K); those at 0 are the plan's, which the other clusters play.
        option: Options (E, N, C).
        longer: Delays that failures add to rounds, over these (E G F, N, K): F draws for each of the gains.
        exact: Whether gains are known: changes are then priced by ``part``.
        cost: Receives the costs (E, N, C).
    """
    E, N, C, K = segments.shape
    gains, failures = len(inputs.system.d2d_gain) // E, len(longer) // len(inputs.system.d2d_gain)
    summary, delay, uplink = np.empty((N, C, chain_size(K + 1))), np.empty((N, C)), np.empty((N, C))
    change, all_later, ends = np.empty((N, C)), np.empty((N, C)), np.empty((N, C))
    cost[:] = 0.0
    for e in range(E):
        row = environment_row(known, e)
        _summarise(row, parameters, power[e], share[e], segments[e], option[e], summary, change)
        if not exact:
            for n in range(N):
                for c in range(C):
                    faster = delay_and_cost(share[e, n] * _MORE, summary[n, c], parameters)[0]
                    uplink[n, c] = max((change[n, c] - faster) / (1.0 - 1.0 / _MORE), _LEAST_S)
        for n in range(N):
            for c in range(C - 1, -1, -1):
                change[n, c] = change[n, c] - change[n, 0] if part[e, n] > 0.0 else 0.0
                all_later[n, c] = 0.0
                if exact:
                    all_later[n, c] = part[e, n] * change[n, c]
                elif change[n, c] != 0.0:
                    all_later[n, c] = answer(n, change[n, c], uplink[n, c], share[e], uplink)
        for g in range(e * gains, (e + 1) * gains):
            row = environment_row(inputs, g)
            _summarise(row, parameters, power[e], share[e], segments[e], option[e], summary, delay)
            if parameters.radio_power.idle_w > 0.0:
                _set_length(delay, share[e], row, parameters, summary)
            second = delay_price(row, parameters)
            for n in range(N):
                for c in range(C):
                    cost[e, n, c] += _drift(n, K + 1, share[e, n], row, parameters, summary[n, c]) / gains
            for f in range(g * failures, (g + 1) * failures):
                for n in range(N):
                    for c in range(C):
                        worst = 0.0
                        for i in range(K):
                            if segments[e, n, c, i] > 0:
                                worst = max(worst, longer[f, n, i])
                        ends[n, c] = (delay[n, c] - change[n, c]) * (1.0 + worst)
                for n in range(N):
                    others = 0.0
                    for m in range(N):
                        others = max(others, ends[m, 0] if m != n else 0.0)
                    for c in range(C):
                        latest = max(ends[n, c], others) + all_later[n, c]
                        cost[e, n, c] += second * latest / (gains * failures)
