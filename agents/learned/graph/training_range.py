"""Systems that a graph net was trained on, and what of a scenario lies outside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any
from warnings import warn

from collapipe_env.ground.errors import CheckpointError, shortened, shown
from collapipe_env.scenario import Scenario, load_scenario

from .graph_parameters import GraphParameters
from .systems import BASES, RANGES

_NAMES = ("cluster.clusters", *RANGES["ladder"], "workload.width", "workload.sequence_length")
"""Numbers of a scenario on which a net's plans depend, and which it does not know by their ratios alone."""

_DAMAGED = "the range of its training systems is damaged: train or export it again"


class OutsideTrainingWarning(UserWarning):
    """A scenario lies outside the systems that a net was trained on."""


def systems_of(parameters: GraphParameters) -> str:
    """Systems that a net is trained on, in words."""
    names = ", ".join(parameters.scenarios)
    if not parameters.random_groups:
        return names
    like = " like the tier Wild" if parameters.random_systems == "wild" else ""
    drawn = f"random systems{like} of up to {parameters.most_clusters} clusters"
    return f"{names}; {drawn}" if names else drawn


def training_range(parameters: GraphParameters) -> dict[str, Any]:
    """Systems of a training in words, their least and largest numbers, and whether processes were always on.

    Args:
        parameters: Hyper-parameters of the training.

    Returns:
        Plain data: ``name``, ``numbers`` by field, ``processes`` by name.

    Raises:
        ScenarioError: A scenario of the training does not exist.
    """
    scenarios = [load_scenario(name) for name in dict.fromkeys(parameters.scenarios)]
    values = {name: [end for s in scenarios for end in _ends(s, name)] for name in _NAMES}
    if parameters.random_groups:
        like = parameters.random_systems
        drawn = {**RANGES[like], "cluster.clusters": (2, parameters.most_clusters)}
        bases = [load_scenario(name) for name in BASES[like]]
        for name in _NAMES:
            values[name] += drawn.get(name, [end for base in bases for end in _ends(base, name)])
        scenarios += bases
    on = [set(dict(scenario.dynamics.processes)) for scenario in scenarios]
    return {
        "name": systems_of(parameters),
        "numbers": {name: [min(of), max(of)] for name, of in values.items()},
        "processes": {name: all(name in each for each in on) for name in sorted(set().union(*on))},
    }


def outside(scenario: Scenario, trained: Mapping[str, Any]) -> list[str]:
    """Numbers and processes of a scenario that lie outside the range of a training, in words.

    Args:
        trained: The range, as :func:`training_range` gives it; empty where a file has none.

    Raises:
        CheckpointError: The range is not of this form.
    """
    numbers, processes = trained.get("numbers", {}), trained.get("processes", {})
    if not isinstance(numbers, dict) or not isinstance(processes, dict):
        raise CheckpointError(_DAMAGED)
    found = []
    for name, ends in numbers.items():
        if name not in _NAMES or not _is_range(ends):
            raise CheckpointError(f"{_DAMAGED}: {shortened(name)} = {shown(ends)}")
        (least, most), (low, high) = ends, _ends(scenario, name)
        if low < least or high > most:
            found.append(f"{name} = {_span(low, high)} (trained on {_span(least, most)})")
    if numbers:
        on = dict(scenario.dynamics.processes)
        found += [f"dynamics.processes.{name} on (trained without)" for name in on if name not in processes]
        always = [name for name, every in processes.items() if every is True]
        found += [f"dynamics.processes.{name} off (trained with)" for name in always if name not in on]
    return found


@cache
def warn_outside(agent: str, scenario: str, found: tuple[str, ...]) -> None:
    """Warn, once in a process, that a net plays outside the systems of its training.

    Args:
        agent: Name of the net.
        scenario: Name of the scenario.
        found: What lies outside, as :func:`outside` gives it.
    """
    warn(
        f"{agent} was not trained for systems such as {scenario}: {', '.join(found)}; its plans may be poor: "
        "compare it with dssra, or train on it (collapipe train --algo graph --graph.scenarios)",
        OutsideTrainingWarning,
        stacklevel=4,
    )


def _span(low: float, high: float) -> str:
    """A range, or the value if both ends are the same."""
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _is_range(ends: object) -> bool:
    """Whether a value of a file is a pair of numbers, the smaller one first."""
    if not (isinstance(ends, list) and len(ends) == 2 and all(type(end) in (int, float) for end in ends)):
        return False
    return bool(ends[0] <= ends[1])


def _ends(scenario: Scenario, name: str) -> tuple[float, float]:
    """Least and largest value of a field, which may be a list."""
    section, field = name.split(".")
    value = getattr(getattr(scenario, section), field)
    values = value if isinstance(value, Sequence) else (value,)
    return min(values), max(values)
