"""Edge server: trains the head with every cluster, and merges the clusters' updates."""

from __future__ import annotations

import queue
import re
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch

from collapipe_env.execution.clock import Clock
from collapipe_env.execution.frames import Frame
from collapipe_env.execution.head_work import HeadWork, shadow_of
from collapipe_env.execution.mailbox import Mailbox
from collapipe_env.execution.role import LAUNCHER, Role, Stopped
from collapipe_env.execution.script_reading import from_json
from collapipe_env.execution.scripts import RoundScript
from collapipe_env.execution.served_round import ServedRound
from collapipe_env.execution.transport import Endpoint
from collapipe_env.models.tokenization import PADDING
from collapipe_env.training.federation import Federation
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
        endpoint: Connection to the other roles.
        clock: Clock of the role.
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

    def run(self) -> None:
        """Carry out the launcher's commands until it says stop."""
        try:
            while True:
                frame = self.command()
                if frame.kind == "round":
                    self._round(frame)
                elif frame.kind == "weights":
                    self._send_weights(frame)
                elif frame.kind == "state":
                    self._send_state(frame)
        except Stopped:
            self.close()
        except BaseException as error:
            self.tell_failure(error)
            raise

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
        moments = np.array(frame.arrays["moments"]) if "moments" in frame.arrays else None
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
