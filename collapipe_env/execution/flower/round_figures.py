"""Figures of a federation's rounds: loss, bytes carried and priced, and wall time [X]."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from collapipe_env.execution.frames import Frame
from collapipe_env.execution.parts import Arrays

HEADINGS = (
    "round",
    "training loss",
    "delay, priced (s)",
    "Flower down (KiB)",
    "Flower up (KiB)",
    "priced down (KiB)",
    "priced up (KiB)",
    "head beside (KiB)",
    "wall time (s)",
)


@dataclass(frozen=True)
class RoundFigures:
    """Figures of a round; bytes count the arrays of all clusters together.

    Attributes:
        round: Round, from 1.
        loss: Mean loss of the predictions trained on in the round; ``None`` if there were none.
        delay_s: Delay of the round by the virtual clock [s].
        down_bytes: Common models that Flower has carried to the clusters.
        up_bytes: Updates that it has carried back.
        priced_down_bytes: Most bytes of that broadcast in the priced format, which is sent once for all.
        priced_up_bytes: The same updates in the priced format.
        beside_bytes: Targets, activations and gradients of the head, which do not go through Flower.
        wall_s: Wall time [s].
    """

    round: int
    loss: float | None
    delay_s: float
    down_bytes: int
    up_bytes: int
    priced_down_bytes: float
    priced_up_bytes: float
    beside_bytes: int
    wall_s: float

    def as_dict(self) -> dict[str, Any]:
        """Return the figures by their names."""
        return asdict(self)


def payload_bytes(frames: Mapping[int, Frame]) -> int:
    """Return the bytes of the arrays of frames."""
    return sum(array.nbytes for frame in frames.values() for array in frame.arrays.values())


def shown_loss(loss: float | None) -> str:
    """Return a loss as text; a dash where there is none."""
    return "-" if loss is None else f"{loss:.4f}"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return figures of rounds as a table in Markdown.

    Args:
        rows: Figures, as :meth:`RoundFigures.as_dict` returns them.
    """
    lines = [f"| {' | '.join(HEADINGS)} |", "|" + "---:|" * len(HEADINGS)]
    for row in rows:
        sizes = [row[f"{name}_bytes"] / 1024 for name in ("down", "up", "priced_down", "priced_up", "beside")]
        cells = [
            f"{row['round']}",
            shown_loss(row["loss"]),
            f"{row['delay_s']:.3f}",
            *(f"{size:,.1f}" for size in sizes),
            f"{row['wall_s']:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def packed(arrays: Arrays) -> bytes:
    """Return arrays as the content of an ``.npz`` file."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def unpacked(content: bytes) -> Arrays:
    """Return the arrays of an ``.npz`` file, which may hold nothing else."""
    with np.load(io.BytesIO(content), allow_pickle=False) as found:
        return dict(found)


def largest_difference(one: Arrays, other: Arrays) -> float:
    """Return the largest difference of two sets of weights; infinite if they are of different models."""
    if one.keys() != other.keys() or any(one[name].shape != other[name].shape for name in one):
        return float("inf")
    return max(float(np.abs(one[name] - other[name]).max(initial=0.0)) for name in one)
