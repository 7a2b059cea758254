"""Learners by name."""

from __future__ import annotations

from collapipe_env.backends import NUMPY, Backend
from collapipe_env.errors import ScenarioError, nearest_name
from collapipe_env.learners.base import Learner
from collapipe_env.scenario import Scenario

LEARNERS = ("torch", "surrogate")


def make_learner(
    learner: str | Learner, scenario: Scenario, num_envs: int, backend: Backend = NUMPY
) -> Learner:
    """Build a learner from its name, or pass an object through.

    Args:
        learner: ``"torch"`` really trains, ``"surrogate"`` follows the fitted bound; or an object that
            was built for ``num_envs`` environments.
        scenario: The scenario.
        num_envs: ``E``.
        backend: Where the environment's arrays live.

    Raises:
        ScenarioError: For an unknown name, or a learner that the backend does not have.
    """
    if backend.name != "numpy" and learner != "surrogate":
        raise ScenarioError(
            f"learner = {learner!r}: the torch backend knows the surrogate only; use learner='surrogate' "
            "(an id that begins with CollaPipeSurrogate), or backend='numpy'"
        )
    if not isinstance(learner, str):
        return learner
    # Imported late: PyTorch is slow to import and the surrogate does not need it.
    if learner == "torch":
        from collapipe_env.training.real_learner import TorchLearner

        return TorchLearner.from_scenario(scenario, num_envs)
    if learner == "surrogate":
        from collapipe_env.learners.surrogate import SurrogateLearner

        return SurrogateLearner.from_scenario(scenario, num_envs, backend)
    raise ScenarioError(f"learner = {learner!r} is not known: {nearest_name(learner, LEARNERS)}")
