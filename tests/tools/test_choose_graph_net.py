"""The tool that chooses a training run of the graph net judges each by its objective, best first."""

import math

import choose_graph_net
import numpy as np
import pytest
from choose_graph_net import sized

from collapipe_env.agents.learned.agent_loading import load_agent
from collapipe_env.agents.learned.graph.graph_parameters import GraphParameters
from collapipe_env.agents.learned.graph.graph_training import GraphPlan, GraphTraining, validation_scenarios
from collapipe_env.agents.learned.hyperparameters import usual
from collapipe_env.agents.learned.training_files import TrainingFiles
from collapipe_env.agents.learned.validation import VALIDATION_SEED
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters


def trained(folder, seed):
    files = TrainingFiles(folder)
    parameters = usual(
        GraphParameters,
        clusters=8,
        most_clusters=3,
        random_groups=0,
        scenarios=("small",),
        samples=2,
        width=8,
        hidden=8,
    )
    GraphTraining(GraphPlan(load_scenario("small"), parameters, 1, seed, 1), files).run(lambda _: None)
    return files.latest


def objective(path, scenario):
    """Mean delay of three rounds, plus the worth of their drift."""
    env = CollaPipeVectorEnv(2, scenario, IdleLearner(2), autoreset_mode="Disabled")
    env.reset(seed=VALIDATION_SEED)
    scheduler, delay = load_agent(str(path), scenario), 0.0
    for _ in range(3):
        delay += env.step_allocation(scheduler.allocate(env.state))[4]["delay"].mean() / 3
    drift = 0.5 * (env.state.backlog**2).sum(axis=(1, 2)).mean() / 3
    return delay + drift / system_parameters(scenario).tradeoff_v


@pytest.mark.slow
def test_runs_are_ranked_by_their_objectives_on_sizes_known_and_not(tmp_path, capsys):
    nets = [trained(tmp_path / str(seed), seed) for seed in (0, 1)]
    assert choose_graph_net.main([*map(str, nets), "--episodes", "2", "--rounds", "3"]) == 0
    found = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    wanted = {}
    for net in nets:
        logs = [math.log(objective(net, s)) for s in (*validation_scenarios(), sized(48, 12))]
        wanted[str(net)] = math.exp(np.mean(logs))
    assert [cells[0].removeprefix("| ") for cells in found] == sorted(wanted, key=wanted.__getitem__)
    for cells in found:
        assert float(cells[1]) == round(wanted[cells[0].removeprefix("| ")], 4)
