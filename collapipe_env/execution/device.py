"""Device: holds blocks of a stage, and runs its operations in the order of its script."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from collapipe_env.execution.clock import Clock
from collapipe_env.execution.frames import Frame
from collapipe_env.execution.lines import Line
from collapipe_env.execution.mailbox import Cancelled
from collapipe_env.execution.parts import Part
from collapipe_env.execution.role import Recorded, Role, Stopped, node_name
from collapipe_env.execution.rows import Rows, device_rows, micro_batch_rows, overlap
from collapipe_env.execution.script_reading import from_json
from collapipe_env.execution.scripts import BACKWARD, FORWARD, WEIGHT, ClusterScript, StageScript
from collapipe_env.execution.segment import Segment
from collapipe_env.execution.transport import Endpoint
from collapipe_env.scenario.learning import LearningSpec

Builder = Callable[[], nn.Module]


class Device(Role):
    """A device of a cluster.

    Between rounds it keeps nothing: with every round its control unit sends it the blocks that it is to
    train, with their moments.

    Args:
        endpoint: Way to the other roles.
        clock: Clock of its work.
        cluster: Its cluster, from 0.
        number: Its number, from 1.
        build_block: Returns a block with any weights.
        learning: Optimiser and precision.
        draws: Whether blocks draw random numbers.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        clock: Clock,
        *,
        cluster: int,
        number: int,
        build_block: Builder,
        learning: LearningSpec,
        draws: bool = False,
    ) -> None:
        super().__init__(endpoint, clock)
        self.cluster, self.number = cluster, number
        self._build, self._learning, self._draws = build_block, learning, draws

    def run(self) -> None:
        """Do what the control unit asks for until it says stop."""
        try:
            while True:
                frame = self.command()
                if frame.kind != "assign":
                    continue
                try:
                    DeviceRound(self, frame, self._build, self._learning, draws=self._draws).run()
                except Cancelled:
                    continue
        except Stopped:
            pass
        finally:
            self.close()


class DeviceRound:
    """One attempt at a round, on one device.

    Args:
        device: The device.
        frame: Its assignment.
        build_block: Returns a block with any weights.
        learning: Optimiser and precision.
        draws: Whether blocks draw random numbers.
    """

    def __init__(
        self, device: Device, frame: Frame, build_block: Builder, learning: LearningSpec, *, draws: bool
    ) -> None:
        self._device, self._tag, self._learning = device, frame.tag, learning
        self._script: ClusterScript = from_json(frame.meta["script"], ClusterScript)
        self._place = int(frame.meta["stage"])
        self._stage: StageScript = self._script.stages[self._place]
        self._mine = self._stage.devices.index(device.number)
        self._rates = [float(rate) for rate in frame.meta["rates"]]
        self._begins_s = float(frame.meta["begins_s"])
        device.clock.restart(float(frame.meta["machine_begins"]))
        device.recorded = []
        self._real = torch.from_numpy(np.array(frame.arrays["real"], dtype=np.bool_))
        samples = self._real.shape[1]
        self._rows = micro_batch_rows(samples, self._script.micro_batches)
        self._parts = {
            block: Part(build_block(), learning)
            for first, end in self._stage.chunks
            for block in range(first, end)
        }
        for block, part in self._parts.items():
            prefix = f"b{block}/"
            arrays = {n[len(prefix) :]: a for n, a in frame.arrays.items() if n.startswith(prefix)}
            part.set_arrays(arrays, f"block {block}")
        self._beginning = {block: _values(part) for block, part in self._parts.items()}
        self._segment = Segment(
            [[self._parts[b].module for b in range(first, end)] for first, end in self._stage.chunks],
            learning.precision,
            recompute=self._script.recompute,
            draws=draws,
        )
        self._forward, self._backward = {}, {}

    def run(self) -> None:
        """Take the local steps, and hand the segment over."""
        begins = self._begins_s
        for step in range(self._script.local_steps):
            begins = self._step(step, begins)
        self._collect(begins)

    def _step(self, step: int, begins_s: float) -> float:
        """Take a local step; returns when the next one begins [s]."""
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
        """Run the stage's operations; returns when the last one ends [s]."""
        script, clock = self._stage, self._device.clock
        free, stored, ready_w, done_w = begins_s, 0, [], 0
        arrived = self._script.arrived[step]
        for kind, m, chunk in script.order:
            frames: list[Frame] = []
            ready = free
            if kind != WEIGHT:
                frames = self._input(kind, step, m, chunk)
                ready = max((clock.ready(frame.at_s) for frame in frames), default=free)
            if script.weight_limit is not None:
                # Weight gradients go wherever the next operation cannot start yet.
                while done_w < len(ready_w) and (
                    ready > free or (kind == FORWARD and stored >= script.weight_limit)
                ):
                    free = self._work(WEIGHT, step, *ready_w[done_w], free, arrived, [])
                    done_w, stored = done_w + 1, stored - 1
            free = self._work(kind, step, m, chunk, max(free, ready), arrived, frames)
            if kind == FORWARD:
                stored += 1
            elif kind == BACKWARD and script.weight_limit is not None:
                ready_w.append((m, chunk))
        for waiting in ready_w[done_w:]:
            free = self._work(WEIGHT, step, *waiting, free, arrived, [])
        return free

    def _work(
        self,
        kind: int,
        step: int,
        m: int,
        chunk: int,
        start_s: float,
        arrived: Sequence[bool],
        frames: Sequence[Frame],
    ) -> float:
        """Run an operation, and send what it gives; returns when it ends [s]."""
        clock = self._device.clock
        clock.begin(start_s)
        begun = time.perf_counter()
        given = None
        rows = self._own_rows(m)
        if arrived[m] and rows[0] < rows[1]:
            given = self._compute(kind, step, m, chunk, rows, frames)
        worked = time.perf_counter() - begun
        end = clock.finish(start_s + self._stage.seconds(kind, chunk))
        if self._mine == 0:
            self._record(step, 2 * self._place + 1, m, kind, chunk, (start_s, end, clock.now(end)), worked)
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
        """Names of those at a position of the chain; the control unit is before and after all of them."""
        S = len(self._script.stages)
        if not 0 <= position < S * len(self._stage.chunks):
            return (node_name(self._device.cluster, 0),)
        return tuple(node_name(self._device.cluster, k) for k in self._script.stages[position % S].devices)

    def _rows_at(self, position: int, m: int) -> tuple[Rows, ...]:
        S, (first, end) = len(self._script.stages), self._rows[m]
        if not 0 <= position < S * len(self._stage.chunks):
            return ((0, end - first),)
        return device_rows(end - first, self._script.stages[position % S].shares)

    def _input(self, kind: int, step: int, m: int, chunk: int) -> list[Frame]:
        """Frames with an operation's input, in the order of their samples."""
        S = len(self._script.stages)
        here = chunk * S + self._place
        there = here - 1 if kind == FORWARD else here + 1
        mine, word = self._own_rows(m), "forward" if kind == FORWARD else "backward"
        tag = self._tag._replace(step=step, place=here, micro_batch=m)
        found = []
        for index, rows in enumerate(self._rows_at(there, m)):
            # Everybody hears of everything, so that all know the time, samples or none.
            if overlap(mine, rows) or len(self._neighbours(there)) == 1:
                found.append(self._device.mailbox.wait(f"{word}_{index}", tag))
        return found

    def _output(self, kind: int, step: int, m: int, chunk: int, ends_s: float, given: Tensor | None) -> None:
        """Send an operation's result to those who need its samples."""
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
        transfer = lines.setdefault(element, Line()).carry(ends_s, seconds, script.latency_s)
        if self._mine == 0:
            times = (transfer.start_s, transfer.end_s, transfer.end_s)
            self._record(step, element, m, kind, 0, times, 0.0)
        mine = self._own_rows(m)
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
            self._device.send(name, f"{word}_{self._mine}", tag, at_s=transfer.arrives_s, arrays=arrays)

    def _reduce(self, step: int) -> None:
        """Sum the gradients of the stage's devices, and add the pull of FedProx."""
        names = [node_name(self._device.cluster, k) for k in self._stage.devices]
        tag = self._tag._replace(step=step, place=self._place)
        if len(names) > 1 and self._mine > 0:
            self._device.send(names[0], f"summand_{self._mine}", tag, arrays=self._gradients())
            total = self._device.mailbox.wait("summed", tag).arrays
            for block, part in self._trained():
                part.gradients.copy_(torch.from_numpy(np.array(total[f"b{block}"])))
        elif len(names) > 1:
            for index in range(1, len(names)):
                frame = self._device.mailbox.wait(f"summand_{index}", tag)
                for block, part in self._trained():
                    part.gradients.add_(torch.from_numpy(np.array(frame.arrays[f"b{block}"])))
            for name in names[1:]:
                self._device.send(name, "summed", tag, arrays=self._gradients())
        if self._learning.proximal:
            for block, flat in self._trained():
                flat.gradients.add_(flat.values - self._beginning[block], alpha=self._learning.proximal)

    def _trained(self) -> list[tuple[int, Any]]:
        return [(block, part.flat) for block, part in self._parts.items() if part.flat is not None]

    def _gradients(self) -> dict[str, np.ndarray[Any, Any]]:
        return {f"b{block}": flat.gradients.numpy().copy() for block, flat in self._trained()}

    def _squares(self) -> float:
        """Sum of the squares of the gradients, where anybody asks for their norm; the lead's counts."""
        if not self._learning.gradient_clip or self._mine > 0:
            return 0.0
        return sum(float(flat.gradients.square().sum()) for _, flat in self._trained())

    def _collect(self, begins_s: float) -> None:
        """Hand the segment over to the control unit, the first device of a stage for all."""
        device = self._device
        ends = begins_s + self._script.collect_each_s[device.number - 1]
        arrays = {}
        if self._mine == 0:
            for block, part in self._parts.items():
                arrays |= {f"b{block}/{name}": array for name, array in part.arrays().items()}
        tag = self._tag._replace(place=device.number)
        device.clock.begin(ends)
        meta = {"events": [list(event) for event in device.recorded]}
        device.send(
            node_name(device.cluster, 0),
            "segment",
            tag,
            at_s=device.clock.finish(ends),
            meta=meta,
            arrays=arrays,
        )

    def _record(
        self,
        step: int,
        element: int,
        m: int,
        kind: int,
        chunk: int,
        times: tuple[float, float, float],
        worked: float,
    ) -> None:
        self._device.recorded.append(
            Recorded(self._device.cluster, step, element, m, kind, chunk, *times, worked)
        )

    def _send_control(self, kind: str, step: int, meta: dict[str, Any]) -> None:
        tag = self._tag._replace(step=step, place=self._device.number)
        self._device.send(node_name(self._device.cluster, 0), kind, tag, meta=meta)

    def _wait(self, kind: str, step: int) -> Frame:
        return self._device.mailbox.wait(kind, self._tag._replace(step=step, place=self._device.number))


def _values(part: Part) -> Tensor | None:
    return None if part.flat is None else part.flat.values.clone()
