"""Time of the tiers' steps over those of the same scenarios in which nothing moves, measured side by side.

A tier and its static twin, the scenario without processes and load, take turns in short slices; each figure
is the ratio of the two, slice by slice, with its range. The last row names the process that costs most. Run::

    python benchmarks/tiers.py
    python benchmarks/tiers.py --sizes small medium large --num-envs 1 64
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from measuring import RESULTS, Figure, command, publish
from side_by_side import Contestant, VectorOptions, ratio_figure, single, take_turns, vector

from collapipe_env.ground.errors import ScenarioError, nearest_name
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.scenario.names import TIER_SIZES, TIERS

WHAT = "time of a tier's step over that of the scenario without processes and load (surrogate learner)"
GOAL = 2.0
"""Largest ratio wanted of a tier's step to the static step."""
ID = "CollaPipeSurrogate-v0"


def static_twin(scenario: Scenario) -> Scenario:
    """The scenario without processes, with a free server and the full clock left to every device.

    Args:
        scenario: A tier.
    """
    fields = scenario.to_dict()
    # Overrides would leave on processes that they do not name.
    fields["dynamics"] = {**fields["dynamics"], "processes": {}, "load_levels": [1.0]}
    fields.pop("server", None)  # its tenants come and go, and its queue is a process
    return load_scenario({**fields, "name": f"{scenario.name}-static"})


@dataclass(frozen=True)
class Options(VectorOptions):
    """Time of the tiers' steps over those of the same scenarios in which nothing moves."""

    sizes: tuple[str, ...] = ("medium",)
    """Sizes: small, medium, large."""
    num_envs: tuple[int, ...] = (1, 64)
    """Environments that step at once, at least 1 each; 1 stands for a single environment."""
    output: Path = RESULTS / "tiers.json"
    """JSON file to write."""

    def check(self) -> None:
        """Refuse options that cannot be run."""
        super().check()
        for size in self.sizes:
            if size not in TIER_SIZES:
                raise ScenarioError(f"--sizes: {size!r} has no tiers: {nearest_name(size, TIER_SIZES)}")


def _contestant(name: str, scenario: Scenario, num_envs: int) -> Contestant:
    if num_envs == 1:
        return single(name, ID, scenario=scenario)
    return vector(name, ID, num_envs, scenario=scenario)


def figures(
    sizes: Sequence[str] = ("medium",),
    num_envs: Sequence[int] = (1, 64),
    slice_seconds: float = 0.25,
    repeats: int = 7,
) -> list[Figure]:
    """Measure every tier against its twin.

    Args:
        sizes: Sizes of the tiers.
        num_envs: Environments that step at once, >= 1 each.
        slice_seconds: Length of a slice [s].
        repeats: Slices of each, >= 1.

    Returns:
        A figure for each tier, size and number of environments, and the slowest for each of these numbers.
    """
    found, worst = [], []
    for together in num_envs:
        own: list[tuple[Figure, str]] = []
        for size in sizes:
            for tier in TIERS:
                scenario = load_scenario(f"{size}-{tier}")
                pair = [
                    _contestant("tier", scenario, together),
                    _contestant("static", static_twin(scenario), together),
                ]
                timings = take_turns(pair, slice_seconds, repeats)
                row = f"{scenario.name}, {'single' if together == 1 else f'{together} in a vector'}"
                figure = ratio_figure(row, timings["tier"], timings["static"], GOAL)
                own.append((figure, ", ".join(dict(scenario.dynamics.processes))))
        slowest, processes = max(own, key=lambda entry: entry[0].value or 0.0)
        found += [figure for figure, _ in own]
        name = f"slowest, {'single' if together == 1 else f'{together} in a vector'}: {processes}"
        worst.append(replace(slowest, name=name))
    return [*found, *worst]


def _run(options: Options) -> None:
    publish(options, WHAT, figures(options.sizes, options.num_envs, options.slice_seconds, options.repeats))


main = partial(command, Options, _run, __doc__)

if __name__ == "__main__":
    sys.exit(main())
