"""The logger of a training: TensorBoard's curves, which Ctrl-C and SIGTERM cannot leave locked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stable_baselines3.common.logger import KVWriter, Logger, TensorBoardOutputFormat

from collapipe_env.ground.interrupts import uninterrupted

from .tracking import Tracker, tracking_writer


class _Curves(Logger):
    """Logger that is never interrupted while a writer's thread shares a lock with this one.

    TensorBoard passes what it writes to a thread. A signal's exception in the middle of that may leave their
    common lock taken, and closing the file would then wait for ever. Trackers have threads too.
    """

    def dump(self, step: int = 0) -> None:
        with uninterrupted():
            super().dump(step)

    def close(self) -> None:
        with uninterrupted():
            super().close()


def write_at_once(logger: Logger, values: Mapping[str, float], step: int) -> None:
    """Write values at their own step, whatever else waits for the algorithm's next."""
    with uninterrupted():
        for output in logger.output_formats:
            output.write(dict(values), dict.fromkeys(values, ()), step)


def curves_logger(
    folder: Path, track: Tracker | None = None, told: Mapping[str, Any] | None = None
) -> Logger:
    """Build the logger of a training.

    Args:
        folder: Folder for TensorBoard's files, made if missing; a tracker's files lie beside it.
        track: Tracker that receives the same numbers.
        told: Plain values that describe the training, for the tracker.

    Raises:
        CollaPipeError: If the tracker is not installed, or cannot start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    writers: list[KVWriter] = []
    if track is not None:
        writers.append(tracking_writer(track, folder.parent / "tracking", told or {}))
    return _Curves(str(folder), [TensorBoardOutputFormat(str(folder)), *writers])
