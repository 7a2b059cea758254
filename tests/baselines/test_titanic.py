"""TITANIC: the times that its programme is fed with, and its price of a client."""

import numpy as np
import pytest
from baseline_support import PRICED, SMALL, UNEVEN, decide, first_state
from oracles.partitions import client_cost
from oracles.planned_chains import sample_times
from oracles.splits import splits

from collapipe_env.baselines.planning.chain_problem import chain_problems
from collapipe_env.baselines.titanic import Titanic

PRICE_S = 3.0
"""What one client more must save; enough to leave some out of uneven clusters."""


@pytest.mark.parametrize("scenario", [SMALL, UNEVEN, PRICED], ids=["small", "uneven", "priced"])
def test_decision_is_the_best_for_times_computed_here(scenario) -> None:
    state, scheduler = first_state(scenario, 2, seed=3), Titanic(scenario, client_price_s=PRICE_S)
    # One micro-batch: each pass is launched once, each message sent once.
    block_s, hop_s = (
        scheduler.parameters.costs.batch_size * t for t in sample_times(scheduler.parameters, state, 1)
    )
    client_s = hop_s[..., 0, 1:] + 2.0 * scheduler.parameters.overheads.latency_s
    for at, problem in chain_problems(scheduler.parameters, state).items():
        there = state.present[at]
        for mine, theirs in zip((block_s, client_s), scheduler.client_times(problem), strict=True):
            assert np.allclose(mine[at][there], theirs[there], rtol=1e-9)
    blocks, caps = decide(scheduler, state).blocks, np.where(state.present, state.memory_cap, 0)
    for place in np.ndindex(2, scenario.clusters):
        given = block_s[place], client_s[place] + PRICE_S
        least = min(client_cost(p, *given) for p in splits(scenario.blocks, caps[place]))
        assert client_cost(blocks[place], *given) == pytest.approx(least, rel=1e-9)


def test_a_high_price_leaves_the_fewest_clients() -> None:
    state = first_state(UNEVEN, 2, seed=3)
    used = (decide(Titanic(UNEVEN, client_price_s=1e3), state).blocks > 0).sum(axis=-1)
    caps = np.sort(np.where(state.present, state.memory_cap, 0), axis=-1)[..., ::-1].cumsum(axis=-1)
    assert (used == 1 + (caps < UNEVEN.blocks).sum(axis=-1)).all()
