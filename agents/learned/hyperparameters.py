"""Hyper-parameters of the learned agents: frozen, checked, JSON-able, with defaults measured on ``medium``.

Observations are scaled to about [-1, 1] and rewards to about -1 a round by the environment itself, with
constants of the scenario, so there are no running statistics that a checkpoint would have to carry.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeAlias, get_args

import tyro

from collapipe_env.ground.errors import CheckpointError, ScenarioError, nearest_name, shortened, shown

Algorithm: TypeAlias = Literal["ppo", "sac"]
PolicyKind: TypeAlias = Literal["clusters", "mlp"]
Credit: TypeAlias = Literal["clusters", "round"]


def _hint(text: str) -> object:
    return tyro.conf.arg(metavar="FLOAT", help_behavior_hint=f"({text})")


@dataclasses.dataclass(frozen=True)
class PPOParameters:
    """Proximal policy optimisation (on-policy; the default)."""

    policy: PolicyKind = "clusters"
    """clusters: one network, applied to each cluster. mlp: one network on the whole observation."""
    credit: Credit = "clusters"
    """Reward that a cluster policy learns from: each cluster's own, or the whole round's."""
    learning_rate: Annotated[
        float | None,
        _hint(
            "default: 0.016 / clusters, at most 0.003; with mlp 0.09 / length of the action, at most 0.001"
        ),
    ] = None
    """Adam's learning rate at the start; the longer the action, the smaller it should be."""
    final_learning_rate: float = 0.0
    """Learning rate at the end; it falls linearly."""
    rollout_steps: int = 16
    """Rounds that each environment plays between two updates."""
    minibatch: int = 256
    """Transitions per gradient step (lowered to a divisor of the rollout)."""
    epochs: int = 8
    """Passes over each rollout."""
    gamma: float = 0.0
    """Discount factor per round; 0 suits the exact drift, which already charges for later queues."""
    gae_lambda: float = 0.9
    """Lambda of generalised advantage estimation."""
    clip_range: float = 0.2
    """Clip range of the probability ratio."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus; for a cluster policy, per cluster."""
    value_coefficient: float = 0.5
    """Weight of the value loss."""
    max_gradient_norm: float = 0.5
    """Gradients are clipped to this norm."""
    target_kl: float | None = None
    """Ends an update early when the policy has moved this far (KL divergence); None: never."""
    initial_log_std: float = -1.0
    """Log of the exploration noise's standard deviation at the start."""
    hidden_units: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of policy and value networks."""
    backlog_unit: float = 4.0
    """Energy queue (in budgets) that the networks see as 1: queues matter long before their cap."""


@dataclasses.dataclass(frozen=True)
class SACParameters:
    """Soft actor-critic (off-policy)."""

    policy: PolicyKind = "clusters"
    """clusters: one network, applied to each cluster. mlp: one network on the whole observation."""
    learning_rate: float = 1e-3
    """Adam's learning rate at the start."""
    final_learning_rate: float = 1e-4
    """Learning rate at the end; it falls linearly."""
    buffer_size: int = 300_000
    """Transitions in the replay buffer, which is not saved: after a resume it starts empty."""
    learning_starts: int = 6_400
    """Transitions with random actions before the learning begins."""
    minibatch: int = 256
    """Transitions per gradient step."""
    gradient_steps: int = 4
    """Gradient steps per round of all environments."""
    gamma: float = 0.0
    """Discount factor per round; see --ppo.gamma."""
    tau: float = 0.01
    """Rate at which the target networks follow."""
    initial_entropy_coefficient: float = 0.02
    """Weight of the entropy at the start; it is then tuned automatically."""
    target_entropy_per_action: float = -1.0
    """Target entropy per entry of the action (nat)."""
    hidden_units: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of actor and critics."""
    backlog_unit: float = 4.0
    """Energy queue (in budgets) that the networks see as 1: queues matter long before their cap."""


HyperParameters: TypeAlias = PPOParameters | SACParameters
PARAMETERS: dict[Algorithm, type[PPOParameters] | type[SACParameters]] = {
    "ppo": PPOParameters,
    "sac": SACParameters,
}

_CHOICES: dict[str, tuple[str, ...]] = {"policy": get_args(PolicyKind), "credit": get_args(Credit)}
_OPTIONAL = ("learning_rate", "target_kl")
_RANGES: tuple[tuple[tuple[str, ...], float, float, str], ...] = (
    (("rollout_steps", "minibatch", "epochs", "buffer_size", "gradient_steps"), 1, math.inf, "at least 1"),
    (
        ("initial_entropy_coefficient", "learning_rate", "clip_range", "max_gradient_norm", "target_kl",
         "backlog_unit"),
        math.ulp(0.0), math.inf, "a number above 0",
    ),
    (
        ("final_learning_rate", "entropy_coefficient", "value_coefficient", "learning_starts"),
        0, math.inf, "0 or more",
    ),
    (("gamma", "gae_lambda", "tau"), 0, 1, "a number from 0 to 1"),
    (("initial_log_std",), -10, 2, "a number from -10 to 2"),
)  # fmt: skip
"""Names, least and largest value, and the range in words."""


def check_parameters(parameters: HyperParameters, prefix: str) -> None:
    """Refuse hyper-parameters out of range.

    Args:
        parameters: Hyper-parameters to check.
        prefix: Put before names in errors, for instance ``"--ppo."``.

    Raises:
        ScenarioError: Names the first value at fault and its range.
    """
    for field in dataclasses.fields(parameters):
        name, value = field.name, getattr(parameters, field.name)
        if value is None and name in _OPTIONAL:
            continue
        wanted = _fault(name, value)
        if wanted:
            option = f"{prefix}{name.replace('_', '-')}" if prefix.startswith("-") else f"{prefix}{name}"
            raise ScenarioError(f"{option} = {shown(value)}: {wanted}")


def _fault(name: str, value: Any) -> str:
    """Return the range that a value violates, or nothing if it is fine."""
    if name in _CHOICES:
        return "" if value in _CHOICES[name] else f"one of {', '.join(_CHOICES[name])} is needed"
    if name == "hidden_units":
        fine = len(value) >= 1 and all(isinstance(v, int) and 1 <= v <= 8192 for v in value)
        return "" if fine else "one or more widths from 1 to 8192 are needed"
    if not math.isfinite(value):
        return "a finite number is needed"
    wanted = (words for names, low, high, words in _RANGES if name in names and not low <= value <= high)
    return next((f"{words} is needed" for words in wanted), "")


def parameters_from_dict(algorithm: str, values: Mapping[str, Any]) -> HyperParameters:
    """Rebuild hyper-parameters from a checkpoint's plain data.

    Raises:
        CheckpointError: If the algorithm is unknown or a field is missing, unknown, of another type or out
            of range.
    """
    if algorithm not in PARAMETERS:
        raise CheckpointError(
            f"algorithm = {shown(algorithm)} is not known: {nearest_name(algorithm, PARAMETERS)}"
        )
    kind = PARAMETERS["ppo" if algorithm == "ppo" else "sac"]
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if set(values) != set(fields):
        odd = sorted(set(values) ^ set(fields))
        names = shortened(", ".join(odd))
        raise CheckpointError(f"hyper-parameters {names} are missing or not known to this version")
    plain: dict[str, Any] = {}
    for name, field in fields.items():
        value = tuple(values[name]) if isinstance(values[name], list) else values[name]
        default: object = field.default
        number = isinstance(value, int | float) and not isinstance(value, bool)
        fine = {
            tuple: isinstance(value, tuple),
            str: isinstance(value, str),
            int: isinstance(value, int) and number,
            float: number,
            type(None): number or value is None,
        }[type(default)]
        if not fine:
            raise CheckpointError(f"hyper-parameter {name} = {shown(value)} has the wrong type")
        plain[name] = value
    parameters: HyperParameters = kind(**plain)
    try:
        check_parameters(parameters, "hyper-parameter ")
    except ScenarioError as error:
        raise CheckpointError(str(error)) from None
    return parameters


def initial_learning_rate(parameters: HyperParameters, action_size: int, clusters: int) -> float:
    """Return the learning rate that was set, or the default for an action of that many entries.

    The probability ratio that PPO clips is a product over the action's entries, so a rate that suits 52
    entries (``medium``) throws a policy with 304 (``large``) off course; both were measured. A cluster policy
    has one ratio per cluster, but with more clusters each is more rarely the slowest and learns from noisier
    rewards: 0.003 and some entropy suit ``medium`` but keep ``large`` from learning.

    Args:
        parameters: Hyper-parameters of PPO or SAC.
        action_size: Entries of an action.
        clusters: ``N``.
    """
    if parameters.learning_rate is not None:
        return parameters.learning_rate
    if parameters.policy == "clusters":
        return min(3e-3, 0.016 / clusters)
    return min(1e-3, 0.09 / action_size)


def linear_schedule(start: float, end: float) -> Callable[[float], float]:
    """The value as a function of the remaining share of training, which falls from 1 to 0."""

    def value(remaining: float) -> float:
        return end + (start - end) * max(remaining, 0.0)

    return value


def fitting_minibatch(wanted: int, transitions: int) -> int:
    """Largest divisor of ``transitions`` that is at most ``wanted``, so that no minibatch is cut short."""
    return max(size for size in range(1, min(wanted, transitions) + 1) if transitions % size == 0)
