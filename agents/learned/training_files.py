"""Files of a training, whichever algorithm trains."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TrainingFiles:
    """Files of a training in a folder."""

    folder: Path

    @property
    def latest(self) -> Path:
        """The last version, from which training continues."""
        return self.folder / "checkpoints" / "latest.safetensors"

    @property
    def best(self) -> Path:
        """The best version by its validations, which only plays."""
        return self.folder / "checkpoints" / "best.safetensors"

    @property
    def tensorboard(self) -> Path:
        """Folder for ``tensorboard --logdir``."""
        return self.folder / "tensorboard"
