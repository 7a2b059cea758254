"""Edge server: trains the head with every cluster, and merges the clusters' updates."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from collapipe_env.allocation import COMMON
from collapipe_env.execution.clock import Clock
from collapipe_env.execution.frames import Frame
from collapipe_env.execution.head_work import HeadWork, shadow_of
from collapipe_env.execution.lines import Line
from collapipe_env.execution.mailbox import Cancelled, Mailbox
from collapipe_env.execution.parts import (
    EMBEDDING,
    VALUES,
    Arrays,
    below,
    block_name,
    memory_arrays,
    set_memory,
    under,
)
from collapipe_env.execution.role import LAUNCHER, Recorded, Role, Stopped, control_unit_name
from collapipe_env.execution.rows import micro_batch_rows
from collapipe_env.execution.script_reading import from_json, to_json
from collapipe_env.execution.scripts import BACKWARD, FORWARD, ClusterScript, RoundScript
from collapipe_env.execution.transport import Endpoint
from collapipe_env.training.federation import Federation
from collapipe_env.training.mini_batches import next_batch
from collapipe_env.training.servers import CommonServer, Server
from collapipe_env.training.training_setup import TrainingSetup

_CONTROL_UNIT = re.compile(r"c[0-9]+")

Evaluate = Callable[[Federation], dict[str, float]]


class EdgeServer(Role):
    """The edge server.

    Its federation is the learner's own: weights, moments, the order of samples and the rule of aggregation.
    What the clusters train elsewhere is written into it at the end of each round.

    Args:
        endpoint: Way to the other roles.
        clock: Clock of its work.
        setup: Setup of the training.
        federation: The training run.
        evaluate: Returns figures of the common model after a round.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        clock: Clock,
        *,
        setup: TrainingSetup,
        federation: Federation,
        evaluate: Evaluate,
    ) -> None:
        super().__init__(endpoint, clock)
        self.setup, self.federation, self._evaluate = setup, federation, evaluate
        self.loss = partial(setup.task.loss, smoothing=setup.learning.label_smoothing)
        self._begun: set[int] = set()
        self.mailboxes = [Mailbox() for _ in range(setup.clusters)]
        self.aborts: list[queue.SimpleQueue[Frame]] = [queue.SimpleQueue() for _ in range(setup.clusters)]

    def on_frame(self, sender: str, frame: Frame) -> None:
        """Take a frame; each cluster has a mailbox of its own, as each goes through attempts of its own."""
        if not _CONTROL_UNIT.fullmatch(sender):
            super().on_frame(sender, frame)
            return
        n = int(sender[1:])
        if frame.kind == "abort":
            self.aborts[n].put(frame)
            self.mailboxes[n].cancel(frame.tag.round, frame.tag.attempt)
        else:
            self.mailboxes[n].put(frame)

    def on_lost(self, peer: str, reason: str) -> None:
        """Hear that a peer is gone; a round cannot end without its control units."""
        if peer == LAUNCHER or _CONTROL_UNIT.fullmatch(peer):
            for mailbox in self.mailboxes:
                mailbox.fail(ConnectionError(f"{peer} is gone ({reason})"))
            if peer == LAUNCHER:
                self.stop()

    def run(self) -> None:
        """Play the rounds that the launcher asks for until it says stop."""
        try:
            while True:
                frame = self.command()
                if frame.kind == "round":
                    self._round(frame)
        except Stopped:
            self.close()
        except BaseException as error:
            self.tell_failure(error)
            raise

    def _round(self, frame: Frame) -> None:
        self.recorded = []
        script = from_json(frame.meta["script"], RoundScript)
        self.clock.restart(float(frame.meta["machine_begins"]))
        moments = np.array(frame.arrays["moments"]) if "moments" in frame.arrays else None
        result = ServedRound(self, frame, script, moments).run()
        figures = self._evaluate(self.federation)
        meta = {**result, "figures": figures, "events": [*result["events"], *map(list, self.recorded)]}
        self.send(LAUNCHER, "result", frame.tag, meta=meta)

    def skipped_batches(self, cluster: int, drawn: int) -> int:
        """Mini-batches that a control unit has to skip, which begins only now.

        Args:
            cluster: The cluster.
            drawn: Batches that the cluster has drawn so far.
        """
        if cluster in self._begun:
            return 0
        self._begun.add(cluster)
        return drawn


class ServedRound:
    """One round of the server.

    Args:
        owner: The server.
        frame: The launcher's command.
        script: The round.
        moments: What becomes of each block's moments before the round (N, L); ``None`` where all stay.
    """

    def __init__(
        self, owner: EdgeServer, frame: Frame, script: RoundScript, moments: np.ndarray[Any, Any] | None
    ) -> None:
        self._owner, self._frame, self._script = owner, frame, script
        self._fed, self._tag = owner.federation, frame.tag
        self._none = np.zeros(len(script.clusters), dtype=np.int64)
        self._steps = [c.local_steps if c.plays else 0 for c in script.clusters]
        most = max(self._steps, default=0)
        self._server: Server = self._fed.open_round(self._none, script.server_mode, max(most, 1), moments)
        self._factors = self._fed.begin_steps(most)
        self._common = isinstance(self._server, CommonServer)
        self._turn = threading.Condition()
        self._snapshots: dict[tuple[int, int], HeadState] = {}
        self._updates: dict[int, Frame] = {}
        self._finished: dict[int, dict[int, tuple[float, torch.Tensor]]] = {}
        self._stepped = 0
        self._losses: dict[tuple[int, int], tuple[float, float]] = {}
        self._failure: BaseException | None = None
        full = [optimizer.param_groups[0].get("initial_lr", optimizer.param_groups[0]["lr"])
                for optimizer in self._server.optimizers()]  # fmt: skip
        self._full_rates = full

    def run(self) -> dict[str, Any]:
        """Play the round; returns its figures."""
        for n, cluster in enumerate(self._script.clusters):
            self._send_round(n, cluster)
        playing = [n for n, cluster in enumerate(self._script.clusters) if cluster.plays]
        threads = [threading.Thread(target=self._guarded, args=(n,), daemon=True) for n in playing]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure
        return self._merge(playing)

    def _guarded(self, cluster: int) -> None:
        """Serve a cluster; a failure of one thread ends the round."""
        try:
            update = _ServedCluster(self, cluster).run()
            with self._turn:
                self._updates[cluster] = update
        except BaseException as error:  # handed on to the thread that waits
            with self._turn:
                self._failure = self._failure or error
                self._turn.notify_all()

    def _send_round(self, n: int, cluster: ClusterScript) -> None:
        """Send a cluster its script and the common model; its moments, too, where it does not have them."""
        model, flat, optimizer = self._fed.replica(n)
        samples, streams = self._fed.samples
        rate = self._owner.setup.learning.learning_rate
        meta = {
            "script": to_json(cluster),
            "rates": [rate * factor for factor in self._factors],
            "machine_begins": self._frame.meta["machine_begins"],
            "skipped": self._owner.skipped_batches(n, int(self._frame.meta["drawn"][n])),
            "names": self._frame.meta["names"][n],
            "faults": self._frame.meta["faults"][n],
        }
        arrays: Arrays = {}
        for name, module in self._modules(n):
            places = flat.slices([module])
            if places:
                values = torch.cat([flat.values[place] for place in places]).numpy().copy()
                arrays |= below(name, {VALUES: values, **memory_arrays(flat, optimizer, module)})
        del model
        for _ in range(self._steps[n]):  # the server's own copy of the order of samples keeps up
            next_batch(self._owner.setup, samples, streams[n])
        self._owner.send(control_unit_name(n), "round", self._tag, meta=meta, arrays=arrays)

    def _modules(self, n: int) -> list[tuple[str, torch.nn.Module]]:
        model, _, _ = self._fed.replica(n)
        return [(EMBEDDING, model.embedding), *((block_name(b), m) for b, m in enumerate(model.blocks))]

    # What the threads of the clusters share.

    @property
    def owner(self) -> EdgeServer:
        """The server."""
        return self._owner

    @property
    def tag(self) -> Any:
        """Round and attempt."""
        return self._tag

    def cluster(self, n: int) -> ClusterScript:
        """Script of a cluster."""
        return self._script.clusters[n]

    def head(self, n: int, step: int) -> tuple[torch.nn.Module, torch.Tensor | None]:
        """Module of a cluster's head for a local step, its gradients zeroed, and those if they are its own.

        With one head for all, the step waits until the others have ended the one before. A local step that a
        cluster takes once more, after it has lost a device, meets the head that it met before.
        """
        with self._turn:
            if not self._common:
                _, module = self._server.serve(n)
                optimizer = self._server.optimizers()[n]
                if (n, step) in self._snapshots:
                    self._snapshots[n, step].restore(module, optimizer)
                self._snapshots[n, step] = HeadState.of(module, optimizer)
                return module, None
            self._turn.wait_for(lambda: self._stepped >= step or self._failure is not None)
            if self._failure is not None:
                raise self._failure
            _, module = self._server.serve(n)
            if (0, step) not in self._snapshots:
                self._snapshots[0, step] = HeadState.of(module, self._server.optimizers()[0])
            return shadow_of(module, self._snapshots[0, step].values if self._stepped > step else None)

    def end_step(self, n: int, step: int, work: HeadWork, gradients: torch.Tensor | None) -> None:
        """Use the gradients of a cluster's local step; those of one that is taken once more were used."""
        with self._turn:
            if work.total:
                self._losses[step, n] = float(work.mean_loss), work.total
            if gradients is None:
                if work.total:
                    self._set_rates([n], step)
                    self._server.after_batch(n, work.total)
                return
            if self._stepped > step:
                return
            ended = self._finished.setdefault(step, {})
            ended[n] = work.total, gradients
            if len(ended) == sum(steps > step for steps in self._steps):
                self._step_common_head(step, ended)
                self._stepped = step + 1
                self._turn.notify_all()

    def _step_common_head(self, step: int, ended: dict[int, tuple[float, torch.Tensor]]) -> None:
        """Step the one head with the gradients of all clusters, in their order."""
        self._set_rates(range(len(self._full_rates)), step)
        self._server.begin_step()
        for n in sorted(ended):
            units, gradients = ended[n]
            if units:
                _, module = self._server.serve(n)
                trained = [p for p in module.parameters() if p.requires_grad]
                ordered = sorted(trained, key=lambda p: p.ndim < 2)
                start = 0
                for parameter in ordered:
                    assert parameter.grad is not None
                    stop = start + parameter.numel()
                    parameter.grad.copy_(gradients[start:stop].view(parameter.shape))
                    start = stop
                self._server.after_batch(n, units)
        self._server.end_step()

    def _set_rates(self, which: Sequence[int] | range, step: int) -> None:
        optimizers = self._server.optimizers()
        for index in which:
            for group in optimizers[index].param_groups:
                group.setdefault("initial_lr", self._full_rates[index])
                group["lr"] = self._full_rates[index] * self._factors[step]

    def _merge(self, playing: Sequence[int]) -> dict[str, Any]:
        """Take the updates, and make the next common model."""
        updated = np.zeros(len(self._script.clusters), dtype=np.bool_)
        ends, events, collected = {}, [], {}
        recoveries = {}
        for n in playing:
            frame = self._updates[n]
            ends[n] = self._owner.clock.ready(frame.at_s)
            updated[n] = frame.meta["updated"]
            events += frame.meta["events"]
            collected[n] = frame.meta["collected_s"]
            recoveries[n] = frame.meta["recoveries"]
            if not frame.meta["dropped"]:
                self._take(n, frame)
        idle = [c.delay_s for c in self._script.clusters if not c.plays]
        begins = max([*ends.values(), *idle])
        self._fed.close_round(self._server, updated, self._none, COMMON)
        delay = self._owner.clock.finish(begins + self._script.broadcast_s)
        losses = [self._losses[key] for key in sorted(self._losses)]
        mean = float(np.average([v for v, _ in losses], weights=[u for _, u in losses])) if losses else None
        return {
            "delay_s": delay,
            "cluster_s": [ends.get(n) for n in range(len(updated))],
            "collected_s": [collected.get(n) for n in range(len(updated))],
            "train_loss": mean,
            "events": events,
            "recoveries": [recoveries.get(n, []) for n in range(len(updated))],
        }

    @torch.no_grad()
    def _take(self, n: int, frame: Frame) -> None:
        """Write a cluster's weights and moments into the federation."""
        _, flat, optimizer = self._fed.replica(n)
        for name, module in self._modules(n):
            arrays = under(name, frame.arrays)
            start = 0
            for place in flat.slices([module]):
                size = place.stop - place.start
                flat.values[place] = torch.from_numpy(np.array(arrays[VALUES][start : start + size]))
                start += size
            if start:
                set_memory(flat, optimizer, module, arrays, f"update of cluster {n}, {name}")


class HeadState(NamedTuple):
    """Weights of a head and the memory of its optimiser, to go back to.

    Attributes:
        values: Its parameters.
        memory: The optimiser's memory of each of its groups.
    """

    values: list[torch.Tensor]
    memory: list[dict[str, Any]]

    @classmethod
    def of(cls, module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> HeadState:
        """Return a copy of the present state."""
        parameters = [group["params"][0] for group in optimizer.param_groups]
        memory = [
            {
                n: v.clone() if isinstance(v, torch.Tensor) else v
                for n, v in optimizer.state.get(p, {}).items()
            }
            for p in parameters
        ]
        return cls([p.detach().clone() for p in module.parameters()], memory)

    @torch.no_grad()
    def restore(self, module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Go back to it."""
        for parameter, values in zip(module.parameters(), self.values, strict=True):
            parameter.copy_(values)
        optimizer.state.clear()
        for group, memory in zip(optimizer.param_groups, self.memory, strict=True):
            if memory:
                optimizer.state[group["params"][0]] = {
                    n: v.clone() if isinstance(v, torch.Tensor) else v for n, v in memory.items()
                }


class _ServedCluster:
    """The server's work for one cluster in a round, with as many attempts as it takes."""

    def __init__(self, of_round: ServedRound, cluster: int) -> None:
        self._round, self._n = of_round, cluster
        self._owner, self._script = of_round.owner, of_round.cluster(cluster)
        self._mailbox, self._tag = self._owner.mailboxes[cluster], of_round.tag
        self._steps, self._offset = self._script.local_steps, 0

    def run(self) -> Frame:
        """Serve the cluster until its update is there, which is returned."""
        while True:
            try:
                self._attempt()
                return self._mailbox.wait("update", self._tag)
            except Cancelled:
                abort = self._owner.aborts[self._n].get()
                self._tag = abort.tag._replace(attempt=abort.tag.attempt + 1)
                if abort.meta["dropped"]:
                    return self._mailbox.wait("update", self._tag)
                self._script = from_json(abort.meta["script"], ClusterScript)

    def _attempt(self) -> None:
        """Serve the local steps of the present script."""
        self._offset = self._steps - self._script.local_steps
        labels = self._mailbox.wait("labels", self._tag)
        self._units = [[float(unit) for unit in step] for step in labels.meta["units"]]
        self._targets = torch.from_numpy(np.array(labels.arrays["targets"]))
        self._real = torch.from_numpy(np.array(labels.arrays["real"], dtype=np.bool_))
        self._rows = micro_batch_rows(self._real.shape[1], self._script.micro_batches)
        for local in range(self._script.local_steps):
            step = self._offset + local
            module, gradients = self._round.head(self._n, step)
            learning = self._owner.setup.learning
            work = HeadWork(module, self._owner.loss, self._units[local], learning.precision)
            ends = self._operations(step, work)
            self._round.end_step(self._n, step, work, gradients)
            tag = self._tag._replace(step=step)
            self._owner.send(control_unit_name(self._n), "served", tag, meta={"ends_s": ends})

    def _operations(self, step: int, work: HeadWork) -> float:
        script, clock, down = self._script.server, self._owner.clock, Line()
        split = script.weight_s > 0.0 or script.weight_limit is not None
        free, stored, ready_w, done_w = 0.0, 0, [], 0

        def weigh() -> None:
            nonlocal free, done_w, stored
            free = self._work(2, step, ready_w[done_w], free, work, split=split)[0]
            done_w, stored = done_w + 1, stored - 1

        for kind, m, _ in script.order:
            ready, x = free, None
            if kind == FORWARD:
                frame = self._mailbox.wait("uplink", self._tag._replace(step=step, micro_batch=m))
                ready = clock.ready(frame.at_s)
                x = torch.from_numpy(np.array(frame.arrays["x"])) if "x" in frame.arrays else None
            if script.weight_limit is not None:
                while done_w < len(ready_w) and (
                    ready > free or (kind == FORWARD and stored >= script.weight_limit)
                ):
                    weigh()
            free, gradient = self._work(kind, step, m, max(free, ready), work, x, split=split)
            stored += kind == FORWARD
            if kind == BACKWARD:
                transfer = down.carry(free, self._script.downlink_s, self._script.edge_latency_s)
                S = len(self._script.stages)
                times = transfer.start_s, transfer.end_s, transfer.end_s
                self._owner.recorded.append(Recorded(self._n, step, 2 * S + 1, m, 1, 0, *times))
                tag = self._tag._replace(step=step, micro_batch=m)
                arrays = {} if gradient is None else {"x": gradient.numpy()}
                to = control_unit_name(self._n)
                self._owner.send(to, "turned_0", tag, at_s=transfer.arrives_s, arrays=arrays)
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
        """Run an operation; returns when it ends [s], and the gradient that it gives."""
        clock, given = self._owner.clock, None
        clock.begin(start_s)
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
        ends = clock.finish(start_s + self._script.server.seconds(kind, 0))
        element = 2 * len(self._script.stages) + 2
        times = start_s, ends, clock.now(ends)
        self._owner.recorded.append(Recorded(self._n, step, element, m, kind, 0, *times))
        return ends, given
