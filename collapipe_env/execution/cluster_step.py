"""Local step of a cluster: every operation, submitted with the references of its inputs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from collapipe_env.execution.engine import Reference, Role
from collapipe_env.execution.script_replay import replayed_step
from collapipe_env.execution.scripts import BACKWARD, FORWARD, WEIGHT, ClusterScript

Call = Callable[..., Reference]
RELAY = -1
"""Stands for the control unit's relays between the last stage and the server, among the stages."""


@dataclass(frozen=True)
class ClusterRoles:
    """Roles of a cluster.

    Attributes:
        control_unit: Its control unit.
        head: The server's worker for it.
        devices: Its devices by number, from 1.
    """

    control_unit: Role
    head: Role
    devices: dict[int, Role]

    @property
    def everybody(self) -> list[Role]:
        """All of them."""
        return [self.control_unit, self.head, *self.devices.values()]


class LocalStep:
    """Operations of a local step.

    Stages are numbered from 0; the server has the number after the last one.

    Args:
        call: Submits a call of a role's method.
        attempt: Attempt at the round.
        arrived: Whether the gradient of each micro-batch arrives (M,).
    """

    def __init__(
        self, call: Call, roles: ClusterRoles, script: ClusterScript, attempt: int, arrived: Sequence[bool]
    ) -> None:
        self._call, self._roles, self._script = call, roles, script
        self._attempt, self._arrived = attempt, arrived
        self._groups = [[roles.devices[k] for k in stage.devices] for stage in script.stages]
        # References of the input of each operation whose input has been submitted.
        self._inputs: dict[tuple[int, int, int, int], list[Reference]] = {}
        self._home: dict[int, list[Reference]] = {}

    def submit(self) -> Reference:
        """Submit all operations; return the reference of the result of the control unit's last one."""
        call, cu, script = self._call, self._roles.control_unit, self._script
        for m in range(script.micro_batches):
            self._inputs[0, FORWARD, m, 0] = [call(cu, "embed", m, self._arrived[m])]
        queues = self._queues()
        while any(queues):
            first = min(queue[0] for queue in queues if queue and queue[0][1:] in self._inputs)
            next(queue for queue in queues if queue and queue[0] == first).popleft()
            self._submit(*first[1:])
        self._reduce()
        home = [ref for m in range(script.micro_batches) for ref in self._home[m]]
        return call(cu, "learn", len(self._groups[0]), *home)

    def _queues(self) -> list[deque[tuple[float, int, int, int, int]]]:
        """Return the operations of each stage and the server, and the control unit's relays either way.

        Of the first ones, the one that is priced to end first is submitted next: the control unit takes its
        calls in the order of their submission, and relays of late messages would hold up those of others.

        Returns:
            Priced end [s], stage or :data:`RELAY`, kind, micro-batch and chunk of each.
        """
        script, S = self._script, len(self._groups)
        orders = [iter(stage.order) for stage in (*script.stages, script.server)]
        queues: list[deque[tuple[float, int, int, int, int]]] = [deque() for _ in range(S + 3)]
        for event in replayed_step(script)[1]:
            element, m, end_s = event.element, event.micro_batch, event.end_s
            if element == 2 * S and event.direction == "forward":
                queues[S + 1].append((end_s + script.latency_s, RELAY, FORWARD, m, 0))
            elif element == 2 * S + 1 and event.direction == "backward":
                queues[S + 2].append((end_s + script.edge_latency_s, RELAY, BACKWARD, m, 0))
            elif element == 2 * S + 2 or (element % 2 and element < 2 * S):
                s = (element - 1) // 2
                queues[s].append((end_s, s, *next(orders[s])))
        return queues

    def _submit(self, s: int, kind: int, m: int, chunk: int) -> None:
        """Submit an operation or a relay."""
        inputs = self._inputs.pop((s, kind, m, chunk))
        if s == RELAY:
            sent = [self._call(self._roles.control_unit, "up" if kind == FORWARD else "down", m, *inputs)]
        elif s == len(self._groups):
            sent = [self._call(self._roles.head, "run", self._attempt, kind, m, *inputs)]
        else:
            terms = self._attempt, kind, m, chunk, self._arrived[m]
            sent = [
                # A weight gradient only needs the device's own backward pass.
                self._call(device, "run", *terms, *([inputs[i]] if kind == WEIGHT else inputs))
                for i, device in enumerate(self._groups[s])
            ]
        if kind == BACKWARD and s != RELAY:
            self._inputs[s, WEIGHT, m, chunk] = sent
        if kind != WEIGHT:
            self._pass_on(s, kind, m, chunk, sent)

    def _pass_on(self, s: int, kind: int, m: int, chunk: int, sent: list[Reference]) -> None:
        """Make a result the input of the next operation, or of the relay to it."""
        S = len(self._groups)
        last = S * len(self._script.stages[0].chunks) - 1
        if s == S:
            following = (S if kind == FORWARD else RELAY, BACKWARD, m, 0)
        elif s == RELAY and kind == FORWARD:
            following = S, FORWARD, m, 0
        else:
            there = last if s == RELAY else chunk * S + s + (1 if kind == FORWARD else -1)
            if there < 0:
                self._home[m] = sent
                return
            following = (there % S, kind, m, there // S) if there <= last else (RELAY, FORWARD, m, 0)
        self._inputs[following] = sent

    def _reduce(self) -> None:
        """Sum the gradients of the devices of each stage."""
        for lead, *others in self._groups:
            if others:
                total = self._call(lead, "add", *(self._call(device, "gradients") for device in others))
                for device in others:
                    self._call(device, "replace", total)
