"""Cuts of split training: the best together, within the server's memory."""

import itertools

import numpy as np
import pytest
from baseline_support import UNEVEN, first_state
from hypothesis import given
from hypothesis import strategies as st

from collapipe_env.baselines.pipar import PiPar
from collapipe_env.baselines.planning.split_training import best_cuts
from collapipe_env.baselines.splitfed import SplitFedV1, SplitFedV2
from collapipe_env.ground.errors import AllocationError
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.check import check_allocation


@given(
    seed=st.integers(0, 2**32 - 1),
    weight=st.sampled_from([0.1, 1.0, 10.0]),
    room=st.none() | st.integers(0, 9),
)
def test_cuts_are_the_best_together_that_the_server_has_room_for(seed, weight, room) -> None:
    """Each cluster's own best cut is not the round's best where the broadcast of a deep cut is long."""
    rng = np.random.default_rng(seed)
    L, N = 4, 3
    delay = rng.uniform(1.0, 5.0, (L, 2, N))
    delay[1:][rng.random((L - 1, 2, N)) < 0.3] = np.inf
    broadcast = np.cumsum(rng.uniform(0.0, weight, (L, 2)), axis=0)
    cuts = best_cuts(delay, broadcast, room)
    for e in range(2):
        best = np.inf
        for chosen in itertools.product(range(1, L + 1), repeat=N):
            if room is None or N * L - sum(chosen) <= room:
                own = max(delay[c - 1, e, n] for n, c in enumerate(chosen))
                best = min(best, own + broadcast[max(chosen) - 1, e])
        if np.isinf(best):  # left as they are without a limit, for the server's refusal
            assert (cuts[e] == best_cuts(delay, broadcast)[e]).all()
            continue
        own = max(delay[c - 1, e, n] for n, c in enumerate(cuts[e]))
        assert own + broadcast[max(cuts[e]) - 1, e] == best
        assert room is None or N * L - cuts[e].sum() <= room


@pytest.mark.parametrize("kind", [SplitFedV1, SplitFedV2, PiPar])
def test_plans_fit_the_servers_memory(kind) -> None:
    free = UNEVEN.with_overrides({"cluster.server_flops": 1e13})
    L, N = free.blocks, free.clusters
    each = system_parameters(free).server
    each = each.block_state_bytes + each.block_activation_bytes
    state = first_state(free, 2, seed=3)
    assert (kind(free).act(None, state).server_blocks == L - 1).all()
    for room in (N * (L - 1), 2 * N + 1, N):
        scenario = free.with_overrides({"server.memory_bytes": room * each * (1 + 1e-9)})
        plan = kind(scenario).act(None, state)
        check_allocation(system_parameters(scenario), state, plan)
        held = plan.server_blocks.sum(axis=-1) if plan.server_mode[0] != 1 else plan.server_blocks[:, 0]
        assert (held <= room).all()
    tight = free.with_overrides({"server.memory_bytes": 1.0, "devices.profiles.0.memory_bytes": [3.5 * each]})
    state = first_state(tight, 1)
    with pytest.raises(AllocationError, match="on the server, which offers 1: at most 0 blocks"):
        check_allocation(system_parameters(tight), state, kind(tight).act(None, state))
