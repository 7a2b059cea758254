"""What a task is to the learners: its data, the server's head, the loss and the metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TaskSpec:
    """Everything that a task's data and head depend on; hashable, so that data is prepared once per process.

    Attributes:
        dataset: ``"embedded"`` or the path of local data.
        text_column: Header name or 0-based index; None detects.
        label_column: Header name or 0-based index; None detects.
        width: Width d of the encoder's outputs.
        sequence_length: Tokens per sample, q.
        vocabulary: Rows of the embedding table.
        outputs: Outputs V_out of the head.
        decoder_blocks: Decoder blocks on the server.
    """

    dataset: str
    text_column: str | int | None
    label_column: str | int | None
    width: int
    sequence_length: int
    vocabulary: int
    outputs: int
    decoder_blocks: int = 0


@dataclass(frozen=True)
class Split:
    """Samples ready for training or evaluation.

    Attributes:
        tokens: Token ids, shape (samples, q); 0 is padding.
        targets: What the head should say, shape (samples, ...).
    """

    tokens: IntArray
    targets: IntArray


@dataclass(frozen=True)
class TaskData:
    """The data of a task.

    Attributes:
        train: Training samples.
        held_out: Samples for evaluation; neither tokeniser nor model ever learns from them.
        strata: Class of every training sample for label-skewed partitions, shape (samples,).
        classes: Names of the outputs, in the order of their numbers.
    """

    train: Split
    held_out: Split
    strata: IntArray
    classes: tuple[str, ...]


class Task(Protocol):
    """A task of the federation. Implementations keep no state: one instance serves every learner."""

    name: str

    def load(self, spec: TaskSpec) -> TaskData:
        """Return the data, from a per-process cache if it was asked for before.

        Raises:
            DataError: If the data does not fit the specification.
        """
        ...

    def build_head(self, spec: TaskSpec, generator: Generator) -> nn.Module:
        """Return the server's module, initialised from ``generator`` alone.

        It is called with encoder outputs (samples, q, d) and the mask of real tokens (samples, q).
        """
        ...

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss over the samples, a scalar."""
        ...

    def score(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return each sample's score in [0, 1], shape (samples,); the metric is its mean."""
        ...
