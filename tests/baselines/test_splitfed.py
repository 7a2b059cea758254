"""SplitFed V1 and V2: the best cuts by brute force, on the strongest device that has room."""

import itertools

import numpy as np
import pytest
from baseline_support import SLOW, SLOW_PRICED, SLOWER, SMALL, UNEVEN, first_state
from oracles.split_rounds import split, strongest

from collapipe_env.baselines.splitfed import SplitFedV1, SplitFedV2
from collapipe_env.physics.allocation import COPIES, SEQUENTIAL
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs

SCENARIOS = [SMALL, UNEVEN, SLOW, SLOWER, SLOW_PRICED]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=["small", "uneven", "slow", "slower", "priced"])
@pytest.mark.parametrize("kind", [SplitFedV1, SplitFedV2])
def test_best_of_all_cuts(kind, scenario) -> None:
    scheduler = kind(scenario)
    state = first_state(scenario, 4, seed=3)
    decision = scheduler.act(None, state)
    check_allocation(scheduler.parameters, state, decision)
    found = round_costs(scheduler.parameters, state, decision).delay
    L, N = scenario.blocks, scenario.clusters
    v2 = kind is SplitFedV2
    candidates = [(c,) * N for c in range(1, L + 1)] if v2 else itertools.product(range(1, L + 1), repeat=N)
    best = np.full(4, np.inf)
    for cuts in candidates:
        for e in range(4):
            plan = split(scheduler, state, e, cuts, SEQUENTIAL if v2 else COPIES)
            if plan is not None:
                best[e] = min(best[e], round_costs(scheduler.parameters, state[e], plan).delay)
    assert found == pytest.approx(best, rel=1e-12)
    assert (decision.micro_batches == 1).all()
    assert (decision.server_mode == (SEQUENTIAL if v2 else COPIES)).all()
    cut = L - decision.server_blocks
    if scenario in (SLOW, SLOWER, SLOW_PRICED):
        assert (cut > 1).any()  # or the comparison would say little
    else:
        assert (cut == 1).all()
    for e, n in np.ndindex(cut.shape):
        assert np.flatnonzero(decision.blocks[e, n]).tolist() == [strongest(state, e, n, cut[e, n])]


def test_v1_has_cuts_of_its_own_and_v2_has_one() -> None:
    state = first_state(SLOW, 8, seed=1)
    own, common = (SplitFed(SLOW).act(None, state).server_blocks for SplitFed in (SplitFedV1, SplitFedV2))
    assert (own != own[:, :1]).any()
    assert (common == common[:, :1]).all()
