"""Replays of scripts against closed forms; those of played rounds are in ``test_script_building.py``."""

from dataclasses import replace

import numpy as np
import pytest
from oracles.schedules import Chain, longest_path, one_f_one_b
from script_support import a_world, even_plan, scheduled

from collapipe_env.execution.script_building import round_script
from collapipe_env.execution.script_replay import replayed_step
from collapipe_env.ground.errors import AllocationError


def a_script(schedule, micro_batches=4):
    world = a_world(radio={"link_errors": "none"})
    record = world.step(scheduled(even_plan(world, micro_batches), schedule))
    return round_script(record, 0, world.parameters).clusters[0]


@pytest.mark.parametrize("micro_batches", [1, 4, 8])
def test_a_step_is_the_longest_path_through_its_operations(micro_batches):
    script = a_script("1f1b", micro_batches)
    stages = [*script.stages, script.server]
    chain = Chain(
        [stage.forward_s for stage in stages],
        [stage.backward_s for stage in stages],
        [0.0] * 4,
        [*script.hop_forward_s, 0.0, script.uplink_s],
        [*script.hop_backward_s, 0.0, script.downlink_s],
        [script.latency_s] * 5 + [script.edge_latency_s],
        [[1.0]] * 4,
    )
    orders = [one_f_one_b(min(cap, micro_batches), micro_batches) for cap in (4, 3, 2, 1)]
    expected = longest_path(chain, orders, micro_batches, 1)
    assert replayed_step(script)[0] == pytest.approx(expected, rel=1e-12)


def test_a_stage_without_room_never_ends():
    script = a_script("zb-h1")
    order = tuple(operation for operation in script.stages[0].order if operation[0] < 2)
    stages = tuple(replace(stage, order=order) for stage in script.stages)
    script = replace(script, stages=stages, server=replace(script.server, order=order))
    assert replayed_step(script, [4] * 4)[0] < np.inf
    with pytest.raises(AllocationError, match="cluster 0 under 'zb-h1' wait for each other; raise the caps"):
        replayed_step(script, [1, 4, 4, 4])
