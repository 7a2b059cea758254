"""The usual time scale: the shortest priced time that counts lasts 20 ms."""

import pytest
from executed_support import Changed, quick

from collapipe_env.execution.planned_rounds import PlannedRounds
from collapipe_env.execution.time_scale import usual_scale


def shortest(script):
    times = []
    for cluster in script.clusters:
        for stage in cluster.stages:
            times += [stage.forward_s, stage.backward_s]
        times += [*cluster.hop_forward_s, *cluster.hop_backward_s, cluster.uplink_s, cluster.downlink_s]
    return min(times)


@pytest.mark.parametrize("micro_batches", [1, 16])
def test_the_shortest_time_lasts_twenty_milliseconds(micro_batches):
    scenario = quick()
    rounds = PlannedRounds(scenario, Changed(scenario, micro_batches=micro_batches), 0)
    script = rounds.next().script
    expected = max(1.0, 0.02 / shortest(script))
    assert usual_scale(script) == pytest.approx(expected)
    assert (usual_scale(script) > 1.0) == (micro_batches == 16)
