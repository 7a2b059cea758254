"""Roles of an execution: plain objects with a clock and a record of what they did ([X]).

An engine carries them and calls their methods one after the other. Times travel with the values: a role
starts an operation when it is free and the input is there, and computes the arrival of what it sends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from collapipe_env.execution.clock import make_clock
from collapipe_env.execution.messages import Message, Transfer
from collapipe_env.execution.parts import (
    VALUES,
    Arrays,
    LocalTraining,
    Part,
    PartName,
    Parts,
    is_frozen,
    is_weight,
    without_frozen,
)
from collapipe_env.execution.sample_rows import Rows

T = TypeVar("T")


class TimedRole:
    """A role with a clock, and a record of its operations and of the transfers to it.

    Attributes:
        clock: Its clock.
        events: Rows of the record in the present attempt at a round, with the fields of
            :class:`~collapipe_env.execution.round_reports.Recorded`.
        attempt: First attempt whose operations are carried out; numbers go on from round to round.

    Args:
        cluster: Its cluster, from 0.
        clock: ``virtual``, ``wall`` or ``none``.
        scale: Seconds of wall time for a priced second; see :func:`~.clock.make_clock`.
    """

    def __init__(self, cluster: int, clock: str, scale: float) -> None:
        torch.set_num_threads(1)
        torch.autograd.backward(torch.zeros(1, requires_grad=True).sum())  # takes longer the first time
        self.cluster, self.clock = cluster, make_clock(clock, scale)
        self.events: list[tuple[float, ...]] = []
        self.attempt, self.step = 0, 0
        self._lines_free_s: dict[tuple[int, int], float] = {}

    def ping(self) -> int:
        """Return the number of the process."""
        return os.getpid()

    def begin_round(self, begins: float) -> None:
        """Begin a round.

        Args:
            begins: This machine's monotonic time at which it begins [s].
        """
        self.clock.restart(begins)
        self.events = []

    def abort(self, attempt: int) -> None:
        """Skip the operations of earlier attempts from now on; may be called from another thread."""
        self.attempt = attempt

    def start_step(self, step: int) -> None:
        """Begin a local step: all links are free."""
        self.step, self._lines_free_s = step, {}

    def work(
        self,
        place: tuple[int, int, int, int],
        ready_s: float,
        seconds: float,
        work: Callable[[], T],
        size: int,
    ) -> tuple[float, T]:
        """Carry out an operation; return the time when it ends [s], and its result.

        Args:
            place: Element of the chain, micro-batch, direction and chunk, for the record.
            ready_s: Time at which it may start [s].
            seconds: Its priced length [s].
            work: Computes the result.
            size: Samples of the micro-batch.
        """
        clock = self.clock
        start = clock.begin(ready_s)
        began, begun = clock.now(start), time.perf_counter()
        given = work()
        worked = time.perf_counter() - begun
        end = clock.finish(start + seconds)
        times = start, end, clock.now(end), worked, began, 0.0
        self.events.append((self.cluster, self.step, *place, *times, size))
        return end, given

    def send(
        self,
        line: tuple[int, int],
        ready_s: float,
        lengths: tuple[float, float],
        rows: Rows,
        x: Tensor | None,
        size: int,
        *,
        speaks: bool = True,
    ) -> Message:
        """Return a message on its way.

        Args:
            line: Element and direction of the link.
            ready_s: Time at which it is ready to leave [s].
            lengths: Airtime and latency [s].
            rows: Rows of its samples.
            x: The samples; ``None`` if they are lost.
            size: Samples of the micro-batch.
            speaks: Whether it carries the record of the transfer.
        """
        airtime, latency = map(self.clock.lasts, lengths)
        start = max(ready_s, self._lines_free_s.get(line, 0.0))  # behind the messages before it
        self._lines_free_s[line] = end = start + airtime
        transfer = Transfer(*line, start, end, self.clock.now(start), size) if speaks else None
        return Message(rows, None if x is None else x.contiguous().numpy(), end + latency, transfer)

    def receive(self, messages: Sequence[Message], m: int, free_s: float = 0.0) -> float:
        """Record the transfers of messages; return the time at which all of them can be read [s].

        Args:
            messages: Pieces of a micro-batch.
            m: The micro-batch.
            free_s: Time from which this role could read them [s]; what it has not waited for was not late.
        """
        ready = free_s
        for message in messages:
            at_s = message.at_s
            ready = max(ready, self.clock.ready(at_s))
            if message.transfer is not None:
                element, direction, start, end, sent, samples = message.transfer
                late = max(self.clock.now(at_s) - max(at_s, free_s), 0.0)
                times = start, end, end + late, 0.0, sent, at_s + late
                self.events.append((self.cluster, self.step, element, m, direction, 0, *times, samples))
        return ready


class TrainingRole(TimedRole):
    """A node of a cluster, which trains parts of the model and keeps their states within a round.

    Attributes:
        parts: Parts that it trains, by block or :data:`~.parts.EMBEDDING`.
        kept: States of parts by the local step before which they are as they are, 0 for the start of the
            round; also of parts that others train.

    Args:
        learning: Terms of the training.
    """

    def __init__(self, cluster: int, clock: str, scale: float, learning: LocalTraining) -> None:
        super().__init__(cluster, clock, scale)
        self.learning = learning
        self.parts: dict[PartName, Part] = {}
        self.kept: dict[int, Parts] = {}

    def take(self, step: int, block: int, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Take over a block, or some of its arrays, as it is before a local step."""
        copies = {name: np.array(array) for name, array in arrays.items()}
        self.kept.setdefault(step, {}).setdefault(block, {}).update(copies)

    def give(self, step: int, block: int, part: str) -> Arrays:
        """Hand out a block as it is before a local step, as far as known; otherwise as the round began.

        Args:
            part: ``state``, ``weights``, ``replica`` or ``frozen``, as for :class:`~.scripts.Move`.
        """
        begun = self.kept[0].get(block, {})
        arrays = {name: array for name, array in begun.items() if is_frozen(name)}
        arrays |= self.kept.get(step, {}).get(block, begun)
        if part == "weights":
            return {name: array for name, array in arrays.items() if is_weight(name)}
        if part == "frozen":
            return {name: array for name, array in arrays.items() if is_frozen(name)}
        if part == "replica":
            return without_frozen(arrays)
        return arrays

    def go_back(self, step: int, reset: Sequence[int]) -> None:
        """Forget all states but those of the round's start and before a local step.

        Args:
            reset: Blocks whose moments start again from zero.
        """
        self.events = []
        self.kept = {0: self.kept[0], step: self.kept.get(step, {})}
        for states in self.kept.values():
            for block in states.keys() & set(reset):
                states[block] = {name: a for name, a in states[block].items() if is_weight(name)}

    def start_step(self, step: int) -> None:
        """Begin a local step without gradients."""
        super().start_step(step)
        for part in self.parts.values():
            part.clear_gradients()

    def pulled_squares(self) -> float:
        """Add FedProx's pull to the gradients; return the sum of their squares, 0 if nothing clips them."""
        squares = 0.0
        for name, part in self.parts.items():
            if part.flat is None:
                continue
            if self.learning.proximal:
                beginning = torch.from_numpy(self.kept[0][name][VALUES])
                part.flat.gradients.add_(part.flat.values - beginning, alpha=self.learning.proximal)
            if self.learning.gradient_clip:
                squares += float(part.flat.gradients.square().sum())
        return squares

    def apply(self, update: bool, factor: float, rate: float) -> None:
        """Update the weights, and keep the states before and after it.

        Args:
            update: Whether anything arrived in the local step.
            factor: Factor of the gradients, at most 1.
            rate: Step size.
        """
        for part in self.parts.values():
            if update and part.flat is not None and part.optimizer is not None:
                part.set_rate(rate)
                if factor != 1.0:
                    part.flat.gradients.mul_(factor)
                part.optimizer.step()
        self.kept = {n: states for n, states in self.kept.items() if n == 0 or n >= self.step}
        done = self.kept.setdefault(self.step + 1, {})
        done.update({name: part.arrays(frozen=True) for name, part in self.parts.items()})
