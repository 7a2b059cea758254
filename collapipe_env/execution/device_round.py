"""Attempt at a round on a device: its blocks, its operations in their order, and the hand-over."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from collapipe_env.execution.frames import Frame
from collapipe_env.execution.lines import Line
from collapipe_env.execution.mailbox import Wanted
from collapipe_env.execution.parts import FROZEN, VALUES, Arrays, Part, below, block_name, is_weight, under
from collapipe_env.execution.role import Role, line_of, received
from collapipe_env.execution.round_reports import Recorded
from collapipe_env.execution.sample_rows import Rows, device_rows, micro_batch_rows, overlap
from collapipe_env.execution.script_reading import from_json
from collapipe_env.execution.scripts import BACKWARD, FORWARD, WEIGHT, ClusterScript, StageScript
from collapipe_env.execution.segment import Segment
from collapipe_env.scenario.learning import LearningSpec

Builder = Callable[[], nn.Module]


class Died(Exception):  # noqa: N818 - asked for
    """Raised where the device is to fail, as its assignment says."""


@dataclass
class Kept:
    """States of blocks that a device keeps within a round, by the number of local steps before them.

    Attributes:
        number: Number of the device, from 1.
        states: Weights and moments of its own blocks; 0 steps are the start of the round.
        replicas: Replicas that it keeps for other devices.
    """

    number: int
    states: dict[int, dict[int, Arrays]] = field(default_factory=dict)
    replicas: dict[int, dict[int, Arrays]] = field(default_factory=dict)


class DeviceRound:
    """One attempt at a round, on one device.

    Args:
        role: The device.
        cluster: Its cluster, from 0.
        kept: What it keeps between attempts.
        frame: Its assignment.
        build_block: Returns a block with any weights.
        learning: Optimiser and precision.
    """

    def __init__(
        self, role: Role, cluster: int, kept: Kept, frame: Frame, build_block: Builder, learning: LearningSpec
    ) -> None:
        self._role, self._cluster, self._kept = role, cluster, kept
        self._tag, self._learning = frame.tag, learning
        self._script: ClusterScript = from_json(frame.meta["script"], ClusterScript)
        self._names = {int(node): str(name) for node, name in frame.meta["names"].items()}
        self._rates = [float(rate) for rate in frame.meta["rates"]]
        self._begins_s = float(frame.meta["begins_s"])
        self._offset = int(frame.meta["offset"])
        dies_at = frame.meta["dies_at"]
        self._dies_at = math.inf if dies_at is None else float(dies_at)
        role.begin_round(frame)
        role.recorded = []
        states = self._states(frame)
        self._place = int(frame.meta["stage"])
        if self._place < 0:  # it only hands blocks over
            return
        self._stage: StageScript = self._script.stages[self._place]
        self._mine = self._stage.devices.index(kept.number)
        self._real = torch.from_numpy(np.array(frame.arrays["real"], dtype=np.bool_))
        samples = self._real.shape[1]
        self._rows = micro_batch_rows(samples, self._script.micro_batches)
        self._parts = {
            block: Part(build_block(), learning)
            for first, end in self._stage.chunks
            for block in range(first, end)
        }
        for block, part in self._parts.items():
            part.set_arrays(states[block], f"block {block}")
        begun = kept.states.setdefault(0, {})
        self._beginning = {
            block: torch.from_numpy(begun[block][VALUES].copy())
            for block, part in self._parts.items()
            if part.flat is not None and block in begun
        }
        self._segment = Segment(
            [[self._parts[b].module for b in range(first, end)] for first, end in self._stage.chunks],
            learning.precision,
            recompute=self._script.recompute,
        )
        self._forward: dict[int, Line] = {}
        self._backward: dict[int, Line] = {}

    def _states(self, frame: Frame) -> dict[int, Arrays]:
        """Return weights and moments of the blocks to continue with: sent, kept, or taken over."""
        own, arrays = self._kept, frame.arrays
        sent = {int(name.partition("/")[0][1:]) for name in arrays if name.startswith("b")}
        begun = own.states.setdefault(0, {})
        begun |= {block: under(block_name(block), arrays) for block in sent}
        if frame.tag.attempt == 0:
            return dict(begun)
        kept = int(frame.meta["credited"])
        states = {block: dict(state) for block, state in own.states.get(kept, {}).items()}
        for block in frame.meta["reset"]:
            for known in (begun, states):
                if block in known:
                    known[block] = {n: a for n, a in known[block].items() if is_weight(n)}
        for block, target, part in frame.meta["gives"]:
            given = own.replicas[kept][block] if part == "replica" else states[block]
            chosen = {n: a for n, a in given.items() if part != "weights" or is_weight(n)}
            if target == own.number:
                states[block] = {**states.get(block, {}), **chosen}
                continue
            tag = frame.tag._replace(place=block)
            self._role.send(self._names[target], f"move_{own.number}", tag, arrays=chosen)
        for block, source in frame.meta["takes"]:
            moved = self._role.mailbox.wait(f"move_{source}", frame.tag._replace(place=block))
            states[block] = {**states.get(block, {}), **{n: np.array(a) for n, a in moved.arrays.items()}}
        own.states = {0: begun, kept: states}
        if kept == 0:
            begun |= states
        return states

    def run(self) -> None:
        """Take the local steps, and hand the segment over."""
        if self._place < 0:
            return
        begins = self._begins_s
        for step in range(self._offset, self._offset + self._script.local_steps):
            begins = self._step(step, begins)
            self._keep(step + 1)
        self._collect(begins)

    def _keep(self, done: int) -> None:
        """Keep the device's states after and before the last local step, and at the start of the round."""
        own = self._kept
        now = {block: part.arrays(frozen=True) for block, part in self._parts.items()}
        own.states = {n: state for n, state in own.states.items() if n == 0 or n >= done - 1}
        own.states[done] = now
        own.replicas = {n: held for n, held in own.replicas.items() if n >= done - 1}
        host = self._script.hosts[self._place] if self._script.replicas != "none" else None
        if host is not None:
            arrays: Arrays = {}
            for block, state in now.items():
                arrays |= below(
                    block_name(block), {n: a for n, a in state.items() if not n.startswith(FROZEN)}
                )
            tag = self._tag._replace(step=done, place=self._kept.number)
            self._role.send(self._names[host], "replica", tag, arrays=arrays)

    def _die_before(self, ends_s: float) -> None:
        """Fail if the device is to die before an operation ends."""
        if ends_s > self._dies_at:
            tag = self._tag._replace(place=self._kept.number)
            self._role.send(self._names[0], "dying", tag, at_s=self._dies_at)
            raise Died

    def _step(self, step: int, begins_s: float) -> float:
        """Take a local step; return the time when the next one begins [s]."""
        for part in self._parts.values():
            part.clear_gradients()
        self._segment.clear()
        self._forward, self._backward = {}, {}
        ends = self._operations(step, begins_s)
        self._reduce(step)
        self._send_control("stepped", step, {"ends_s": ends, "norm": self._squares()})
        apply = self._wait("apply", step)
        if apply.meta["update"]:
            factor = float(apply.meta["factor"])
            for part in self._parts.values():
                part.set_rate(self._rates[step])
                if part.flat is not None and part.optimizer is not None:
                    if factor != 1.0:
                        part.flat.gradients.mul_(factor)
                    part.optimizer.step()
        return float(apply.meta["next_s"])

    def _operations(self, step: int, begins_s: float) -> float:
        """Run the stage's operations; return the time when the last one ends [s]."""
        script, clock = self._stage, self._role.clock
        free, stored, done_w = begins_s, 0, 0
        ready_w: list[tuple[int, int]] = []
        arrived = self._script.arrived[step - self._offset]
        for kind, m, chunk in script.order:
            keys = [] if kind == WEIGHT else self._input(kind, step, m, chunk)
            if script.weight_limit is not None:
                # Weight gradients fill the time in which the next operation cannot start yet.
                while done_w < len(ready_w) and (
                    (kind == FORWARD and stored >= script.weight_limit)
                    or self._role.comes_later(keys, free, self._role.mailbox)
                ):
                    free = self._work(WEIGHT, step, ready_w[done_w], free, arrived, [])
                    done_w, stored = done_w + 1, stored - 1
            frames = [self._role.mailbox.wait(*key) for key in keys]
            for frame in frames:
                self._role.recorded += received(self._cluster, frame, clock)
            ready = max((clock.ready(frame.at_s) for frame in frames), default=free)
            free = self._work(kind, step, (m, chunk), max(free, ready), arrived, frames)
            if kind == FORWARD:
                stored += 1
            elif kind == BACKWARD and script.weight_limit is not None:
                ready_w.append((m, chunk))
        for waiting in ready_w[done_w:]:
            free = self._work(WEIGHT, step, waiting, free, arrived, [])
        return free

    def _work(
        self,
        kind: int,
        step: int,
        which: tuple[int, int],
        start_s: float,
        arrived: Sequence[bool],
        frames: Sequence[Frame],
    ) -> float:
        """Run an operation and send its result; return the time when it ends [s].

        Args:
            kind: ``FORWARD``, ``BACKWARD`` or ``WEIGHT``.
            step: Local step.
            which: Micro-batch and chunk.
            start_s: Time at which it starts [s].
            arrived: Micro-batches that arrive in this step.
            frames: Its input.
        """
        (m, chunk), clock = which, self._role.clock
        self._die_before(start_s + self._stage.seconds(kind, chunk))
        start_s = clock.begin(start_s)
        began, begun = clock.now(start_s), time.perf_counter()
        given = None
        rows = self._own_rows(m)
        if arrived[m] and rows[0] < rows[1]:
            given = self._compute(kind, step, m, chunk, rows, frames)
        worked = time.perf_counter() - begun
        end = clock.finish(start_s + self._stage.seconds(kind, chunk))
        if self._mine == 0:
            times = start_s, end, clock.now(end), worked, began, 0.0
            place = self._cluster, step, 2 * self._place + 1, m, kind, chunk
            samples = self._rows[m][1] - self._rows[m][0]
            self._role.recorded.append(Recorded(*place, *times, samples=samples))
        if kind != WEIGHT:
            self._output(kind, step, m, chunk, end, given)
        return end

    def _compute(
        self, kind: int, step: int, m: int, chunk: int, rows: Rows, frames: Sequence[Frame]
    ) -> Tensor | None:
        if kind == WEIGHT:
            self._segment.weight(m, chunk)
            return None
        x = torch.cat([torch.from_numpy(np.array(f.arrays["x"])) for f in frames if "x" in f.arrays])
        if kind == FORWARD:
            start = self._rows[m][0]
            return self._segment.forward(m, chunk, x, self._real[step, start + rows[0] : start + rows[1]])
        if self._stage.weight_s > 0.0 or self._stage.weight_limit is not None:
            return self._segment.backward_input(m, chunk, x)
        return self._segment.backward(m, chunk, x)

    def _own_rows(self, m: int) -> Rows:
        first, end = self._rows[m]
        return device_rows(end - first, self._stage.shares)[self._mine]

    def _neighbours(self, position: int) -> tuple[str, ...]:
        """Return the names of the nodes at a position of the chain; the control unit is at both its ends."""
        S = len(self._script.stages)
        if not 0 <= position < S * len(self._stage.chunks):
            return (self._names[0],)
        return tuple(self._names[k] for k in self._script.stages[position % S].devices)

    def _rows_at(self, position: int, m: int) -> tuple[Rows, ...]:
        S, (first, end) = len(self._script.stages), self._rows[m]
        if not 0 <= position < S * len(self._stage.chunks):
            return ((0, end - first),)
        return device_rows(end - first, self._script.stages[position % S].shares)

    def _input(self, kind: int, step: int, m: int, chunk: int) -> list[Wanted]:
        """Return kinds and tags of the frames with an operation's input, in the order of their samples."""
        S = len(self._script.stages)
        here = chunk * S + self._place
        there = here - 1 if kind == FORWARD else here + 1
        mine, word = self._own_rows(m), "forward" if kind == FORWARD else "backward"
        tag = self._tag._replace(step=step, place=here, micro_batch=m)
        found = []
        for index, rows in enumerate(self._rows_at(there, m)):
            # A single sender sends to every device, with or without samples, so that all know the time.
            if overlap(mine, rows) or len(self._neighbours(there)) == 1:
                found.append((f"{word}_{index}", tag))
        return found

    def _output(self, kind: int, step: int, m: int, chunk: int, ends_s: float, given: Tensor | None) -> None:
        """Send an operation's result to the nodes that need its samples."""
        script, S = self._script, len(self._script.stages)
        here, last = chunk * S + self._place, S * len(self._stage.chunks) - 1
        forward = kind == FORWARD
        there = here + 1 if forward else here - 1
        wraps = (forward and self._place == S - 1 and here != last) or (
            not forward and self._place == 0 and here > 0
        )
        if wraps:
            element, seconds = 2 * S + 3, script.wrap_forward_s if forward else script.wrap_backward_s
        else:
            element = 2 * (self._place + 1) if forward else 2 * self._place
            hops = script.hop_forward_s if forward else script.hop_backward_s
            seconds = hops[element // 2]
        lines = self._forward if forward else self._backward
        clock = self._role.clock
        times = clock.lasts(seconds), clock.lasts(script.latency_s)
        transfer = lines.setdefault(element, Line()).carry(ends_s, *times)
        mine, meta = self._own_rows(m), {}
        if self._speaks(m):
            first, end = self._rows[m]
            sent = clock.now(transfer.start_s)
            meta = line_of(element, kind, transfer, sent, end - first)
        word = "forward" if forward else "backward"
        if there > last:
            word = "encoded"
        elif there < 0:
            word = "gradient"
        tag = self._tag._replace(step=step, place=max(there, 0) if there <= last else 0, micro_batch=m)
        for name, rows in zip(self._neighbours(there), self._rows_at(there, m), strict=True):
            common = overlap(mine, rows)
            if common is None and len(self._stage.devices) > 1:
                continue
            arrays = {}
            if given is not None and common is not None:
                arrays["x"] = given[common[0] - mine[0] : common[1] - mine[0]].contiguous().numpy()
            to = f"{word}_{self._mine}"
            self._role.send(name, to, tag, at_s=transfer.arrives_s, meta=meta, arrays=arrays)
            meta = {}  # only the first piece carries it

    def _speaks(self, m: int) -> bool:
        """Whether this device reports its stage's transfer: the first device with samples does."""
        first, end = self._rows[m]
        rows = device_rows(end - first, self._stage.shares)
        return self._mine == next((i for i, (a, b) in enumerate(rows) if a < b), 0)

    def _reduce(self, step: int) -> None:
        """Sum the gradients of the stage's devices, and add the pull of FedProx."""
        names = [self._names[k] for k in self._stage.devices]
        tag = self._tag._replace(step=step, place=self._place)
        if len(names) > 1 and self._mine > 0:
            self._role.send(names[0], f"summand_{self._mine}", tag, arrays=self._gradients())
            total = self._role.mailbox.wait("summed", tag).arrays
            for block, part in self._trained():
                part.gradients.copy_(torch.from_numpy(np.array(total[f"b{block}"])))
        elif len(names) > 1:
            for index in range(1, len(names)):
                frame = self._role.mailbox.wait(f"summand_{index}", tag)
                for block, part in self._trained():
                    part.gradients.add_(torch.from_numpy(np.array(frame.arrays[f"b{block}"])))
            for name in names[1:]:
                self._role.send(name, "summed", tag, arrays=self._gradients())
        if self._learning.proximal:
            for block, flat in self._trained():
                flat.gradients.add_(flat.values - self._beginning[block], alpha=self._learning.proximal)

    def _trained(self) -> list[tuple[int, Any]]:
        return [(block, part.flat) for block, part in self._parts.items() if part.flat is not None]

    def _gradients(self) -> dict[str, np.ndarray[Any, Any]]:
        return {f"b{block}": flat.gradients.numpy().copy() for block, flat in self._trained()}

    def _squares(self) -> float:
        """Return the sum of squared gradients, if they are clipped; only the stage's lead reports it."""
        if not self._learning.gradient_clip or self._mine > 0:
            return 0.0
        return sum(float(flat.gradients.square().sum()) for _, flat in self._trained())

    def _collect(self, begins_s: float) -> None:
        """Hand the segment over to the control unit; a stage's first device does so for all."""
        role, number = self._role, self._kept.number
        self._die_before(begins_s + role.clock.lasts(self._script.collect_s))
        ends = begins_s + role.clock.lasts(self._script.collect_each_s[number - 1])
        arrays: Arrays = {}
        if self._mine == 0:
            for block, part in self._parts.items():
                arrays |= below(block_name(block), part.arrays())
        tag = self._tag._replace(place=number)
        role.clock.begin(ends)
        meta = {"events": [list(event) for event in role.recorded]}
        role.send(
            self._names[0],
            "segment",
            tag,
            at_s=role.clock.finish(ends),
            meta=meta,
            arrays=arrays,
        )

    def _send_control(self, kind: str, step: int, meta: dict[str, Any]) -> None:
        tag = self._tag._replace(step=step, place=self._kept.number)
        self._role.send(self._names[0], kind, tag, meta=meta)

    def _wait(self, kind: str, step: int) -> Frame:
        return self._role.mailbox.wait(kind, self._tag._replace(step=step, place=self._kept.number))
