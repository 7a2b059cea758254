"""Schedulers by name. What a scheduler needs is imported only when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from collapipe_env.errors import ScenarioError, nearest_name
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import Scheduler

_HOMES: dict[str, tuple[str, str]] = {
    "dssra": ("collapipe_env.agents.dssra", "DSSRA"),
    "pipeline": ("collapipe_env.baselines.even_split", "PipeLine"),
    "random": ("collapipe_env.baselines.random_feasible", "RandomFeasible"),
    "vanilla_fl": ("collapipe_env.baselines.vanilla_fl", "VanillaFL"),
    "titanic": ("collapipe_env.baselines.titanic", "Titanic"),
    "pipeedge": ("collapipe_env.baselines.pipeedge", "PipeEdge"),
    "asteroid": ("collapipe_env.baselines.asteroid", "Asteroid"),
    "splitfed_v1": ("collapipe_env.baselines.splitfed", "SplitFedV1"),
    "splitfed_v2": ("collapipe_env.baselines.splitfed", "SplitFedV2"),
    "pipar": ("collapipe_env.baselines.pipar", "PiPar"),
    "adaptis": ("collapipe_env.baselines.adaptis", "AdaPtis"),
    "optpipe": ("collapipe_env.baselines.optpipe", "OptPipe"),
    "flexpipe": ("collapipe_env.baselines.flexpipe", "FlexPipe"),
    "xpipe": ("collapipe_env.baselines.xpipe", "XPipe"),
    "greedy_dpp": ("collapipe_env.baselines.greedy_dpp", "GreedyDPP"),
    "flop_proportional": ("collapipe_env.baselines.flop_proportional", "FlopProportional"),
    "memory_proportional": ("collapipe_env.baselines.memory_proportional", "MemoryProportional"),
    "best_single_device": ("collapipe_env.baselines.best_single_device", "BestSingleDevice"),
}
"""Module and class of each scheduler; a class is called with the scenario alone."""

LEARNED = "agent"
"""Stands for the trained agent in lists of schedulers."""


def scheduler_names() -> tuple[str, ...]:
    """Names that :func:`make_scheduler` knows."""
    return tuple(_HOMES)


def make_scheduler(name: str, scenario: Scenario) -> Scheduler:
    """Build a scheduler.

    Args:
        name: One of :func:`scheduler_names`.
        scenario: What it is to schedule.

    Raises:
        ScenarioError: If there is no such scheduler; names the nearest.
    """
    require_scheduler(name)
    module, kind = _HOMES[name]
    factory: Callable[[Scenario], Scheduler] = getattr(import_module(module), kind)
    return factory(scenario)


def load_scheduler(name: str, scenario: Scenario, agent: Path | None) -> Scheduler:
    """Like :func:`make_scheduler`, with ``"agent"`` for the learned one in the file ``agent``.

    Raises:
        ScenarioError: If there is no such scheduler.
        CheckpointError: If the agent cannot be read or does not fit.
    """
    if name != LEARNED:
        return make_scheduler(name, scenario)
    if agent is None:
        raise ScenarioError(f"scheduler {LEARNED!r} is a trained agent: give the path of one")
    # Imported late: Stable-Baselines3 is slow to import and the others do not need it.
    from collapipe_env.agents.learned import LearnedScheduler

    return LearnedScheduler.load(agent, scenario)


def require_scheduler(name: str, *, learned: bool = False) -> None:
    """Refuse a name that is not known.

    Args:
        name: The name.
        learned: Whether ``"agent"`` is allowed, too.

    Raises:
        ScenarioError: Names the nearest one.
    """
    valid = (*_HOMES, LEARNED) if learned else tuple(_HOMES)
    if name not in valid:
        raise ScenarioError(f"scheduler {name!r} is not known: {nearest_name(name, valid)}")
