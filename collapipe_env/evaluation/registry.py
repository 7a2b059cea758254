"""Schedulers by name. What a scheduler needs is imported only when it is asked for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar, overload

from collapipe_env.errors import ScenarioError, SchedulerError, nearest_name
from collapipe_env.evaluation.own_code import (
    FORMS,
    Factory,
    OwnCode,
    import_factory,
    is_reference,
    python_code,
)
from collapipe_env.evaluation.own_scheduler import OwnScheduler
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import Scheduler

_HOMES: dict[str, tuple[str, str]] = {
    "dssra": ("collapipe_env.agents.dssra.policy", "DSSRA"),
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
DEFAULT_SCHEDULERS = ("dssra", "pipeline", "random")
"""Who plays in an evaluation where nobody is named."""

LEARNED = "agent"
"""Stands for the trained agent in lists of schedulers."""
NO_FACTORIES: Mapping[str, Factory] = MappingProxyType({})
"""For whoever hands over no scheduler in Python."""

_REGISTERED: dict[str, Factory] = {}
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")

Kind = TypeVar("Kind", bound=Factory)


@overload
def register_scheduler(name: str, factory: Kind) -> Kind: ...


@overload
def register_scheduler(name: str) -> Callable[[Kind], Kind]: ...


def register_scheduler(name: str, factory: Kind | None = None) -> Kind | Callable[[Kind], Kind]:
    """Give a scheduler of your own a name, for this process and for the workers it starts.

    Also a decorator: ``@register_scheduler("half_power")`` above the class. The same definition may be
    registered again, so that a notebook's cell can be run twice.

    Args:
        name: Lower-case letters, digits and underscores, at most 40, beginning with a letter.
        factory: Class or function that is called with the scenario alone and returns something with ``name``,
            ``reset`` and ``act``.

    Returns:
        The factory; without one, a decorator.

    Raises:
        SchedulerError: If the name is taken or not of that form, or the factory cannot be called.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise SchedulerError(
            f"scheduler name {name!r}: use lower-case letters, digits and underscores, at most 40, beginning "
            "with a letter"
        )
    if name in _HOMES or name == LEARNED:
        raise SchedulerError(f"scheduler name {name!r} is taken by the package: choose another")
    if factory is None:
        return lambda kind: register_scheduler(name, kind)
    if not callable(factory):
        raise SchedulerError(
            f"scheduler {name!r}: {factory!r} cannot be called: register a class or function that is called "
            "with the scenario and returns a scheduler"
        )
    before = _REGISTERED.get(name)
    if before is not None and _origin(before) != _origin(factory):
        raise SchedulerError(
            f"scheduler name {name!r} is taken by {'.'.join(_origin(before))}: choose another"
        )
    _REGISTERED[name] = factory
    return factory


def _origin(factory: object) -> tuple[str, str]:
    name = getattr(factory, "__qualname__", type(factory).__qualname__)
    return str(getattr(factory, "__module__", "")), str(name)


def registered(names: tuple[str, ...]) -> dict[str, Factory]:
    """The factories of those names that were registered in this process."""
    return {name: _REGISTERED[name] for name in names if name in _REGISTERED}


def scheduler_names() -> tuple[str, ...]:
    """Names of the package's own schedulers."""
    return tuple(_HOMES)


def known_names() -> tuple[str, ...]:
    """Names of the package's own schedulers, of those registered in this process, and ``"agent"``."""
    return (*_HOMES, *_REGISTERED, LEARNED)


def package_title(name: str) -> str:
    """The title of one of the package's own schedulers, which is not built for that."""
    module, kind = _HOMES[name]
    return str(getattr(getattr(import_module(module), kind), "name", name))


def make_scheduler(name: str, scenario: Scenario) -> Scheduler:
    """Build a scheduler.

    Args:
        name: One of :func:`scheduler_names`, a registered one, ``package.module:Name`` or
            ``path/to/file.py:Name``.
        scenario: What it is to schedule.

    Raises:
        ScenarioError: If there is no such scheduler; names the nearest.
        SchedulerError: If one of the user's own cannot be imported or built.
    """
    own = own_code(name)
    if own is not None:
        return OwnScheduler(name, own, scenario)
    require_scheduler(name)
    module, kind = _HOMES[name]
    factory: Factory = getattr(import_module(module), kind)
    return factory(scenario)


def own_code(name: str, factories: Mapping[str, Factory] = NO_FACTORIES) -> OwnCode | None:
    """The code of a scheduler of the user's own; ``None`` for the package's own and for other names.

    Args:
        name: Its name.
        factories: Those that were handed over in Python, by name.

    Raises:
        SchedulerError: If it cannot be imported.
    """
    factory = factories.get(name, _REGISTERED.get(name))
    if factory is not None:
        ready = factory.scheduler if isinstance(factory, ReadyMade) else None
        return python_code(factory, factory if ready is None else type(ready))
    return import_factory(name) if is_reference(name) else None


def load_scheduler(
    name: str, scenario: Scenario, agent: Path | None, factories: Mapping[str, Factory] = NO_FACTORIES
) -> Scheduler:
    """Like :func:`make_scheduler`, with ``"agent"`` for the learned one in the file ``agent``.

    Args:
        name: Its name.
        scenario: What it is to schedule.
        agent: File of the learned one.
        factories: Schedulers that were handed over in Python, by name.

    Raises:
        ScenarioError: If there is no such scheduler.
        SchedulerError: If one of the user's own cannot be imported or built.
        CheckpointError: If the agent cannot be read or does not fit.
    """
    own = own_code(name, factories)
    if own is not None:
        return OwnScheduler(name, own, scenario)
    if name != LEARNED:
        return make_scheduler(name, scenario)
    if agent is None:
        raise ScenarioError(f"scheduler {LEARNED!r} is a trained agent: give the path of one")
    # Imported late: Stable-Baselines3 is slow to import and the others do not need it.
    from collapipe_env.agents.learned.models import LearnedScheduler

    return LearnedScheduler.load(agent, scenario)


def require_scheduler(name: str, *, learned: bool = False) -> None:
    """Refuse a name that is not known, and code of the user's own that cannot be imported.

    Args:
        name: The name.
        learned: Whether ``"agent"`` is allowed, too.

    Raises:
        ScenarioError: Names the nearest one.
        SchedulerError: If code of the user's own cannot be imported.
    """
    known = known_names() if learned else known_names()[:-1]
    if name not in known and own_code(name) is None:
        raise ScenarioError(
            f"scheduler {name!r} is not known: {nearest_name(name, known)} (one of your own: {FORMS})"
        )


class ReadyMade:
    """A factory that hands out a scheduler that was built already.

    Args:
        scheduler: The scheduler.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler

    def __call__(self, scenario: Scenario) -> Scheduler:  # noqa: ARG002 - it was made for one already
        """The scheduler."""
        return self.scheduler
