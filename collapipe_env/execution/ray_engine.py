"""Engine of Ray: every role in a process of its own, here or on the machines of a cluster [X]."""

from __future__ import annotations

import contextlib
import fnmatch
import importlib
import math
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from collapipe_env.execution.clock_offsets import EXCHANGES, MOST_EXCHANGES, NO_OFFSET, ClockOffset
from collapipe_env.execution.engine import PATIENCE_S, Carrier, Engine, Lost, Reference, Role
from collapipe_env.execution.uncompiled import leave_compiler_out
from collapipe_env.ground.errors import CollaPipeError, shown
from collapipe_env.ground.linux import PR_SET_PDEATHSIG, prctl
from collapipe_env.ground.ray_cluster import RayCluster, first_line

HEARTBEAT_S = 0.25
"""Period in which roles that somebody waits for are pinged [s]."""
START_S = 120.0
"""Longest time until a role has been constructed [s]; its process imports its modules first."""
LABEL = "collapipe"
"""Label of Ray's nodes by which roles are placed."""
CONTROL, SEATS = "control", ("first", "second")
"""Threads of a process: the one that answers pings, and those of its roles."""

K = TypeVar("K")


class Process(Carrier):
    """Carrier in a process of its own."""

    def __init__(self) -> None:
        super().__init__()
        leave_compiler_out()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # one that hangs would not notice the end of Ray

    def prepare(self, module: str) -> None:
        """Import a module, which roles need."""
        importlib.import_module(module)


class Ray(Engine):
    """Carries every role in a process of its own.

    Args:
        address: Address of a running cluster; by default, a Ray is started on this machine and ended with
            the engine.
        places: Label of the machines that may carry a role, by its name or a pattern of names such as
            ``c0d*``; the first one that fits counts. Others may be anywhere.
        options: Further arguments of ``ray.init``, for a Ray that is started here.

    Raises:
        CollaPipeError: If Ray is not installed, cannot be started or reached, or is reachable from other
            machines without a token.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        places: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        self._cluster = RayCluster(address, options, "the engine ray")
        self._ray, self._places = self._cluster.ray, places or {}
        self._roles: dict[str, Role] = {}
        self._began: dict[str, float] = {}
        self._pings: dict[str, tuple[Reference, float]] = {}
        self._gone: set[str] = set()
        self._spare: list[Any] = []
        self._process = self._ray.remote(
            num_cpus=0, max_restarts=0, concurrency_groups=dict.fromkeys((CONTROL, *SEATS), 1)
        )(Process)

    def prepare(self, count: int, module: str) -> None:
        """Start processes for the roles of any place, which import a module meanwhile.

        Args:
            count: Number of processes.
            module: Name of the module.
        """
        for _ in range(count):
            self._spare.append(self._process.options(scheduling_strategy="SPREAD").remote())
            self._spare[-1].prepare.options(concurrency_group=SEATS[0]).remote(module)

    def spawn(
        self,
        name: str,
        kind: Callable[..., Any],
        *args: Any,
        beside: Role | None = None,
        patience_s: float = PATIENCE_S,
    ) -> Role:
        """Construct a role in a new process, or beside another."""
        seat = SEATS[0 if beside is None else 1]
        carrier = self._started(name) if beside is None else beside.carrier
        opened = carrier.open.options(concurrency_group=seat).remote(name, kind, *args)
        call = carrier.call.options(concurrency_group=seat).remote
        role = Role(name, carrier, call, opened, patience_s)
        self._roles[name], self._began[name] = role, time.monotonic()
        self._gone.discard(name)
        self._pings.pop(name, None)
        return role

    def _started(self, name: str) -> Any:
        """Start a process for a role."""
        place = next((place for few, place in self._places.items() if fnmatch.fnmatchcase(name, few)), None)
        if place is None:
            if not self._spare:
                return self._process.options(scheduling_strategy="SPREAD").remote()
            return self._spare.pop(0)
        if not any(node["Labels"].get(LABEL) == place for node in self._cluster.nodes()):
            raise CollaPipeError(
                f"{name} has its place on {shown(place)}, and no machine of the Ray cluster has that label: "
                f"start one with ray start --labels {LABEL}={place}"
            )
        return self._process.options(label_selector={LABEL: place}).remote()

    def get(self, refs: Sequence[Reference], watch: Iterable[Role] = ()) -> list[Any]:
        """Wait for results; meanwhile, ping the watched roles."""
        watched, waiting = list(watch), list(dict.fromkeys(refs))
        while watched:
            if gone := self._silent(watched):
                raise Lost(gone)
            _, waiting = self._known(waiting, HEARTBEAT_S)
            if not waiting:
                break
        try:
            return list(self._ray.get(list(refs)))
        except self._ray.exceptions.RayError as error:
            raise self._cause(error, watched) from error

    def first(self, waits: Mapping[K, tuple[Sequence[Reference], Sequence[Role]]]) -> K:
        """Wait for any of several gets; meanwhile, ping the watched roles."""
        left = {key: list(dict.fromkeys(refs)) for key, (refs, _) in waits.items()}
        pinged = -math.inf
        while True:
            for key, refs in left.items():
                left[key] = self._known(refs, 0.0)[1]
                if refs and not left[key]:
                    return key
            if time.monotonic() - pinged >= HEARTBEAT_S:
                for key, (_, watch) in waits.items():
                    if self._silent(watch):
                        return key
                pinged = time.monotonic()
            some = list(dict.fromkeys(ref for refs in left.values() for ref in refs))
            self._ray.wait(some, num_returns=1, timeout=HEARTBEAT_S, fetch_local=False)

    def interject(self, role: Role, method: str, *args: Any) -> None:
        """Call a role's method in the thread that answers pings."""
        role.carrier.call.options(concurrency_group=CONTROL).remote(role.name, method, *args)

    def put(self, value: Any) -> Reference:
        """Put a value into the store that all processes of a machine share."""
        return self._ray.put(value)

    def lost(self, roles: Iterable[Role]) -> list[str]:
        """Ping roles, and wait for their answers; end the processes of those that do not answer."""
        asked = list(roles)
        self._silent(asked)
        for role in asked:
            if role.name in self._pings:
                ping, since = self._pings[role.name]
                self._known([ping], max(since + role.patience_s - time.monotonic(), 0.0))
        return self._silent(asked, again=False)

    def _silent(self, roles: Sequence[Role], *, again: bool = True) -> list[str]:
        """Read the answers to earlier pings, without waiting; return the names of roles that are lost.

        Args:
            roles: The roles.
            again: Whether to ping those again that have answered.
        """
        alive = [role for role in roles if role.name not in self._gone]
        refs = [self._pings[role.name][0] for role in alive if role.name in self._pings]
        answers = self._answers(self._known(refs, 0.0)[0])
        opened = self._known([role.opened for role in alive], 0.0)[0]
        now = time.monotonic()
        for role in alive:
            ref, since = self._pings.get(role.name, (None, now))
            limit = role.patience_s
            if ref in answers:
                del self._pings[role.name]
                names, since = answers[ref], now
                if names is None or role.name in names:
                    self._end(role)
                    continue
            elif ref is None and role.opened not in opened:  # it imports its modules, or computes
                since, limit = self._began[role.name], START_S
            if now - since >= limit:
                self._end(role)
            elif again and role.name not in self._pings and role.opened in opened:
                ping = role.carrier.ended.options(concurrency_group=CONTROL).remote()
                self._pings[role.name] = ping, now
        return [role.name for role in roles if role.name in self._gone]

    def _answers(self, refs: Sequence[Reference]) -> dict[Reference, list[str] | None]:
        """Return the answers to pings: names of roles that are lost, ``None`` from ended processes."""
        answers: dict[Reference, list[str] | None] = {}
        for ref in refs:
            answers[ref] = None
            try:
                answers[ref] = self._ray.get(ref)
            except self._ray.exceptions.RayError as error:
                _require_begun(error)
        return answers

    def _end(self, role: Role) -> None:
        """Note that a role is lost, and end its process."""
        self._gone.add(role.name)
        self._pings.pop(role.name, None)
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.kill(role.carrier)

    def _known(self, refs: list[Reference], timeout_s: float) -> tuple[list[Reference], list[Reference]]:
        """Return the references whose results are there in time, and the others."""
        if not refs:
            return [], []
        found: tuple[list[Reference], list[Reference]] = self._ray.wait(
            refs, num_returns=len(refs), timeout=timeout_s, fetch_local=False
        )
        return found

    def _cause(self, error: Any, watched: Sequence[Role]) -> BaseException:
        """Return the error with which a role or its process ended."""
        errors = self._ray.exceptions
        _require_begun(error)
        while isinstance(error, errors.RayTaskError):
            error = error.cause
        if isinstance(error, BaseException) and not isinstance(error, errors.RayError):
            return error
        names = self.lost(watched)
        if not names and isinstance(error, errors.RayActorError):
            ended = [role for role in self._roles.values() if role.carrier._actor_id.hex() == error.actor_id]
            self._gone.update(role.name for role in ended)
            names = [role.name for role in ended]
        return Lost(names) if names else CollaPipeError(f"Ray failed ({first_line(error)})")

    def kill(self, role: Role, number: int = signal.SIGKILL) -> None:
        """Let a role's process send itself a signal, wherever it runs."""
        role.carrier.signal.options(concurrency_group=CONTROL).remote(number)

    def offsets(self, roles: Iterable[Role], fine_s: float = math.inf) -> dict[str, ClockOffset]:
        """Exchange times with every role, in the thread that answers pings."""
        if not self._cluster.several:
            return {role.name: NO_OFFSET for role in roles}
        return {role.name: self._offset(role, fine_s) for role in roles}

    def _offset(self, role: Role, fine_s: float) -> ClockOffset:
        best = ClockOffset(0.0, math.inf)
        for number in range(MOST_EXCHANGES):
            if number >= EXCHANGES and best.bound_s <= fine_s:
                break
            asked = time.monotonic()
            answer = role.carrier.times.options(concurrency_group=CONTROL).remote()
            heard, answered = self.get([answer], [role])[0]
            offset = ClockOffset.of(asked, heard, answered, time.monotonic())
            best = min(best, offset, key=lambda one: one.bound_s)
        return best

    def close(self) -> None:
        """End all processes, and the Ray if it was started here."""
        for role in self._roles.values():
            self._end(role)
        for process in self._spare:
            self._ray.kill(process)
        self._roles, self._spare = {}, []
        self._cluster.close()


def _require_begun(error: Any) -> None:
    """Raise the cause if Ray's error says that a process could not begin: it cannot import the package.

    Raises:
        CollaPipeError: If it says so.
    """
    if getattr(error, "actor_init_failed", False):
        cause = str(error).strip().splitlines()[-1].strip()
        raise CollaPipeError(
            f"a process of Ray cannot run this package ({cause}): it needs the same Python, packages and "
            "PYTHONPATH as this one"
        )
