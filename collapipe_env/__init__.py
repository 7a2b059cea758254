"""Gymnasium environment for pipeline-parallel federated training at the wireless edge.

Importing the package registers its environments::

    import gymnasium as gym
    import collapipe_env

    env = gym.make("CollaPipeSurrogate-v0")

``CollaPipe-v0`` really trains, which costs about 0.2 s a round, and its reward does not contain the loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collapipe_env.envs.registration import register_environments
from collapipe_env.ground.version import __version__

if TYPE_CHECKING:
    from collapipe_env.agents.learned.agent_loading import load_agent as load_agent
    from collapipe_env.agents.learned.policy_scheduler import PolicyScheduler as PolicyScheduler
    from collapipe_env.envs.env import CollaPipeEnv as CollaPipeEnv
    from collapipe_env.envs.rewards import register_reward as register_reward
    from collapipe_env.envs.suite import suite as suite
    from collapipe_env.envs.vector import CollaPipeVectorEnv as CollaPipeVectorEnv
    from collapipe_env.evaluation.evaluate import Evaluation as Evaluation
    from collapipe_env.evaluation.evaluate import evaluate as evaluate
    from collapipe_env.evaluation.view.run_page import write_page as write_page
    from collapipe_env.learners.factory import register_learner as register_learner
    from collapipe_env.physics.allocation import Allocation as Allocation
    from collapipe_env.scenario import (
        Scenario as Scenario,
    )
    from collapipe_env.scenario import (
        load_scenario as load_scenario,
    )
    from collapipe_env.scenario import (
        register_scenario as register_scenario,
    )
    from collapipe_env.scenario import (
        scenario_names as scenario_names,
    )
    from collapipe_env.scenario.task_registry import register_task as register_task
    from collapipe_env.schedulers import Scheduler as Scheduler
    from collapipe_env.schedulers import register_scheduler as register_scheduler
    from collapipe_env.simulator.process import Process as Process
    from collapipe_env.simulator.process_registry import register_process as register_process

_HOMES = {
    "Allocation": "collapipe_env.physics.allocation",
    "CollaPipeEnv": "collapipe_env.envs.env",
    "CollaPipeVectorEnv": "collapipe_env.envs.vector",
    "Evaluation": "collapipe_env.evaluation.evaluate",
    "PolicyScheduler": "collapipe_env.agents.learned.policy_scheduler",
    "Process": "collapipe_env.simulator.process",
    "Scenario": "collapipe_env.scenario",
    "Scheduler": "collapipe_env.schedulers",
    "evaluate": "collapipe_env.evaluation.evaluate",
    "load_agent": "collapipe_env.agents.learned.agent_loading",
    "load_scenario": "collapipe_env.scenario",
    "register_learner": "collapipe_env.learners.factory",
    "register_process": "collapipe_env.simulator.process_registry",
    "register_reward": "collapipe_env.envs.rewards",
    "register_scenario": "collapipe_env.scenario",
    "register_scheduler": "collapipe_env.schedulers",
    "register_task": "collapipe_env.scenario.task_registry",
    "scenario_names": "collapipe_env.scenario",
    "suite": "collapipe_env.envs.suite",
    "write_page": "collapipe_env.evaluation.view.run_page",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    """Import the public names on first use, so that ``import collapipe_env`` stays quick."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Names for completion: the public ones, imported or not, and the package's modules."""
    from types import ModuleType

    modules = (name for name, value in globals().items() if isinstance(value, ModuleType))
    return sorted({*__all__, *modules})


register_environments()
