"""Hyper-parameters of the graph net and of its training."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

from collapipe_env.ground.errors import CheckpointError, ScenarioError, nearest_name, shortened, shown
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.refusal import require_budgets_per_round

from .random_systems import RandomSystems, with_new_layouts

Part: TypeAlias = Literal["edges", "pooling", "plan"]
"""A part of the net: what attention knows of hops, what clusters tell each other, or the second inputs."""

LONGEST_BACKLOG = 12.0
"""Mean longest energy queue [budgets], which training on the shipped scenarios hardly ever reaches."""


@dataclasses.dataclass(frozen=True)
class GraphParameters:
    """Graph net, trained through the model of the system: one set of weights for every size."""

    start_from: str = ""
    """Graph net with the initial weights: a file or zoo:NAME; empty for random weights."""
    learning_rate: float = 2e-3
    """Adam's learning rate at the start; it falls linearly."""
    final_learning_rate: float = 6e-5
    """Learning rate at the end."""
    clusters: int = 128
    """Clusters per gradient step, over all environments of a group."""
    most_clusters: int = 40
    """Largest number of clusters in the training systems."""
    random_groups: int = 8
    """Groups of random systems, in addition to two groups per scenario. With none, versions are compared on
    the given scenario."""
    random_systems: RandomSystems = "ladder"
    """Random systems like the ladder, or like the tier Wild; versions are compared on such systems."""
    scenarios: tuple[str, ...] = ("small", "medium", "medium", "boards", "phones")
    """Training scenarios, with two groups each; name a scenario twice for twice as many groups."""
    longest_backlog: float = LONGEST_BACKLOG
    """Mean longest energy queue (in budgets) above which a group is replaced."""
    samples: int = 12
    """Samples of each cluster's block counts."""
    fading_draws: int = 8
    """Draws of the fading for which a plan is priced where gains are known late."""
    entropy: float = 0.02
    """Weight of the entropy of the block counts at the start; it falls quadratically."""
    final_entropy: float = 0.001
    """Weight of that entropy at the end."""
    counts_weight: float = 5.0
    """Weight of the block counts in the loss; the objective has weight 1."""
    micro_batches_weight: float = 3.0
    """Weight of the micro-batch numbers in the loss."""
    averaged_steps: int = 500
    """Steps over which the net's weights are averaged for playing."""
    width: int = 48
    """Width of a token."""
    layers: int = 2
    """Attention layers."""
    heads: int = 4
    """Attention heads; must divide the width."""
    hidden: int = 96
    """Width of the feed-forward layers."""
    edge_hidden: int = 16
    """Width of the layer that reads hops."""
    plan_hidden: int = 48
    """Width of the layers that read segments."""
    without: tuple[Part, ...] = ()
    """Parts of the net to leave out, to measure what they contribute."""


RECIPES: dict[str, tuple[int, GraphParameters]] = {
    "wild": (
        4000,
        GraphParameters(
            start_from="zoo:graph",
            scenarios=("small-wild", "medium-wild", "large-wild"),
            random_groups=6,
            random_systems="wild",
            most_clusters=48,
            clusters=80,
            samples=8,
            learning_rate=1.5e-3,
            entropy=0.01,
            averaged_steps=300,
        ),
    )
}
"""Gradient steps and hyper-parameters of named trainings."""


_RANGES: tuple[tuple[tuple[str, ...], float, float, str], ...] = (
    (("clusters", "most_clusters", "samples"), 2, 4096, "a number from 2 to 4096"),
    (("random_groups",), 0, 10**9, "0 or more"),
    (("fading_draws",), 1, 4096, "a number from 1 to 4096"),
    (("averaged_steps",), 1, 10**6, "a number from 1 to 1,000,000"),
    (("layers", "heads"), 1, 16, "a number from 1 to 16"),
    (("width", "hidden", "edge_hidden", "plan_hidden"), 1, 1024, "a number from 1 to 1024"),
    (("longest_backlog",), 1.0, 1e6, "a number from 1 to 1,000,000"),
    (("learning_rate",), math.ulp(0.0), 1.0, "a number above 0, at most 1"),
    (
        ("final_learning_rate", "entropy", "final_entropy", "counts_weight", "micro_batches_weight"),
        0.0, 1e3, "a number from 0 to 1000",
    ),
)  # fmt: skip


def check_graph_parameters(parameters: GraphParameters, prefix: str) -> None:
    """Refuse hyper-parameters out of range.

    Args:
        parameters: Hyper-parameters to check.
        prefix: Put before names in errors, for instance ``"--graph."``.

    Raises:
        ScenarioError: Names the first value at fault and its range.
    """
    for names, low, high, words in _RANGES:
        for name in names:
            value = getattr(parameters, name)
            if not low <= value <= high:
                raise ScenarioError(f"{_named(prefix, name)} = {shown(value)}: {words} is needed")
    if not parameters.scenarios and not parameters.random_groups:
        raise ScenarioError(
            f"{prefix}scenarios is empty and {prefix}random-groups = 0: there is nothing to train on"
        )
    if parameters.random_systems not in get_args(RandomSystems):
        raise ScenarioError(
            f"{_named(prefix, 'random_systems')} = {shown(parameters.random_systems)}: "
            + nearest_name(parameters.random_systems, get_args(RandomSystems))
        )
    odd = [part for part in parameters.without if part not in get_args(Part)]
    if odd:
        raise ScenarioError(
            f"{prefix}without = {shown(odd[0])} is not part of the net; "
            + nearest_name(odd[0], get_args(Part))
        )
    if parameters.final_learning_rate > parameters.learning_rate:
        raise ScenarioError(
            f"{_named(prefix, 'final_learning_rate')} = {parameters.final_learning_rate} is above "
            f"{_named(prefix, 'learning_rate')} = {parameters.learning_rate}: the step size falls from the "
            "one to the other"
        )
    if parameters.width % parameters.heads:
        raise ScenarioError(
            f"{prefix}width = {parameters.width} is not a multiple of {prefix}heads = {parameters.heads}"
        )


def _named(prefix: str, name: str) -> str:
    """Name of a hyper-parameter in errors: spelt as an option if the prefix is an option's."""
    return prefix + (name.replace("_", "-") if prefix.startswith("-") else name)


def require_scenarios(parameters: GraphParameters, prefix: str) -> None:
    """Refuse scenarios that do not exist, do not suit new layouts, or have budgets per second.

    Only training needs the scenarios: a net plays without their files.

    Args:
        parameters: Hyper-parameters to check.
        prefix: Put before names in errors, as for :func:`check_graph_parameters`.

    Raises:
        ScenarioError: Says what is wrong with the first one.
    """
    for name in parameters.scenarios:
        try:
            scenario = with_new_layouts(load_scenario(name))
            require_budgets_per_round("the graph net", system_parameters(scenario))
        except ScenarioError as error:
            raise ScenarioError(f"{prefix}scenarios: {error}") from None


def graph_parameters_from_dict(values: Mapping[str, Any]) -> GraphParameters:
    """Rebuild hyper-parameters from a file's plain data; fields that it lacks take defaults.

    Raises:
        CheckpointError: If a field is unknown, of another type or out of range.
    """
    fields = {field.name: field for field in dataclasses.fields(GraphParameters)}
    unknown = set(values) - set(fields)
    if unknown:
        odd = shortened(", ".join(sorted(map(str, unknown))))
        raise CheckpointError(f"hyper-parameters {odd} are not known to this version")
    checked: dict[str, Any] = {}
    for name, value in values.items():
        names = isinstance(fields[name].default, tuple)
        if names and isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            checked[name] = tuple(value)
            continue
        default = fields[name].default
        kinds = (type(default),) if isinstance(default, int | str) else (int, float)
        if names or not isinstance(value, kinds) or isinstance(value, bool):
            raise CheckpointError(f"hyper-parameter {name} = {shown(value)} has the wrong type")
        checked[name] = value
    parameters = GraphParameters(**checked)
    try:
        check_graph_parameters(parameters, "hyper-parameter ")
    except ScenarioError as error:
        raise CheckpointError(str(error)) from None
    return parameters
