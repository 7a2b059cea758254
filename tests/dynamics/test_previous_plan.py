"""The process of the round before: what a change of plan does to pictures, and holders that cannot be."""

import pytest
from process_support import actions_of

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import StateError
from collapipe_env.rendering.round_view import cluster_round_timeline

SCENARIO = {"base": "small", "dynamics": {"rounds": 8, "processes": {"migration": {}}}}


def test_a_change_of_plan_lengthens_the_picture():
    env = CollaPipeVectorEnv(1, SCENARIO, "surrogate")
    env.reset(seed=0)
    for action in actions_of(env, 3):
        env.step(action)
    record = env.last_round
    moved = record.costs.terms.once["migration"]
    assert (env.state.processes["migration"]["blocks"] == record.allocation.blocks).all()
    assert (moved > 0.0).any()
    for n in range(2):
        timeline = cluster_round_timeline(record, 0, n)
        first = timeline.phases[0]
        assert (first.label == "migration") == (moved[0, n] > 0.0)
        if first.label == "migration":
            assert first.end_s == moved[0, n]
            assert timeline.events[0].start_s == first.end_s
        assert timeline.end_s == pytest.approx(record.costs.delay[0], rel=1e-9)
    env.reset(seed=1)
    assert not env.state.processes["migration"]["blocks"].any()
    carried = (state := env.get_state())["mdp"]["simulator"]["processes"]["migration"]
    carried["holders"] = carried["holders"].copy()
    carried["holders"][0, 0, 0, 0] = True
    with pytest.raises(StateError, match="without a holder"):
        env.set_state(state)
