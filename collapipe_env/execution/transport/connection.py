"""Connections: the two ends of a TCP connection that carries frames in one direction [X].

Only the side that has connected sends frames. The other direction carries the handshake, a goodbye, and the
news that the other process has gone, which the sender learns without sending anything.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

from collapipe_env.execution.frames import FrameError, Limits, StreamEndedError, read_frame
from collapipe_env.execution.transport import BYE, OnFrame, TransportError
from collapipe_env.execution.transport.handshake import WORDS, Hello, HungUpError, reader, say
from collapipe_env.ground.errors import reason

StartThread = Callable[[Callable[[], None]], threading.Thread]

_WITHOUT_WAITING: int | None = getattr(socket, "MSG_DONTWAIT", None)
"""Flag of a send that takes only what fits; Windows has none."""
_RETRY_S = 0.1
FAILURES = (OSError, FrameError, TransportError)
"""Errors by which a connection ends."""


class Outgoing:
    """Connection on which this side sends frames.

    Frames wait in a queue until the connection is made, and while the other side does not read. Otherwise
    the calling thread sends them, so that no other thread needs to wake up.
    """

    def __init__(
        self,
        connect: Callable[[socket.socket], None],
        deadline: float,
        family: socket.AddressFamily,
        on_end: Callable[[Outgoing, str | None], None],
        start: StartThread,
    ) -> None:
        """Begin to connect, in a thread.

        Args:
            connect: Connects a socket and goes through the handshake; raises one of :data:`FAILURES`.
            deadline: Moment of ``time.monotonic`` from which no further connection is tried.
            on_end: Called once when the connection has ended: with the reason, or ``None`` if one side ended
                it on purpose.
        """
        self._connect = connect
        self._on_end = on_end
        self._start = start
        self._deadline, self._family = deadline, family
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._changed = threading.Condition()
        self._queue: deque[bytes | memoryview] = deque()
        self._open = self._busy = self._finishing = self._ended = False
        self._start(self._write)

    def send(self, content: bytes) -> None:
        """Send bytes after all that were sent before; they vanish if the connection has ended."""
        with self._changed:
            if self._ended or self._finishing:
                return
            left: bytes | memoryview = content
            if self._open and not self._busy and not self._queue:
                left = self._sent_at_once(content)
            if len(left):
                self._queue.append(left)
                self._changed.notify_all()

    def finish(self) -> None:
        """End the connection with a goodbye after everything in the queue; return at once."""
        with self._changed:
            self._finishing = True
            self._changed.notify_all()

    def abort(self) -> None:
        """End the connection at once; a send that the other side holds up ends with it."""
        self._end(None)

    def _sent_at_once(self, content: bytes) -> bytes | memoryview:
        """Send what fits, and return what is left."""
        if _WITHOUT_WAITING is None:
            return content
        try:
            return memoryview(content)[self._socket.send(content, _WITHOUT_WAITING) :]
        except BlockingIOError:
            return content
        except OSError:  # the thread that reads learns of it too, and reports it
            return b""

    def _write(self) -> None:
        """Connect, and send what is queued until the end; then close the socket."""
        watcher: threading.Thread | None = None
        try:
            self._be_connected()
            watcher = self._start(self._watch)
            with self._changed:
                self._open = True
            while (content := self._next()) is not None:
                self._socket.sendall(content)
            with self._changed:
                ended = self._ended
            if not ended:
                say(self._socket, BYE)
                self._socket.shutdown(socket.SHUT_WR)
        except Exception as error:  # whatever it is, the peer must be reported
            self._end(said(error))
        finally:
            # The socket is closed once no thread uses it: its number may be given to another at once.
            if watcher is not None:
                watcher.join()
            self._end(None)
            self._socket.close()

    def _be_connected(self) -> None:
        """Connect; again and again if the other side hangs up, as it does where too many strangers wait."""
        while True:
            try:
                self._connect(self._socket)
            except (HungUpError, ConnectionResetError, BrokenPipeError):
                with self._changed:
                    ended = self._changed.wait_for(lambda: self._ended, _RETRY_S)
                    if ended or time.monotonic() >= self._deadline:
                        raise
                    self._socket.close()
                    self._socket = socket.socket(self._family, socket.SOCK_STREAM)
            else:
                return

    def _next(self) -> bytes | memoryview | None:
        """Return the next bytes to send; ``None`` at the end."""
        with self._changed:
            self._busy = False
            self._changed.wait_for(lambda: self._queue or self._finishing or self._ended)
            if self._ended or not self._queue:
                return None
            self._busy = True
            return self._queue.popleft()

    def _watch(self) -> None:
        """Wait for the other side's goodbye, or its end."""
        try:
            frame = read_frame(reader(self._socket), WORDS)
            self._end(None if frame.kind == BYE else f"sent {frame.kind!r} where only its goodbye may come")
        except StreamEndedError:
            with self._changed:
                finishing = self._finishing
            self._end(None if finishing else "closed the connection")
        except FAILURES as error:
            self._end(said(error))

    def _end(self, why: str | None) -> None:
        with self._changed:
            if self._ended:
                return
            self._ended = True
            self._queue.clear()
            self._changed.notify_all()
        cut(self._socket)
        self._on_end(self, why)


class Incoming:
    """Connection on which this side receives frames."""

    def __init__(self, connection: socket.socket) -> None:
        """Take an accepted connection; the caller of :meth:`serve` closes it afterwards."""
        self._socket = connection
        self._lock = threading.Lock()
        self._ended = self._finished = False

    def serve(self, hello: Hello, on_frame: OnFrame, limits: Limits) -> str | None:
        """Pass on frames until the connection ends.

        Args:
            hello: The other side's account of itself.
            on_frame: Called with the frames.
            limits: Sizes that they may have.

        Returns:
            The reason of the end; ``None`` if one side ended it on purpose.
        """
        read = reader(self._socket)
        try:
            while (frame := read_frame(read, limits)).kind != BYE:
                on_frame(hello.name, frame)
        except StreamEndedError:
            return None if self._over() else "closed the connection"
        except Exception as error:  # whatever it is, even lack of memory, the peer must be reported
            return None if self._over() else said(error)
        return None

    def finish(self) -> None:
        """Say goodbye to the other side, which ends the connection; return at once."""
        with self._lock:
            if not self._ended and not self._finished:
                self._finished = True
                with contextlib.suppress(OSError):
                    say(self._socket, BYE)
                    self._socket.shutdown(socket.SHUT_WR)

    def abort(self) -> None:
        """End the connection at once."""
        with self._lock:
            if not self._ended:
                self._ended = True
                cut(self._socket)

    def close(self) -> None:
        """Close the socket."""
        with self._lock:
            self._ended = True
            self._socket.close()

    def _over(self) -> bool:
        """Whether this side has ended the connection."""
        with self._lock:
            return self._ended or self._finished


def cut(connection: socket.socket) -> None:
    """Shut a socket down, which wakes threads that wait for it."""
    with contextlib.suppress(OSError):  # it may not be connected
        connection.shutdown(socket.SHUT_RDWR)


def said(error: BaseException) -> str:
    """Return why a connection has ended, for the report of its peer's loss."""
    if isinstance(error, TimeoutError):
        return "did not answer in time"
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "closed the connection"
    return reason(error)
