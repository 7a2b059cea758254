"""The folder of one run: what was asked for, what is done, and what came out."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collapipe_env.errors import DataError
from collapipe_env.files import read_json, without_nan, write_json

_FOLDERS = ("checkpoints", "tensorboard", "evaluation", "figures")
_FILES = ("results.json", "results.csv", "episodes.csv", "summary.json", "table.md", "run.json")


@dataclass(frozen=True)
class RunDirectory:
    """Names of everything in a run's folder.

    Attributes:
        path: The folder.
        option: The option that chooses it, for errors.
    """

    path: Path
    option: str = "--run-dir"

    @property
    def options(self) -> Path:
        """What the run was asked for; marks the folder as a run's."""
        return self.path / "run.json"

    @property
    def episodes(self) -> Path:
        """Folder of the finished episodes of the evaluation."""
        return self.path / "evaluation"

    @property
    def figures(self) -> Path:
        """Folder of the pictures."""
        return self.path / "figures"

    @property
    def results(self) -> Path:
        """Everything measured, as JSON."""
        return self.path / "results.json"

    @property
    def rounds(self) -> Path:
        """Every round of a comparison, as CSV."""
        return self.path / "results.csv"

    @property
    def episode_table(self) -> Path:
        """Every episode of a comparison, as CSV."""
        return self.path / "episodes.csv"

    @property
    def summary(self) -> Path:
        """The summary of a comparison, as JSON."""
        return self.path / "summary.json"

    @property
    def table(self) -> Path:
        """The table, as Markdown."""
        return self.path / "table.md"

    def open(self, asked: Mapping[str, Any], *, fresh: bool) -> bool:
        """Make the folder, or go on in one that was made for the same.

        Args:
            asked: What decides the trained agent, as plain data.
            fresh: Start over: remove what an earlier run left, and nothing else.

        Returns:
            Whether an earlier run is continued.

        Raises:
            DataError: If the folder belongs to something else or to a run that was asked for other things.
        """
        if self.path.exists() and not self.path.is_dir():
            raise DataError(f"{self.path} is a file: choose another place with {self.option}")
        occupied = self.path.is_dir() and any(self.path.iterdir())
        if occupied and not self.options.exists():
            raise DataError(
                f"{self.path} holds other things than a run (it has no run.json): choose another place "
                f"with {self.option}"
            )
        if occupied and fresh:
            self._clear()
        elif occupied:
            self._require_same(without_nan(asked))
            return True
        write_json(self.options, asked)
        return False

    def _require_same(self, asked: Mapping[str, Any]) -> None:
        before = read_json(
            self.options, f"start over with --fresh, or choose another place with {self.option}"
        )
        different = _differences(before, asked)
        if different:
            listed = "; ".join(f"{name} was {old!r}, now {new!r}" for name, old, new in different[:3])
            more = f" and {len(different) - 3} more" if len(different) > 3 else ""
            raise DataError(
                f"{self.path} was made with other options ({listed}{more}): choose another place with "
                f"{self.option}, or start over there with --fresh"
            )

    def _clear(self) -> None:
        for name in _FOLDERS:
            shutil.rmtree(self.path / name, ignore_errors=True)
        for name in _FILES:
            (self.path / name).unlink(missing_ok=True)


def _differences(before: Any, now: Any, place: str = "") -> list[tuple[str, Any, Any]]:
    """Places where two plain data differ, with both values."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        names = [*before, *(name for name in now if name not in before)]
        return [
            difference
            for name in names
            for difference in _differences(
                before.get(name), now.get(name), f"{place}.{name}" if place else name
            )
        ]
    return [] if before == now else [(place, before, now)]
