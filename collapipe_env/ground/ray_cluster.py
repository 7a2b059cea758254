"""Connection to Ray: one that is started on this machine, or a cluster that asks for a token [X]."""

from __future__ import annotations

import contextlib
import functools
import importlib
import ipaddress
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from collapipe_env.ground.errors import CollaPipeError, shown

AUTH_MODE = "RAY_AUTH_MODE"
"""Variable that turns Ray's token authentication on."""
TOKENS = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"}
"""Variables that hold or name a token."""
NODE_ID = "ray.io/node-id"
"""Label that Ray itself gives to each of its nodes."""
PROBE_S = 60.0
"""Longest time until every machine of a cluster has answered [s]."""
USUAL = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # Ray's own default is 15, and a nice process is late
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # of calls whose results nobody wants any more
}
"""Variables of Ray where the user's environment does not say otherwise; its processes inherit them."""
GUARD = """
import contextlib, os, signal, sys
held = []
for pid in sys.argv[1:]:
    with contextlib.suppress(OSError):
        held.append(os.pidfd_open(int(pid)))
print(flush=True)
sys.stdin.read()
for process in held:
    with contextlib.suppress(OSError):
        signal.pidfd_send_signal(process, signal.SIGKILL)
"""
"""Kills processes when its input ends. Some of Ray's would outlive a killed driver by a minute."""


class RayCluster:
    """Connection to Ray. A Ray that is started here can be reached from this machine only.

    Attributes:
        ray: The library.
        several: Whether there may be several machines.

    Args:
        address: Address of a running cluster; ``None`` to start a Ray here. A connection that this process
            has already made is used instead.
        options: Further arguments of ``ray.init``, for a Ray that is started here.
        option: The option that needs Ray, for an error.

    Raises:
        CollaPipeError: If Ray is not installed, cannot be started or reached, or is reachable from other
            machines without a token.
    """

    def __init__(self, address: str | None, options: Mapping[str, Any], option: str) -> None:
        self.ray = require_ray(option)
        self._guard: subprocess.Popen[bytes] | None = None
        self._owned = not self.ray.is_initialized()
        self.several = address is not None or not self._owned
        others = _children()
        if self._owned:
            self._connect(address, options)
        try:
            if not self.several:
                self._guard = _guard(_children() - others)
            self._require_token()
        except BaseException:
            self.close()
            raise

    def _connect(self, address: str | None, options: Mapping[str, Any]) -> None:
        for name, value in USUAL.items():
            os.environ.setdefault(name, value)
        own = address is None and not TOKENS & os.environ.keys()
        if own:  # otherwise Ray keeps one in a file, which other users may be able to read
            os.environ["RAY_AUTH_TOKEN"] = _own_token()
        before, constants = signal.getsignal(signal.SIGTERM), self.ray._private.ray_constants
        clusters = constants.ENABLE_RAY_CLUSTER
        here = {} if address else {"num_cpus": 1, "include_dashboard": False, **options}
        try:
            if address == "auto":  # what Ray itself would take
                address = self.ray._private.services.get_ray_address_from_environment(address, None)
            if _is_open(address):  # Ray would try a wrong token for a long time, too
                self.ray._raylet.GcsClient(address=address)
            # Otherwise a Ray on this machine listens at all its addresses.
            constants.ENABLE_RAY_CLUSTER = clusters and address is not None
            self.ray.init(
                address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **here
            )
            # Otherwise it prints a paragraph for every process that ends by itself.
            self.ray._private.worker.print_to_stdstream = _silence
        except Exception as error:  # of many kinds, for a wrong or silent address
            if address:
                raise CollaPipeError(
                    f"there is no Ray cluster to use at {shown(address)} ({first_line(error)}): start Ray on "
                    "every machine, this one included, with 'ray start', give the address of the first one, "
                    f"and with {AUTH_MODE}=token let all have the same ~/.ray/auth_token"
                ) from None
            raise CollaPipeError(f"Ray cannot be started here ({first_line(error)})") from None
        finally:
            if own:  # Ray's processes have inherited it
                del os.environ["RAY_AUTH_TOKEN"]
            constants.ENABLE_RAY_CLUSTER = clusters
            # Ray ends the process on SIGTERM; here it is another Ctrl-C.
            with contextlib.suppress(ValueError, TypeError):  # not the main thread; no handler of Python's
                signal.signal(signal.SIGTERM, before)

    def nodes(self) -> list[Any]:
        """Return Ray's account of each machine that is there."""
        return [node for node in self.ray.nodes() if node["Alive"]]

    def _require_token(self) -> None:
        """Refuse a cluster that other machines can reach and that asks for no token.

        Raises:
            CollaPipeError: If it is one, or a machine does not answer.
        """
        nodes = [node for node in self.nodes() if not _is_loopback(node["NodeManagerAddress"])]
        asked = self.ray.remote(num_cpus=0, max_retries=0)(_auth_mode)
        modes = [asked.options(label_selector={NODE_ID: node["NodeID"]}).remote() for node in nodes]
        try:
            found = self.ray.get(modes, timeout=PROBE_S)
        except self.ray.exceptions.RayError as error:
            raise CollaPipeError(
                f"a machine of the Ray cluster cannot run this package ({first_line(error)}): install the "
                "same versions of Python, ray and collapipe-env on all machines"
            ) from None
        open_ = sorted(
            node["NodeManagerAddress"] for node, mode in zip(nodes, found, strict=True) if mode != "token"
        )
        if open_:
            raise CollaPipeError(
                f"the Ray at {', '.join(open_)} can be reached from other machines and asks for no token, so "
                f"everybody there could run code here: start Ray with {AUTH_MODE}=token on every machine, "
                "with the same ~/.ray/auth_token (ray get-auth-token --generate)"
            )

    def close(self) -> None:
        """Disconnect; a Ray that was started here ends."""
        if self._owned:
            self.ray.shutdown()
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None


def require_ray(option: str) -> Any:
    """Return the library Ray.

    Args:
        option: The option that needs it, for the error.

    Raises:
        CollaPipeError: If it is not installed.
    """
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise CollaPipeError(
            f"{option} needs the package ray, which is not installed: pip install 'collapipe-env[ray]'"
        ) from None
    return ray


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text; of a refused token, without Ray's own advice."""
    return str(getattr(error, "message", error)).strip().partition("\n")[0]


def _children() -> set[int]:
    """Return the processes below this one."""
    psutil = importlib.import_module("psutil")  # comes with Ray
    return {child.pid for child in psutil.Process().children(recursive=True)}


def _guard(pids: set[int]) -> subprocess.Popen[bytes] | None:
    """Start a process that kills others if this one is killed; on Linux only."""
    if sys.platform != "linux":
        return None
    guard = subprocess.Popen(  # noqa: S603 - Python, with a text of this file and numbers
        [sys.executable, "-I", "-S", "-c", GUARD, *map(str, pids)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for this process
    )
    assert guard.stdout is not None
    guard.stdout.readline()
    return guard


@functools.cache
def _own_token() -> str:
    """Return the token of this process, which Ray reads only once."""
    return secrets.token_hex(32)


def _silence(*_: Any, **__: Any) -> None:
    """Print nothing."""


def _auth_mode() -> str:
    """Return how Ray authenticates on the machine that runs this."""
    return os.environ.get(AUTH_MODE, "").lower()


def _is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address. Any name but ``localhost`` counts as reachable."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_open(address: str | None) -> bool:
    """Whether an address is host and port, where somebody listens; Ray would try others for minutes.

    Raises:
        OSError: If nobody does.
    """
    host, colon, port = (address or "").rpartition(":")
    if not (colon and port.isdecimal() and "/" not in host):
        return False
    socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    return True
