"""Edge server: trains the head with every cluster, and merges the clusters' updates."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from collapipe_env.execution.clock import Clock
from collapipe_env.execution.frames import Frame
from collapipe_env.execution.head_work import HeadWork, shadow_of
from collapipe_env.execution.mailbox import Mailbox
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
from collapipe_env.execution.role import LAUNCHER, Role, begin_terms, control_unit_name
from collapipe_env.execution.script_reading import from_json, to_json
from collapipe_env.execution.scripts import ClusterScript, RoundScript
from collapipe_env.execution.served_cluster import ServedCluster
from collapipe_env.execution.served_heads import ServedHeads
from collapipe_env.execution.transport import Endpoint
from collapipe_env.models.tokenization import PADDING
from collapipe_env.physics.moves import STAY
from collapipe_env.training.federation import Federation
from collapipe_env.training.servers import Server
from collapipe_env.training.training_setup import TrainingSetup

_CONTROL_UNIT = re.compile(r"c[0-9]+")

Evaluate = Callable[[Federation], dict[str, float]]
Save = Callable[[Federation], bytes]
STATE_PART = 2**26
"""Most bytes of a state in one frame."""


class EdgeServer(Role):
    """The edge server.

    Its federation is the learner's own: weights, moments, the order of samples and the rule of aggregation.
    The weights that the clusters train elsewhere are written into it at the end of each round.

    Args:
        federation: The training run.
        evaluate: Returns figures of the common model after a round.
        save: Returns the state of the training between rounds.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        clock: Clock,
        *,
        setup: TrainingSetup,
        federation: Federation,
        evaluate: Evaluate,
        save: Save,
    ) -> None:
        super().__init__(endpoint, clock)
        self.setup, self.federation, self._evaluate, self._save = setup, federation, evaluate, save
        self.loss = partial(setup.task.loss, smoothing=setup.learning.label_smoothing)
        self._begun: set[int] = set()
        self.mailboxes = [Mailbox() for _ in range(setup.clusters)]
        self.aborts: list[queue.SimpleQueue[Frame]] = [queue.SimpleQueue() for _ in range(setup.clusters)]

    def on_frame(self, sender: str, frame: Frame) -> None:
        """Take a frame; each cluster has its own mailbox, because each goes through its own attempts."""
        if not _CONTROL_UNIT.fullmatch(sender):
            super().on_frame(sender, frame)
            return
        n = int(sender[1:])
        if frame.kind == "abort":
            self.aborts[n].put(frame)
            self.mailboxes[n].cancel(frame.tag.round, frame.tag.attempt)
        else:
            self.deliveries.deliver(frame, self.mailboxes[n])

    def on_lost(self, peer: str, reason: str) -> None:
        """Note that a peer is gone; a round cannot end without its control units."""
        if peer == LAUNCHER or _CONTROL_UNIT.fullmatch(peer):
            self.cannot_go_on(peer, reason)

    def _mailboxes(self) -> Sequence[Mailbox]:
        return [self.mailbox, *self.mailboxes]

    def warm_up(self) -> None:
        """Train a copy of the head once."""
        tokens, targets = (part[:1] for part in self.setup.train)
        model, head = self.federation.common_model
        with torch.no_grad():
            x = model(tokens)
        module, _ = shadow_of(head)
        work = HeadWork(module, self.loss, [1.0], self.setup.learning.precision)
        work.forward(0, x, tokens != PADDING, targets)
        work.backward(0)

    def carry_out(self, frame: Frame) -> None:
        """Play a round, or send the launcher the weights or the state."""
        if frame.kind == "round":
            self._round(frame)
        elif frame.kind == "weights":
            self._send_weights(frame)
        elif frame.kind == "state":
            self._send_state(frame)

    def _send_weights(self, frame: Frame) -> None:
        """Send the launcher the common model and the head."""
        arrays = {
            f"{part}/{name}": parameter.detach().numpy()
            for part, module in zip(("model", "head"), self.federation.common_model, strict=True)
            for name, parameter in module.named_parameters()
        }
        self.send(LAUNCHER, "weights", frame.tag, arrays=arrays)

    def _send_state(self, frame: Frame) -> None:
        """Send the launcher everything that the training needs to continue."""
        content = np.frombuffer(self._save(self.federation), dtype=np.uint8)
        parts = [content[start : start + STATE_PART] for start in range(0, len(content), STATE_PART)]
        for place, part in enumerate(parts):
            tag, meta = frame.tag._replace(place=place), {"parts": len(parts)}
            self.send(LAUNCHER, "state", tag, meta=meta, arrays={"content": part})

    def _round(self, frame: Frame) -> None:
        self.recorded = []
        script = from_json(frame.meta["script"], RoundScript)
        self.begin_round(frame)
        stay = np.full((self.setup.clusters, self.setup.architecture.blocks), STAY)
        moments = np.array(frame.arrays.get("moments", stay))
        result = ServedRound(self, frame, script, moments).run()
        figures = self._evaluate(self.federation)
        meta = {**result, "figures": figures, "events": [*result["events"], *map(list, self.recorded)]}
        self.send(LAUNCHER, "result", frame.tag, meta=meta)

    def skipped_batches(self, cluster: int, drawn: int) -> int:
        """Return the number of mini-batches that a control unit has to skip because it begins only now.

        Args:
            drawn: Batches that the cluster has drawn so far.
        """
        if cluster in self._begun:
            return 0
        self._begun.add(cluster)
        return drawn


class ServedRound:
    """One round of the server.

    Args:
        frame: The launcher's command.
        moments: Fate of each block's moments before the round (N, L).
    """

    def __init__(
        self, owner: EdgeServer, frame: Frame, script: RoundScript, moments: np.ndarray[Any, Any]
    ) -> None:
        self._owner, self._frame, self._script = owner, frame, script
        self._fed, self._tag = owner.federation, frame.tag
        self._none = np.zeros(len(script.clusters), dtype=np.int64)
        self._steps = [c.local_steps if c.plays else 0 for c in script.clusters]
        most = max(self._steps, default=0)
        self._server: Server = self._fed.open_round(self._none, script.server_mode, max(most, 1), moments)
        self._factors = self._fed.begin_steps(most)
        terms = owner.loss, owner.setup.learning.precision
        self._heads = ServedHeads(self._server, self._steps, self._factors, *terms)
        self._updates: dict[int, Frame] = {}

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
        if self._heads.failure is not None:
            raise self._heads.failure
        return self._merge(playing)

    def _guarded(self, cluster: int) -> None:
        """Serve a cluster; a failure of one thread ends the round."""
        owner, script = self._owner, self._script.clusters[cluster]
        mailbox, aborts = owner.mailboxes[cluster], owner.aborts[cluster]
        try:
            served = ServedCluster(owner, self._heads, script, self._tag, mailbox, aborts)
            self._updates[cluster] = served.run()
        except BaseException as error:  # handed on to the thread that waits
            self._heads.fail(error)

    def _send_round(self, n: int, cluster: ClusterScript) -> None:
        """Send a cluster its script, the common model, and its moments."""
        _, flat, optimizer = self._fed.replicas[n]
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
            self._fed.samples.next_batch(self._owner.setup, self._fed.streams[n])
        self._owner.send(control_unit_name(n), "round", self._tag, meta=meta, arrays=arrays)

    def _modules(self, n: int) -> list[tuple[str, torch.nn.Module]]:
        model = self._fed.replicas[n].module
        return [(EMBEDDING, model.embedding), *((block_name(b), m) for b, m in enumerate(model.blocks))]

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
        self._fed.close_round(self._server, updated, self._none)
        delay = self._owner.clock.finish(begins + self._owner.clock.lasts(self._script.broadcast_s))
        losses = [loss for _, loss in sorted(self._heads.losses.items())]
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
        _, flat, optimizer = self._fed.replicas[n]
        for name, module in self._modules(n):
            arrays = under(name, frame.arrays)
            start = 0
            for place in flat.slices([module]):
                size = place.stop - place.start
                flat.values[place] = torch.from_numpy(np.array(arrays[VALUES][start : start + size]))
                start += size
            if start:
                set_memory(flat, optimizer, module, arrays, f"update of cluster {n}, {name}")
