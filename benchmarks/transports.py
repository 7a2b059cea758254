"""One-way time of a frame over TCP between two processes of an execution, and the streaming rate.

A frame goes to the other process and back; half of that is its one-way time, given as the median with the 5th
and 95th percentiles. Streaming sends frames one after the other until the last one is answered. Run::

    python benchmarks/transports.py
    python benchmarks/transports.py --sizes 4096 1048576 --seconds 5
"""

from __future__ import annotations

import multiprocessing
import queue
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
from measuring import BenchmarkOptions, Between, Figure, command, publish

from collapipe_env.execution.frames import Frame, Tag
from collapipe_env.execution.transport.tcp import Address, TcpEndpoint

WHAT = "one way of a frame between two processes on this machine"
PATIENCE_S = 60.0
STREAMED_BYTES = 2**28
MOST_STREAMED = 2000
WARM_UP = 20


@dataclass(frozen=True)
class Options(BenchmarkOptions):
    """All options."""

    sizes: Annotated[tuple[int, ...], Between(1, 2**28)] = (4096, 65_536, 1_048_576, 4_194_304)
    """Bytes of a frame's array."""
    seconds: Annotated[float, Between(0.01, 600)] = 3.0
    """Time for the round trips of each size."""
    slices: Annotated[int, Between(1, 100)] = 3
    """Turns that round trips and streaming take."""


def echo(token: str, parent: Address, told: Any) -> None:
    """Answer a frame of the parent with the same frame, and the last one of a stream with an empty one."""
    mine = TcpEndpoint("child", token=token)
    mine.connect({"parent": parent})
    over: queue.SimpleQueue[None] = queue.SimpleQueue()

    def on_frame(peer: str, frame: Frame) -> None:
        if frame.kind == "there":
            mine.send(peer, frame)
        elif frame.kind == "last":
            mine.send(peer, Frame("there"))

    mine.listen(on_frame, lambda *_: over.put(None))
    told.send(mine.address)
    told.recv()
    mine.close()


class Link:
    """This side of two processes that are connected."""

    def __init__(self) -> None:
        token, context = secrets.token_hex(16), multiprocessing.get_context("spawn")
        self._mine = TcpEndpoint("parent", token=token)
        self._came: queue.SimpleQueue[Frame] = queue.SimpleQueue()
        self._told, theirs = context.Pipe()
        self._process = context.Process(target=echo, args=(token, self._mine.address, theirs), daemon=True)
        self._process.start()
        self._mine.listen(lambda _, frame: self._came.put(frame), lambda *_: None)
        self._mine.connect({"child": self._told.recv()})

    def there_and_back(self, array: np.ndarray[Any, Any]) -> float:
        """Time of a frame to the other process and back [s]."""
        begun = time.perf_counter()
        self._mine.send("child", Frame("there", arrays={"x": array}))
        self._came.get(timeout=PATIENCE_S)
        return time.perf_counter() - begun

    def stream(self, array: np.ndarray[Any, Any], count: int) -> float:
        """Time until frames that are sent one after the other have arrived [s]."""
        begun = time.perf_counter()
        for number in range(count):
            kind = "last" if number == count - 1 else "next"
            self._mine.send("child", Frame(kind, Tag(step=number), arrays={"x": array}))
        self._came.get(timeout=PATIENCE_S)
        return time.perf_counter() - begun

    def close(self) -> None:
        """End the other process."""
        self._told.send(None)
        self._mine.close()
        self._process.join()


def repeated(once: Callable[[], float], seconds: float) -> list[float]:
    """Results of a function that is called again and again for some time."""
    ends = time.perf_counter() + seconds
    found: list[float] = []
    while time.perf_counter() < ends or not found:
        found.append(once())
    return found


def measured(options: Options, link: Link) -> list[Figure]:
    """Figures of all sizes."""
    figures = []
    for size in options.sizes:
        array = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
        count = max(1, min(MOST_STREAMED, STREAMED_BYTES // size // options.slices))
        ways: list[float] = []
        rates: list[float] = []
        for _ in range(WARM_UP):
            link.there_and_back(array)
        for _ in range(options.slices):
            ways += repeated(partial(link.there_and_back, array), options.seconds / options.slices)
            rates.append(count * size / link.stream(array, count) / 1e6)
        low, middle, high = np.percentile(ways, [5, 50, 95]) / 2 * 1e3
        figures.append(Figure(f"{size:,} bytes, one way", middle, "ms", low, high))
        rate = float(np.median(rates))
        figures.append(Figure(f"{size:,} bytes, streamed", rate, "MB/s", min(rates), max(rates)))
    return figures


def run(options: Options) -> None:
    """Measure, and publish."""
    link = Link()
    try:
        figures = measured(options, link)
    finally:
        link.close()
    publish(options, WHAT, figures)


main = partial(command, Options, run, __doc__)

if __name__ == "__main__":
    sys.exit(main())
