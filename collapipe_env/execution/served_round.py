"""Round of the server: heads of all clusters, and the merge of their updates."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from collapipe_env.execution.frames import Frame
from collapipe_env.execution.head_state import HeadState
from collapipe_env.execution.head_work import HeadWork, shadow_of
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
from collapipe_env.execution.role import begin_terms, control_unit_name
from collapipe_env.execution.script_reading import to_json
from collapipe_env.execution.scripts import ClusterScript, RoundScript
from collapipe_env.execution.served_cluster import ServedCluster
from collapipe_env.physics.allocation import COMMON
from collapipe_env.training.mini_batches import next_batch
from collapipe_env.training.servers import CommonServer, Server

if TYPE_CHECKING:
    from collapipe_env.execution.edge_server import EdgeServer


class ServedRound:
    """One round of the server.

    Args:
        frame: The launcher's command.
        moments: Fate of each block's moments before the round (N, L); ``None`` where all stay.
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
        self._given_up: set[int] = set()
        self._losses: dict[tuple[int, int], tuple[float, float]] = {}
        self._failure: BaseException | None = None
        full = [optimizer.param_groups[0].get("initial_lr", optimizer.param_groups[0]["lr"])
                for optimizer in self._server.optimizers()]  # fmt: skip
        self._full_rates = full

    def run(self) -> dict[str, Any]:
        """Play the round; return its figures."""
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
            update = ServedCluster(self, cluster).run()
            with self._turn:
                self._updates[cluster] = update
        except BaseException as error:  # handed on to the thread that waits
            with self._turn:
                self._failure = self._failure or error
                self._turn.notify_all()

    def _send_round(self, n: int, cluster: ClusterScript) -> None:
        """Send a cluster its script, the common model, and its moments."""
        _, flat, optimizer = self._fed.replica(n)
        samples, streams = self._fed.samples
        rate = self._owner.setup.learning.learning_rate
        meta = {
            "script": to_json(cluster),
            "rates": [rate * factor for factor in self._factors],
            **begin_terms(self._frame),
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
        for _ in range(self._steps[n]):  # the server's own copy of the order of samples keeps up
            next_batch(self._owner.setup, samples, streams[n])
        self._owner.send(control_unit_name(n), "round", self._tag, meta=meta, arrays=arrays)

    def _modules(self, n: int) -> list[tuple[str, torch.nn.Module]]:
        model, _, _ = self._fed.replica(n)
        return [(EMBEDDING, model.embedding), *((block_name(b), m) for b, m in enumerate(model.blocks))]

    # Shared by the threads of the clusters.

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
        """Return a cluster's head for a local step, its gradients zeroed, and these if they are its own.

        With one head for all, the step waits until the others have ended the one before. A local step that a
        cluster repeats after losing a device gets the same head as the first time.
        """
        with self._turn:
            if not self._common:
                _, module = self._server.serve(n)
                optimizer = self._server.optimizers()[n]
                if (n, step) in self._snapshots:
                    self._snapshots[n, step].restore(module, optimizer)
                    # Later snapshots are of steps with moments that are lost now.
                    stale = [key for key in self._snapshots if key[0] == n and key[1] > step]
                    for key in stale:
                        del self._snapshots[key]
                self._snapshots[n, step] = HeadState.of(module, optimizer)
                return module, None
            self._turn.wait_for(lambda: self._stepped >= step or self._failure is not None)
            if self._failure is not None:
                raise self._failure
            _, module = self._server.serve(n)
            if (0, step) not in self._snapshots:
                self._snapshots[0, step] = HeadState.of(module, self._server.optimizers()[0])
            # A copy: a cluster that repeats the step must not see the head change as the others end theirs.
            return shadow_of(module, self._snapshots[0, step].values)

    def end_step(self, n: int, step: int, work: HeadWork, gradients: torch.Tensor | None) -> None:
        """Use the gradients of a cluster's local step, unless it is repeated and they were used before."""
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
            self._finished.setdefault(step, {})[n] = work.total, gradients
            self._step_where_all_have_ended()

    def give_up(self, n: int) -> None:
        """Undo all effects of a cluster on the heads, because it gives up this round.

        Others may have continued from a common head that had stepped with its gradients. Their gradients stay
        as they are, and the head's steps are repeated without this cluster's.
        """
        with self._turn:
            self._given_up.add(n)
            self._losses = {key: loss for key, loss in self._losses.items() if key[1] != n}
            if not self._common:
                if (n, 0) in self._snapshots:
                    _, module = self._server.serve(n)
                    self._snapshots[n, 0].restore(module, self._server.optimizers()[n])
                return
            first = min((step for step, ended in self._finished.items() if n in ended), default=self._stepped)
            for ended in self._finished.values():
                ended.pop(n, None)
            if first < self._stepped:
                self._step_again(first)
            self._step_where_all_have_ended()

    def _step_where_all_have_ended(self) -> None:
        """Step the common head as far as all continuing clusters have ended their local steps."""
        while True:
            going = {n for n, steps in enumerate(self._steps) if steps > self._stepped} - self._given_up
            ended = self._finished.get(self._stepped, {})
            if not going or not going <= ended.keys():
                return
            self._step_common_head(self._stepped, ended)
            self._stepped += 1
            self._turn.notify_all()

    def _step_again(self, first: int) -> None:
        """Take the common head back to a local step, and repeat the later steps."""
        _, module = self._server.serve(0)
        optimizer = self._server.optimizers()[0]
        self._snapshots[0, first].restore(module, optimizer)
        for step in range(first, self._stepped):
            if (0, step) in self._snapshots:
                self._snapshots[0, step] = HeadState.of(module, optimizer)
            self._step_common_head(step, self._finished[step])
        if (0, self._stepped) in self._snapshots:
            self._snapshots[0, self._stepped] = HeadState.of(module, optimizer)

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
        recoveries, measured = {}, {}
        for n in playing:
            frame = self._updates[n]
            ends[n] = self._owner.clock.ready(frame.at_s)
            measured[n] = float(frame.meta["measured_s"])
            updated[n] = frame.meta["updated"]
            events += frame.meta["events"]
            collected[n] = frame.meta["collected_s"]
            recoveries[n] = frame.meta["recoveries"]
            if not frame.meta["dropped"]:
                self._take(n, frame)
        idle = [c.delay_s for c in self._script.clusters if not c.plays]
        begins = max([*ends.values(), *idle])
        self._fed.close_round(self._server, updated, self._none, COMMON)
        delay = self._owner.clock.finish(begins + self._owner.clock.lasts(self._script.broadcast_s))
        losses = [self._losses[key] for key in sorted(self._losses)]
        mean = float(np.average([v for v, _ in losses], weights=[u for _, u in losses])) if losses else None
        return {
            "delay_s": self._owner.clock.now(delay),
            "emulated": self._owner.clock.paced or self._owner.clock.ahead,
            "cluster_s": [measured.get(n) for n in range(len(updated))],
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
