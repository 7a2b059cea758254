"""Choose one of several training runs of the graph net.

Every run is judged by its objective, a geometric mean of priced delays, on validation episodes of the
systems of the ladder that trainings are validated on, and of one beyond the sizes of the training, 48
clusters of 12 devices: runs that are equally good on known sizes may differ beyond them. Runs for the tier
Wild are judged on ``large-wild`` and on a random system of 48 clusters. No test episode is used. Run::

    python tools/choose_graph_net.py runs/net-*/checkpoints/latest.safetensors
    python tools/choose_graph_net.py --systems wild runs/wild-*/checkpoints/latest.safetensors
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import tyro
from generated_parts import markdown_table
from pydantic import BaseModel, Field
from tqdm import tqdm

from collapipe_env.agents.learned.agent_file import read_agent_file
from collapipe_env.agents.learned.graph.graph_files import require_graph_net
from collapipe_env.agents.learned.graph.graph_parameters import RandomSystems
from collapipe_env.agents.learned.graph.graph_training import (
    GraphValidator,
    validation_scenarios,
    wild_scenarios,
)
from collapipe_env.agents.learned.graph.systems import scaled
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.zoo.shipped_agents import agent_path

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from measuring import command

LARGE = (48, 12)
"""Clusters and devices of the system beyond those of the training."""


def sized(clusters: int, devices: int) -> Scenario:
    """``xlarge`` with other numbers of clusters N and devices K, priced as the ladder is.

    Band, server and power are 25 MHz, 0.5 TFLOP/s and 2.5 W per cluster; 8 % of the band are shared evenly.
    """
    return load_scenario("xlarge").with_overrides(scaled(clusters) | {"cluster.devices": devices})


class Options(BaseModel):
    """Choose one of several training runs of the graph net."""

    nets: tyro.conf.Positional[Annotated[tuple[str, ...], Field(min_length=1)]]
    """A saved net of each run, or one of the zoo."""
    systems: RandomSystems = "ladder"
    """Kind of systems to judge the runs on."""
    episodes: Annotated[int, Field(ge=1)] = 8
    """Validation episodes of each scenario, at least 1."""
    rounds: Annotated[int, Field(ge=1)] = 300
    """Rounds of an episode, at least 1."""


def run(options: Options) -> None:
    """Judge the runs and print the table, best first."""
    nets = {name: require_graph_net(read_agent_file(agent_path(name)), name) for name in options.nets}
    wild = options.systems == "wild"
    scenarios = wild_scenarios() if wild else (*validation_scenarios(), sized(*LARGE))
    shown = load_scenario("large-wild" if wild else "medium")
    validate = GraphValidator(shown, scenarios, options.episodes, options.rounds)
    scores = {name: validate(net, 0, 0.0) for name, net in tqdm(nets.items(), "validating", disable=None)}
    heads = ("net", "geometric mean (s)", f"priced delay on `{shown.name}` (s)", "over budget (%)")
    rows = [
        (name, f"{s.objective:.4f}", f"{s.priced_delay:.3f}", f"{100.0 * (s.energy_ratio - 1.0):+.2f}")
        for name, s in sorted(scores.items(), key=lambda item: item[1].objective)
    ]
    print(markdown_table(heads, rows))


main = command(Options, run, __doc__)

if __name__ == "__main__":
    sys.exit(main())
