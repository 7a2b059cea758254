"""A process with an endpoint, for tests that stop or kill it.

Its arguments are its name, the host and port of its parent, what it does, and ``gloo`` for data over gloo:
``echo`` sends every frame of its parent back, ``flood`` sends numbered frames until it ends, ``abandon`` ends
without closing anything. Its own address is in its first frame. It ends with its parent. With gloo, it begins
once its parent has told it to, as that must know its address.
"""

import os
import sys
import threading

import numpy as np

from collapipe_env.execution.frames import Frame, Tag
from collapipe_env.execution.transport.tcp import TcpEndpoint


def main() -> None:
    name, host, port, work, *by = sys.argv[1:]
    control = endpoint = TcpEndpoint(name, token=os.environ["TOKEN"])
    if by:
        from collapipe_env.execution.transport.gloo import GlooEndpoint

        endpoint = GlooEndpoint(control)
    endpoint.connect({"parent": (host, int(port))})
    begun, ended = threading.Event(), threading.Event()
    if not by:
        begun.set()

    def on_frame(peer: str, frame: Frame) -> None:
        if frame.kind == "begin":
            begun.set()
        elif frame.kind == "stop":
            ended.set()
        elif work == "echo" and peer == "parent":
            endpoint.send(peer, frame)

    endpoint.listen(on_frame, lambda *_: ended.set())
    ready = Frame("ready", meta={"address": control.address})
    endpoint.send("parent", ready, "control" if by else "data")
    begun.wait()
    endpoint.send("parent", Frame("heartbeat"))
    number = 0
    while work == "flood" and not ended.is_set():
        endpoint.send("parent", Frame("flood", Tag(step=number), arrays={"x": np.full(5000, number)}))
        number += 1
    ended.wait()
    if work != "abandon":
        endpoint.close()


if __name__ == "__main__":
    main()
