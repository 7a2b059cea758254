"""Several files of one learned scheduler: training runs that share a row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.ground.errors import CheckpointError
from collapipe_env.ground.files import ARCHIVE_BYTES, read_regular
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import LEARNED


def require_runs(option: str, files: Sequence[Path], scenario: Scenario) -> None:
    """Refuse files that cannot be the training runs of one learned scheduler in a scenario.

    Args:
        option: Option that named the files, for errors.

    Raises:
        CheckpointError: If a file cannot be read or does not fit, two hold the same agent (one training would
            count twice), or they are agents of different kinds.
    """
    names = {file: make_scheduler(LEARNED, scenario, file).name for file in files}
    contents: dict[bytes, Path] = {}
    for file in files:
        same = contents.setdefault(read_regular(file, ARCHIVE_BYTES), file)
        if names[file] != names[files[0]]:
            raise CheckpointError(
                f"{option}: {files[0]} is of {names[files[0]]}, {file} of {names[file]}: files that "
                "share a row must be training runs of one algorithm"
            )
        if same is not file:
            raise CheckpointError(
                f"{option}: {same} and {file} hold the same agent: give each training run once"
            )
