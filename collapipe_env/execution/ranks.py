"""Ranks: processes started by torchrun or Slurm, and how they find each other ([X]).

Rank 0 is the launcher, the others take the roles in their fixed order. They meet in a store of
torch.distributed, held by torchrun's agent or by rank 0. The store carries the launcher's address, the token,
new names of restarted devices, and the news that the execution is over; everything else goes by the package's
own connections.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import torch.distributed as dist

from collapipe_env.errors import reason, shown
from collapipe_env.execution.joining import ExecutionError, play_role
from collapipe_env.execution.transport.tcp import Address

PATIENCE_S = 600.0
"""Longest wait for all ranks [s]."""
ENDS_S = 5.0
"""Time in which a rank has to end once the execution is over [s]."""
_PERIOD_S = 0.2
_LOOPBACK = "127.0.0.1"
_OFFER, _OVER, _LEFT = "offer", "over", "left"
_REMEDY = (
    "start with torchrun, or with srun and MASTER_ADDR and MASTER_PORT set to a host and a free port of the "
    "first node"
)


@dataclass(frozen=True)
class Rank:
    """A process's place among those that were started together.

    Attributes:
        number: Its number, from 0.
        size: Number of ranks.
        master: Host and port of the store.
        agent: Whether torchrun's agent holds the store, rather than rank 0.
        attempt: Number of this start of the processes, as text.
        one_machine: Whether all are on one machine.
    """

    number: int
    size: int
    master: Address
    agent: bool
    attempt: str
    one_machine: bool

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Rank:
        """Return the place that the environment names, in torchrun's variables or in Slurm's.

        Raises:
            ExecutionError: If a variable is missing, or its value makes no sense.
        """
        of_slurm = "RANK" not in environment and "SLURM_PROCID" in environment
        names = ("SLURM_PROCID", "SLURM_NTASKS") if of_slurm else ("RANK", "WORLD_SIZE")
        wanted = (*names, "MASTER_ADDR", "MASTER_PORT")
        missing = [name for name in wanted if not environment.get(name)]
        if missing:
            raise ExecutionError(f"the environment lacks {', '.join(missing)}: {_REMEDY}")
        number, size, port = (_whole(environment, name) for name in (*names, "MASTER_PORT"))
        if not 0 <= number < size or not 0 < port < 2**16:
            raise ExecutionError(
                f"{names[0]}={number}, {names[1]}={size}, MASTER_PORT={port} are inconsistent: {_REMEDY}"
            )
        host = environment["MASTER_ADDR"]
        nodes = environment.get("SLURM_STEP_NUM_NODES") or environment.get("SLURM_NNODES")
        local = nodes == "1" if of_slurm else environment.get("LOCAL_WORLD_SIZE") == str(size)
        return cls(
            number,
            size,
            (host, port),
            environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
            environment.get("TORCHELASTIC_RESTART_COUNT", "0"),
            local or host in (_LOOPBACK, "localhost", "::1"),
        )

    def host(self) -> str:
        """Return the address at which this rank's processes listen."""
        if self.one_machine:
            return _LOOPBACK
        try:
            (family, *_, address), *_ = socket.getaddrinfo(*self.master, type=socket.SOCK_DGRAM)
            with socket.socket(family, socket.SOCK_DGRAM) as towards:
                towards.connect(address)  # sends nothing
                return str(towards.getsockname()[0])
        except OSError as error:
            raise ExecutionError(
                f"MASTER_ADDR={shown(self.master[0])} cannot be reached ({reason(error)}): {_REMEDY}"
            ) from None


class Offer(NamedTuple):
    """Offer of the launcher to the other ranks.

    Attributes:
        address: Its host and port.
        roles: Names of the roles, rank 1 first.
        token: Secret that all processes share; empty if each rank has it from a file.
    """

    address: Address
    roles: Sequence[str]
    token: str


class MeetingPlace:
    """The store in which ranks meet.

    Args:
        rank: This process's place.
        patience: Longest wait for the store, and for the launcher [s].

    Raises:
        ExecutionError: If the store is not reached in time, or cannot be opened.
    """

    def __init__(self, rank: Rank, patience: float = PATIENCE_S) -> None:
        self._rank, self._patience = rank, patience
        self._holds = rank.number == 0 and not rank.agent
        self._store = self._client(self._holds)

    def offer(self, offer: Offer) -> None:
        """Tell the other ranks how to join."""
        self._store.set(_OFFER, json.dumps(offer))

    def find(self) -> Offer | None:
        """Wait for the launcher's offer; ``None`` if the launcher ends before it makes one.

        Raises:
            ExecutionError: If there is none in time.
        """
        found = self._first((_OFFER, _OVER), self._patience)
        if found is None or found[0] == _OVER:
            return None
        (host, port), roles, token = json.loads(found[1])
        return Offer((str(host), int(port)), roles, token)

    def call_back(self, role: str, name: str, time_: int) -> None:
        """Let a rank restart its role, which has failed.

        Args:
            role: The role.
            name: Its new name.
            time_: Number of earlier restarts of the role.
        """
        self._store.set(f"{role}/{time_}", name)

    def called_back(self, role: str, time_: int) -> str | None:
        """Wait until a failed role is to be restarted; return its new name, or ``None`` at the end."""
        found = self._first((f"{role}/{time_}", _OVER), float("inf"))
        return None if found is None or found[0] == _OVER else found[1]

    def end(self) -> None:
        """Say that the execution is over; if this rank holds the store, wait until the others have left."""
        with contextlib.suppress(RuntimeError):  # torchrun's agent may have gone
            self._store.set(_OVER, "over")
        deadline = time.monotonic() + 2.0 * ENDS_S
        while self._holds and time.monotonic() < deadline:
            if self._store.add(_LEFT, 0) >= self._rank.size - 1:
                return
            time.sleep(0.05)

    def leave(self) -> None:
        """Say that this rank ends."""
        with contextlib.suppress(RuntimeError):
            self._store.add(_LEFT, 1)

    def watch(self, end: Callable[[], None]) -> Callable[[], None]:
        """Call a function :data:`ENDS_S` after the execution is over or the store is gone.

        Args:
            end: The function.

        Returns:
            A function that cancels the call.
        """
        store, stopped = self._client(False), threading.Event()

        def look() -> None:
            with contextlib.suppress(RuntimeError):
                while not store.check([_OVER]):
                    if stopped.wait(_PERIOD_S):
                        return
            if not stopped.wait(ENDS_S):
                end()

        threading.Thread(target=look, name="rank-watch", daemon=True).start()
        return stopped.set

    def _client(self, holds: bool) -> Any:
        host, port = self._rank.master
        try:
            if not holds:
                _wait_for_port((host, port), self._patience)
            store = dist.TCPStore(  # type: ignore[attr-defined] # known at run time
                host,
                port,
                is_master=holds,
                timeout=timedelta(seconds=self._patience),
                wait_for_workers=False,
                multi_tenant=holds,
            )
        except (OSError, RuntimeError, ValueError) as error:
            raise ExecutionError(
                f"rank {self._rank.number} finds no store at MASTER_ADDR={host}, MASTER_PORT={port} "
                f"({reason(error)}): {_REMEDY}"
            ) from None
        return dist.PrefixStore(f"collapipe/{self._rank.attempt}", store)  # type: ignore[attr-defined]

    def _first(self, keys: Sequence[str], patience: float) -> tuple[str, str] | None:
        """Wait for the first of several keys; return it and its value, or ``None`` if the store is gone."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            try:
                # Polled, because a wait would block the client until it ends.
                for key in keys:
                    if self._store.check([key]):
                        return key, self._store.get(key).decode()
            except RuntimeError:
                return None
            time.sleep(_PERIOD_S)
        raise ExecutionError(
            f"rank {self._rank.number} has waited {patience:g} s for rank 0: was it started, with the same "
            "MASTER_ADDR and MASTER_PORT?"
        )


def play_rank(rank: Rank, bind: str, token: str, patience: float = PATIENCE_S) -> bool:
    """Play the role of a rank other than 0 until the execution is over.

    A device that fails because the simulator says so is restarted in the same process, with an empty state:
    if the process ended, torchrun would end all others.

    Args:
        rank: Its place.
        bind: Host to listen at.
        token: Secret from a file; empty if the launcher's offer has it.
        patience: Longest wait for the others [s].

    Returns:
        Whether there was an execution.

    Raises:
        ExecutionError: If the others do not come in time.
    """
    place = MeetingPlace(rank, patience)
    called_off: Callable[[], None] = lambda: None  # noqa: E731
    try:
        offer = place.find()
        if offer is None or rank.number > len(offer.roles):
            return False
        role = offer.roles[rank.number - 1]
        called_off = place.watch(lambda: _end_at_once(rank, role))
        name: str | None = role
        time_ = 0
        while name is not None:
            died = threading.Event()
            play_role(name, offer.address, token or offer.token, bind, patience, died.set)
            name = place.called_back(role, time_) if died.is_set() else None
            time_ += 1
        return True
    finally:
        called_off()
        place.leave()


def _end_at_once(rank: Rank, role: str) -> None:
    print(f"rank {rank.number} ({role}) ends, as rank 0 has", file=sys.stderr, flush=True)
    os._exit(1)


def _wait_for_port(address: Address, patience: float) -> None:
    """Wait until somebody listens at an address: torch prints pages of its own if nobody does."""
    deadline = time.monotonic() + patience
    while True:
        try:
            socket.create_connection(address, max(deadline - time.monotonic(), 0.1)).close()
        except OSError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_PERIOD_S)
        else:
            return


def _whole(environment: Mapping[str, str], name: str) -> int:
    try:
        return int(environment[name])
    except ValueError:
        raise ExecutionError(f"{name}={shown(environment[name])} is not a whole number: {_REMEDY}") from None
