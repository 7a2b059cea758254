"""Flower strategy around the package's own aggregation; needs Flower [X]."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from logging import INFO

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from collapipe_env.execution.flower.federated_rounds import FederatedRounds
from collapipe_env.execution.flower.frame_records import from_plain, to_plain
from collapipe_env.execution.flower.round_figures import RoundFigures, payload_bytes
from collapipe_env.execution.frames import Frame
from collapipe_env.execution.joining import ExecutionError
from collapipe_env.execution.parts import Arrays

MODEL, FRAME, HEADER = "model", "frame", "header"
"""Names of a message's records, arrays and the rest of the frame, and of the latter's only value."""


def records_of(frame: Frame) -> RecordDict:
    """Return a frame as records.

    Args:
        frame: The frame.

    Raises:
        FrameError: If it holds something that frames cannot carry.
    """
    arrays, header = to_plain(frame)
    return RecordDict({MODEL: array_record(arrays), FRAME: ConfigRecord({HEADER: header})})


def frame_of(content: RecordDict, *kinds: str) -> Frame:
    """Return the frame that records hold.

    Args:
        content: The records.
        kinds: Expected kinds.

    Raises:
        FrameError: If they hold no frame of these kinds.
    """
    arrays = content.array_records.get(MODEL, ArrayRecord())
    header = content.config_records.get(FRAME, ConfigRecord()).get(HEADER)
    return from_plain(plain_arrays(arrays), header, kinds)


def array_record(arrays: Arrays) -> ArrayRecord:
    """Return arrays as a record."""
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})


def plain_arrays(record: ArrayRecord) -> Arrays:
    """Return the arrays of a record; nothing of it is unpickled."""
    return {name: array.numpy() for name, array in record.items()}


class CollaPipeStrategy(Strategy):
    """Rounds of CollaPipe: sends each cluster its command with the common model, and merges the updates.

    ``rounds`` holds the model; Flower passes a copy from round to round for its own result.

    Args:
        rounds: The rounds.
        nodes: Flower's number of each cluster's node.
        report: Called with the figures of each round.
    """

    def __init__(
        self, rounds: FederatedRounds, nodes: Mapping[int, int], report: Callable[[RoundFigures], None]
    ) -> None:
        self._rounds, self._nodes, self._report = rounds, dict(nodes), report
        self._commands: dict[int, Frame] = {}
        self._begins = 0.0

    def configure_train(
        self,
        server_round: int,  # noqa: ARG002 - counted by the rounds themselves
        arrays: ArrayRecord,  # noqa: ARG002 - a copy of what the rounds have
        config: ConfigRecord,  # noqa: ARG002 - commands have all that clients need
        grid: Grid,  # noqa: ARG002 - nodes are chosen before the first round
    ) -> Iterable[Message]:
        """Plan and begin a round; return a message for each cluster that plays."""
        self._begins = time.monotonic()
        self._commands = self._rounds.begin_round()
        return [
            Message(records_of(frame), dst_node_id=self._nodes[n], message_type="train")
            for n, frame in self._commands.items()
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Merge the updates.

        Raises:
            ExecutionError: If a client has failed, or an update is missing.
            FrameError: If an update is damaged, or does not fit.
        """
        clusters = {node: n for n, node in self._nodes.items()}
        updates: dict[int, Frame] = {}
        failed: list[str] = []
        for reply in replies:
            n = clusters[reply.metadata.src_node_id]
            if reply.has_error():
                failed.append(f"cluster {n}: {reply.error.reason}")
            else:
                updates[n] = frame_of(reply.content, "update")
        if failed:
            raise ExecutionError(f"round {server_round} failed in {'; '.join(sorted(failed))}"[:2000])
        _, result = self._rounds.end_round(updates)
        priced = self._rounds.priced_bits()
        figures = RoundFigures(
            round=server_round,
            loss=result["train_loss"],
            delay_s=float(result["delay_s"]),
            down_bytes=payload_bytes(self._commands),
            up_bytes=payload_bytes(updates),
            priced_down_bytes=priced.broadcast / 8,
            priced_up_bytes=priced.upload / 8 * sum(bool(update.arrays) for update in updates.values()),
            beside_bytes=sum(self._rounds.take_beside()),
            wall_s=time.monotonic() - self._begins,
        )
        self._report(figures)
        metrics = MetricRecord({"delay_s": figures.delay_s})
        if figures.loss is not None:
            metrics["train_loss"] = figures.loss
        return array_record(self._rounds.model_arrays()), metrics

    def configure_evaluate(
        self,
        server_round: int,  # noqa: ARG002 - nothing is evaluated at the clients
        arrays: ArrayRecord,  # noqa: ARG002
        config: ConfigRecord,  # noqa: ARG002
        grid: Grid,  # noqa: ARG002
    ) -> Iterable[Message]:
        """Return no messages: the server evaluates, as clients have no head."""
        return ()

    def aggregate_evaluate(
        self,
        server_round: int,  # noqa: ARG002 - nothing was asked
        replies: Iterable[Message],  # noqa: ARG002
    ) -> MetricRecord | None:
        """Return no metrics."""
        return None

    def summary(self) -> None:
        """Log the clusters and their nodes."""
        log(INFO, "\t└──> clusters and their nodes: %s", self._nodes)
