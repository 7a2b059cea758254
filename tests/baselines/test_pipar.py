"""PiPar: the timetable of the authors' code, and the best split and number of batches by brute force."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from baseline_support import SLOW, SLOW_PRICED, SLOWER, SMALL, UNEVEN, first_state
from oracles.split_rounds import authors_rule, iteration, split, strongest, timetable
from unpriced_support import unpriced

from collapipe_env.baselines.pipar import PiPar
from collapipe_env.baselines.splitfed import SplitFedV1
from collapipe_env.physics.allocation import COPIES
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs


@pytest.mark.parametrize("scenario", [unpriced(SMALL), SLOW, SLOWER], ids=["small", "slow", "slower"])
def test_local_step_is_the_timetable_of_the_authors_code(scenario) -> None:
    scheduler, state = PiPar(scenario), first_state(scenario, 4, seed=6)
    decision = scheduler.act(None, state)
    costs = round_costs(scheduler.parameters, state, decision)
    for at in np.ndindex(costs.local_step.shape):
        expected = iteration(costs.elements, at, int(decision.micro_batches[at]))
        assert costs.local_step[at] == pytest.approx(expected, rel=1e-9)
    # Answering at once beats waiting for all forwards.
    flushed = replace(decision, schedule=None, caps=None, chunks=None)
    assert (round_costs(scheduler.parameters, state, flushed).delay >= costs.delay * (1 - 1e-12)).all()


@pytest.mark.parametrize(
    "scenario", [UNEVEN, SLOW, SLOWER, SLOW_PRICED], ids=["uneven", "slow", "slower", "priced"]
)
def test_best_of_all_splits_and_numbers_of_batches(scenario) -> None:
    scheduler, rows = PiPar(scenario), 3
    state = first_state(scenario, rows, seed=4)
    decision = scheduler.act(None, state)
    check_allocation(scheduler.parameters, state, decision)
    assert (decision.server_mode == COPIES).all()
    costs = round_costs(scheduler.parameters, state, decision)
    L, N = scenario.blocks, scenario.clusters
    choices = scheduler.parameters.micro_batch_choices
    for e in range(rows):
        # Clusters are independent but for the broadcast, which follows the largest cut.
        own, broadcast = {}, {}
        for cut, M in itertools.product(range(1, L + 1), choices):
            for n in range(N):
                cuts, Ms = [1] * N, [1] * N
                cuts[n], Ms[n] = cut, M
                plan = split(scheduler, state, e, cuts, COPIES, Ms)
                if plan is None:
                    continue
                one = round_costs(scheduler.parameters, state[e], timetable(plan))
                own[n, cut, M] = one.cluster_delay[n]
                broadcast[cut] = one.broadcast
        options = [[key[1:] for key in own if key[0] == n] for n in range(N)]
        best = min(
            max(own[n, *pair] for n, pair in enumerate(pairs)) + broadcast[max(cut for cut, _ in pairs)]
            for pairs in itertools.product(*options)
        )
        assert costs.delay[e] == pytest.approx(best, rel=1e-12)
    cut = L - decision.server_blocks
    for e, n in np.ndindex(cut.shape):
        assert np.flatnonzero(decision.blocks[e, n]).tolist() == [strongest(state, e, n, cut[e, n])]
    assert scenario is UNEVEN or (cut > 1).any()


@pytest.mark.parametrize("scenario", [SMALL, SLOW], ids=["small", "slow"])
def test_not_slower_than_the_authors_rule_and_than_no_pipeline(scenario) -> None:
    scheduler, state = PiPar(scenario), first_state(scenario, 3, seed=8)
    p = scheduler.parameters
    found = round_costs(p, state, scheduler.act(None, state)).delay
    unpipelined = round_costs(p, state, SplitFedV1(scenario).act(None, state)).delay
    assert (found < unpipelined).all()
    for e in range(3):
        for cut in range(1, scenario.blocks + 1):
            plan = split(scheduler, state, e, [cut] * scenario.clusters, COPIES)
            if plan is None:
                continue
            parts = round_costs(p, state[e], plan).elements
            names = ("compute_forward", "compute_backward", "hop_forward", "hop_backward")
            names += ("uplink", "downlink", "server_forward", "server_backward")
            for n in range(scenario.clusters):
                times = {name: getattr(parts, name)[n] for name in names}
                plan.micro_batches[n] = authors_rule(times, p.micro_batch_choices, p.costs.batch_size)
            assert found[e] <= round_costs(p, state[e], timetable(plan)).delay * (1 + 1e-12)


def test_memory_holds_the_whole_mini_batch() -> None:
    """However many batches: all their activations wait at the device for their gradients."""
    scheduler, state = PiPar(SLOWER), first_state(SLOWER, 4, seed=5)
    decision = scheduler.act(None, state)
    costs = scheduler.parameters.costs
    expected = decision.blocks * (costs.block_state_bytes + costs.batch_size * costs.stored_activation_bytes)
    memory = round_costs(scheduler.parameters, state, decision).memory
    np.testing.assert_allclose(memory, expected, rtol=1e-12)
    assert (memory <= state.memory_bytes).all()
