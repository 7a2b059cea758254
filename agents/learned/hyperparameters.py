"""Hyper-parameters of the learned agents, with their ranges; their values are in ``hyperparameters.yaml``.

Observations are scaled to about [-1, 1] and rewards to about -1 a round by the environment itself, with
constants of the scenario, so there are no running statistics that an agent's file would have to carry.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeAlias, TypeVar

import tyro
from pydantic import Field, TypeAdapter, ValidationError
from ruamel.yaml import YAML

from collapipe_env.ground.errors import CheckpointError, ScenarioError, shown

Algorithm: TypeAlias = Literal["ppo", "sac"]
PolicyKind: TypeAlias = Literal["clusters", "mlp"]
Credit: TypeAlias = Literal["clusters", "round"]
Count: TypeAlias = Annotated[int, Field(ge=1)]
Positive: TypeAlias = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
Weight: TypeAlias = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Share: TypeAlias = Annotated[float, Field(ge=0.0, le=1.0)]
Widths: TypeAlias = Annotated[tuple[Annotated[int, Field(ge=1, le=8192)], ...], Field(min_length=1)]


class IsParameters(Protocol):
    """A dataclass of hyper-parameters."""

    algorithm: ClassVar[str]
    """Name of their section in ``hyperparameters.yaml``, and of their options."""
    __dataclass_fields__: ClassVar[dict[str, Any]]


Parameters = TypeVar("Parameters", bound=IsParameters)

VALUES: dict[str, dict[str, Any]] = YAML(typ="safe", pure=True).load(Path(__file__).with_suffix(".yaml"))
"""Content of hyperparameters.yaml: values by algorithm, and the recipes."""


def _hint(text: str) -> object:
    return tyro.conf.arg(metavar="FLOAT", help_behavior_hint=f"({text})")


@dataclass(frozen=True)
class PPOParameters:
    """Proximal policy optimisation (on-policy; the default)."""

    algorithm: ClassVar[str] = "ppo"

    policy: PolicyKind
    """clusters: one network, applied to each cluster. mlp: one network on the whole observation."""
    credit: Credit
    """Reward that a cluster policy learns from: each cluster's own, or the whole round's."""
    learning_rate: Annotated[
        Positive | None,
        _hint(
            "default: 0.0005 x clusters, at most 0.016 / clusters; with mlp 0.09 / length of the action, "
            "at most 0.001"
        ),
    ]
    """Adam's learning rate at the start; the longer the action, the smaller it should be."""
    final_learning_rate: Weight
    """Learning rate at the end; it falls linearly."""
    rollout_steps: Count
    """Rounds that each environment plays between two updates."""
    minibatch: Count
    """Transitions per gradient step (lowered to a divisor of the rollout)."""
    epochs: Count
    """Passes over each rollout."""
    gamma: Share
    """Discount factor per round; 0 suits the exact drift, which already charges for later queues."""
    gae_lambda: Share
    """Lambda of generalised advantage estimation."""
    clip_range: Positive
    """Clip range of the probability ratio."""
    entropy_coefficient: Weight
    """Weight of the entropy bonus; for a cluster policy, per cluster."""
    value_coefficient: Weight
    """Weight of the value loss."""
    max_gradient_norm: Positive
    """Gradients are clipped to this norm."""
    target_kl: Positive | None
    """Ends an update early when the policy has moved this far (KL divergence); None: never."""
    initial_log_std: Annotated[float, Field(ge=-10.0, le=2.0)]
    """Log of the exploration noise's standard deviation at the start."""
    hidden_units: Widths
    """Widths of the hidden layers of policy and value networks."""
    backlog_unit: Positive
    """Energy queue (in budgets) that the networks see as 1: queues matter long before their cap."""


@dataclass(frozen=True)
class SACParameters:
    """Soft actor-critic (off-policy)."""

    algorithm: ClassVar[str] = "sac"

    policy: PolicyKind
    """clusters: one network, applied to each cluster. mlp: one network on the whole observation."""
    learning_rate: Positive
    """Adam's learning rate at the start."""
    final_learning_rate: Weight
    """Learning rate at the end; it falls linearly."""
    buffer_size: Count
    """Transitions in the replay buffer, which is not saved: after a resume it starts empty."""
    learning_starts: Annotated[int, Field(ge=0)]
    """Transitions with random actions before the learning begins."""
    lowest_reward: Annotated[float, Field(lt=0.0, allow_inf_nan=False)]
    """Reward of a round at which rewards end: a usual round has about -1, some random plans -100. A reward of
    your own in other units needs another."""
    minibatch: Count
    """Transitions per gradient step."""
    gradient_steps: Count
    """Gradient steps per round of all environments."""
    gamma: Share
    """Discount factor per round; see --ppo.gamma."""
    tau: Share
    """Rate at which the target networks follow."""
    initial_entropy_coefficient: Positive
    """Weight of the entropy at the start; it is then tuned automatically."""
    target_entropy_per_action: Annotated[float, Field(allow_inf_nan=False)]
    """Target entropy per entry of the action (nat)."""
    hidden_units: Widths
    """Widths of the hidden layers of actor and critics."""
    backlog_unit: Positive
    """Energy queue (in budgets) that the networks see as 1: queues matter long before their cap."""


HyperParameters: TypeAlias = PPOParameters | SACParameters
PARAMETERS: dict[str, type[HyperParameters]] = {"ppo": PPOParameters, "sac": SACParameters}


def usual(kind: type[Parameters], **changes: Any) -> Parameters:
    """Return the hyper-parameters of ``hyperparameters.yaml``.

    Args:
        kind: Their dataclass.
        **changes: Other values, which are not checked.
    """
    return replace(_checked(kind, VALUES[kind.algorithm], f"{kind.algorithm}."), **changes)


def check_parameters(parameters: IsParameters, prefix: str) -> None:
    """Refuse hyper-parameters out of range.

    Args:
        parameters: Hyper-parameters to check.
        prefix: Put before names in errors, for instance ``"--ppo."``.

    Raises:
        ScenarioError: Names the first value at fault and its range.
    """
    _checked(type(parameters), asdict(parameters), prefix)


def parameters_from_dict(kind: type[Parameters], values: Mapping[str, Any]) -> Parameters:
    """Rebuild hyper-parameters from a file's plain data; those that it lacks have their usual values.

    Args:
        kind: Their dataclass.
        values: Values by name.

    Raises:
        CheckpointError: If one is unknown, of another type or out of range.
    """
    try:
        return _checked(kind, {**VALUES[kind.algorithm], **values}, "hyper-parameter ")
    except ScenarioError as error:
        raise CheckpointError(str(error)) from None


def _checked(kind: type[Parameters], values: Mapping[str, Any], prefix: str) -> Parameters:
    """Build hyper-parameters from plain data in which a list stands for a tuple."""
    odd = next((name for name in values if name not in kind.__dataclass_fields__), None)
    if odd is not None:
        raise ScenarioError(f"{prefix}{shown(odd)} is not known to this version")
    try:
        # Numbers are no texts and texts no numbers, but JSON has only lists.
        return TypeAdapter(kind).validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        fault = error.errors()[0]
    name = str(fault["loc"][0])
    named = prefix + (name.replace("_", "-") if prefix.startswith("-") else name)
    raise ScenarioError(f"{named} = {shown(values[name])}: {fault['msg'].replace('Input', 'it')}")


def initial_learning_rate(parameters: HyperParameters, action_size: int, clusters: int) -> float:
    """Return the learning rate that was set, or the default for an action of that many entries.

    The probability ratio that PPO clips is a product over the action's entries, so a rate that suits 52
    entries (``medium``) throws a policy with 304 (``large``) off course; both were measured. A cluster policy
    has one ratio per cluster. With fewer clusters a round gives fewer samples: on ``small`` two of five
    trainings at 0.003 end in plans far over the budgets, none at 0.001. With more clusters each is more
    rarely the slowest and learns from noisier rewards.

    Args:
        parameters: Hyper-parameters of PPO or SAC.
        action_size: Entries of an action.
        clusters: ``N``.
    """
    if parameters.learning_rate is not None:
        return parameters.learning_rate
    if parameters.policy == "clusters":
        return min(5e-4 * clusters, 0.016 / clusters)
    return min(1e-3, 0.09 / action_size)


def linear_schedule(start: float, end: float) -> Callable[[float], float]:
    """The value as a function of the remaining share of training, which falls from 1 to 0."""
    return lambda remaining: end + (start - end) * max(remaining, 0.0)


def fitting_minibatch(wanted: int, transitions: int) -> int:
    """Largest divisor of ``transitions`` that is at most ``wanted``, so that no minibatch is cut short."""
    return max(size for size in range(1, min(wanted, transitions) + 1) if transitions % size == 0)
