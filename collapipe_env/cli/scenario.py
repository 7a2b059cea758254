"""``collapipe scenario``: show a scenario as YAML, check it, or list the differences between two."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

import numpy as np
import tyro

from collapipe_env.cli.common import chosen_scenario, command
from collapipe_env.cli.option_types import Source, TaskName
from collapipe_env.evaluation.run_directory import differences
from collapipe_env.ground.errors import shortened
from collapipe_env.scenario import Scenario, block_bytes, working_bytes
from collapipe_env.scenario.names import SHIPPED

DESCRIPTION = f"""Show or check a scenario, or list the differences between two.

A scenario is a shipped one ({SHIPPED}), a YAML
file, or your own in Python (file.py:Name). Exit status: 0 on success; 1 if check finds an energy budget that
cannot be met; 2 if a scenario cannot be used.

Examples:
  collapipe scenario show medium > my_scenario.yaml
  collapipe scenario show medium --task ner
  collapipe scenario check my_scenario.yaml
  collapipe scenario diff medium my_scenario.yaml
"""
INFEASIBLE = 1
"""Exit status of ``check`` if the scenario is valid but an energy budget cannot be met."""


@dataclass(frozen=True)
class Show:
    """Print a scenario with all its fields, as a YAML scenario file."""

    scenario: tyro.conf.Positional[Source]
    task: TaskName = None

    def run(self) -> int:
        """Print the scenario."""
        scenario = chosen_scenario(self.scenario, self.task)
        print(scenario.to_yaml(), end="")
        return 0


@dataclass(frozen=True)
class Check:
    """Print the sizes of a scenario and whether its energy budgets can be met."""

    scenario: tyro.conf.Positional[Source]
    task: TaskName = None

    def run(self) -> int:
        """Print sizes and feasibility."""
        from collapipe_env.feasibility import assumption, energy_feasibility, remedy
        from collapipe_env.simulator.idle_fields import idle_fields

        scenario = chosen_scenario(self.scenario, self.task)
        played = _play_own_parts(scenario)
        lines = _sizes(scenario)
        width = max(len(name) for name, _ in lines)
        print(f"scenario {scenario.name!r} is valid")
        for name, text in lines:
            _print_wrapped(f"  {name:<{width}}  {text}", width + 4)
        if played:
            _print_wrapped(f"a round was played with your own {', '.join(played)}", 2)
        for place, reason in idle_fields(scenario).items():
            _print_wrapped(f"{place} has no effect: {reason}", 2)
        report = energy_feasibility(scenario)
        verdict, *details = report.describe().splitlines()
        _print_wrapped(verdict, 2)
        for line in details:
            _print_wrapped(f"  {line}", 4)
        if walks := assumption(scenario):
            _print_wrapped(walks, 2)
        if not report.feasible:
            _print_wrapped(remedy(scenario, report), 2)
        return 0 if report.feasible else INFEASIBLE


@dataclass(frozen=True)
class Diff:
    """List the fields in which two scenarios differ, with both values."""

    first: tyro.conf.Positional[Source]
    second: tyro.conf.Positional[Source]

    def run(self) -> int:
        """Print the differences."""
        first, second = (chosen_scenario(source) for source in (self.first, self.second))
        lines = [
            (place, *(shortened(str(value), 60) for value in values))
            for place, *values in differences(first.to_dict(), second.to_dict())
        ]
        if not lines:
            print("no differences")
            return 0
        header = ("field", self.first, self.second)
        widths = [max(len(line[column]) for line in [header, *lines]) for column in (0, 1)]
        for place, before, now in [header, *lines]:
            print(f"{place:<{widths[0]}}  {before:<{widths[1]}}  {now}")
        return 0


Options = Show | Check | Diff


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


def _print_wrapped(line: str, indent: int) -> None:
    """Print a line in 80 columns, the rest indented below; words stay whole."""
    below = " " * indent
    print(textwrap.fill(line, 80, subsequent_indent=below, break_long_words=False, break_on_hyphens=False))


def _sizes(scenario: Scenario) -> list[tuple[str, str]]:
    """Return the sizes of a scenario, as names and texts."""
    from collapipe_env.envs.observation import FlatObserver
    from collapipe_env.simulator.build import action_codec

    devices = scenario.cluster.devices_per_cluster
    span = " to ".join(map(str, sorted({min(devices), max(devices)})))
    workload, dynamics = scenario.workload, scenario.dynamics
    working = working_bytes(scenario)
    beside = f", {working / 1e6:,.1f} MB beside them" if working else ""
    return [
        ("clusters", f"{scenario.clusters:,}"),
        ("devices", f"{sum(devices):,}, {span} in a cluster"),
        (
            "encoder blocks",
            f"{scenario.blocks}, {block_bytes(scenario) / 1e6:,.1f} MB of memory each{beside}",
        ),
        ("task", f"{workload.task}, data: {scenario.learning.dataset}"),
        ("episode", f"{dynamics.rounds:,} rounds, layout {scenario.cluster.layout}"),
        ("observation", f"{FlatObserver(scenario).layout.size:,} numbers"),
        ("action", f"{action_codec(scenario).action_size:,} numbers"),
    ]


main = command(Options, lambda asked, _: asked.run(), DESCRIPTION, "collapipe scenario")
