"""Greedy drift plus penalty a block at a time, priced by the simulator's round of every partial plan."""

from dataclasses import replace

import numpy as np

from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split


def price(scheduler, state, n, segments):
    """``V T_n + sum z e`` of one cluster for a partial plan, with the others as in the even split."""
    parameters = scheduler.parameters
    plan = even_split(parameters, state, scheduler.micro_batches)
    blocks = plan.blocks.copy()
    blocks[0, n] = segments
    costs = round_costs(parameters, state, replace(plan, blocks=blocks))
    # The energy of idle radios depends on the other clusters, too.
    drift = (state.backlog * costs.busy_energy / state.budget)[0, n].sum()
    # A second grants every node of the system its part of a budget, of which its idle radio uses some.
    each = -parameters.radio_power.idle_w / state.budget
    if parameters.budget_period_s is not None:
        each = each + 1.0 / parameters.budget_period_s
    worth = max(parameters.tradeoff_v - (state.backlog * each).sum(), 0.02 * parameters.tradeoff_v)
    return worth * costs.cluster_delay[0, n] + drift


def slow_greedy(scheduler, state, n):
    total = scheduler.parameters.costs.blocks
    cap = np.where(state.present, state.memory_cap, 0)[0, n]
    usable = [k for k in range(len(cap)) if cap[k] > 0]
    segments, at = np.zeros(len(cap), dtype=int), 0
    for placed in range(total):
        options = []
        if segments[usable[at]] < cap[usable[at]]:
            options.append(at)
        if placed and sum(cap[k] for k in usable[at + 1 :]) >= total - placed:
            options.append(at + 1)
        tried = []
        for option in options:
            trial = segments.copy()
            trial[usable[option]] += 1
            tried.append(price(scheduler, state, n, trial))
        at = options[int(np.argmin(tried))]
        segments[usable[at]] += 1
    return segments.tolist()
