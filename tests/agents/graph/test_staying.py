"""Clusters that keep the segments of the round before: only where possible, and only where it pays."""

from dataclasses import replace
from typing import Any

import graph_net_support as support
import numpy as np
import pytest

from collapipe_env.agents.dssra import DSSRA, price_plan
from collapipe_env.agents.dssra.option_table import options_with
from collapipe_env.agents.dssra.parallel_rounds import as_record
from collapipe_env.agents.dssra.round_input import round_input
from collapipe_env.agents.learned.graph.graph_costs import cheaper_to_stay
from collapipe_env.simulator.build import action_codec, system_parameters

HALF = support.BOARDS.with_overrides({"dynamics.processes.migration.moment_bits": 16})
"""Moments in half precision: some random plans are worth the move."""


def test_old_segments_are_kept_only_where_they_are_whole_and_fit():
    """Per cluster: they sum to L, and no device holds more than it can."""
    state, rng = support.played_state(HALF, 24, 1), np.random.default_rng(3)
    L, N = HALF.workload.blocks, HALF.clusters
    cap = np.where(rng.random(state.memory_cap.shape) < 0.3, 3, state.memory_cap)
    cap[..., 0] = L  # there is room
    migration = dict(state.processes["migration"])
    old = migration["blocks"] = migration["blocks"].copy()
    old[rng.random((24, N)) < 0.2] = 0  # nothing was held
    state = replace(state, memory_cap=cap, processes={**state.processes, "migration": migration})
    found = support.scheduler(HALF, 0).allocate(state).blocks
    possible = (old.sum(axis=-1) == L) & (old <= cap).all(axis=-1)
    stays = (found == old).all(axis=-1)
    assert not stays[~possible].any()
    assert stays.any()
    assert not possible.all()
    assert (found.sum(axis=-1) == L).all()
    assert (found <= cap).all()


@pytest.mark.parametrize("seed", range(3))
def test_what_is_kept_costs_no_more_than_what_was_planned(seed):
    """Exact objectives with exact shares, on random powers and micro-batches of both plans."""
    state, rng = support.played_state(HALF, 6, seed, mean=1.0), np.random.default_rng(seed)
    codec, objective = action_codec(HALF), DSSRA(HALF).objective
    p = system_parameters(HALF)
    record: Any = as_record(p.numbers)
    inputs = round_input(p, state, exact_drift=True)
    new = support.random_plan(codec, state, rng)
    old = replace(support.random_plan(codec, state, rng), blocks=state.processes["migration"]["blocks"])
    old = replace(old, cu_power=new.cu_power)

    def arrays(plan):
        option = options_with(inputs.options[0], plan.micro_batches)
        return plan.blocks.copy(), plan.node_power.copy(), option

    def value(stays):
        """Objective where these clusters stay, with the best shares."""
        mixed = replace(
            new,
            blocks=np.where(stays[..., None], old.blocks, new.blocks),
            device_power=np.where(stays[..., None], old.device_power, new.device_power),
            micro_batches=np.where(stays, old.micro_batches, new.micro_batches),
        )
        return objective(state, replace(mixed, bandwidth=price_plan(HALF, state, mixed).shares))

    stays = np.empty(new.bandwidth.shape, np.bool_)
    cheaper_to_stay(*arrays(new), *arrays(old), inputs, record, stays)
    best, found, some = value(np.zeros_like(stays)), value(stays), stays.any(axis=-1)
    assert some.any()
    assert (found[some] < best[some]).all()
    # It finds most of what the best of all 16 choices of who stays would spare.
    every = [np.broadcast_to(np.array(choice, bool), stays.shape) for choice in np.ndindex(2, 2, 2, 2)]
    least = np.min([value(choice) for choice in every], axis=0)
    assert (found >= least * (1.0 - 1e-6)).all()
    assert (best - found).sum() > 0.7 * (best - least).sum()
