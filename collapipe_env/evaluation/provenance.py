"""With which versions the results in a run's folder came about."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping

from collapipe_env.errors import DataError
from collapipe_env.evaluation.run_directory import RunDirectory
from collapipe_env.files import read_json, write_json

_DECISIVE = ("collapipe-env", "surrogate-fits-sha256")
"""Versions on which stored episodes depend."""


def note_versions(run: RunDirectory, versions: Mapping[str, str]) -> None:
    """Add the present versions to those that worked in a folder before, if they are others.

    Episodes of another version or of other fits are measured again, since their digests differ; a trained
    agent is kept, so a warning says what changed.

    Args:
        run: The folder, open already.
        versions: Version of the package, the surrogate's fits and the libraries by name.

    Raises:
        DataError: If the record of the versions is damaged or cannot be written.
    """
    remedy = "delete it, or start over with --fresh"
    known = read_json(run.versions, remedy).get("sessions") if run.versions.exists() else []
    if not isinstance(known, list) or not all(isinstance(entry, dict) for entry in known):
        raise DataError(f"{run.versions} holds no list of sessions: {remedy}")
    before = known[-1].get("versions") if known else None
    if before == versions:
        return
    if isinstance(before, Mapping):
        changed = [name for name in _DECISIVE if before.get(name) != versions[name]]
        if changed:
            listed = ", ".join(
                f"{name} was {_short(before.get(name))}, now {_short(versions[name])}" for name in changed
            )
            warnings.warn(
                f"{run.path} was written with other versions ({listed}): episodes are measured again where "
                "they depend on it; an agent trained there is kept",
                stacklevel=2,
            )
    session = {"since": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "versions": dict(versions)}
    write_json(run.versions, {"sessions": [*known, session]})


def _short(version: object) -> str:
    return str(version)[:12]
