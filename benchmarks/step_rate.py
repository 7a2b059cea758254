"""Time of the environments' steps against Gymnasium's classics, and of tiers against their static twins.

All contestants take turns in short slices, so that a busy machine slows all of them alike; each figure is
the ratio of two of them, slice by slice, with its range. One step of a vector environment counts as as many
steps as it has environments. The twin of a tier is its scenario without processes and load. Run::

    python benchmarks/step_rate.py
    python benchmarks/step_rate.py --slice-seconds 0.5 --repeats 9 --num-envs 64 256
    python benchmarks/step_rate.py --ids --tiers migration channel mobile --sizes medium large --num-envs 64
"""

from __future__ import annotations

import sys
from typing import Annotated

from measuring import Figure, command, publish
from pydantic import Field
from side_by_side import Contestant, SliceOptions, ratio_figure, single, take_turns, vector

from collapipe_env.envs.registration import LADDER
from collapipe_env.scenario import Scenario, load_scenario

WHAT = "time of an environment's step; a step of a vector environment counts as num_envs steps"
YARDSTICK = "CartPole-v1"
CLASSICS = (YARDSTICK, "Pendulum-v1")
GOALS = {
    "small, single": 10.0,
    "medium, single": 10.0,
    "xlarge, single": 30.0,
    "medium, 256 in a vector": 0.3,
}
"""Most steps of CartPole in the time of a step, by row."""
GROWTH = ("xlarge", "medium")
"""Scenarios compared at equal size of the vector environment: the first has 51 times as many devices."""
GROWTH_GOAL = 50.0
"""Most steps of the smaller scenario in the time of the larger's."""
TIER_GOAL = 3.0
"""Most steps of the static twin in the time of a tier's."""


def ladder() -> list[str]:
    """Surrogate ids of the four scenarios."""
    return [f"CollaPipeSurrogate-{size.title()}-v0" for size in LADDER]


def short(name: str) -> str:
    """Name of an id in the table: the scenario if the id is one of the ladder's, otherwise the id."""
    return name.split("-")[1].lower() if name in ladder() else name


def static_twin(scenario: Scenario) -> Scenario:
    """The scenario without processes, with a free server and the full clock left to every device.

    Args:
        scenario: A tier.
    """
    fields = scenario.to_dict()
    # Overrides would leave on processes that they do not name.
    fields["dynamics"] = {**fields["dynamics"], "processes": {}, "load_levels": [1.0]}
    fields.pop("server", None)  # its tenants come and go, and its queue is a process
    return load_scenario({**fields, "name": f"{scenario.name}, static"})


class Options(SliceOptions):
    """Time of the environments' steps against Gymnasium's classics, and of tiers against static twins."""

    ids: tuple[str, ...] = tuple(ladder())
    """Our environments."""
    tiers: tuple[str, ...] = ("churn", "wild")
    """Tiers to compare with their twins."""
    sizes: tuple[str, ...] = ("small", "medium")
    """Sizes of the tiers: small, medium, large."""
    num_envs: tuple[Annotated[int, Field(ge=1)], ...] = (256,)
    """Sizes of the vector environments, at least 1 each; single ones are always measured."""


def figures(options: Options) -> list[Figure]:
    """Measure all environments in turns.

    Returns:
        A figure for each environment over CartPole, then the growth from ``medium`` to ``xlarge`` where both
        are measured, and each tier over its twin.
    """
    together = list(dict.fromkeys((1, *options.num_envs)))
    contestants = [single(name, name) for name in CLASSICS]
    for envs in together:
        contestants += [_contestant(short(name), name, envs) for name in dict.fromkeys(options.ids)]
    over_cartpole = [c.name for c in contestants]
    pairs = []
    for size in options.sizes:
        for tier in options.tiers:
            moving = load_scenario(f"{size}-{tier}")
            for envs in together:
                # A tier and its twin stand side by side in the turns.
                pair = [
                    _contestant(scenario.name, "CollaPipeSurrogate-v0", envs, scenario=scenario)
                    for scenario in (moving, static_twin(moving))
                ]
                contestants += pair
                pairs.append([c.name for c in pair])
    timings = take_turns(contestants, options.slice_seconds, options.repeats)

    def over(row: str, yardstick: str, goal: float | None, name: str = "") -> Figure:
        return ratio_figure(name or row, timings[row], timings[yardstick], goal, rate=not name)

    found = [over(row, YARDSTICK, GOALS.get(row)) for row in over_cartpole]
    for envs in together[1:]:
        larger, smaller = (_row(scenario, envs) for scenario in GROWTH)
        if {larger, smaller} <= timings.keys():
            found.append(over(larger, smaller, GROWTH_GOAL, f"{GROWTH[0]} over {smaller}"))
    return [*found, *(over(row, twin, TIER_GOAL) for row, twin in pairs)]


def _row(name: str, envs: int) -> str:
    return f"{name}, {'single' if envs == 1 else f'{envs} in a vector'}"


def _contestant(name: str, env_id: str, envs: int, **options: Scenario) -> Contestant:
    if envs == 1:
        return single(_row(name, envs), env_id, **options)
    return vector(_row(name, envs), env_id, envs, **options)


main = command(Options, lambda options: publish(options, WHAT, figures(options)), __doc__)

if __name__ == "__main__":
    sys.exit(main())
