"""Measure how cost grows with the system's sizes, and write the numbers and pictures of ``docs/scaling.md``.

Steps of the environment, decisions of DSSRA and memory against clusters, devices, blocks, mini-batch and
environments, each changed by itself around ``medium``; and the peers that
``benchmarks/peers.py`` measured last. Everything runs under the surrogate learner. What is measured is kept:
run it again after Ctrl-C, or with ``--fresh`` after the code has changed. Run::

    python tools/make_scaling_study.py
    python tools/make_scaling_study.py --axes clusters --slice-seconds 0.3 --fresh
    python tools/make_scaling_study.py --page-only
"""

from __future__ import annotations

import hashlib
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import scaling_memory
import scaling_pictures
import scaling_tables
import scaling_times
from generated_parts import write_parts
from scaling_points import AXES
from scaling_times import RESULTS, SliceOptions, command, machine

import collapipe_env
from collapipe_env.errors import DataError
from collapipe_env.evaluation.plotting import save
from collapipe_env.files import read_json, write_json

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "scaling.md"
PICTURES = DOCS / "images"
FORMAT = 1
"""Of the stored measurements; others are measured again."""


@dataclass(frozen=True)
class Options(SliceOptions):
    """Measure how cost grows with the system's sizes."""

    slice_seconds: float = 0.1
    """Length of a slice [s], 0.001 to 60."""
    axes: tuple[str, ...] = tuple(axis.name for axis in AXES)
    """Sizes to change."""
    batches: tuple[int, int] = (64, 512)
    """Sizes of the batches whose memory is compared."""
    work: Path = Path("runs/scaling")
    """Folder of the measurements."""
    peers: Path = RESULTS / "peers.json"
    """The peer comparison to show, as ``python benchmarks/peers.py`` wrote it."""
    fresh: bool = False
    """Measure again what is there already."""
    quick: bool = False
    """A few small sizes and short slices, with the page in the work folder: shows that it works."""
    page_only: bool = False
    """Write the page from all measurements that are there, and measure nothing."""

    def check(self) -> None:
        """Refuse what cannot be run.

        Raises:
            CollaPipeError: Names the option, its value and the range.
        """
        super().check()
        known = [axis.name for axis in AXES]
        for name in self.axes:
            if name not in known:
                raise DataError(f"--axes: {name!r} is none of {', '.join(known)}")
        if not 1 <= self.batches[0] < self.batches[1]:
            raise DataError(f"--batches: {self.batches} must ascend from at least 1")


@dataclass(frozen=True)
class Measurement:
    """One piece of the study, stored when it is done.

    Attributes:
        group: What it belongs to, such as ``"clusters: memory"``.
        entry: Its place there; empty where it is the whole group.
        depends: Everything that its result depends on besides the code.
        run: Measures it.
    """

    group: str
    entry: str
    depends: tuple[object, ...]
    run: Callable[[], Any]

    @property
    def name(self) -> str:
        """For the store and for messages."""
        return f"{self.group} {self.entry}".strip()

    @property
    def key(self) -> str:
        """Digest of what the result depends on."""
        parts = (FORMAT, collapipe_env.__version__, self.name, *self.depends)
        return hashlib.sha256(repr(parts).encode()).hexdigest()


def quickened(options: Options) -> Options:
    """The options with everything short, if asked to."""
    if not options.quick:
        return options
    return replace(options, slice_seconds=0.002, repeats=1, batches=(1, 3), work=options.work / "quick")


def plan(options: Options) -> Iterator[Measurement]:
    """All measurements that the options ask for."""
    timing = (options.slice_seconds, options.repeats)
    axes = [axis for axis in AXES if axis.name in options.axes]
    for axis in [replace(axis, values=axis.values[:3]) for axis in axes] if options.quick else axes:
        yield Measurement(
            f"{axis.name}: times",
            "",
            (axis.values, timing),
            partial(scaling_times.measure, axis, *timing),
        )
        for value in () if axis.name == "environments" else axis.values:
            yield Measurement(
                f"{axis.name}: memory",
                str(value),
                options.batches,
                partial(scaling_memory.measure, axis.name, value, *options.batches),
            )


class Store:
    """Measurements in a JSON file, written whole after each.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content: dict[str, Any] = read_json(path, "delete it") if path.exists() else {"measured": {}}

    def result(self, measurement: Measurement) -> Any:
        """Stored result of a measurement; ``None`` if nothing that fits."""
        found = self.content["measured"].get(measurement.name, {})
        return found.get("result") if found.get("key") == measurement.key else None

    def put(self, measurement: Measurement, result: object) -> None:
        """Keep a result."""
        self.content["measured"][measurement.name] = {"key": measurement.key, "result": result}
        write_json(self.path, {**self.content, **machine(), "finished": time.strftime("%Y-%m-%d")})
        self.content = read_json(self.path, "delete it")

    def groups(self, measurements: Iterable[Measurement]) -> dict[str, Any]:
        """Stored results of some measurements, whatever they depended on, by group and entry."""
        found: dict[str, Any] = {}
        for measurement in measurements:
            stored = self.content["measured"].get(measurement.name)
            if stored is None:
                continue
            if measurement.entry:
                found.setdefault(measurement.group, {})[measurement.entry] = stored["result"]
            else:
                found[measurement.group] = stored["result"]
        return found


def measure_all(measurements: Sequence[Measurement], store: Store, fresh: bool) -> None:
    """Measure what is missing, or everything, one after another, and say so."""
    for place, measurement in enumerate(measurements, 1):
        if not fresh and store.result(measurement) is not None:
            continue
        start = time.perf_counter()
        store.put(measurement, measurement.run())
        spent = time.perf_counter() - start
        print(f"[{place}/{len(measurements)}] {measurement.name}: {spent:.1f} s", flush=True)


def write_page(options: Options, store: Store, groups: Mapping[str, Any], arguments: str) -> Path:
    """Fill the page's marked parts and draw the pictures; parts without measurements stay as they are.

    Args:
        options: Where things are.
        store: For the versions.
        groups: Everything that is measured, also by earlier commands.
        arguments: Of this command, for the page.

    Returns:
        Where the page is.
    """
    axes = [axis for axis in AXES if f"{axis.name}: times" in groups]
    parts, pictures = {}, {}
    for axis in axes:
        sizes = tuple(int(size) for size in next(iter(groups[f"{axis.name}: times"].values())))
        parts[axis.name] = scaling_tables.size_table(groups, replace(axis, values=sizes))
    if axes:
        pictures["scaling_times"] = scaling_pictures.growth_picture(
            groups, axes, scaling_pictures.TIMES, "time for one environment (µs)"
        )
    grown = [axis for axis in axes if axis.name != "environments"]
    if grown:
        parts["exponents"] = scaling_tables.exponent_table(groups, grown)
        pictures["scaling_memory"] = scaling_pictures.growth_picture(
            groups, grown, scaling_pictures.MEMORY, "memory of one environment (kB)"
        )
    if options.peers.exists():
        parts["peers"] = scaling_tables.peer_table(options.peers)
    else:
        print(f"{options.peers} is not there: the page keeps its peers; run `python benchmarks/peers.py`")
    if groups:
        parts["command"] = stamp(store, arguments)
    page, folder = (options.work / PAGE.name, options.work) if options.quick else (PAGE, PICTURES)
    for name, picture in pictures.items():
        save(picture, folder / f"{name}.png")
    write_parts(PAGE, parts, page)
    return page


def stamp(store: Store, arguments: str) -> str:
    """The command, the versions and the machine."""
    versions = ", ".join(f"{name} {version}" for name, version in store.content["versions"].items())
    where = store.content["machine"]
    machine_used = f"{where['architecture']}, {where['cpus']} processors"
    return (
        f"```bash\npython benchmarks/peers.py\npython tools/make_scaling_study.py{arguments}\n```\n\n"
        f"{versions}; {machine_used}. Finished {store.content['finished']}."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, then write the page; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    return command(Options, lambda options: _run(options, given), __doc__, given)


def _run(options: Options, given: Sequence[str]) -> None:
    left_out = ("--page-only", "--fresh")
    shown = "".join(f" {shlex.quote(word)}" for word in given if word not in left_out)
    options = quickened(options)
    measurements = list(plan(options))
    store = Store(options.work / "measurements.json")
    if not options.page_only:
        measure_all(measurements, store, options.fresh)
    groups = store.groups(plan(replace(options, axes=tuple(axis.name for axis in AXES))))
    page = write_page(options, store, groups, shown)
    print(scaling_tables.summary(groups, AXES))
    print(f"measurements are in {store.path}, the page is {page}")


if __name__ == "__main__":
    sys.exit(main())
