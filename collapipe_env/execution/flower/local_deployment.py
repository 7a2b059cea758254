"""Deployment of Flower on this machine: a SuperLink, a SuperNode for each cluster, and a run [X]."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from collapipe_env.execution.flower.round_figures import unpacked
from collapipe_env.execution.flower.settings import FAILED_FILE, RESULT_FILE, WEIGHTS_FILE
from collapipe_env.execution.joining import ExecutionError
from collapipe_env.execution.parts import Arrays
from collapipe_env.files import read_json, write_text

PROGRAMS = (
    "flower-superlink",
    "flower-supernode",
    "flower-superexec",
    "flwr-serverapp",
    "flwr-clientapp",
    "flwr",
)
"""Programs of Flower that a deployment needs."""
REMEDY = "start over with another --out"
_SILENT = {
    # Nothing is reported, looked up or installed over the network.
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "OMP_NUM_THREADS": "1",
}
_HOST = "127.0.0.1"
_START_S = 60.0
_STOP_S = 10.0
_LOOK_S = 0.2

PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "collapipe-federation"
version = "1.0.0"
description = "CollaPipe's rounds with Flower as their carrier"
license = "MIT"
dependencies = []  # collapipe-env is installed beside Flower

[tool.flwr.app]
publisher = "collapipe-env"

[tool.flwr.app.components]
serverapp = "collapipe_federation.apps:server"
clientapp = "collapipe_federation.apps:client"

[tool.flwr.app.config]
scenario = "small"
scheduler = "dssra"
seed = 0
rounds = 3
bind = "127.0.0.1:0"
token-file = ""
out = ""
patience = 600.0
"""
APPS = '''\
"""Apps of the installed package collapipe-env."""

from collapipe_env.execution.flower.apps import client, server

__all__ = ["client", "server"]
'''


def write_app(folder: Path) -> None:
    """Write the Flower app that ``flwr run`` takes: the package's own apps by name, and their settings.

    Args:
        folder: Folder of the app.
    """
    write_text(folder / "pyproject.toml", PROJECT)
    write_text(folder / "collapipe_federation" / "__init__.py", '"""Flower app of collapipe-env."""\n')
    write_text(folder / "collapipe_federation" / "apps.py", APPS)


def require_flower() -> str:
    """Return the search path by which Flower's programs are found, this environment's first.

    Raises:
        ExecutionError: If some are missing.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        raise ExecutionError(
            f"Flower is not installed here ({', '.join(missing)} missing): "
            "pip install 'collapipe-env[flower]'"
        )
    return path


class LocalDeployment:
    """Flower's processes on this machine, all at 127.0.0.1 and without TLS.

    Leaving the context ends all of them.

    Args:
        folder: Folder of the app, Flower's own files and the logs.
        clusters: Number of SuperNodes.
        token_file: Secret of the head's connections.
    """

    def __init__(self, folder: Path, clusters: int, token_file: Path) -> None:
        self._folder, self._clusters, self._token_file = folder.resolve(), clusters, token_file.resolve()
        path = require_flower()
        self._environment = {**os.environ, **_SILENT, "PATH": path, "FLWR_HOME": str(self._folder / "flower")}
        self._running: list[subprocess.Popen[bytes]] = []
        self._stack = ExitStack()
        self._port = 0

    def __enter__(self) -> LocalDeployment:
        write_app(self._folder / "app")
        (self._folder / "logs").mkdir(parents=True, exist_ok=True)
        self._port, *ports = free_ports(1 + self._clusters)
        where = f"{_HOST}:{self._port}"
        write_text(
            self._folder / "flower" / "config.toml",
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "{where}"\ninsecure = true\n',
        )
        try:
            own = ["--insecure", "--host", _HOST, "--port"]
            self._start(
                "superlink",
                ["flower-superlink", *own, str(self._port), "--disable-runtime-dependency-installation"],
            )
            self._wait_for_superlink()
            for n, port in enumerate(ports):
                node = f"cluster={n} token-file={json.dumps(str(self._token_file))}"
                command = ["flower-supernode", *own, str(port), "--superlink", where, "--node-config", node]
                self._start(f"supernode-{n}", command)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(
        self, settings: Mapping[str, Any], patience: float, heard: Callable[[Mapping[str, Any]], None]
    ) -> tuple[list[dict[str, Any]], Arrays]:
        """Run the app, and wait for its end.

        Args:
            settings: Settings of the run: ``scenario``, ``scheduler``, ``seed``, ``rounds``.
            patience: Longest wait for the whole run [s].
            heard: Called with the figures of each round.

        Returns:
            Figures of the rounds, and all weights at the end.

        Raises:
            ExecutionError: If the run has failed, a process has ended, or it takes too long.
        """
        out = self._folder / "server"
        for name in (RESULT_FILE, WEIGHTS_FILE, FAILED_FILE):
            (out / name).unlink(missing_ok=True)
        config = {
            **settings,
            "token-file": str(self._token_file),
            "out": str(out),
            "patience": float(patience),
        }
        words = " ".join(f"{name}={json.dumps(value)}" for name, value in config.items())
        submit = ["flwr", "run", str(self._folder / "app"), "here", "--run-config", words]
        deadline, seen = time.monotonic() + patience, 0
        try:
            done = subprocess.run(  # noqa: S603 - a list for flwr, no shell
                submit, env=self._environment, capture_output=True, text=True, timeout=patience, check=False
            )
        except subprocess.TimeoutExpired:
            raise ExecutionError(f"flwr run has not ended after {patience:g} s: raise --patience") from None
        if done.returncode:
            said = (done.stderr or done.stdout).strip()[-500:]
            raise ExecutionError(f"flwr run has ended with status {done.returncode}: {said}")
        while True:
            if (out / FAILED_FILE).exists():
                raise ExecutionError(f"the run has failed: {read_json(out / FAILED_FILE, REMEDY)['why']}")
            found = read_json(out / RESULT_FILE, REMEDY) if (out / RESULT_FILE).exists() else {"rounds": []}
            for row in found["rounds"][seen:]:
                heard(row)
            seen = len(found["rounds"])
            if found.get("finished"):
                return found["rounds"], unpacked((out / WEIGHTS_FILE).read_bytes())
            self._require_running()
            if time.monotonic() > deadline:
                raise ExecutionError(
                    f"the run has not ended after {patience:g} s: raise --patience, or look at {self._logs}"
                )
            time.sleep(_LOOK_S)

    def close(self) -> None:
        """End all processes, and whatever they have started."""
        running, self._running = self._running, []
        for process in running:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + _STOP_S
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(deadline - time.monotonic(), 0.1))
            # Each leads its own process group, in which its SuperExec and apps may still be running.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._stack.close()

    @property
    def _logs(self) -> Path:
        return self._folder / "logs"

    def _start(self, name: str, command: Sequence[str]) -> None:
        log = self._stack.enter_context((self._logs / f"{name}.log").open("wb"))
        program = shutil.which(command[0], path=self._environment["PATH"])
        if program is None:  # it was there when this began
            raise ExecutionError(
                f"{command[0]} is not found on PATH any more: pip install 'collapipe-env[flower]', and start "
                "over"
            )
        self._running.append(
            subprocess.Popen(  # noqa: S603 - commands of this file, no shell
                [program, *command[1:]],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        )

    def _wait_for_superlink(self) -> None:
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            self._require_running()
            try:
                socket.create_connection((_HOST, self._port), 1.0).close()
                return
            except OSError:
                time.sleep(_LOOK_S)
        raise ExecutionError(f"the SuperLink does not answer after {_START_S:g} s: look at {self._logs}")

    def _require_running(self) -> None:
        for process in self._running:
            if process.poll() is not None:
                program = Path(str(process.args[0])).name  # type: ignore[index]
                raise ExecutionError(
                    f"{program} has ended with status {process.returncode}: look at {self._logs}"
                )


def free_ports(count: int) -> list[int]:
    """Return ports of this machine that are free now.

    Args:
        count: Number of ports.
    """
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server((_HOST, 0))) for _ in range(count)]
        return [int(one.getsockname()[1]) for one in sockets]
