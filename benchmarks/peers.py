"""Step time of other environments beside this project's, each over the CartPole-v1 of its own interpreter.

The peers are pip packages with versions of their own: they are installed into a virtual environment of their
own, ``benchmarks/.peers``, as ``peers-requirements.txt`` pins them. One worker process in each of the two
interpreters steps single environments with random actions; all take turns in short slices. What cannot be
installed or run is skipped with the reason, and without a network only this project is measured. Run::

    python benchmarks/peers.py
    python benchmarks/peers.py --no-install --slice-seconds 1
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from measuring import (
    RESULTS,
    Contestant,
    Figure,
    SliceOptions,
    command,
    figure_table,
    listed,
    ratio_figure,
    store,
    take_turns,
)
from peer_install import install, interpreter, package_of, read_requirements

from collapipe_env.errors import CollaPipeError, ScenarioError

HERE = Path(__file__).parent
FOLDER = HERE / ".peers"
REQUIREMENTS = HERE / "peers-requirements.txt"
WORKER = HERE / "peer_worker.py"
WHAT = "time of a single environment's step with random actions over CartPole-v1's in the same interpreter"
UNIT = "x CartPole-v1"
TRIAL_CALLS = 3
"""Steps before anything is measured, to find out what does not run."""


@dataclass(frozen=True)
class Peer:
    """An environment that is measured.

    Attributes:
        row: Name in the table.
        package: Its pip package.
        id: What ``gymnasium.make`` knows it by.
        imports: Modules that register it.
        about: What it simulates.
        mine: Whether it runs in this project's interpreter.
    """

    row: str
    package: str
    id: str
    imports: tuple[str, ...]
    about: str
    mine: bool = False


def _ours(name: str, about: str) -> Peer:
    id_ = f"CollaPipeSurrogate-{name.capitalize()}-Classification-v0"
    return Peer(name, "collapipe-env", id_, ("collapipe_env",), about, mine=True)


def _mobile(name: str, about: str) -> Peer:
    return Peer(f"mobile-env {name}", "mobile-env", f"mobile-{name}-central-v0", ("mobile_env",), about)


YARDSTICKS = {
    True: Peer("CartPole-v1", "gymnasium", "CartPole-v1", (), "pole on a cart", mine=True),
    False: Peer("CartPole-v1 beside the peers", "gymnasium", "CartPole-v1", (), "pole on a cart"),
}
"""Yardstick of each interpreter, by whether it runs in this project's interpreter."""
CONTESTANTS = (
    Peer("Pendulum-v1", "gymnasium", "Pendulum-v1", (), "pendulum", mine=True),
    _ours("small", "2 clusters of 3 devices, surrogate learner"),
    _ours("medium", "4 clusters of 5 devices, surrogate learner"),
    _ours("large", "16 clusters of 8 devices, surrogate learner"),
    _ours("xlarge", "64 clusters of 16 devices, surrogate learner"),
    _mobile("small", "3 stations, 5 users"),
    _mobile("medium", "7 stations, 15 users"),
    _mobile("large", "13 stations, 30 users"),
    Peer("highway-v0", "highway-env", "highway-v0", ("highway_env",), "50 vehicles on 4 lanes"),
    Peer("highway-fast-v0", "highway-env", "highway-fast-v0", ("highway_env",), "20 vehicles on 3 lanes"),
    Peer("ANM6Easy-v0", "gym-anm", "ANM6Easy-v0", ("gym_anm",), "electricity network of 6 buses"),
    Peer(
        "EdgeEngineAware-v0",
        "edgeengine-aware",
        "EdgeEngineAware-v0",
        ("edgeengine_aware",),
        "one energy-harvesting node with a radio",
    ),
)


class PeerError(Exception):
    """An environment cannot be built or stepped.

    Args:
        peer: Which.
        reason: Why.
        died: Whether its worker ended with it.
    """

    def __init__(self, peer: Peer, reason: str, died: bool) -> None:
        super().__init__(reason)
        self.peer = peer
        self.died = died


class Worker:
    """A process that steps environments in some interpreter; see ``peer_worker.py``.

    Args:
        python: The interpreter.
    """

    def __init__(self, python: Path) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._process = subprocess.Popen(
            [str(python), str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def ask(self, peer: Peer, **request: Any) -> dict[str, Any]:
        """Send a request and wait for its reply.

        Args:
            peer: On whose behalf, for the error.
            **request: See ``peer_worker.py``.

        Raises:
            PeerError: If the worker says so, or ends.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            raise PeerError(peer, f"its process ended: {self._last_words()}", died=True)
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise PeerError(peer, str(reply["error"]), died=False)
        return reply

    def _last_words(self) -> str:
        status = self._process.wait()
        self._log.seek(0)
        lines = [line for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip() if lines else f"exit status {status}"

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()


@dataclass(frozen=True)
class Comparison:
    """Result of the comparison.

    Attributes:
        figures: One for each contestant, CartPole first.
        versions: Of each interpreter and its packages, by ``"ours"`` and ``"peers"``.
    """

    figures: list[Figure]
    versions: dict[str, dict[str, Any]]


def compare(
    interpreters: Mapping[bool, Path],
    skipped: Mapping[str, str],
    slice_seconds: float,
    repeats: int,
) -> Comparison:
    """Measure what is there, all in turns; whatever fails is left out and the rest measured anew.

    Args:
        interpreters: By whether it is this project's; the peers' may be absent.
        skipped: Reasons by package.
        slice_seconds: Length of a slice [s].
        repeats: Slices of each, >= 1.
    """
    reasons = {p.row: skipped[p.package] for p in CONTESTANTS if not p.mine and p.package in skipped}
    everyone = [YARDSTICKS[True], *([YARDSTICKS[False]] if False in interpreters else []), *CONTESTANTS]
    for peer in everyone:
        if peer.mine not in interpreters:
            reasons.setdefault(peer.row, "the peers' interpreter is not there")
    while True:
        try:
            with ExitStack() as stack:
                workers = {mine: stack.enter_context(Worker(path)) for mine, path in interpreters.items()}
                versions = {
                    "ours" if mine else "peers": _versions(worker, mine) for mine, worker in workers.items()
                }
                ready = list(_ready(workers, everyone, reasons))
                timings = take_turns([_contestant(workers, p) for p in ready], slice_seconds, repeats)
                break
        except PeerError as error:
            if error.peer in YARDSTICKS.values():
                raise
            reasons[error.peer.row] = str(error)
    found = []
    for peer in everyone:
        if peer.row in reasons:
            found.append(Figure(peer.row, None, UNIT, note=reasons[peer.row]))
            continue
        timing = timings[peer.row]
        figure = ratio_figure(peer.row, timing, timings[YARDSTICKS[peer.mine].row])
        rate = 1.0 / timing.median
        found.append(
            replace(figure, unit=UNIT, note=f"{rate:,.0f} steps/s" if rate >= 10.0 else f"{rate:.2g} steps/s")
        )
    return Comparison(found, versions)


def _versions(worker: Worker, mine: bool) -> dict[str, Any]:
    packages = {p.package for p in CONTESTANTS if p.mine is mine} | {"gymnasium", "numpy"}
    return worker.ask(YARDSTICKS[mine], do="versions", packages=sorted(packages))


def _ready(
    workers: Mapping[bool, Worker], everyone: Iterable[Peer], reasons: dict[str, str]
) -> Iterable[Peer]:
    """Build and try the environments; why one is not ready goes to the reasons."""
    for peer in everyone:
        if peer.row in reasons:
            continue
        worker = workers[peer.mine]
        try:
            worker.ask(peer, do="make", key=peer.row, imports=peer.imports, id=peer.id)
            worker.ask(peer, do="play", key=peer.row, calls=TRIAL_CALLS)
        except PeerError as error:
            if error.died or peer in YARDSTICKS.values():
                raise
            reasons[peer.row] = str(error)
            continue
        yield peer


def _contestant(workers: Mapping[bool, Worker], peer: Peer) -> Contestant:
    worker = workers[peer.mine]

    def play(calls: int) -> None:
        worker.ask(peer, do="play", key=peer.row, calls=calls)

    return Contestant(peer.row, 1, play)


def comparison(
    slice_seconds: float = 0.25, repeats: int = 7, folder: Path = FOLDER, may_install: bool = True
) -> Comparison:
    """Install the peers where they lack, and measure everything.

    Args:
        slice_seconds: Length of a slice [s].
        repeats: Slices of each, >= 1.
        folder: The peers' virtual environment.
        may_install: Whether to install at all.
    """
    requirements = read_requirements(REQUIREMENTS)
    skipped = install(folder, requirements) if may_install else {}
    interpreters = {True: Path(sys.executable)}
    if not interpreter(folder).exists():
        reason = "not installed: run without --no-install"
        skipped = dict.fromkeys(map(package_of, requirements), reason) | skipped
    elif "gymnasium" not in skipped:
        interpreters[False] = interpreter(folder)
    if False not in interpreters:
        print(f"measuring only this project: {skipped['gymnasium']}", file=sys.stderr)
    return compare(interpreters, skipped, slice_seconds, repeats)


@dataclass(frozen=True)
class Options(SliceOptions):
    """Step time of other environments beside this project's."""

    folder: Path = FOLDER
    """The peers' virtual environment."""
    no_install: bool = False
    """Measure what is installed already."""
    output: Path = RESULTS / "peers.json"
    """JSON file to write."""

    def check(self) -> None:
        """Refuse what cannot be run."""
        super().check()
        if self.folder.exists() and not self.folder.is_dir():
            raise ScenarioError(f"--folder: {self.folder} is a file; name a folder")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table and store it; returns the exit status."""
    return command(Options, _run, __doc__, arguments)


def _run(options: Options) -> None:
    try:
        found = comparison(options.slice_seconds, options.repeats, options.folder, not options.no_install)
    except PeerError as error:
        peer = error.peer
        raise CollaPipeError(f"{peer.row}, {peer.about}: {error}; delete {options.folder}") from None
    print(figure_table(found.figures))
    store(
        options.output,
        WHAT,
        options,
        interpreters=found.versions,
        environments={p.row: asdict(p) for p in (*YARDSTICKS.values(), *CONTESTANTS)},
        figures=listed(found.figures),
    )


if __name__ == "__main__":
    sys.exit(main())
