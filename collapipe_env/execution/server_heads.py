"""Heads of the server in a round: one for each cluster, or one for all; the driver takes their steps."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from collapipe_env.execution.head import Served
from collapipe_env.training.servers import CommonServer, Server


class HeadState(NamedTuple):
    """Weights of a head and the memory of its optimiser."""

    values: torch.Tensor
    memory: dict[str, Any]


class ServerHeads:
    """Heads of all clusters in a round.

    A local step that a cluster repeats after losing a device gets the same head as the first time.

    Args:
        server: The heads with their optimisers.
        steps: Local steps of each cluster, 0 for one that sits out.
        factors: Factor of the full learning rates in each local step.
    """

    def __init__(self, server: Server, steps: Sequence[int], factors: Sequence[float]) -> None:
        self._server, self._steps, self._factors = server, steps, factors
        self._common = isinstance(server, CommonServer)
        self._states: dict[tuple[int, int], HeadState] = {}
        self._ended: dict[int, dict[int, Served]] = {}
        self._stepped = 0
        self._given_up: set[int] = set()
        self._full_rates = [
            group.get("initial_lr", group["lr"])
            for group in (optimizer.param_groups[0] for optimizer in server.optimizers())
        ]

    @property
    def mean_loss(self) -> float | None:
        """Mean loss over all predictions that arrived; ``None`` if none did."""
        served = [
            one for step in sorted(self._ended) for _, one in sorted(self._ended[step].items()) if one.units
        ]
        return (
            float(np.average([s.loss for s in served], weights=[s.units for s in served])) if served else None
        )

    def there(self, step: int) -> bool:
        """Whether the head for a local step is there; a common one comes after all clusters' steps before."""
        return not self._common or self._stepped >= step

    def weights(self, n: int, step: int) -> np.ndarray[Any, Any]:
        """Return a cluster's head for a local step, flat."""
        owner = 0 if self._common else n
        if (owner, step) not in self._states:
            self._states[owner, step] = self._state(owner)
        elif not self._common:
            self._restore(owner, step)
        return self._states[owner, step].values.numpy()

    def end_step(self, n: int, step: int, served: Served) -> None:
        """Use the gradients of a cluster's local step, unless it is repeated and they were used before."""
        if self._common and self._stepped > step:
            self._ended[step][n] = self._ended[step][n]._replace(loss=served.loss, units=served.units)
            return
        self._ended.setdefault(step, {})[n] = served
        if self._common:
            self._step_where_all_have_ended()
        else:
            self._step([n], step)

    def give_up(self, n: int) -> None:
        """Undo all effects of a cluster on the heads, because it gives up this round.

        Others may have continued from a common head that had stepped with its gradients. Their gradients stay
        as they are, and the head's steps are repeated without this cluster's.
        """
        self._given_up.add(n)
        for ended in self._ended.values():
            ended.pop(n, None)
        owner = 0 if self._common else n
        if (owner, 0) in self._states:
            self._restore(owner, 0)
        if self._common:
            self._stepped = 0
            self._step_where_all_have_ended()

    def _step_where_all_have_ended(self) -> None:
        """Step the common head as far as all continuing clusters have ended their local steps."""
        while going := {n for n, steps in enumerate(self._steps) if steps > self._stepped} - self._given_up:
            ended = self._ended.get(self._stepped, {})
            if not going <= ended.keys():
                return
            self._states.setdefault((0, self._stepped), self._state(0))
            self._server.begin_step()
            self._step(sorted(ended), self._stepped)
            self._server.end_step()
            self._stepped += 1

    def _step(self, clusters: Sequence[int], step: int) -> None:
        """Let the gradients of clusters take effect, in their order."""
        for n in clusters:
            served = self._ended[step][n]
            owner = 0 if self._common else n
            for group in self._server.optimizers()[owner].param_groups:
                group.setdefault("initial_lr", self._full_rates[owner])
                group["lr"] = self._full_rates[owner] * self._factors[step]
            if served.units:
                self._server.parts_for(n)[-1].flat.gradients.copy_(
                    torch.from_numpy(np.array(served.gradients))
                )
                self._server.after_batch(n, served.units)

    def _state(self, owner: int) -> HeadState:
        part = self._server.parts_for(owner)[-1]
        return HeadState(part.flat.values.clone(), copy.deepcopy(part.optimizer.state_dict()))

    def _restore(self, owner: int, step: int) -> None:
        """Restore the state before a local step; later ones were of steps that do not count."""
        part, state = self._server.parts_for(owner)[-1], self._states[owner, step]
        part.flat.values.copy_(state.values)
        part.optimizer.load_state_dict(copy.deepcopy(state.memory))
        self._states = {key: kept for key, kept in self._states.items() if key[0] != owner or key[1] <= step}
