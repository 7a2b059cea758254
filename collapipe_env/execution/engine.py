"""Engines, which carry the roles of an execution: objects of this process, or Ray's actors [X].

A driver spawns roles and submits calls of their methods. A call gives a reference of its result, which other
calls may take as an argument before the result is there. On Ray, results go from worker to worker, and the
calls of a role run in the order of their submission. A role's first failure ends it: every later call of the
role, and every call that needs its results, fails with the same error, which comes out of :meth:`Engine.get`.
"""

from __future__ import annotations

import math
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeVar

from collapipe_env.execution.clock_offsets import NO_OFFSET, ClockOffset
from collapipe_env.ground.errors import CollaPipeError

PATIENCE_S = 30.0
"""Longest time until a role answers a ping [s], where lateness costs nothing."""

K = TypeVar("K")

Reference = Any
"""Result of a call that may not be there yet."""


class Lost(CollaPipeError):  # noqa: N818 - it says what happened to the roles
    """Roles are gone, or do not answer.

    Args:
        names: Their names; at least one.

    Attributes:
        names: Their names.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        super().__init__(f"lost: {', '.join(self.names)}")

    def __reduce__(self) -> tuple[type[Lost], tuple[tuple[str, ...]]]:
        return Lost, (self.names,)


@dataclass(frozen=True, eq=False)
class Role:
    """A role that an engine carries.

    Attributes:
        name: Its name, such as ``c0d1``.
        carrier: Object or actor that holds it.
        call: Submits a call of a role's method: its name, the method, the arguments.
        opened: Reference of its construction.
        patience_s: Longest time until it answers a ping [s].
    """

    name: str
    carrier: Any
    call: Callable[..., Reference]
    opened: Reference
    patience_s: float


class Engine(ABC):
    """Carries roles. It is a context, which closes the engine.

    Attributes:
        side_by_side: Whether roles work at the same time, so that real time means something.
    """

    side_by_side = True

    @abstractmethod
    def spawn(
        self,
        name: str,
        kind: Callable[..., Any],
        *args: Any,
        beside: Role | None = None,
        patience_s: float = PATIENCE_S,
    ) -> Role:
        """Construct a role; return at once.

        Args:
            name: Name of the role. A role that was lost can be spawned again by its name.
            kind: Class of the role, which other processes can import.
            args: Arguments of its constructor; may be references.
            beside: Role whose process also carries this one, in a thread of its own; at most one more.
            patience_s: Longest time until it answers a ping [s]; one that takes longer is lost.
        """

    def call(self, role: Role, method: str, *args: Any) -> Reference:
        """Submit a call of a role's method.

        Args:
            role: The role.
            method: Name of the method.
            args: Its arguments. References among them, but not inside of them, are replaced by their results.
        """
        return role.call(role.name, method, *args)

    @abstractmethod
    def get(self, refs: Sequence[Reference], watch: Iterable[Role] = ()) -> list[Any]:
        """Wait for results.

        Args:
            refs: References of the results.
            watch: Roles that must stay alive meanwhile.

        Raises:
            Lost: If a watched role, or one that a result depends on, is gone or silent.
            Exception: The error of a method, of its own type.
        """

    @abstractmethod
    def first(self, waits: Mapping[K, tuple[Sequence[Reference], Sequence[Role]]]) -> K:
        """Return the key of a wait that is over, so that :meth:`get` returns or raises at once.

        Args:
            waits: What to wait for: references, and the roles to watch meanwhile. A wait without references
                is over only if one of its roles is lost.
        """

    def interject(self, role: Role, method: str, *args: Any) -> None:
        """Call a role's method at once, beside its other calls, which it must not disturb; nobody waits."""
        self.call(role, method, *args)

    @abstractmethod
    def put(self, value: Any) -> Reference:
        """Return the reference of a value that several calls take."""

    @abstractmethod
    def lost(self, roles: Iterable[Role]) -> list[str]:
        """Return the names of those roles that are gone or silent; their processes are ended.

        A role that is still being constructed is not silent.
        """

    @abstractmethod
    def kill(self, role: Role, number: int = signal.SIGKILL) -> None:
        """Send a signal to a role's process."""

    @abstractmethod
    def close(self) -> None:
        """End all roles."""

    def ready(self, roles: Iterable[Role]) -> None:
        """Wait until roles have been constructed.

        Raises:
            Lost: If one is gone before.
            Exception: The error of its constructor, of its own type.
        """
        waited = list(roles)
        self.get([role.opened for role in waited], waited)

    @abstractmethod
    def offsets(self, roles: Iterable[Role], fine_s: float = math.inf) -> dict[str, ClockOffset]:
        """Measure the offsets of roles' monotonic clocks to the clock of this process, by their names.

        Args:
            roles: The roles.
            fine_s: Bound that is good enough [s]: until it is reached, more exchanges than usual are made.

        Raises:
            Lost: If one is gone or silent.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Carrier:
    """Holds the roles of one process, and the failures that ended them."""

    def __init__(self) -> None:
        self._roles: dict[str, Any] = {}
        self._failures: dict[str, BaseException] = {}

    def open(self, name: str, kind: Callable[..., Any], *args: Any) -> None:
        """Construct a role."""
        self._failures.pop(name, None)
        self._roles[name] = self._tried(name, kind, args)

    def call(self, name: str, method: str, *args: Any) -> Any:
        """Call a role's method, unless the role has failed.

        Raises:
            CollaPipeError: If there is no such role: its class or an argument did not reach this process.
        """
        if name not in self._roles and name not in self._failures:
            raise CollaPipeError(f"{name} could not be constructed")
        if name in self._failures:
            raise self._failures[name]
        return self._tried(name, getattr(self._roles[name], method), args)

    def ended(self) -> list[str]:
        """Return the names of the roles that said that they are lost."""
        return [name for name, failure in self._failures.items() if isinstance(failure, Lost)]

    def end(self, name: str) -> None:
        """Let a role be lost."""
        self._failures[name] = Lost([name])

    def signal(self, number: int) -> None:
        """Send a signal to this process."""
        os.kill(os.getpid(), number)

    def times(self) -> tuple[float, float]:
        """Return when this process hears the question, and when it answers, by its monotonic clock [s]."""
        heard = time.monotonic()
        return heard, time.monotonic()

    def _tried(self, name: str, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        try:
            return function(*args)
        except Exception as failure:
            self._failures[name] = failure
            raise


@dataclass(frozen=True)
class _Failed:
    """Result of a call that failed, or that needed such a result."""

    failure: Exception


class Inline(Engine):
    """Carries all roles in this process; a call runs at once."""

    side_by_side = False

    def __init__(self) -> None:
        self._carrier = Carrier()

    def spawn(
        self,
        name: str,
        kind: Callable[..., Any],
        *args: Any,
        beside: Role | None = None,  # noqa: ARG002 - the interface
        patience_s: float = PATIENCE_S,
    ) -> Role:
        """Construct a role."""
        opened = self._done(self._carrier.open, name, kind, *args)
        return Role(name, self._carrier, partial(self._done, self._carrier.call), opened, patience_s)

    def get(self, refs: Sequence[Reference], watch: Iterable[Role] = ()) -> list[Any]:
        """Return the results."""
        for ref in refs:
            if isinstance(ref, _Failed):
                raise ref.failure
        gone = self.lost(watch)
        if gone:
            raise Lost(gone)
        return list(refs)

    def first(self, waits: Mapping[K, tuple[Sequence[Reference], Sequence[Role]]]) -> K:
        """Return the first key with results, which are all there, or with a role that is lost."""
        return next(key for key, (refs, watch) in waits.items() if refs or self.lost(watch))

    def put(self, value: Any) -> Reference:
        """Return the value."""
        return value

    def lost(self, roles: Iterable[Role]) -> list[str]:
        """Return the names of roles that said that they are lost."""
        ended = self._carrier.ended()
        return [role.name for role in roles if role.name in ended]

    def kill(self, role: Role, number: int = signal.SIGKILL) -> None:  # noqa: ARG002 - the interface
        """Let the role be lost, whichever the signal."""
        self._carrier.end(role.name)

    def offsets(self, roles: Iterable[Role], fine_s: float = math.inf) -> dict[str, ClockOffset]:  # noqa: ARG002
        """Return no offsets: there is one clock."""
        return {role.name: NO_OFFSET for role in roles}

    def close(self) -> None:
        """Do nothing: the roles end with their last reference."""

    @staticmethod
    def _done(function: Callable[..., Any], *args: Any) -> Reference:
        for arg in args:
            if isinstance(arg, _Failed):
                return arg
        try:
            return function(*args)
        except Exception as failure:
            return _Failed(failure)
