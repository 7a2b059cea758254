"""Default reward of an environment, and the default target loss of ``time_to_target``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.learners.surrogate_fits import fit_for, has_fit
from collapipe_env.scenario.decision_names import judged_by_target

if TYPE_CHECKING:
    from collapipe_env.scenario import Scenario

TIME_TO_TARGET = "time_to_target"
FALL = 0.9
"""Share of the fall from the untrained model's loss to the fitted curve's floor at which the target lies."""


def default_reward(scenario: Scenario) -> str:
    """Return the name of the reward that suits a scenario.

    It is ``time_to_target`` where the scenario opens participation or local steps, otherwise ``lyapunov``.
    With these decisions open, a round's delay says little, because the shortest round trains least.
    """
    return TIME_TO_TARGET if judged_by_target(scenario) else "lyapunov"


def with_target(scenario: Scenario, reward: object) -> Scenario:
    """Return the scenario, with a target loss added if its reward and its open decisions need one.

    Raises:
        ScenarioError: If there is no fit of the task to take a target from.
    """
    wanted = reward == TIME_TO_TARGET and judged_by_target(scenario)
    if not wanted or scenario.dynamics.target_loss is not None:
        return scenario
    return scenario.with_overrides({"dynamics.target_loss": default_target_loss(scenario)})


def default_target_loss(scenario: Scenario) -> float:
    """Return the loss [nat] after 90 % of the fall from the untrained model's loss to the curve's floor.

    Raises:
        ScenarioError: If no fit is shipped for the task.
    """
    if not has_fit(scenario):
        raise ScenarioError(
            f"scenario {scenario.name!r} opens participation or local steps, so its reward is "
            f"time_to_target, but task {scenario.workload.task!r} has no fitted surrogate to give a target: "
            "set dynamics.target_loss, or name another reward"
        )
    curve = fit_for(scenario).constants
    return float(f"{curve.initial_loss - FALL * (curve.initial_loss - curve.floor_loss):.6g}")
