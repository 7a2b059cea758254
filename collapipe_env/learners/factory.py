"""Learners by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from collapipe_env.ground.errors import CollaPipeError, ScenarioError, reason, shown
from collapipe_env.ground.registry import FORMS, Registry
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.learner import Learner

if TYPE_CHECKING:
    from collapipe_env.ground.backends import Backend

Given = TypeVar("Given")

LEARNERS: Registry[Any] = Registry(
    "learner",
    {
        "real": "collapipe_env.training.real_learner:TorchLearner",
        "surrogate": "collapipe_env.learners.surrogate:SurrogateLearner",
    },
    group="collapipe_env.learners",
    hint=f"one of your own: in Python call register_learner, on the command line {FORMS}",
    use="is called with the scenario and the number of environments and returns a learner",
)
"""Learners by name: ``real`` trains the cut Transformer with PyTorch, imported on first use; ``surrogate``
follows the fitted bound. Each has ``from_scenario(scenario, num_envs)`` or takes these arguments itself."""


@overload
def register_learner(name: str, factory: Given, *, replace: bool = False) -> Given: ...


@overload
def register_learner(name: str, *, replace: bool = False) -> Callable[[Given], Given]: ...


def register_learner(name: str, factory: Any = None, *, replace: bool = False) -> Any:
    """Register your own learner under a name, for this process. Also works as a decorator.

    Args:
        name: Lower-case letters, digits and underscores, at most 40, beginning with a letter.
        factory: Class or function that is called with the scenario and the number of environments ``E`` and
            returns a :class:`~collapipe_env.simulator.learner.Learner`; or a class with such a method
            ``from_scenario``; or ``"package.module:Name"`` of one.

    Raises:
        ScenarioError: If the name is taken or malformed, or the factory cannot be called.
    """
    return LEARNERS.register(name, factory, replace=replace)


def make_learner(
    learner: str | Learner, scenario: Scenario, num_envs: int, backend: Backend | None = None
) -> Learner:
    """Build a learner from its name, or pass an object through.

    Args:
        learner: ``"real"`` trains a model, ``"surrogate"`` follows the fitted bound; or a registered name; or
            an object that was built for ``num_envs`` environments.
        backend: Where the environment's arrays live; None for NumPy.

    Raises:
        ScenarioError: For an unknown name (the message names the nearest), a learner that the backend does
            not have, an object that is not a learner, or a user's own learner that cannot be built.
    """
    elsewhere = [] if backend is None or backend.name == "numpy" else [backend]
    if elsewhere and learner != "surrogate":
        raise ScenarioError(
            f"learner = {learner!r}: the torch backend has only the surrogate learner; use "
            "learner='surrogate' (an id that begins with CollaPipeSurrogate), or backend='numpy'"
        )
    if not isinstance(learner, str):
        return _required(learner, f"learner = {shown(learner)}")
    found = LEARNERS.get(learner)
    build = getattr(found, "from_scenario", found)
    if learner in LEARNERS.shipped():
        shipped: Learner = build(scenario, num_envs, *elsewhere)
        return shipped
    return own_learner(build, f"learner {learner!r} ({LEARNERS.where(learner)})", scenario, num_envs)


def own_learner(build: Callable[..., Any], label: str, scenario: Scenario, num_envs: int) -> Learner:
    """Build a user's own learner; ``label`` is the first words of an error.

    Raises:
        ScenarioError: If it cannot be built, or the result is not a learner.
    """
    try:
        built = build(scenario, num_envs)
    except CollaPipeError:
        raise
    except Exception as error:  # the user's code may raise anything
        raise ScenarioError(
            f"{label} cannot be built: {type(error).__name__}: {reason(error)}; it {LEARNERS.use}"
        ) from error
    return _required(built, f"{label}: it returned {shown(built)}, which")


def _required(learner: Any, subject: str) -> Learner:
    """Refuse an object that is not a learner; ``subject`` is the first words of the error."""
    missing = [name for name in ("reset", "train_round") if not callable(getattr(learner, name, None))]
    if missing or isinstance(learner, type):
        why = f"has no {missing[0]}" if missing else "is a class"
        raise ScenarioError(f"{subject} {why}: a learner is an object with reset and train_round")
    found: Learner = learner
    return found
