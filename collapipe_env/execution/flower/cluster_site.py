"""Site of a cluster: its control unit and its devices in one process that lives as long as the run.

A federated framework may start a new client process for every message. Data, moments and the order of samples
live on here; the client only brings the round's command and fetches the update, see :mod:`site_relay`.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from collapipe_env.errors import CollaPipeError
from collapipe_env.execution.clock import make_clock
from collapipe_env.execution.device import Device
from collapipe_env.execution.flower.frame_records import Arrays, with_moments, without_moments
from collapipe_env.execution.flower.site_relay import FAILED, RELAY, is_relay, read_token
from collapipe_env.execution.frames import Frame
from collapipe_env.execution.joining import ExecutionError, HeldEndpoint, make_role
from collapipe_env.execution.role import LAUNCHER, SERVER, control_unit_name, learn_addresses
from collapipe_env.execution.setting import DeviceSetting
from collapipe_env.execution.transport import Channel, OnFrame, OnLost
from collapipe_env.execution.transport.in_process import InProcessEndpoint, InProcessHub
from collapipe_env.execution.transport.tcp import Address, TcpEndpoint
from collapipe_env.scenario import Scenario, load_scenario


class SiteEndpoint:
    """Endpoint of a control unit at its site: devices in this process, the server by TCP, updates by relays.

    Attributes:
        name: Name of the control unit.

    Args:
        outside: Way to the server, the launcher and relays.
        inside: Way to the devices.
        on_command: Called with a round's command before the control unit takes it.
    """

    def __init__(self, outside: HeldEndpoint, inside: InProcessEndpoint, site: ClusterSite) -> None:
        self.name = outside.name
        self._outside, self._inside, self._site = outside, inside, site
        self._relay: str | None = None
        self._moments: Arrays = {}
        self._on_frame: OnFrame | None = None

    def connect(self, directory: dict[str, Address]) -> None:
        """Learn the addresses of peers outside."""
        self._outside.connect(directory)

    def send(self, to: str, frame: Frame, channel: Channel | None = None) -> None:
        """Send a frame to a device, the server or the launcher; an update goes to the relay that waits for it."""
        if to == SERVER and frame.kind == "update":
            update, moments = without_moments(frame)
            if not frame.meta["dropped"]:
                self._moments = moments
            self._answer(update)
        elif to in (SERVER, LAUNCHER):
            if frame.kind == "failed":
                self._answer(Frame(FAILED, frame.tag, meta=frame.meta))
            self._outside.send(to, frame, channel)
        else:
            self._inside.send(to, frame, channel)

    def listen(self, on_frame: OnFrame, on_lost: OnLost) -> None:
        """Begin to hand on frames and losses from inside and outside."""
        self._on_frame = on_frame

        def lost(peer: str, why: str) -> None:
            if not is_relay(peer):  # these come and go with every message
                on_lost(peer, why)

        self._inside.listen(on_frame, on_lost)
        self._outside.listen(self._from_outside, lost)

    def drop(self, peer: str) -> None:
        """Cut all connections with a peer."""
        (self._outside if peer in (SERVER, LAUNCHER) else self._inside).drop(peer)

    def close(self) -> None:
        """Close both ways."""
        self._inside.close()
        self._outside.close()

    def _from_outside(self, sender: str, frame: Frame) -> None:
        assert self._on_frame is not None
        if is_relay(sender) and frame.kind == RELAY:
            self._outside.connect({sender: (str(frame.meta["host"]), int(frame.meta["port"]))})
        elif frame.kind == "round":
            self._relay = sender
            self._site.prepare_devices({int(k): str(name) for k, name in frame.meta["names"].items()})
            whole = with_moments(frame, self._moments, frame.meta["lost_moments"])
            self._moments = {name: a for name, a in whole.arrays.items() if name not in frame.arrays}
            self._on_frame(sender, whole)
        else:
            self._on_frame(sender, frame)

    def _answer(self, frame: Frame) -> None:
        relay, self._relay = self._relay, None
        if relay is not None:
            self._outside.send(relay, frame)


class ClusterSite:
    """Control unit and devices of one cluster, joined to the server of a federation.

    Attributes:
        address: Host and port at which relays connect.

    Args:
        cluster: Number of the cluster, from 0.
        server: Host and port of the server.
        token: Secret of server and sites.
        bind: Host and port to listen at.
    """

    def __init__(self, cluster: int, server: Address, token: str, bind: Address = ("127.0.0.1", 0)) -> None:
        name = control_unit_name(cluster)
        self._cluster = cluster
        self._outside = HeldEndpoint(TcpEndpoint(name, bind, token))
        self._hub = InProcessHub()
        self._endpoint = SiteEndpoint(self._outside, self._hub.endpoint(name), self)
        self._server = server
        self._scenario: Scenario | None = None
        self._clock = "virtual"
        self._devices: dict[int, str] = {}
        self._threads: list[threading.Thread] = []

    @property
    def address(self) -> Address:
        """Host and port at which relays connect."""
        return self._outside.address

    def run(self, patience: float = 600.0) -> None:
        """Join, and play rounds until the server says stop.

        Args:
            patience: Longest wait for the server [s].

        Raises:
            ExecutionError: The server does not answer, or is lost.
        """
        try:
            self._outside.connect({LAUNCHER: self._server})
            host, port = self.address
            self._outside.send(LAUNCHER, Frame("join", meta={"host": host, "port": port}))
            spec = self._outside.wait("spec", patience).meta
            self._scenario, self._clock = load_scenario(spec["scenario"]), str(spec["clock"])
            role = make_role(self._outside.name, self._endpoint, spec)
            self._outside.send(LAUNCHER, Frame("ready"))
            directory = self._outside.wait("directory", patience)
            role.begin()
            learn_addresses(self._endpoint, directory)
            role.run()
        finally:
            for name in self._devices.values():
                self._hub.kill(name)
            self._endpoint.close()
            self._hub.close()

    def prepare_devices(self, names: dict[int, str]) -> None:
        """Start devices that are new, or have come back by another name.

        Args:
            names: Name of each device, by its number.
        """
        for k, name in names.items():
            if self._devices.get(k) != name:
                if k in self._devices:
                    self._hub.kill(self._devices[k])
                self._devices[k] = name
                self._start(k, name)

    def _start(self, number: int, name: str) -> None:
        assert self._scenario is not None
        setting = DeviceSetting.of(self._scenario)
        device = Device(
            self._hub.endpoint(name),
            make_clock(self._clock, 1.0),
            cluster=self._cluster,
            number=number,
            build_block=setting.build_block,
            width=setting.architecture.width,
            learning=setting.learning,
        )
        device.begin()
        thread = threading.Thread(target=device.run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a site from the command line.

    Args:
        arguments: Arguments; those of the process by default.
    """
    parser = argparse.ArgumentParser(
        prog="python -m collapipe_env.execution.flower.cluster_site",
        description="Control unit and devices of one cluster, for a federation that Flower carries.",
    )
    parser.add_argument("--cluster", type=int, required=True, help="number of the cluster, from 0")
    parser.add_argument("--server", required=True, metavar="HOST:PORT", help="address at which sites join")
    parser.add_argument("--bind", default="127.0.0.1:0", metavar="HOST:PORT", help="address for the client")
    parser.add_argument("--token-file", type=Path, required=True, help="file with the secret that all share")
    options = parser.parse_args(arguments)
    try:
        import torch

        torch.set_num_threads(1)
        token = read_token(options.token_file)
        site = ClusterSite(options.cluster, address_of(options.server), token, address_of(options.bind))
        host, port = site.address
        print(f"site of cluster {options.cluster} at {host}:{port}", flush=True)
        site.run()
    except CollaPipeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def address_of(text: str) -> Address:
    """Host and port of ``HOST:PORT``.

    Raises:
        ExecutionError: It is no address.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise ExecutionError(f"{text!r} is no address: HOST:PORT is one, such as 127.0.0.1:29500")
    return host.strip("[]"), int(port)


if __name__ == "__main__":
    sys.exit(main())
