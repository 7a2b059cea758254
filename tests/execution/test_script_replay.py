"""Replays of scripts against closed forms; those of played rounds are in ``test_script_building.py``."""

import numpy as np
import pytest
from script_support import chain_script

from collapipe_env.execution.script_replay import replayed_step
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.schedules.simulation import ChainTimes


def uniform(stages, forward, backward, weight=0.0):
    both = np.zeros(stages + 3)
    compute = (np.full(stages + 1, seconds) for seconds in (forward, backward, weight))
    return ChainTimes(*compute, both, both, both, np.ones((stages + 1, 1)))


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("micro_batches", [1, 3, 8])
def test_equal_stages_take_the_textbook_time(schedule, micro_batches):
    # Three stages and the server are a pipeline of four: (M + P - 1) (F + B).
    script = chain_script(uniform(3, 1.0, 2.0), schedule, [4, 3, 2], micro_batches)
    assert replayed_step(script)[0] == pytest.approx((micro_batches + 3) * 3.0)


def test_a_stage_without_room_never_ends():
    script = chain_script(uniform(1, 1.0, 1.0, weight=1.0), "zb-h1", [3], 3, variant=1)
    assert replayed_step(script, [3, 3])[0] < np.inf
    with pytest.raises(AllocationError, match="cluster 0 under 'zb-h1' wait for each other; raise the caps"):
        replayed_step(script, [1, 3])
