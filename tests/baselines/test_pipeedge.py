"""PipeEdge: the partition with the fastest bottleneck, against brute force."""

import numpy as np
import pytest
from baseline_support import PRICED, SMALL, UNEVEN, decide, first_state
from oracles.partitions import elements, fastest_bottleneck
from oracles.planned_chains import sample_times

from collapipe_env.baselines.pipeedge import PipeEdge

CHATTY = PRICED.with_overrides({"overheads.message_s": 0.5})
"""Messages of four micro-batches cost enough to make other plans best."""


@pytest.mark.parametrize("scenario", [SMALL, UNEVEN, CHATTY], ids=["small", "uneven", "chatty"])
def test_decision_is_the_best_for_times_computed_here(scenario) -> None:
    state = first_state(scenario, 2, seed=4)
    scheduler = PipeEdge(scenario)
    block_s, hop_s = sample_times(scheduler.parameters, state, scheduler.micro_batches)
    allocation, caps = decide(scheduler, state), np.where(state.present, state.memory_cap, 0)
    for place in np.ndindex(2, scenario.clusters):
        slowest, least = fastest_bottleneck(scenario.blocks, caps[place], block_s[place], hop_s[place])
        found = elements(allocation.blocks[place], block_s[place], hop_s[place])
        assert max(found) == pytest.approx(slowest, rel=1e-9)
        assert sum(found) == pytest.approx(least, rel=1e-9)
