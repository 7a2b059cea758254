"""Show or check a scenario, suggest its energy budgets, or compare two.

A scenario is a shipped one, a YAML file, or your own in Python
(file.py:Name). Exit status: 0 on success; 1 if check finds an energy budget
that cannot be met; 2 if a scenario cannot be used.

Examples:
  collapipe scenario show medium > my_scenario.yaml
  collapipe scenario show medium --task ner
  collapipe scenario check my_scenario.yaml
  collapipe scenario suggest my_scenario.yaml --tightness 0.5
  collapipe scenario diff medium my_scenario.yaml

Shipped scenarios:
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import tyro

from collapipe_env.cli.chosen import chosen_scenario
from collapipe_env.cli.early_end import Call
from collapipe_env.cli.option_types import Source, TaskName, Within, about
from collapipe_env.evaluation.rounds import LARGEST_ROUNDS
from collapipe_env.evaluation.run_directory import differences
from collapipe_env.ground.errors import shortened
from collapipe_env.ground.progress import progress_bar
from collapipe_env.scenario import Scenario, block_bytes, working_bytes
from collapipe_env.scenario.names import SHIPPED

INFEASIBLE = 1
"""Exit status of ``check`` if the scenario is valid but an energy budget cannot be met."""


@dataclass(frozen=True)
class Show:
    """Print a scenario with all its fields, as a YAML scenario file."""

    scenario: tyro.conf.Positional[Source]
    task: TaskName = None

    def _run(self) -> None:
        scenario = chosen_scenario(self.scenario, self.task)
        if (tightness := scenario.budgets.tightness) is not None:
            from collapipe_env.simulator.build import node_budgets

            joules = ", ".join(
                f"{name}: {value:g}" for name, value in node_budgets(scenario)._asdict().items()
            )
            print(f"# budgets of tightness {tightness:g}: {joules}")
        print(scenario.to_yaml(), end="")


@dataclass(frozen=True)
class Check:
    """Print the sizes of a scenario and whether its energy budgets can be met."""

    scenario: tyro.conf.Positional[Source]
    task: TaskName = None

    def _run(self) -> int:
        from collapipe_env.cli.least_energy_page import print_least_energy, wrapped
        from collapipe_env.feasibility import assumption, energy_feasibility, remedy
        from collapipe_env.simulator.idle_fields import idle_fields
        from collapipe_env.simulator.law_ranges import outside_ranges

        scenario = chosen_scenario(self.scenario, self.task)
        played, report = _play_own_parts(scenario), energy_feasibility(scenario)
        lines = [(f"  {name:<14}  {text}", 18) for name, text in _sizes(scenario).items()]
        if played:
            lines.append((f"a round was played with your own {', '.join(played)}", 2))
        lines += [(f"{field} has no effect: {why}", 2) for field, why in idle_fields(scenario).items()]
        lines += [(f"{field}: {why}", 2) for field, why in outside_ranges(scenario).items()]
        print(f"scenario {scenario.name!r} is valid")
        for line, indent in lines:
            print(wrapped(line, indent))
        print_least_energy(scenario, report)
        below = [report.verdict, assumption(scenario)]
        if not report.feasible:
            below.append(remedy(scenario, report))
        for line in filter(None, below):
            print(wrapped(line))
        return 0 if report.feasible else INFEASIBLE


@dataclass(frozen=True)
class Suggest:
    """Suggest energy budgets that bind, and say what rounds are like within them."""

    scenario: tyro.conf.Positional[Source]
    task: TaskName = None
    tightness: Annotated[float | None, Within(0, 1), about("FLOAT", "the scenario's, or 0.5")] = None
    """Place of the budgets: 0 is the least energy, 1 that of the even split at full power."""
    rounds: Annotated[int, Within(4, LARGEST_ROUNDS), about("INT")] = 40
    """Rounds of each episode, which the even split and DSSRA play."""
    episodes: Annotated[int, Within(2, 1000), about("INT")] = 8
    """Episodes of each of them."""
    seed: Annotated[int, Within(0, 2**31 - 1), about("INT")] = 0
    """Seed of the first episode."""

    def _run(self) -> None:
        from collapipe_env.cli.suggestion_page import print_suggestion
        from collapipe_env.evaluation.suggestion import suggested

        scenario = chosen_scenario(self.scenario, self.task)
        own = scenario.budgets.tightness if self.tightness is None else self.tightness
        tightness = 0.5 if own is None else own
        with progress_bar(2 * self.rounds, "playing", "rounds") as bar:
            found = suggested(scenario, tightness, self.rounds, self.episodes, self.seed, bar.update)
        print_suggestion(scenario, tightness, found)


@dataclass(frozen=True)
class Diff:
    """List the fields in which two scenarios differ, with both values."""

    first: tyro.conf.Positional[Source]
    second: tyro.conf.Positional[Source]

    def _run(self) -> None:
        first, second = (chosen_scenario(source).to_dict() for source in (self.first, self.second))
        lines: list[tuple[str, ...]] = [("field", self.first, self.second)]
        for place, *values in differences(first, second):
            lines.append((place, *(shortened(str(value), 60) for value in values)))
        if len(lines) == 1:
            print("no differences")
            return
        widths = [max(len(line[column]) for line in lines) for column in (0, 1)]
        for place, before, now in lines:
            print(f"{place:<{widths[0]}}  {before:<{widths[1]}}  {now}")


def _play_own_parts(scenario: Scenario) -> list[str]:
    """Play a round, so that a faulty part of the user's own fails now; returns the parts' names."""
    from collapipe_env.envs.vector import CollaPipeVectorEnv
    from collapipe_env.evaluation.own_parts import own_parts
    from collapipe_env.scenario.task_registry import TASKS

    own = own_parts(scenario)
    if not own or scenario.workload.task in TASKS.added():  # there is no surrogate of the user's own tasks
        return []
    env = CollaPipeVectorEnv(1, scenario, "surrogate")
    env.reset(seed=0)
    env.step(np.zeros(env.action_space.shape, dtype=np.float32))
    return own


def _sizes(scenario: Scenario) -> dict[str, str]:
    """Sizes of a scenario in words."""
    from collapipe_env.envs.observation import FlatObserver
    from collapipe_env.simulator.build import action_codec

    devices, rounds = scenario.cluster.devices_per_cluster, scenario.dynamics.rounds
    span = " to ".join(map(str, sorted({min(devices), max(devices)})))
    working = working_bytes(scenario)
    beside = f", {working / 1e6:,.1f} MB beside them" if working else ""
    return {
        "clusters": f"{scenario.clusters:,}",
        "devices": f"{sum(devices):,}, {span} in a cluster",
        "encoder blocks": f"{scenario.blocks}, {block_bytes(scenario) / 1e6:,.1f} MB of memory each{beside}",
        "task": f"{scenario.workload.task}, data: {scenario.learning.dataset}",
        "episode": f"{rounds:,} rounds, layout {scenario.cluster.layout}",
        "observation": f"{FlatObserver(scenario).layout.size:,} numbers",
        "action": f"{action_codec(scenario).action_size:,} numbers",
    }


Options = Show | Check | Suggest | Diff
LISTED = textwrap.indent(textwrap.fill(SHIPPED, 78, break_on_hyphens=False), "  ")
__doc__ = f"{__doc__}{LISTED}"


def run(options: Show | Check | Suggest | Diff, _: Call) -> int | None:
    """Do what the subcommand says."""
    return options._run()
