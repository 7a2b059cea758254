"""A process with an endpoint, for tests that stop or kill it.

Its arguments are its name, the host and port of its parent, and what it does: ``echo`` sends every frame of
its parent back, ``flood`` sends numbered frames until it ends. Its own address is in its first frame. It ends
with its parent.
"""

import os
import sys
import threading

import numpy as np

from collapipe_env.execution.frames import Frame, Tag
from collapipe_env.execution.transport.tcp import TcpEndpoint


def main() -> None:
    name, host, port, work = sys.argv[1:]
    endpoint = TcpEndpoint(name, token=os.environ["TOKEN"])
    endpoint.connect({"parent": (host, int(port))})
    ended = threading.Event()

    def on_frame(peer: str, frame: Frame) -> None:
        if frame.kind == "stop":
            ended.set()
        elif work == "echo" and peer == "parent":
            endpoint.send(peer, frame)

    endpoint.listen(on_frame, lambda *_: ended.set())
    endpoint.send("parent", Frame("ready", meta={"address": endpoint.address}))
    endpoint.send("parent", Frame("heartbeat"))
    number = 0
    while work == "flood" and not ended.is_set():
        endpoint.send("parent", Frame("flood", Tag(step=number), arrays={"x": np.full(5000, number)}))
        number += 1
    ended.wait()
    endpoint.close()


if __name__ == "__main__":
    main()
