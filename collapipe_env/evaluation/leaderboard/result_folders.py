"""Folders of results in a submission, and their names."""

from __future__ import annotations

import re
from pathlib import Path

from collapipe_env.ground.errors import DataError

RESULTS = "results"
"""Folder of a submission in which ``collapipe leaderboard run`` writes its scored results."""
_SHORT = re.compile(r"-([0-9]+|all)x([0-9]+|all)")


def short_suffix(episodes: int | None, rounds: int | None) -> str:
    """Return the suffix of the folder of a quick look, such as ``-2x50``.

    Args:
        episodes: Episodes of each cell; None for all.
        rounds: Rounds of each episode; None for all.
    """
    return "" if episodes is None and rounds is None else f"-{episodes or 'all'}x{rounds or 'all'}"


def is_results(name: str) -> bool:
    """Whether ``collapipe leaderboard run`` makes such a folder in a submission, quick looks included."""
    suffix = name.removeprefix(RESULTS)
    return name == RESULTS or (suffix != name and _SHORT.fullmatch(suffix) is not None)


def require_apart(out: Path | None, folder: Path) -> None:
    """Refuse to write results where they would count as a part of the submission.

    Args:
        out: Folder that the user named for them.
        folder: Folder of the submission.

    Raises:
        DataError: Names the folder and the remedy.
    """
    if out is None:
        return
    inside, around = out.expanduser().resolve(), folder.resolve()
    if inside.is_relative_to(around):
        parts = inside.relative_to(around).parts
        if not parts or not is_results(parts[0]):
            raise DataError(
                f"--out {out}: it would become part of the submission {folder}: leave --out out, or name "
                "a folder elsewhere"
            )
