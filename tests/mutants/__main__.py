"""Faults that the tests must find: each mutant changes one line of the sources, and its tests have to fail.

    python tests/mutants                           all mutants, a few seconds each
    python tests/mutants physics queues.py         those of rooms and files
    python tests/mutants --check                   whether all texts and tests are there, without running any

A table for each room stands beside this file. A line that is not indented names a file and its tests, as
pytest takes them below `tests/`. The lines below it are mutants, each a text that it holds once and what
replaces it. Run those of a room before and after its tests are deleted or merged: no mutant may survive that
was killed before. A file is put back after every run, also after Ctrl-C. Mutants of what is compiled run as
plain Python, which spares compiling them; for the others compiled loops come from the cache as usual.
"""

import gc
import os
import shlex
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import cache_from_source
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HYPOTHESIS_PROFILE"] = "repeatable"  # named, it also lifts the limits of processor time

import pytest

LOADED = ("gymnasium", "numba", "pydantic", "stable_baselines3", "torch")
"""Loaded once rather than in every run, which is a fork of this process."""
LONGEST_S = 300
"""A run that has not ended by then has failed: a mutant may compute for ever."""
TABLES = Path(__file__).parent
TESTS, ROOT = TABLES.parents[:2]


def chosen(wanted: list[str]) -> Iterator[tuple[str, str, Path, str, str]]:
    """Name, tests, file, old and new text of each mutant of rooms, files or single names; of all if none."""
    for table in sorted(TABLES.glob("*.txt")):
        numbers: Counter[str] = Counter()
        for line in table.read_text(encoding="utf-8").splitlines():
            if not line.startswith(" "):
                path, tests = line.split(": ", 1)
                continue
            name, (old, new) = f"{path}:{numbers[path]}", line.strip().split(" => ")
            numbers[path] += 1
            if wanted and not {table.stem, path, Path(path).name, name} & set(wanted):
                continue
            # In an sdist agents and baselines lie in the package alone.
            place = ROOT / path if (ROOT / path).exists() else ROOT / "collapipe_env" / path
            if place.read_text(encoding="utf-8").count(old) != 1:
                raise SystemExit(f"{table}: {path} must hold {old!r} once")
            for word in shlex.split(tests):
                if word.endswith(".py") and not (TESTS / word).is_file():
                    raise SystemExit(f"{table}: {path} names {word}, which is not there")
            yield name, tests, place, old, new


@contextmanager
def changed(path: Path, old: str, new: str):
    """Hold a mutant in the place of a file."""
    text, stat, bytecode = path.read_text(), path.stat(), Path(cache_from_source(path))
    try:
        path.write_text(text.replace(old, new))
        # Python knows bytecode by size and whole second, which two mutants of a file may share.
        bytecode.unlink(missing_ok=True)
        yield
    finally:
        path.write_text(text)
        bytecode.unlink(missing_ok=True)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def is_compiled(path: Path) -> bool:
    """Whether a file's code becomes part of compiled loops."""
    return path.relative_to(ROOT).parts[1] in ("kernels", "physics") or "ground.compiled" in path.read_text()


def fails(tests: str, plain: bool) -> bool:
    """Whether tests fail, in a process of their own, with loops as plain Python or compiled."""
    child = os.fork()
    if not child:
        signal.alarm(LONGEST_S)  # ends this process
        import_module("numba").config.DISABLE_JIT = int(plain)
        if plain:
            os.environ["NUMBA_DISABLE_JIT"] = "1"
        os.chdir(ROOT)
        sys.path.insert(0, str(ROOT))
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        named = [f"tests/{word}" if word.endswith(".py") else word for word in shlex.split(tests)]
        os._exit(pytest.main(["-x", "-m", "not slow", "-p", "no:cacheprovider", *named]))
    try:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    if code not in (0, 1, 2, -signal.SIGALRM):
        raise SystemExit(f"pytest {tests}: ends with {code}")
    return code != 0


def main(wanted: list[str]) -> int:
    """Run mutants by name, all by default; the number of survivors."""
    mutants = list(chosen([word for word in wanted if word != "--check"]))
    if "--check" in wanted:
        return 0
    for library in LOADED:
        import_module(library)
    gc.freeze()  # otherwise each fork would walk through them and copy their pages
    whole, found = cache(fails), {}
    for name, tests, path, old, new in mutants:
        plain = is_compiled(path)
        if whole(tests, plain):
            raise SystemExit(f"{tests}: fail without a mutant")
        with changed(path, old, new):
            found[name] = fails(tests, plain)
        print("killed  " if found[name] else "SURVIVED", f"{name}: {old} => {new}", flush=True)
    survivors = [name for name, killed in found.items() if not killed]
    print(f"{len(found) - len(survivors)} of {len(found)} killed", *survivors)
    return len(survivors)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
