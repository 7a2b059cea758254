"""Hyper-parameters of the graph net and of its training; their values are in hyperparameters.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field

from collapipe_env.agents.learned.hyperparameters import VALUES, check_parameters, parameters_from_dict
from collapipe_env.ground.errors import CheckpointError, ScenarioError
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.refusal import require_budgets_per_round

RandomSystems: TypeAlias = Literal["ladder", "wild"]
"""Model of random systems: the shipped ladder, or the tier Wild."""
Part: TypeAlias = Literal["edges", "pooling", "plan"]
"""A part of the net: what attention knows of hops, what clusters tell each other, or the second inputs."""
Several: TypeAlias = Annotated[int, Field(ge=2, le=4096)]
Few: TypeAlias = Annotated[int, Field(ge=1, le=16)]
Width: TypeAlias = Annotated[int, Field(ge=1, le=1024)]
Moderate: TypeAlias = Annotated[float, Field(ge=0.0, le=1e3)]


def within(tightness: float) -> dict[str, float | None]:
    """Changes a scenario so that its budgets are those of a tightness."""
    return {"budgets.tightness": tightness, "budgets.device_energy_j": None, "budgets.cu_energy_j": None}


def with_new_layouts(scenario: Scenario) -> Scenario:
    """A scenario with another layout in every episode, and with budgets that all of them can meet.

    Raises:
        ScenarioError: If some layout has no room for the encoder.
    """
    if scenario.cluster.layout == "per_episode":
        return scenario
    return scenario.with_overrides({"cluster.layout": "per_episode", **within(0.5)})


@dataclass(frozen=True)
class GraphParameters:
    """Graph net, trained through the model of the system: one set of weights for every size."""

    algorithm: ClassVar[str] = "graph"

    start_from: str
    """Graph net with the initial weights: a file or zoo:NAME; empty for random weights."""
    learning_rate: Annotated[float, Field(gt=0.0, le=1.0)]
    """Adam's learning rate at the start; it falls linearly."""
    final_learning_rate: Moderate
    """Learning rate at the end."""
    clusters: Several
    """Clusters per gradient step, over all environments of a group."""
    most_clusters: Several
    """Largest number of clusters in the training systems."""
    random_groups: Annotated[int, Field(ge=0)]
    """Groups of random systems, in addition to two groups per scenario. With none, versions are compared on
    the given scenario alone."""
    random_systems: RandomSystems
    """Random systems like the ladder, or like the tier Wild. Versions are compared on the given scenario and
    on such systems."""
    scenarios: tuple[str, ...]
    """Training scenarios, with two groups each; name a scenario twice for twice as many groups."""
    longest_backlog: Annotated[float, Field(ge=1.0, le=1e6)]
    """Mean longest energy queue (in budgets) above which a group is replaced."""
    samples: Several
    """Samples of each cluster's block counts."""
    fading_draws: Annotated[int, Field(ge=1, le=4096)]
    """Draws of the fading for which a plan is priced where gains are known late."""
    entropy: Moderate
    """Weight of the entropy of the block counts at the start; it falls quadratically."""
    final_entropy: Moderate
    """Weight of that entropy at the end."""
    counts_weight: Moderate
    """Weight of the block counts in the loss; the objective has weight 1."""
    micro_batches_weight: Moderate
    """Weight of the micro-batch numbers in the loss."""
    averaged_steps: Annotated[int, Field(ge=1, le=10**6)]
    """Steps over which the net's weights are averaged for playing."""
    width: Width
    """Width of a token."""
    layers: Few
    """Attention layers."""
    heads: Few
    """Attention heads; must divide the width."""
    hidden: Width
    """Width of the feed-forward layers."""
    edge_hidden: Width
    """Width of the layer that reads hops."""
    plan_hidden: Width
    """Width of the layers that read segments."""
    without: tuple[Part, ...]
    """Parts of the net to leave out, to measure what they contribute."""

    @property
    def groups(self) -> int:
        """Groups of environments to train on: two for each scenario, and those of random systems."""
        return 2 * len(self.scenarios) + self.random_groups


def recipe(name: str) -> tuple[int, GraphParameters]:
    """Return gradient steps and hyper-parameters of a named training."""
    values = dict(VALUES["recipes"][name])
    return values.pop("steps"), parameters_from_dict(GraphParameters, values)


def check_graph_parameters(parameters: GraphParameters, prefix: str) -> None:
    """Refuse hyper-parameters out of range, or that do not go together.

    Args:
        parameters: Hyper-parameters to check.
        prefix: Put before names in errors, for instance ``"--graph."``.

    Raises:
        ScenarioError: Names the first value at fault and its range.
    """
    p = parameters
    check_parameters(p, prefix)
    if not p.scenarios and not p.random_groups:
        raise ScenarioError(f"{prefix}scenarios is empty, without random groups: nothing to train on is left")
    if p.final_learning_rate > p.learning_rate:
        raise ScenarioError(
            f"{prefix}learning-rate = {p.learning_rate} is below the final one, {p.final_learning_rate}: the "
            "step size falls from the one to the other"
        )
    if p.width % p.heads:
        raise ScenarioError(f"{prefix}width = {p.width} is not a multiple of {prefix}heads = {p.heads}")


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
    """Rebuild hyper-parameters from a file's plain data; those that it lacks have their usual values.

    Raises:
        CheckpointError: If one is unknown, of another type or out of range.
    """
    parameters = parameters_from_dict(GraphParameters, values)
    try:
        check_graph_parameters(parameters, "hyper-parameter ")
    except ScenarioError as error:
        raise CheckpointError(str(error)) from None
    return parameters
