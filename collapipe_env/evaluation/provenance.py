"""Versions with which the results in a run's folder were made."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import time
import warnings
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from collapipe_env.evaluation.run_directory import RunDirectory
from collapipe_env.ground.errors import DataError
from collapipe_env.ground.files import read_json, write_json
from collapipe_env.ground.version import __version__
from collapipe_env.learners.surrogate_fits import fits_digest

_version = functools.cache(version)  # a process has one of each library, and looking takes 1 ms

_DECISIVE = ("collapipe-env", "surrogate-fits-sha256")
"""Versions on which stored episodes depend."""


@contextlib.contextmanager
def started(
    run: RunDirectory, command: str, asked: Mapping[str, Any], *, fresh: bool, **how: Any
) -> Iterator[bool]:
    """Lock a run's folder inside this context, and note the present versions there.

    Args:
        command: Command of this run, for other readers.
        asked: Options that decide the results; this and the others as in :meth:`RunDirectory.open`.

    Yields:
        Whether an earlier run is continued.

    Raises:
        DataError: If the folder cannot be used, is in use, or belongs to something else.
    """
    with run.locked(command):
        continued = run.open(asked, fresh=fresh, **how)
        _note_versions(run)
        yield continued


def _note_versions(run: RunDirectory) -> None:
    """Add the present versions to those recorded in a folder, if they differ.

    Episodes of another version or of other fits are measured again, since their digests differ; a trained
    agent is kept, so a warning says what changed.
    """
    file, now = run / "versions.json", versions()
    known: Any = []
    if file.exists():
        remedy = f"delete it, or start over with {run.fresh_option}"
        known = read_json(file, remedy).get("sessions")
        if not isinstance(known, list) or not all(isinstance(entry, dict) for entry in known):
            raise DataError(f"{file} holds no list of sessions: {remedy}")
    before = known[-1].get("versions") if known else now
    if known and before == now:
        return
    changed = [name for name in _DECISIVE if isinstance(before, Mapping) and before.get(name) != now[name]]
    if changed:
        # The beginning of a version or digest is enough to tell two apart.
        listed = ", ".join(f"{name} was {before.get(name)!s:.12}, now {now[name]:.12}" for name in changed)
        warnings.warn(
            f"{run.path} was written with other versions ({listed}): episodes are measured again where "
            "they depend on it; an agent trained there is kept",
            stacklevel=2,
        )
    session = {"since": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "versions": now}
    write_json(file, {"sessions": [*known, session]})


def versions() -> dict[str, str]:
    """Versions of the package, the surrogate's fits, Python and the libraries on which results may depend."""
    names = ["numpy", "scipy", "numba", "torch", "gymnasium", "stable-baselines3", "tokenizers", "sacrebleu"]
    names += ["nervaluate", *(name for name in ("optuna", "ortools") if find_spec(name) is not None)]
    return {
        "collapipe-env": __version__,
        "surrogate-fits-sha256": fits_digest(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": str(os.cpu_count()),
        **{name: _version(name) for name in names},
    }
