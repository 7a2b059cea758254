"""What a task says of itself before any of its code is needed: what it is priced and checked by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class TaskTraits:
    """What the price of a task and the check of its workload depend on.

    Attributes:
        outputs: Whether the head has one output for a ``sentence`` or one for each ``token``, as taggers and
            generators have.
        decoder: Whether the server needs decoder blocks.
    """

    outputs: Literal["sentence", "token"]
    decoder: bool = False

    def positions(self, sequence_length: int) -> int:
        """Positions of a sample that reach the head's product with the outputs.

        Args:
            sequence_length: Tokens of a sample ``q``.
        """
        return 1 if self.outputs == "sentence" else sequence_length


CLASSIFICATION = TaskTraits(outputs="sentence")
NER = TaskTraits(outputs="token")
TRANSLATION = TaskTraits(outputs="token", decoder=True)
