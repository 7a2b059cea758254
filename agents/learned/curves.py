"""The logger of a training: TensorBoard's curves, which Ctrl-C and SIGTERM cannot leave locked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stable_baselines3.common.logger import Logger, TensorBoardOutputFormat

from collapipe_env.interrupts import uninterrupted


class _Curves(TensorBoardOutputFormat):
    """Curves whose writing thread is never interrupted while it shares a lock with this one.

    TensorBoard hands what it writes to a thread. A signal's exception in the midst of that may leave the lock
    between both taken, and closing the file would then wait for ever.
    """

    def write(
        self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0
    ) -> None:
        with uninterrupted():
            super().write(key_values, key_excluded, step)

    def close(self) -> None:
        with uninterrupted():
            super().close()


def curves_logger(folder: Path) -> Logger:
    """Logger that writes TensorBoard's files into a folder, which it makes where needed."""
    folder.mkdir(parents=True, exist_ok=True)
    return Logger(str(folder), [_Curves(str(folder))])
