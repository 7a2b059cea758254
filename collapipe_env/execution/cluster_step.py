"""Local step of a cluster: every operation, submitted with the references of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from collapipe_env.execution.engine import Reference, Role
from collapipe_env.execution.scripts import BACKWARD, FORWARD, WEIGHT, ClusterScript

Call = Callable[..., Reference]


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
        orders = [iter(stage.order) for stage in (*script.stages, script.server)]
        following = [next(order, None) for order in orders]
        while any(following):
            moved = False
            for s, order in enumerate(orders):
                while (operation := following[s]) and (s, *operation) in self._inputs:
                    self._submit(s, *operation)
                    following[s], moved = next(order, None), True
            assert moved, "the price of the script has no end either"
        self._reduce()
        home = [ref for m in range(script.micro_batches) for ref in self._home[m]]
        return call(cu, "learn", len(self._groups[0]), *home)

    def _submit(self, s: int, kind: int, m: int, chunk: int) -> None:
        """Submit an operation, and the relays of its result up to the next operation's input."""
        inputs = self._inputs.pop((s, kind, m, chunk))
        if s == len(self._groups):
            sent = [self._call(self._roles.head, "run", self._attempt, kind, m, *inputs)]
        else:
            terms = self._attempt, kind, m, chunk, self._arrived[m]
            sent = [
                # A weight gradient only needs the device's own backward pass.
                self._call(device, "run", *terms, *([inputs[i]] if kind == WEIGHT else inputs))
                for i, device in enumerate(self._groups[s])
            ]
        if kind == BACKWARD:
            self._inputs[s, WEIGHT, m, chunk] = sent
        if kind != WEIGHT:
            self._pass_on(s, kind, m, chunk, sent)

    def _pass_on(self, s: int, kind: int, m: int, chunk: int, sent: list[Reference]) -> None:
        """Make an operation's result the input of the next one."""
        S, call, cu = len(self._groups), self._call, self._roles.control_unit
        last = S * len(self._script.stages[0].chunks) - 1
        if s == S:
            if kind == FORWARD:
                self._inputs[S, BACKWARD, m, 0] = sent
                return
            there, sent = last, [call(cu, "down", m, *sent)]
        else:
            there = chunk * S + s + (1 if kind == FORWARD else -1)
        if there > last:
            self._inputs[S, FORWARD, m, 0] = [call(cu, "up", m, *sent)]
        elif there < 0:
            self._home[m] = sent
        else:
            self._inputs[there % S, kind, m, there // S] = sent

    def _reduce(self) -> None:
        """Sum the gradients of the devices of each stage."""
        for lead, *others in self._groups:
            if others:
                total = self._call(lead, "add", *(self._call(device, "gradients") for device in others))
                for device in others:
                    self._call(device, "replace", total)
