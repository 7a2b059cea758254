"""Notes of what an endpoint hands on, for tests that wait for it."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

from collapipe_env.execution.frames import Frame

TOKEN = "a token of the tests"
PATIENCE_S = 60.0
"""Far above any wait that ends."""


class Notes:
    """Frames and losses in the order in which an endpoint handed them on."""

    def __init__(self, endpoint, on_frame: Callable[[str, Frame], None] | None = None) -> None:
        self.changed = threading.Condition()
        self.all: list[tuple[str, str]] = []
        self.frames: list[tuple[str, Frame]] = []
        self.lost: list[tuple[str, str]] = []
        self.then = on_frame
        endpoint.listen(self.frame, self.loss)

    def frame(self, peer: str, frame: Frame) -> None:
        if self.then is not None:
            self.then(peer, frame)
        with self.changed:
            self.frames.append((peer, frame))
            self.all.append(("frame", peer))
            self.changed.notify_all()

    def loss(self, peer: str, reason: str) -> None:
        with self.changed:
            self.lost.append((peer, reason))
            self.all.append(("lost", peer))
            self.changed.notify_all()

    def until(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds."""
        with self.changed:
            assert self.changed.wait_for(condition, PATIENCE_S), (self.all, self.lost)

    def until_frames(self, count: int) -> list[Frame]:
        self.until(lambda: len(self.frames) >= count)
        return [frame for _, frame in self.frames]

    def until_lost(self, count: int = 1) -> list[tuple[str, str]]:
        self.until(lambda: len(self.lost) >= count)
        return self.lost


def transport_threads() -> list[threading.Thread]:
    """Threads of endpoints that are alive."""
    return [thread for thread in threading.enumerate() if thread.name.endswith("-transport")]


def require_no_transport_threads() -> None:
    """See that no thread of an endpoint is left; one that closed its endpoint itself may still be ending."""
    for thread in transport_threads():
        thread.join(PATIENCE_S)
    assert transport_threads() == []


def open_sockets() -> int:
    """Number of this process's sockets, where the system tells; else 0."""
    folder = Path("/proc/self/fd")
    count = 0
    for entry in folder.iterdir() if folder.is_dir() else ():
        try:
            count += os.readlink(entry).startswith("socket:")
        except OSError:  # closed meanwhile: the one of this listing
            continue
    return count
