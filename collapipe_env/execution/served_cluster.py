"""Work of the server for one cluster in a round, with as many attempts as it takes."""

from __future__ import annotations

import queue
import time

import numpy as np
import torch

from collapipe_env.execution.frames import Frame, Tag
from collapipe_env.execution.head_work import HeadWork
from collapipe_env.execution.lines import Line
from collapipe_env.execution.mailbox import Cancelled, Mailbox
from collapipe_env.execution.role import Role, control_unit_name, line_of, received
from collapipe_env.execution.round_reports import Recorded
from collapipe_env.execution.sample_rows import micro_batch_rows
from collapipe_env.execution.script_reading import from_json
from collapipe_env.execution.scripts import BACKWARD, FORWARD, ClusterScript
from collapipe_env.execution.served_heads import ServedHeads


class ServedCluster:
    """The server's work for one cluster in a round, with as many attempts as it takes.

    Args:
        role: The server.
        heads: Heads of all clusters in the round.
        script: The cluster's script.
        tag: Round and attempt.
        mailbox: Frames of the cluster.
        aborts: Ends of attempts that the cluster has told of.
    """

    def __init__(
        self,
        role: Role,
        heads: ServedHeads,
        script: ClusterScript,
        tag: Tag,
        mailbox: Mailbox,
        aborts: queue.SimpleQueue[Frame],
    ) -> None:
        self._role, self._heads, self._script, self._tag = role, heads, script, tag
        self._mailbox, self._aborts, self._n = mailbox, aborts, script.cluster
        self._steps, self._offset = script.local_steps, 0
        self._recorded: list[Recorded] = []

    def run(self) -> Frame:
        """Serve the cluster until its update arrives; return the update."""
        while True:
            try:
                self._attempt()
                update = self._mailbox.wait("update", self._tag)
                self._role.recorded += self._recorded
                return update
            except Cancelled:
                abort = self._aborts.get()
                self._tag = abort.tag._replace(attempt=abort.tag.attempt + 1)
                if abort.meta["dropped"]:
                    self._heads.give_up(self._n)
                    return self._mailbox.wait("update", self._tag)
                self._script = from_json(abort.meta["script"], ClusterScript)

    def _attempt(self) -> None:
        """Serve the local steps of the present script."""
        self._recorded = []  # records of an attempt that was given up are dropped
        self._offset = self._steps - self._script.local_steps
        labels = self._mailbox.wait("labels", self._tag)
        self._units = [[float(unit) for unit in step] for step in labels.meta["units"]]
        self._targets = torch.from_numpy(np.array(labels.arrays["targets"]))
        self._real = torch.from_numpy(np.array(labels.arrays["real"], dtype=np.bool_))
        self._rows = micro_batch_rows(self._real.shape[1], self._script.micro_batches)
        for local in range(self._script.local_steps):
            step = self._offset + local
            work, gradients = self._heads.work(self._n, step, self._units[local])
            ends = self._operations(step, work)
            self._heads.end_step(self._n, step, work, gradients)
            tag = self._tag._replace(step=step)
            self._role.send(control_unit_name(self._n), "served", tag, meta={"ends_s": ends})

    def _operations(self, step: int, work: HeadWork) -> float:
        script, clock, down = self._script.server, self._role.clock, Line()
        split = script.weight_s > 0.0 or script.weight_limit is not None
        free, stored, done_w = 0.0, 0, 0
        ready_w: list[int] = []

        def weigh() -> None:
            nonlocal free, done_w, stored
            free = self._work(2, step, ready_w[done_w], free, work, split=split)[0]
            done_w, stored = done_w + 1, stored - 1

        for kind, m, _ in script.order:
            ready, x = free, None
            keys = [("uplink", self._tag._replace(step=step, micro_batch=m))] if kind == FORWARD else []
            if script.weight_limit is not None:
                while done_w < len(ready_w) and (
                    (kind == FORWARD and stored >= script.weight_limit)
                    or self._role.comes_later(keys, free, self._mailbox)
                ):
                    weigh()
            for key in keys:
                frame = self._mailbox.wait(*key)
                ready = clock.ready(frame.at_s)
                self._recorded += received(self._n, frame, clock)
                x = torch.from_numpy(np.array(frame.arrays["x"])) if "x" in frame.arrays else None
            free, gradient = self._work(kind, step, m, max(free, ready), work, x, split=split)
            stored += kind == FORWARD
            if kind == BACKWARD:
                lengths = self._script.downlink_s, self._script.edge_latency_s
                transfer = down.carry(free, *map(clock.lasts, lengths))
                element, (first, end) = 2 * len(self._script.stages) + 1, self._rows[m]
                meta = line_of(element, 1, transfer, clock.now(transfer.start_s), end - first)
                tag = self._tag._replace(step=step, micro_batch=m)
                arrays = {} if gradient is None else {"x": gradient.numpy()}
                to = control_unit_name(self._n)
                self._role.send(to, "turned_0", tag, at_s=transfer.arrives_s, meta=meta, arrays=arrays)
                if script.weight_limit is not None:
                    ready_w.append(m)
        while done_w < len(ready_w):
            weigh()
        return free

    def _work(
        self,
        kind: int,
        step: int,
        m: int,
        start_s: float,
        work: HeadWork,
        x: torch.Tensor | None = None,
        *,
        split: bool,
    ) -> tuple[float, torch.Tensor | None]:
        """Run an operation; return the time when it ends [s], and the gradient that it gives."""
        clock, given = self._role.clock, None
        start_s = clock.begin(start_s)
        began, begun = clock.now(start_s), time.perf_counter()
        local = step - self._offset
        if self._units[local][m]:
            if kind == FORWARD:
                assert x is not None
                first, end = self._rows[m]
                work.forward(m, x, self._real[local, first:end], self._targets[local, first:end])
            elif kind == BACKWARD:
                given = work.backward(m, weights=not split)
            else:
                work.weight(m)
        worked = time.perf_counter() - begun
        ends = clock.finish(start_s + self._script.server.seconds(kind, 0))
        element = 2 * len(self._script.stages) + 2
        times = start_s, ends, clock.now(ends), worked, began, 0.0
        samples = self._rows[m][1] - self._rows[m][0]
        self._recorded.append(Recorded(self._n, step, element, m, kind, 0, *times, samples=samples))
        return ends, given
