"""Local steps of a cluster: every operation, submitted with the references of its inputs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from collapipe_env.execution.engine import Reference, Role
from collapipe_env.execution.script_replay import replayed_step
from collapipe_env.execution.scripts import BACKWARD, FORWARD, WEIGHT, ClusterScript

Call = Callable[..., Reference]
Turn = tuple[int, int, int, int]
"""Operation or relay: stage or :data:`RELAY`, kind, micro-batch and chunk."""
RELAY = -1
"""Stands for the control unit's relays between the last stage and the server, among the stages."""


@dataclass
class ClusterRoles:
    """Roles of a cluster.

    Attributes:
        control_unit: Its control unit.
        head: The server's worker for it.
        devices: Its devices by number, from 1.
        attempt: Number of the present attempt at a round; an old one is never used again.
    """

    control_unit: Role
    head: Role
    devices: dict[int, Role]
    attempt: int = 0

    @property
    def everybody(self) -> list[Role]:
        """All of them."""
        return [self.control_unit, self.head, *self.devices.values()]


class LocalSteps:
    """Operations of the local steps of a script.

    Stages are numbered from 0; the server has the number after the last one.

    Args:
        call: Submits a call of a role's method.
    """

    def __init__(self, call: Call, roles: ClusterRoles, script: ClusterScript) -> None:
        self._call, self._roles, self._script = call, roles, script
        self._groups = [[roles.devices[k] for k in stage.devices] for stage in script.stages]
        self._turns = self._in_order()

    def submit(self, arrived: Sequence[bool]) -> Reference:
        """Submit a local step; return the reference of the result of the control unit's last operation.

        Args:
            arrived: Whether the gradient of each micro-batch arrives (M,).
        """
        call, cu = self._call, self._roles.control_unit
        micro_batches = range(self._script.micro_batches)
        inputs = {(0, FORWARD, m, 0): [call(cu, "embed", m, arrived[m])] for m in micro_batches}
        home: dict[int, list[Reference]] = {}
        for turn in self._turns:
            s, kind, m, chunk = turn
            sent = self._submit(turn, arrived[m], inputs.pop(turn))
            if kind == BACKWARD and s != RELAY:
                inputs[s, WEIGHT, m, chunk] = sent
            if (following := self._following(turn)) is not None:
                inputs[following] = sent
            elif kind == BACKWARD:
                home[m] = sent
        for lead, *others in self._groups:  # sum the gradients of the devices of each stage
            if others:
                total = call(lead, "add", *(call(device, "gradients") for device in others))
                for device in others:
                    call(device, "replace", total)
        return call(cu, "learn", len(self._groups[0]), *(ref for m in micro_batches for ref in home[m]))

    def _submit(self, turn: Turn, arrived: bool, inputs: list[Reference]) -> list[Reference]:
        """Submit an operation or a relay; return the references of its results."""
        s, kind, m, chunk = turn
        if s == RELAY:
            return [self._call(self._roles.control_unit, "up" if kind == FORWARD else "down", m, *inputs)]
        if s == len(self._groups):
            return [self._call(self._roles.head, "run", self._roles.attempt, kind, m, *inputs)]
        terms = self._roles.attempt, kind, m, chunk, arrived
        return [
            # A weight gradient only needs the device's own backward pass.
            self._call(device, "run", *terms, *([inputs[i]] if kind == WEIGHT else inputs))
            for i, device in enumerate(self._groups[s])
        ]

    def _following(self, turn: Turn) -> Turn | None:
        """Return the operation or relay that takes a result; ``None`` after the last one."""
        s, kind, m, chunk = turn
        S = len(self._groups)
        last = S * len(self._script.stages[0].chunks) - 1
        if kind == WEIGHT:
            return None
        if s == S:
            return (S if kind == FORWARD else RELAY), BACKWARD, m, 0
        if s == RELAY and kind == FORWARD:
            return S, FORWARD, m, 0
        there = last if s == RELAY else chunk * S + s + (1 if kind == FORWARD else -1)
        if there > last:
            return RELAY, FORWARD, m, 0
        return (there % S, kind, m, there // S) if there >= 0 else None

    def _in_order(self) -> list[Turn]:
        """Return the operations and the control unit's relays as they are submitted.

        Each stage has its order. Of their next ones, the one that is priced to end first comes first: the
        control unit takes its calls in the order of their submission, and relays of late messages would hold
        up those of others.
        """
        script, S = self._script, len(self._groups)
        orders = [iter(stage.order) for stage in (*script.stages, script.server)]
        queues: list[deque[tuple[float, Turn]]] = [deque() for _ in range(S + 3)]
        for event in replayed_step(script)[1]:
            element, m, end_s = event.element, event.micro_batch, event.end_s
            if element == 2 * S and event.direction == "forward":
                queues[S + 1].append((end_s + script.latency_s, (RELAY, FORWARD, m, 0)))
            elif element == 2 * S + 1 and event.direction == "backward":
                queues[S + 2].append((end_s + script.edge_latency_s, (RELAY, BACKWARD, m, 0)))
            elif element == 2 * S + 2 or (element % 2 and element < 2 * S):
                s = (element - 1) // 2
                queues[s].append((end_s, (s, *next(orders[s]))))
        there: set[Turn | None] = {(0, FORWARD, m, 0) for m in range(script.micro_batches)}
        turns: list[Turn] = []
        while any(queues):
            queue = min((q for q in queues if q and q[0][1] in there), key=lambda q: q[0])
            turn = queue.popleft()[1]
            turns.append(turn)
            there |= {self._following(turn), (turn[0], WEIGHT, *turn[2:]) if turn[1] == BACKWARD else None}
        return turns
