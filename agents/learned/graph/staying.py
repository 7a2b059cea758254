"""Staying where changes of plan are priced: clusters keep the previous round's segments if this pays."""

from __future__ import annotations

import numpy as np

from collapipe_env.agents.dssra.round_input import RoundInput, environment_row
from collapipe_env.agents.dssra.round_plan import RoundPlan, evaluate, interference_prices, reprice
from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.ground.compiled import compiled, compiled_inner
from collapipe_env.kernels.cluster_chain import chain_size
from collapipe_env.physics.parameters import Numbers

from .cluster_comparison import cluster_cost, deadline_of


@compiled_inner
def write_staying(
    previous: IntArray, segments: IntArray, row: RoundInput, blocks: int, stay: IntArray
) -> bool:
    """Write the previous round's segments where they are possible, the new ones elsewhere.

    Args:
        previous: Blocks in the previous round (N, K).
        segments: New blocks (N, K).
        row: The environment.
        blocks: ``L``.
        stay: Receives the blocks (N, K).

    Returns:
        Whether any cluster's segments differ from the new ones.
    """
    differ = False
    for n in range(segments.shape[0]):
        held, possible = 0, True
        for k in range(segments.shape[1]):
            held += previous[n, k]
            possible = possible and previous[n, k] <= row.cap[0, n, k]
        for k in range(segments.shape[1]):
            stay[n, k] = previous[n, k] if possible and held == blocks else segments[n, k]
            differ = differ or stay[n, k] != segments[n, k]
    return differ


@compiled
def staying_rows(
    previous: IntArray, segments: IntArray, inputs: RoundInput, blocks: int, stay: IntArray
) -> bool:
    """Do this for many environments; arguments as for :func:`write_staying`, with a leading axis."""
    differ = False
    for e in range(len(segments)):
        row = environment_row(inputs, e)
        differ = write_staying(previous[e], segments[e], row, blocks, stay[e]) or differ
    return differ


@compiled_inner
def staying_is_better(
    plan: RoundPlan,
    stay: IntArray,
    stay_power: FloatArray,
    stay_option: IntArray,
    share: FloatArray,
    inputs: RoundInput,
    parameters: Numbers,
) -> BoolArray:
    """Whether other segments cost a cluster less than a plan's, at the plan's prices (N,).

    Args:
        plan: The plan, with its best shares, which was evaluated last.
        stay: The other segments (N, K).
        stay_power: Powers that suit them (N, K+1) [W].
        stay_option: Options that suit them (N,).
        share: The plan's shares (N,).
        inputs: The environment, of the exact drift.
    """
    clusters, nodes = plan.power.shape
    summary = np.empty(chain_size(nodes))
    reprice(plan, inputs, parameters)
    disturbance = interference_prices(plan, plan.weight, inputs, parameters)
    deadline = deadline_of(plan, inputs, parameters, summary)
    better = np.empty(clusters, dtype=np.bool_)
    for n in range(clusters):
        terms = (plan.noise[n], share[n], plan.weight[n], deadline, disturbance[n])
        moving = cluster_cost(
            n, plan.segments[n], plan.power[n], plan.option[n], *terms, inputs, parameters, summary
        )
        staying = cluster_cost(n, stay[n], stay_power[n], stay_option[n], *terms, inputs, parameters, summary)
        better[n] = staying < moving
    return better


@compiled_inner
def keep_what_pays(
    segments: IntArray,
    power: FloatArray,
    option: IntArray,
    share: FloatArray,
    stay: IntArray,
    stay_power: FloatArray,
    stay_option: IntArray,
    row: RoundInput,
    parameters: Numbers,
) -> None:
    """Put the previous round's segments into a plan for the clusters for which they cost less.

    Each cluster is judged at the plan's prices; all that would stay do so if the whole plan then costs less.

    Args:
        segments: The plan's blocks (N, K); receives those to be played.
        power: Powers that suit them (N, K+1) [W]; receives those to be played.
        option: Options that suit them (N,); receives those to be played.
        share: First guess of the shares (N,); receives the best ones.
        stay: Blocks of the previous round (N, K); overwritten.
        stay_power: Powers that suit these (N, K+1) [W]; overwritten.
        stay_option: Options that suit these (N,); overwritten.
        row: The environment, of the exact drift.
    """
    best, plan = evaluate(segments, power, option, share, row, parameters)
    for n in range(len(share)):
        share[n] = plan.share[n]
    better = staying_is_better(plan, stay, stay_power, stay_option, share, row, parameters)
    for n in range(len(share)):
        if not better[n]:
            stay[n], stay_power[n], stay_option[n] = segments[n], power[n], option[n]
    value, other = evaluate(stay, stay_power, stay_option, share, row, parameters)
    if value < best:
        for n in range(len(share)):
            segments[n], power[n], share[n] = stay[n], stay_power[n], other.share[n]
            option[n] = stay_option[n]


@compiled
def keep_rows(
    segments: IntArray,
    power: FloatArray,
    option: IntArray,
    share: FloatArray,
    stay: IntArray,
    stay_power: FloatArray,
    stay_option: IntArray,
    inputs: RoundInput,
    parameters: Numbers,
) -> None:
    """Keep what pays in many environments; arguments as for :func:`keep_what_pays`, with a leading axis."""
    for e in range(len(segments)):
        keep_what_pays(
            segments[e], power[e], option[e], share[e],
            stay[e], stay_power[e], stay_option[e], environment_row(inputs, e), parameters,
        )  # fmt: skip
