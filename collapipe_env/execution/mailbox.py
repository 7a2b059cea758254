"""Mailbox: frames by kind and tag, and waits for them that a failure releases [X].

Frames may arrive before anybody waits for them, and in any order. After a failure everything that belongs to
the failed attempt is cancelled: its waits end with an error, and its frames are dropped, even those still on
their way. So connections stay open, and no receive is ever interrupted.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from collapipe_env.execution.frames import Frame, Tag

Wanted = tuple[str, Tag]
"""Kind and tag of an awaited frame."""
Attempt = tuple[int, int]
"""Round and attempt."""


class Cancelled(Exception):  # noqa: N818 -- no error: the attempt goes on elsewhere
    """A wait belongs to an attempt that was cancelled.

    Attributes:
        round: Round that was cancelled last.
        attempt: Attempt at that round that was cancelled last; this and everything before it has ended.
    """

    def __init__(self, round: int, attempt: int) -> None:
        super().__init__(round, attempt)
        self.round = round
        self.attempt = attempt

    def __str__(self) -> str:
        return f"attempt {self.attempt} at round {self.round} was cancelled"


class Mailbox:
    """Frames that have arrived, each for the first caller that waits for its kind and tag.

    All methods may be called from any thread. Frames of one kind and tag are handed out in the order in which
    they arrived.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._frames: dict[Wanted, deque[Frame]] = {}
        self._cancelled: Attempt | None = None
        self._error: BaseException | None = None
        self._waits: dict[int, tuple[Wanted, ...]] = {}
        """Frames that waiting threads want, by number of the wait."""
        self._next_wait = 0

    @property
    def cancelled(self) -> Attempt | None:
        """Round and attempt that were cancelled last; ``None`` before the first."""
        with self._changed:
            return self._cancelled

    def put(self, frame: Frame) -> bool:
        """Keep a frame for whoever waits for it, now or later.

        Returns:
            Whether it was kept; ``False`` if its attempt was cancelled, or the mailbox has failed.
        """
        with self._changed:
            if self._error is not None or self._over(frame.tag):
                return False
            self._frames.setdefault((frame.kind, frame.tag), deque()).append(frame)
            self._changed.notify_all()
            return True

    def wait(self, kind: str, tag: Tag, timeout: float | None = None) -> Frame:
        """Return the next frame of a kind and tag, and wait for it if need be.

        Args:
            timeout: Longest wait [s]; without end if ``None``.

        Raises:
            Cancelled: If its attempt was cancelled, before or while it was waited for.
            TimeoutError: If it has not arrived in time.
            BaseException: The error of :meth:`fail`, if the mailbox has failed.
        """
        return self.wait_any([(kind, tag)], timeout)

    def wait_any(self, wanted: Sequence[Wanted], timeout: float | None = None) -> Frame:
        """Return one of several frames that is here, and wait for one if need be.

        Args:
            wanted: Kinds and tags in order of preference, which decides if several have arrived.
            timeout: Longest wait [s]; without end if ``None``.

        Raises:
            Cancelled: If the attempt of one of them was cancelled, before or while they were waited for.
            TimeoutError: If none has arrived in time.
            ValueError: If ``wanted`` is empty.
            BaseException: The error of :meth:`fail`, if the mailbox has failed.
        """
        keys = tuple((kind, Tag(*tag)) for kind, tag in wanted)
        if not keys:
            raise ValueError("no frame is waited for: name at least one kind and tag")
        with self._changed:
            return self._take(self._first(keys, timeout))

    def await_frame(self, kind: str, tag: Tag) -> None:
        """Wait until a frame of a kind and tag is here, without taking it.

        Raises:
            Cancelled: If its attempt was cancelled, before or while it was waited for.
            BaseException: The error of :meth:`fail`, if the mailbox has failed.
        """
        with self._changed:
            self._first(((kind, Tag(*tag)),), None)

    def cancel(self, round: int, attempt: int) -> None:
        """Drop all frames and end all waits of an attempt and of those before it, now and in future.

        Args:
            attempt: The attempt at the round. Earlier rounds, and earlier attempts at this round, are
                cancelled with it; a later cancellation of an earlier attempt changes nothing.
        """
        with self._changed:
            if self._cancelled is not None and self._cancelled >= (round, attempt):
                return
            self._cancelled = (round, attempt)
            self._frames = {key: frames for key, frames in self._frames.items() if not self._over(key[1])}
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """End all waits, present and future, with an error.

        Args:
            error: The error that waits raise; the first one stays.
        """
        with self._changed:
            if self._error is None:
                self._error = error
                self._frames.clear()
                self._changed.notify_all()

    def waits(self) -> list[tuple[Wanted, ...]]:
        """Return the frames awaited at this moment, the earliest wait first."""
        with self._changed:
            return list(self._waits.values())

    def peek(self, kind: str, tag: Tag) -> Frame | None:
        """Return the next frame of a kind and tag without taking it; ``None`` where there is none."""
        with self._changed:
            frames = self._frames.get((kind, Tag(*tag)))
            return frames[0] if frames else None

    def held(self) -> list[Wanted]:
        """Return kinds and tags of the frames that nobody has taken yet."""
        with self._changed:
            return [key for key, frames in self._frames.items() for _ in frames]

    def _first(self, keys: tuple[Wanted, ...], timeout: float | None) -> Wanted:
        """Wait for one of several frames; return kind and tag of the first in ``keys`` that is here."""
        number, self._next_wait = self._next_wait, self._next_wait + 1
        self._waits[number] = keys
        try:
            if not self._changed.wait_for(lambda: self._ends(keys), timeout):
                raise TimeoutError(f"no frame has arrived in {timeout:g} s: {_listed(keys)}")
            if self._error is not None:
                raise self._error
            if self._cancelled is not None and any(self._over(tag) for _, tag in keys):
                raise Cancelled(*self._cancelled)
            return next(key for key in keys if key in self._frames)
        finally:
            del self._waits[number]

    def _over(self, tag: Tag) -> bool:
        """Whether a tag belongs to a cancelled attempt."""
        return self._cancelled is not None and (tag.round, tag.attempt) <= self._cancelled

    def _ends(self, keys: tuple[Wanted, ...]) -> bool:
        """Whether a wait can end."""
        return (
            self._error is not None
            or any(key in self._frames for key in keys)
            or any(self._over(tag) for _, tag in keys)
        )

    def _take(self, key: Wanted) -> Frame:
        frames = self._frames[key]
        frame = frames.popleft()
        if not frames:
            del self._frames[key]
        return frame


def _listed(keys: tuple[Wanted, ...]) -> str:
    """Return awaited frames as messages show them."""
    named = [
        f"{kind} of round {tag.round}, attempt {tag.attempt}, step {tag.step}, place {tag.place}, "
        f"micro-batch {tag.micro_batch}"
        for kind, tag in keys[:3]
    ]
    return "; ".join(named) + (f"; and {len(keys) - 3} more" if len(keys) > 3 else "")
