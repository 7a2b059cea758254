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
from collapipe_env.agents.learned.graph.staying import keep_rows, staying_rows
from collapipe_env.simulator.build import action_codec, system_parameters

HALF = support.BOARDS.with_overrides({"dynamics.processes.migration.moment_bits": 16})
"""Moments in half precision: some random plans are worth the move."""


def environment(scenario, state):
    p = system_parameters(scenario)
    record: Any = as_record(p.numbers)
    return round_input(p, state, exact_drift=True), record


def test_old_segments_are_put_in_where_they_are_whole_and_fit():
    """Per cluster: they sum to L, and no device holds more than it can."""
    state, rng = support.played_state(HALF, 4, 1), np.random.default_rng(3)
    codec, L = action_codec(HALF), HALF.workload.blocks
    cap = np.where(rng.random(state.memory_cap.shape) < 0.3, 3, state.memory_cap)
    cap[..., 0] = L  # there is room
    state = replace(state, memory_cap=cap)
    new = support.random_plan(codec, state, rng).blocks
    old = state.processes["migration"]["blocks"].copy()
    old[1, 2] = 0  # nothing was held
    old[2, 0, 0] += 1
    inputs, _ = environment(HALF, state)
    found = np.full_like(new, -1)
    assert staying_rows(old, new, inputs, L, found)
    kept = 0
    for row, n in np.ndindex(*new.shape[:2]):
        possible = sum(old[row, n]) == L and all(old[row, n] <= cap[row, n])
        np.testing.assert_array_equal(found[row, n], old[row, n] if possible else new[row, n])
        kept += possible
    assert 0 < kept < 14
    assert not staying_rows(new, new, inputs, L, found)
    np.testing.assert_array_equal(found, new)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_kept_costs_no_more_than_what_was_planned(seed):
    """Exact objectives with exact shares, on random powers and micro-batches of both plans."""
    state, rng = support.played_state(HALF, 6, seed, mean=1.0), np.random.default_rng(seed)
    codec, objective = action_codec(HALF), DSSRA(HALF).objective
    inputs, record = environment(HALF, state)
    new = support.random_plan(codec, state, rng)
    old = replace(support.random_plan(codec, state, rng), blocks=state.processes["migration"]["blocks"])
    old = replace(old, cu_power=new.cu_power)

    def arrays(plan):
        option = options_with(inputs.options[0], plan.micro_batches)
        return plan.blocks.copy(), plan.node_power.copy(), option

    played, share = arrays(new), np.full(new.bandwidth.shape, 0.25)
    keep_rows(*played, share, *arrays(old), inputs, record)
    result = replace(
        new,
        blocks=played[0],
        cu_power=played[1][..., 0],
        device_power=played[1][..., 1:],
        micro_batches=inputs.options[0, played[2], 0],
        bandwidth=share,
    )
    np.testing.assert_allclose(share.sum(axis=-1), 1.0, atol=1e-9)
    best = objective(state, replace(new, bandwidth=price_plan(HALF, state, new).shares))
    found = objective(state, result)
    assert (found <= best * (1.0 + 1e-6)).all()
    # Every cluster has all of the one plan or all of the other.
    stays, moves = (
        (result.blocks == plan.blocks).all(axis=-1) & (result.device_power == plan.device_power).all(axis=-1)
        for plan in (old, new)
    )
    assert (stays != moves).all()
    np.testing.assert_array_equal(result.micro_batches, np.where(stays, old.micro_batches, new.micro_batches))
    some = stays.any(axis=-1)
    assert some.any()
    assert (found[some] < best[some]).all()
    np.testing.assert_allclose(found[~some], best[~some], rtol=1e-6)
    # It finds most of what the best of all 16 choices of who stays would spare.
    choices = []
    for choice in np.ndindex(2, 2, 2, 2):
        who = np.array(choice, bool)
        mixed = replace(
            new,
            blocks=np.where(who[:, None], old.blocks, new.blocks),
            device_power=np.where(who[:, None], old.device_power, new.device_power),
            micro_batches=np.where(who, old.micro_batches, new.micro_batches),
        )
        choices.append(objective(state, replace(mixed, bandwidth=price_plan(HALF, state, mixed).shares)))
    least = np.min(choices, axis=0)
    assert (found >= least * (1.0 - 1e-6)).all()
    assert (best - found).sum() > 0.7 * (best - least).sum()
