"""Step time of other environments beside this project's, each over the CartPole-v1 of its own interpreter.

The peers are pip packages with versions of their own: they are installed into a virtual environment of their
own, ``benchmarks/.peers``, as ``peers-requirements.txt`` pins them. In each of the two interpreters all
environments take turns in short slices, single and with random actions. What cannot be installed or run is
skipped with the reason, and without a network only this project is measured. Run::

    python benchmarks/peers.py
    python benchmarks/peers.py --no-install --slice-seconds 1
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from measuring import Figure, command, publish
from side_by_side import SliceOptions, Timing, ratio_figure

from collapipe_env.ground.errors import CollaPipeError
from collapipe_env.ground.files import write_text

HERE = Path(__file__).parent
FOLDER = HERE / ".peers"
REQUIREMENTS = HERE / "peers-requirements.txt"
WORKER = HERE / "peer_worker.py"
INSTALLED = "installed.txt"
"""File in the virtual environment's folder with the requirements that were installed."""
WHAT = "time of a single environment's step with random actions over CartPole-v1's in the same interpreter"
UNIT = "x CartPole-v1"


@dataclass(frozen=True)
class Peer:
    """An environment that is measured.

    Attributes:
        row: Name in the table.
        package: Its pip package.
        id: Its id for ``gymnasium.make``.
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
    id_ = f"CollaPipeSurrogate-{name.capitalize()}-v0"
    return Peer(name, "collapipe-env", id_, ("collapipe_env",), about, mine=True)


def _mobile(name: str, about: str) -> Peer:
    return Peer(f"mobile-env {name}", "mobile-env", f"mobile-{name}-central-v0", ("mobile_env",), about)


EDGE = "one energy-harvesting node with a radio"
CONTESTANTS = (
    Peer("CartPole-v1", "gymnasium", "CartPole-v1", (), "pole on a cart", mine=True),
    Peer("CartPole-v1 beside the peers", "gymnasium", "CartPole-v1", (), "pole on a cart"),
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
    Peer("EdgeEngineAware-v0", "edgeengine-aware", "EdgeEngineAware-v0", ("edgeengine_aware",), EDGE),
)


def interpreter(folder: Path) -> Path:
    """Python of a virtual environment."""
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def install(folder: Path) -> str:
    """Create the peers' virtual environment and install into it, unless done; returns why that failed."""
    wanted, stamp = REQUIREMENTS.read_text(encoding="utf-8"), folder / INSTALLED
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return ""
    pip = [str(interpreter(folder)), "-m", "pip", "install", "--disable-pip-version-check", "--retries", "1"]
    for line in ([sys.executable, "-m", "venv", str(folder)], [*pip, "--quiet", "-r", str(REQUIREMENTS)]):
        done = subprocess.run(line, capture_output=True, text=True, check=False)  # noqa: S603 - no shell
        if done.returncode:
            return f"not installed: {last_line(done.stderr) or f'exit status {done.returncode}'}"
    write_text(stamp, wanted)
    return ""


def last_line(text: str) -> str:
    """Last line that is not empty."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def measure(python: Path, mine: bool, slice_seconds: float, repeats: int) -> dict[str, Any]:
    """Reply of the worker in an interpreter.

    Raises:
        CollaPipeError: If its process ends without a reply, or cannot even step CartPole.
    """
    peers = [peer for peer in CONTESTANTS if peer.mine is mine]
    request = {
        "environments": [asdict(peer) for peer in peers],
        "packages": sorted({peer.package for peer in peers} | {"numpy"}),
        "slice_seconds": slice_seconds,
        "repeats": repeats,
    }
    done = subprocess.run(  # noqa: S603 - a script of ours, no shell
        [str(python), str(WORKER)], input=json.dumps(request), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise CollaPipeError(f"{python} ended: {last_line(done.stderr) or f'status {done.returncode}'}")
    reply: dict[str, Any] = json.loads(done.stdout)
    if peers[0].row in reply["reasons"]:
        raise CollaPipeError(f"{python} cannot step CartPole-v1: {reply['reasons'][peers[0].row]}")
    return reply


def figures_of(replies: Mapping[bool, Mapping[str, Any]], missing: str) -> list[Figure]:
    """One figure for each contestant, compared with the CartPole of its own interpreter.

    Args:
        replies: Replies of the workers, by whether the interpreter is this project's; the peers' reply may be
            absent.
        missing: Reason why it is absent.
    """
    found: list[Figure] = []
    yardsticks: dict[bool, Timing] = {}
    for peer in CONTESTANTS:
        reply = replies.get(peer.mine, {})
        if peer.row not in reply.get("seconds", {}):
            found.append(Figure(peer.row, None, UNIT, note=reply.get("reasons", {}).get(peer.row, missing)))
            continue
        timing = Timing(peer.row, 1, tuple(reply["seconds"][peer.row]))
        # The first of each interpreter is its CartPole.
        figure = ratio_figure(peer.row, timing, yardsticks.setdefault(peer.mine, timing))
        rate = 1.0 / timing.median
        note = f"{rate:,.0f} steps/s" if rate >= 10.0 else f"{rate:.2g} steps/s"
        found.append(replace(figure, unit=UNIT, note=note))
    return found


class Options(SliceOptions):
    """Step time of other environments beside this project's."""

    folder: Path = FOLDER
    """The peers' virtual environment."""
    no_install: bool = False
    """Measure what is installed already."""


def _run(options: Options) -> None:
    timing = options.slice_seconds, options.repeats
    python = interpreter(options.folder)
    missing = "" if options.no_install else install(options.folder)
    if not missing and not python.exists():
        missing = "not installed: run without --no-install"
    replies = {True: measure(Path(sys.executable), True, *timing)}
    if not missing:
        try:
            replies[False] = measure(python, False, *timing)
        except CollaPipeError as error:
            missing = str(error)
    if missing:
        print(f"only this project is measured: {missing}", file=sys.stderr)
    publish(
        options,
        WHAT,
        figures_of(replies, missing),
        interpreters={"ours" if mine else "peers": reply["versions"] for mine, reply in replies.items()},
        environments={peer.row: asdict(peer) for peer in CONTESTANTS},
    )


main = command(Options, _run, __doc__)

if __name__ == "__main__":
    sys.exit(main())
