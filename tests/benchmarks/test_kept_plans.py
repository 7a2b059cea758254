"""The benchmark of kept plans: never a worse round, plans that can be played, and figures that are stored."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import kept_plans

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.scenario import load_scenario


def test_a_round_from_the_kept_plan_is_never_worse_and_can_be_played():
    scenario = load_scenario("small-migration")
    dssra, kept = DSSRA(scenario, threads=1), kept_plans.Kept(scenario, threads=1)
    env = CollaPipeVectorEnv(6, scenario, "surrogate")
    env.reset(seed=0)
    env.action_space.seed(0)
    better = 0
    for index in range(4):
        state = env.state.map(np.copy)
        plain, found = dssra.allocate(state), kept.allocate(state)
        values = [dssra.objective(state, plan) for plan in (plain, found)]
        assert (values[1] <= values[0] * (1.0 + 1e-12)).all()
        better += (values[1] < values[0]).sum()
        playable = kept._playable(state, plain)
        if index == 0:  # nobody has held anything yet
            held = state.processes["migration"]["blocks"]
            assert (held == 0).all()
            np.testing.assert_array_equal(found.blocks, plain.blocks)
        assert playable.all()
        # A plan that somebody played by chance, so that changing it has a price.
        env.step_allocation(found) if index % 2 else env.step(env.action_space.sample())
    assert better > 0


@pytest.mark.slow
def test_it_stores_gaps_and_episodes(tmp_path):
    path = tmp_path / "kept.json"
    quick = ["--states", "2", "--scenarios", "small-migration", "--episodes", "2", "--rounds", "3"]
    assert kept_plans.main([*quick, "--output", str(path)]) == 0
    found = {row["name"]: row["value"] for row in json.loads(path.read_text())["figures"]}
    assert found["kept, worst gap"] <= found["dssra, worst gap"]
    # The oracle tries every plan.
    assert found["kept, worst gap"] > -0.1
    assert found["small-migration, priced delay, dssra"] >= found["small-migration, delay, dssra"]
    assert kept_plans.main(["--states", "0"]) != 0
