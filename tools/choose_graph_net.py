"""Choose one of several training runs of the graph net, on validation episodes alone.

A run is judged by the geometric mean of the priced delays on ``small``,
``medium``, a system between ``medium`` and ``large``, and one of 48 clusters, which is larger than any in the
training: runs that are equally good on known sizes may differ beyond them. Runs for the tier Wild are judged
on ``large-wild`` and on a random system of 48 clusters. No test episode is used. Run::

    python tools/choose_graph_net.py runs/net-*/checkpoints/latest.safetensors
    python tools/choose_graph_net.py --systems wild runs/wild-*/checkpoints/latest.safetensors
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import tyro
from generated_parts import markdown_table
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
from collapipe_env.ground.errors import CollaPipeError
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.zoo.shipped_agents import agent_path

LARGE = (48, 12)
"""Clusters and devices of the system beyond those of the training."""


def sized(clusters: int, devices: int) -> Scenario:
    """``large`` with other numbers of clusters N and devices K, priced as the ladder is.

    Band, server and power are 5 MHz, 0.5 TFLOP/s and 5 W per cluster; 8 % of the band is shared out evenly.
    """
    return load_scenario("large").with_overrides(scaled(clusters) | {"cluster.devices": devices})


@dataclass(frozen=True)
class Options:
    """Choose one of several training runs of the graph net."""

    nets: tyro.conf.Positional[tuple[str, ...]]
    """A saved net of each run, or one of the zoo."""
    systems: RandomSystems = "ladder"
    """Kind of systems to judge the runs on."""
    episodes: int = 8
    """Validation episodes of each scenario."""
    rounds: int = 300
    """Rounds of an episode."""


def main(arguments: list[str] | None = None) -> int:
    """Judge the runs and print the table, best first; returns the exit status."""
    options = tyro.cli(Options, description=__doc__, args=arguments)
    if min(options.episodes, options.rounds) < 1:
        low = "episodes" if options.episodes < 1 else "rounds"
        print(f"error: --{low} = {getattr(options, low)}: 1 or more is needed", file=sys.stderr)
        return 2
    if not options.nets:
        print("error: no net is given: name the files of one or more", file=sys.stderr)
        return 2
    wild = options.systems == "wild"
    scenarios = wild_scenarios() if wild else (*validation_scenarios(), sized(*LARGE))
    shown = load_scenario("large-wild" if wild else "medium")
    validate = GraphValidator(shown, scenarios, options.episodes, options.rounds)
    lines = []
    try:
        nets = {name: require_graph_net(read_agent_file(agent_path(name)), name) for name in options.nets}
        for path, net in tqdm(nets.items(), "validating", disable=None, leave=False):
            score = validate(net, 0, 0.0)
            lines.append((score.objective, path, score.priced_delay, score.energy_ratio))
    except CollaPipeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    cells = [
        [path, f"{objective:.4f}", f"{delay:.3f}", f"{100.0 * (energy - 1.0):+.2f}"]
        for objective, path, delay, energy in sorted(lines)
    ]
    print(
        markdown_table(
            ["net", "geometric mean (s)", f"priced delay on `{shown.name}` (s)", "over budget (%)"], cells
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
