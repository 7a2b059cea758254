"""A system in the words of the how-to page: five lines, and a fair problem."""

import re
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.even_split import even_split

PAGE = Path(__file__).parents[2] / "docs" / "how_to_scenario.md"


@pytest.mark.slow
def test_twelve_clusters_of_jetsons_are_five_lines_and_a_fair_problem():
    lines = re.search(r"## Your system in five lines.*?```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    assert len(lines.splitlines()) == 5
    scenario = load_scenario(YAML(typ="safe").load(lines))
    assert (scenario.clusters, scenario.cluster.devices, scenario.radio.carrier_ghz) == (12, 5, 3.5)
    assert scenario.radio.uplink_bandwidth_hz == 20e6
    parameters, dssra = system_parameters(scenario), DSSRA(scenario)
    delays, use = {}, {}
    for name, plan in (("dssra", dssra.allocate), ("even", lambda state: even_split(parameters, state))):
        env = CollaPipeVectorEnv(2, scenario, IdleLearner(2))
        env.reset(seed=0)
        rounds = []
        for _ in range(40):
            env.step_allocation(plan(env.state))
            rounds.append(env.last_round.costs)
        delays[name] = np.mean([costs.delay for costs in rounds])
        use[name] = np.mean([costs.energy_ratio for costs in rounds], axis=0).max()
    assert use["dssra"] < 1.02 < 1.1 < use["even"]
    assert delays["dssra"] < 0.8 * delays["even"]
