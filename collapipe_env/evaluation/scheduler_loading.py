"""Schedulers built from their names: the package's own, registered ones, users' own code, saved agents."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

from collapipe_env.evaluation.own_code import file_of, is_reference, place_of_object
from collapipe_env.evaluation.own_scheduler import OwnScheduler
from collapipe_env.evaluation.scheduler_process import ProcessScheduler, process_of
from collapipe_env.ground.errors import ScenarioError, SchedulerError, shown
from collapipe_env.ground.files import ARCHIVE_BYTES, read_regular
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import LEARNED, SCHEDULERS, Factory, Scheduler
from collapipe_env.zoo.shipped_agents import NAME, PREFIX, is_shipped, shipped_agent, shipped_agents

NO_FACTORIES: Mapping[str, Factory] = MappingProxyType({})
"""Empty mapping of schedulers given as Python objects."""


@dataclass(frozen=True)
class ReadyMade:
    """A factory that returns an existing scheduler."""

    scheduler: Scheduler

    def __call__(self, scenario: Scenario) -> Scheduler:  # noqa: ARG002 - it was made for one already
        """The scheduler."""
        return self.scheduler


def full_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return full names of schedulers: ``graph`` becomes ``zoo:graph``, and so for every agent of the zoo.

    A scheduler of exactly that name takes precedence, including one registered in this process.

    Args:
        names: Requested names; those that are not agents of the zoo stay unchanged.

    Raises:
        DataError: If the index of the zoo is missing or damaged.
    """
    return tuple(map(_full_name, names))


def _full_name(name: str) -> str:
    # Names of another form need no look into the index.
    is_agent = (
        name not in SCHEDULERS and name != LEARNED and NAME.fullmatch(name) and name in shipped_agents()
    )
    return f"{PREFIX}{name}" if is_agent else name


def package_title(name: str) -> str:
    """Return the title of one of the package's own schedulers or agents, without building it."""
    if is_shipped(name):
        return name.removeprefix(PREFIX)
    return str(getattr(SCHEDULERS.get(name), "name", name))


def make_scheduler(
    name: str,
    scenario: Scenario,
    agent: Path | None = None,
    factories: Mapping[str, Factory] = NO_FACTORIES,
) -> Scheduler:
    """Build a scheduler.

    Args:
        name: One of :func:`~collapipe_env.schedulers.scheduler_names`, a registered one, an agent of the zoo
            with or without ``zoo:``, ``package.module:Name``, ``path/to/file.py:Name``, or ``"agent"``.
        agent: File of the learned scheduler ``"agent"``.
        factories: Schedulers given as Python objects, by name.

    Raises:
        ScenarioError: If there is no such scheduler; the message names the nearest.
        SchedulerError: If a user's own scheduler cannot be imported or built.
        CheckpointError: If an agent cannot be read or does not fit.
    """
    factory = own_factory(name, factories)
    if factory is not None:
        return OwnScheduler(name, factory, scenario)
    name = _full_name(name)
    if name == LEARNED and agent is None:
        raise ScenarioError(f"scheduler {LEARNED!r} is a trained agent: give the path of one")
    source = agent if name == LEARNED else name if is_shipped(name) else None
    if source is not None:
        # Imported late: the libraries of agents are slow to import, and other schedulers do not need them.
        from collapipe_env.agents.learned.agent_loading import load_agent

        made = load_agent(source, scenario)
        if is_shipped(name):
            made.name = name.removeprefix(PREFIX)  # several of one algorithm may play together
        return made
    require_scheduler(name)
    build: Factory = SCHEDULERS.get(name)
    return build(scenario)


def require_scheduler(name: str, *, learned: bool = False) -> None:
    """Refuse an unknown name, and a user's own code that cannot be imported.

    Args:
        learned: Whether ``"agent"`` is also allowed.

    Raises:
        ScenarioError: Names the nearest one.
        SchedulerError: If a user's own code cannot be imported.
        CheckpointError: If the zoo has no such agent.
    """
    name = _full_name(name)
    if is_shipped(name):
        shipped_agent(name)
    elif is_reference(name):
        process_of(name)
    elif not (name in SCHEDULERS or (learned and name == LEARNED)):
        if name.lower().endswith(".safetensors"):
            raise ScenarioError(f"scheduler {shown(name)} is a file: give a saved agent as --agent {name}")
        if name.lower().endswith(".zip"):
            raise ScenarioError(
                f"scheduler {shown(name)} is a file: load it in a file of your own, wrap it in "
                "collapipe_env.PolicyScheduler, and give file.py:Name"
            )
        others = (*((LEARNED,) if learned else ()), *shipped_agents())
        raise ScenarioError(str(SCHEDULERS.unknown(name, others)))


def own_factory(name: str, factories: Mapping[str, Factory] = NO_FACTORIES) -> Factory | None:
    """Return the factory of a user's own scheduler; ``None`` for the package's own and for other names.

    Called, the factory of a reference builds the scheduler in a process of its own.

    Args:
        factories: Schedulers given as Python objects, by name.
    """
    if name in factories:
        return factories[name]
    if name in SCHEDULERS.added():
        factory: Factory = SCHEDULERS.get(name)
        return factory
    return partial(ProcessScheduler, name) if is_reference(name) and not is_shipped(name) else None


def registered(names: tuple[str, ...]) -> dict[str, Factory]:
    """Return the factories of the names that were registered in this process."""
    return {name: SCHEDULERS.get(name) for name in names if name in SCHEDULERS.added()}


def own_identity(
    name: str, scenario: Scenario, factories: Mapping[str, Factory] = NO_FACTORIES
) -> bytes | None:
    """Return what tells a user's own scheduler apart; ``None`` for the package's own and for other names.

    The file that defines it counts, but not what that file imports. Whatever has no lasting source, or cannot
    be built, is different in every call.
    """
    factory = own_factory(name, factories)
    if factory is None:
        return None
    place = name if is_reference(name) else place_of_object(factory)
    with suppress(SchedulerError, OSError):  # playing it reports the fault
        if place is not None:
            told = OwnScheduler(name, factory, scenario).fingerprint().encode()
            file = file_of(place)
            content = b"" if file is None else read_regular(file, ARCHIVE_BYTES)
            return b"\0".join((place.encode(), hashlib.sha256(content).digest(), told))
    return secrets.token_bytes(16)
