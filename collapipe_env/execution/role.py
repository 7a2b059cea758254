"""Role: an endpoint with a mailbox, a clock, and a record of its operations and their times."""

from __future__ import annotations

import queue
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collapipe_env.execution.clock import Clock
from collapipe_env.execution.deliveries import Deliveries
from collapipe_env.execution.frames import Frame, Tag
from collapipe_env.execution.heartbeats import Pulse
from collapipe_env.execution.lines import Transfer
from collapipe_env.execution.mailbox import Mailbox, Wanted
from collapipe_env.execution.round_reports import Recorded
from collapipe_env.execution.transport import Endpoint
from collapipe_env.ground.errors import CollaPipeError

COMMANDS = frozenset(("assign", "abort", "round", "weights", "state", "stop"))
"""Kinds of frames that start or end work; others stay in the mailbox until somebody waits for them."""
LAUNCHER, SERVER = "launcher", "server"


def control_unit_name(cluster: int) -> str:
    """Return the name of a cluster's control unit."""
    return f"c{cluster}"


def node_name(cluster: int, node: int) -> str:
    """Return a node's name: ``c0`` is cluster 0's control unit, node 0; ``c0d0`` its first device.

    Inside the execution, nodes are numbered as in the simulator's costs, devices from 1. Names, like arrays
    and pictures, count devices from 0.
    """
    return f"c{cluster}d{node - 1}" if node else control_unit_name(cluster)


def node_of(name: str) -> tuple[int, int]:
    """Return the cluster and node of a name; the inverse of :func:`node_name`."""
    cluster, _, device = name.removeprefix("c").partition("d")
    return int(cluster), int(device) + 1 if device else 0


def line_of(element: int, direction: int, transfer: Transfer, sent_s: float, samples: int) -> dict[str, Any]:
    """Return meta data of a message, from which its receiver makes the record of its transfer.

    Args:
        element: Element of the cluster's chain.
        direction: 0 forward, 1 backward.
        transfer: Times at which it is due.
        sent_s: Time at which it is sent, by the machine's clock [s].
    """
    return {"line": [element, direction, transfer.start_s, transfer.end_s, sent_s, samples]}


def received(cluster: int, frame: Frame, clock: Clock) -> list[Recorded]:
    """Return the receiver's record of a message's transfer; of several pieces, only one has it.

    Args:
        frame: The message.
        clock: The receiver's clock, which has begun the message's round.
    """
    line = frame.meta.get("line")
    if line is None:
        return []
    element, direction, start_s, end_s, sent_s, samples = line
    here_s = clock.read(frame.here_s, frame.at_s)
    measured = end_s + (here_s - frame.at_s)
    tag, times = frame.tag, (start_s, end_s, measured, 0.0, sent_s, here_s)
    return [Recorded(cluster, tag.step, element, tag.micro_batch, direction, 0, *times, samples=samples)]


@dataclass
class Stopped(Exception):  # noqa: N818 - no error: the work is done
    """The role has been told to stop."""


class PeerGoneError(CollaPipeError):
    """A role without which this one cannot continue is gone."""


def learn_addresses(endpoint: Endpoint, frame: Frame) -> None:
    """Learn the addresses of peers, and tell the launcher so.

    Args:
        frame: The launcher's directory: host and port by name.
    """
    endpoint.connect({name: (str(host), int(port)) for name, (host, port) in frame.meta["directory"].items()})
    endpoint.send(LAUNCHER, Frame("connected", frame.tag))


def begin_terms(frame: Frame) -> dict[str, Any]:
    """Return a command's terms for the start of a round, to be passed on to other roles.

    Args:
        frame: The command.
    """
    return {name: frame.meta[name] for name in ("machine_begins", "clock_offsets") if name in frame.meta}


class Role:
    """Common part of all roles.

    Attributes:
        name: Name of the role, such as ``server``, ``c0`` or ``c0d0``.
        clock: Clock of the role.
        mailbox: Frames that arrived.
        deliveries: Delivery of frames to mailboxes.
        recorded: Its operations and received transfers in the present attempt at a round.
        pulses: Its periodic work until it is closed.
    """

    def __init__(self, endpoint: Endpoint, clock: Clock) -> None:
        self.name, self.clock = endpoint.name, clock
        self.mailbox = Mailbox()
        self.deliveries = Deliveries(clock, endpoint.name)
        self.recorded: list[Recorded] = []
        self.pulses: list[Pulse] = []
        self._endpoint = endpoint
        self._commands: queue.SimpleQueue[Frame] = queue.SimpleQueue()
        self._gone: PeerGoneError | None = None

    def warm_up(self) -> None:
        """Do once whatever takes longer the first time; the training does not change."""

    def run(self) -> None:
        """Carry out commands until the role is told to stop."""
        try:
            while True:
                self.carry_out(self.command())
        except Stopped:
            self.close()
        except BaseException as error:
            self.tell_failure(error)
            raise

    def carry_out(self, frame: Frame) -> None:
        """Carry out a command; commands of other roles are ignored."""
        raise NotImplementedError

    def begin(self) -> None:
        """Take frames from now on."""
        self._endpoint.listen(self.on_frame, self.on_lost)

    def on_frame(self, sender: str, frame: Frame) -> None:
        """Take a frame; called from the endpoint's threads."""
        if frame.kind == "ping":
            self._say_time(sender, frame.tag)
            return
        if frame.kind == "abort":
            for peer in frame.meta.get("lost", ()):
                self._endpoint.drop(str(peer))
            self.mailbox.cancel(frame.tag.round, frame.tag.attempt)
        if frame.kind == "directory":
            learn_addresses(self._endpoint, frame)
        elif frame.kind in COMMANDS:
            self._commands.put(frame)
            if frame.kind == "stop":  # also in the middle of a round whose end nobody waits for
                for mailbox in self._mailboxes():
                    mailbox.fail(Stopped())
        else:
            self.deliveries.deliver(frame, self.mailbox)

    def _say_time(self, to: str, tag: Tag) -> None:
        """Answer a question for the time, by this process's clock."""
        heard = self.clock.machine()
        meta = {"heard_s": heard, "answered_s": self.clock.machine()}
        self._endpoint.send(to, Frame("pong", tag, meta=meta))

    def begin_round(self, frame: Frame) -> None:
        """Let the clock begin a round.

        Args:
            frame: Command to play it, with its start by the launcher's clock and the other clocks' offsets.
        """
        offset_s = frame.meta.get("clock_offsets", {}).get(self.name, 0.0)
        self.clock.restart(float(frame.meta["machine_begins"]) + float(offset_s))
        self.deliveries.begin(frame.tag.round)

    def comes_later(self, keys: Sequence[Wanted], free_s: float, mailbox: Mailbox) -> bool:
        """Whether a wanted frame cannot be used as soon as a stage is free.

        Args:
            keys: Kinds and tags of frames, none of which has been taken.
            free_s: Time from which the stage is free [s].
            mailbox: Mailbox of those frames.
        """
        for key in keys:
            if self.clock.ahead:  # times are in messages: wait for them
                mailbox.await_frame(*key)
            arrives = self.deliveries.arrival(key, mailbox)
            if arrives is None or self.clock.comes_later(arrives, free_s):
                return True
        return False

    def on_lost(self, peer: str, reason: str) -> None:
        """Note that a peer is gone; called from the endpoint's threads."""

    def command(self) -> Frame:
        """Wait for the next command.

        Raises:
            Stopped: If the role is to stop.
            PeerGoneError: If a peer without which the role cannot continue is gone.
        """
        frame = self._commands.get()
        if self._gone is not None:
            raise self._gone
        if frame.kind == "stop":
            raise Stopped
        return frame

    def send(
        self,
        to: str,
        kind: str,
        tag: Tag,
        *,
        at_s: float = 0.0,
        meta: Mapping[str, Any] | None = None,
        arrays: Mapping[str, np.ndarray[Any, Any]] | None = None,
    ) -> None:
        """Send a frame to another role."""
        self._endpoint.send(to, Frame(kind, tag, at_s, meta or {}, arrays or {}))

    def drop(self, peer: str) -> None:
        """Close all connections with a peer."""
        self._endpoint.drop(peer)

    def cannot_go_on(self, peer: str, reason: str) -> None:
        """End all waits, and the role itself: it has lost a peer without which it cannot continue."""
        self._gone = PeerGoneError(f"{self.name} cannot continue: {peer} is gone ({reason})")
        for mailbox in self._mailboxes():
            mailbox.fail(self._gone)
        self._commands.put(Frame("stop"))

    def _mailboxes(self) -> Sequence[Mailbox]:
        """Return all mailboxes at which this role waits."""
        return [self.mailbox]

    def tell_failure(self, error: BaseException) -> None:
        """Tell the launcher that this role cannot continue, and close."""
        name = "" if isinstance(error, CollaPipeError) else f"{type(error).__name__}: "
        self.send(LAUNCHER, "failed", Tag(), meta={"why": f"{name}{error}"[:2000]})
        self.close()

    def send_heartbeats(self, to: str, period_s: float) -> None:
        """From now on, tell another role in every period that this one is alive."""
        self.pulses.append(
            Pulse(period_s, lambda: self._endpoint.send(to, Frame("heartbeat")), f"{self.name} lives")
        )

    def close(self) -> None:
        """Close the endpoint."""
        for pulse in self.pulses:
            pulse.stop()
        self.deliveries.stop()
        self._endpoint.close()
