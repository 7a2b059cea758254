"""Engines, which carry the roles of an execution: objects of this process, or Ray's actors [X].

A driver spawns roles and submits calls of their methods. A call gives a reference of its result, which other
calls may take as an argument before the result is there. On Ray, results go from worker to worker, and the
calls of a role run in the order of their submission. A role's first failure ends it: every later call of the
role, and every call that needs its results, fails with the same error, which comes out of :meth:`Engine.get`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeVar

from collapipe_env.ground.errors import CollaPipeError, shown

HEARTBEAT_S = 0.25
"""Period in which roles that somebody waits for are pinged [s]."""
PATIENCE_S = 2.0
"""Longest time until a role answers a ping [s]."""
START_S = 120.0
"""Longest time until a role has been constructed [s]; its process imports its modules first."""
LABEL = "collapipe"
"""Label of Ray's nodes by which roles are placed."""
CONTROL, SEATS = "control", ("first", "second")
"""Threads of a process: the one that answers pings, and those of its roles."""

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
    """

    name: str
    carrier: Any
    call: Callable[..., Reference]
    opened: Reference


class Engine(ABC):
    """Carries roles. It is a context, which closes the engine."""

    @abstractmethod
    def spawn(
        self,
        name: str,
        kind: Callable[..., Any],
        *args: Any,
        place: str | None = None,
        beside: Role | None = None,
    ) -> Role:
        """Construct a role; return at once.

        Args:
            name: Name of the role. A role that was lost can be spawned again by its name.
            kind: Class of the role, which other processes can import.
            args: Arguments of its constructor; may be references.
            place: Label of the machines that may carry it; by default any may.
            beside: Role whose process also carries this one, in a thread of its own; at most one more.
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
            waits: What to wait for: references, and the roles to watch meanwhile.
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

    def __init__(self) -> None:
        self._carrier = Carrier()

    def spawn(
        self,
        name: str,
        kind: Callable[..., Any],
        *args: Any,
        place: str | None = None,  # noqa: ARG002 - the interface
        beside: Role | None = None,  # noqa: ARG002 - the interface
    ) -> Role:
        """Construct a role."""
        opened = self._done(self._carrier.open, name, kind, *args)
        return Role(name, self._carrier, partial(self._done, self._carrier.call), opened)

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
        """Return the first key: all results are there."""
        return next(iter(waits))

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


class Ray(Engine):
    """Carries every role in a process of its own, here or on the machines of a Ray cluster.

    Args:
        address: Address of a running cluster; by default, a Ray is started on this machine and ended with
            the engine.
        patience_s: Longest time until a role answers a ping [s].
        options: Further arguments of ``ray.init``, for a Ray that is started here.

    Raises:
        CollaPipeError: If Ray is not installed, cannot be started or reached, or is reachable from other
            machines without a token.
    """

    def __init__(self, address: str | None = None, *, patience_s: float = PATIENCE_S, **options: Any) -> None:
        self._ray = require_ray()
        self._patience_s, self._local = patience_s, address is None
        self._roles: dict[str, Role] = {}
        self._began: dict[str, float] = {}
        self._gone: set[str] = set()
        self._owned = not self._ray.is_initialized()
        if self._owned:
            _connect(self._ray, address, options)
        self._carrier = self._ray.remote(
            num_cpus=0,
            max_restarts=0,
            concurrency_groups=dict.fromkeys((CONTROL, *SEATS), 1),
            **({} if self._local else {"scheduling_strategy": "SPREAD"}),
        )(Carrier)

    def spawn(
        self,
        name: str,
        kind: Callable[..., Any],
        *args: Any,
        place: str | None = None,
        beside: Role | None = None,
    ) -> Role:
        """Construct a role in a new process, or beside another."""
        seat = SEATS[0 if beside is None else 1]
        carrier = self._started(name, place) if beside is None else beside.carrier
        opened = carrier.open.options(concurrency_group=seat).remote(name, kind, *args)
        role = Role(name, carrier, carrier.call.options(concurrency_group=seat).remote, opened)
        self._roles[name], self._began[name] = role, time.monotonic()
        self._gone.discard(name)
        return role

    def _started(self, name: str, place: str | None) -> Any:
        """Start a process for a role."""
        if place is None or self._local:
            return self._carrier.remote()
        if not any(node["Alive"] and node["Labels"].get(LABEL) == place for node in self._ray.nodes()):
            raise CollaPipeError(
                f"{name} has its place on {shown(place)}, and no machine of the Ray cluster has that label: "
                f"start one with ray start --labels {LABEL}={place}"
            )
        return self._carrier.options(label_selector={LABEL: place}).remote()

    def get(self, refs: Sequence[Reference], watch: Iterable[Role] = ()) -> list[Any]:
        """Wait for results; meanwhile, ping the watched roles."""
        watched, waiting = list(watch), list(dict.fromkeys(refs))
        while watched and waiting:
            _, waiting = self._ray.wait(waiting, num_returns=len(waiting), timeout=HEARTBEAT_S)
            gone = self.lost(watched) if waiting else []
            if gone:
                raise Lost(gone)
        try:
            return list(self._ray.get(list(refs)))
        except self._ray.exceptions.RayError as error:
            raise self._cause(error, watched) from error

    def first(self, waits: Mapping[K, tuple[Sequence[Reference], Sequence[Role]]]) -> K:
        """Wait for any of several gets; meanwhile, ping the watched roles."""
        pinged = time.monotonic()
        left = {key: list(dict.fromkeys(refs)) for key, (refs, _) in waits.items()}
        while True:
            for key, refs in left.items():
                left[key] = self._known(refs, 0.0)[1]
                if not left[key]:
                    return key
            some = list(dict.fromkeys(ref for refs in left.values() for ref in refs))
            self._ray.wait(some, num_returns=1, timeout=HEARTBEAT_S, fetch_local=False)
            if time.monotonic() - pinged >= HEARTBEAT_S:
                for key, (_, watch) in waits.items():
                    if self.lost(watch):
                        return key
                pinged = time.monotonic()

    def interject(self, role: Role, method: str, *args: Any) -> None:
        """Call a role's method in the thread that answers pings."""
        role.carrier.call.options(concurrency_group=CONTROL).remote(role.name, method, *args)

    def _cause(self, error: Any, watched: list[Role]) -> BaseException:
        """Return the error with which a role or its process ended."""
        errors = self._ray.exceptions
        while isinstance(error, errors.RayTaskError):
            error = error.cause
        if not isinstance(error, errors.RayError):
            return error
        names = self.lost(watched)
        if not names and isinstance(error, errors.RayActorError):
            names = [
                name for name, role in self._roles.items() if role.carrier._actor_id.hex() == error.actor_id
            ]
            self._gone.update(names)
        return (
            Lost(names)
            if names
            else CollaPipeError(f"Ray failed ({str(error).strip().partition(chr(10))[0]})")
        )

    def put(self, value: Any) -> Reference:
        """Put a value into the store that all processes of a machine share."""
        return self._ray.put(value)

    def lost(self, roles: Iterable[Role]) -> list[str]:
        """Ping roles; end the processes of those that do not answer."""
        asked = [role for role in roles if role.name not in self._gone]
        opened, starting = self._known([role.opened for role in asked], 0.0)
        late = time.monotonic() - START_S
        pings = {
            role.carrier.ended.options(concurrency_group=CONTROL).remote(): role
            for role in asked
            if role.opened in opened
        }
        answers, silent = self._known(list(pings), self._patience_s)
        gone = [pings[ref] for ref in silent]
        gone += [role for role in asked if role.opened in starting and self._began[role.name] < late]
        for ref in answers:
            try:
                if pings[ref].name in self._ray.get(ref):
                    gone.append(pings[ref])
            except self._ray.exceptions.RayError:
                gone.append(pings[ref])
        for role in gone:
            self._gone.add(role.name)
            self._ray.kill(role.carrier)
        return [role.name for role in roles if role.name in self._gone]

    def _known(self, refs: list[Reference], timeout_s: float) -> tuple[list[Reference], list[Reference]]:
        """Return the references whose results are there in time, and the others."""
        if not refs:
            return [], []
        found: tuple[list[Reference], list[Reference]] = self._ray.wait(
            refs, num_returns=len(refs), timeout=timeout_s, fetch_local=False
        )
        return found

    def kill(self, role: Role, number: int = signal.SIGKILL) -> None:
        """Let a role's process send itself a signal, wherever it runs."""
        role.carrier.signal.options(concurrency_group=CONTROL).remote(number)

    def close(self) -> None:
        """End all processes, and the Ray if it was started here."""
        for role in self._roles.values():
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.kill(role.carrier)
        self._roles = {}
        if self._owned:
            self._ray.shutdown()


def require_ray() -> Any:
    """Return the library Ray.

    Raises:
        CollaPipeError: If it is not installed.
    """
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise CollaPipeError(
            "--engine ray needs the package ray, which is not installed: pip install 'collapipe-env[ray]', "
            "or use --engine inline"
        ) from None
    return ray


def _connect(ray: Any, address: str | None, options: dict[str, Any]) -> None:
    """Connect to a cluster, or start one on this machine."""
    # No usage statistics are sent unless the user's environment says so.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    before = signal.getsignal(signal.SIGTERM)
    here = {} if address else {"num_cpus": 1, "include_dashboard": False, **options}
    constants = ray._private.ray_constants
    clusters = constants.ENABLE_RAY_CLUSTER
    try:
        _require_open(address)
        # Ray listens at all addresses of the machine, even a local one, unless clusters are not enabled.
        constants.ENABLE_RAY_CLUSTER = clusters and address is not None
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **here)
    except Exception as error:  # of many kinds, for a wrong or silent address
        why = str(error).strip().partition("\n")[0]
        if address:
            raise CollaPipeError(
                f"there is no Ray cluster to use at {shown(address)} ({why}): start one with "
                "'ray start --head', and give its address"
            ) from None
        raise CollaPipeError(f"Ray cannot be started here ({why})") from None
    finally:
        constants.ENABLE_RAY_CLUSTER = clusters
        # Ray ends the process on SIGTERM; here it is another Ctrl-C.
        with contextlib.suppress(ValueError, TypeError):  # not the main thread; no handler of Python's
            signal.signal(signal.SIGTERM, before)


def _require_open(address: str | None) -> None:
    """Refuse an address at which nothing listens, which Ray would try for minutes.

    Raises:
        OSError: If there is no connection.
    """
    host, colon, port = (address or "").rpartition(":")
    if colon and port.isdecimal() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
