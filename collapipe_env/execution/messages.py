"""Messages between roles: samples on their way, with the times of the link that carries them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from collapipe_env.execution.sample_rows import Rows, overlap


class Transfer(NamedTuple):
    """Transfer of a message, as its sender knows it.

    Attributes:
        element: Element of the cluster's chain.
        direction: 0 forward, 1 backward.
        start_s: Time at which it is due to leave [s].
        end_s: Time at which it is due to have left; the link is free then [s].
        sent_s: Time at which it was sent, by the machine's clock [s].
        samples: Samples in it, those of all its pieces.
    """

    element: int
    direction: int
    start_s: float
    end_s: float
    sent_s: float
    samples: int


class Message(NamedTuple):
    """Samples of a micro-batch on their way.

    Attributes:
        rows: Their rows within the micro-batch.
        x: Values (samples, q, d); ``None`` if the micro-batch was lost on the way.
        at_s: Time at which they arrive by their price [s].
        transfer: Record of the transfer; of several pieces, only one has it.
    """

    rows: Rows
    x: np.ndarray[Any, Any] | None
    at_s: float
    transfer: Transfer | None = None


LOST = Message((0, 0), None, 0.0)
"""Message of an operation that was not carried out."""


def gathered(rows: Rows, messages: Sequence[Message]) -> Tensor | None:
    """Return copies of some samples out of several messages; ``None`` if they were lost on the way.

    Args:
        rows: Rows of the samples within the micro-batch.
        messages: The messages, in the order of their samples.
    """
    parts = []
    for message in messages:
        common = overlap(rows, message.rows)
        if common is not None and message.x is not None:
            first = message.rows[0]
            parts.append(torch.from_numpy(np.array(message.x[common[0] - first : common[1] - first])))
    return torch.cat(parts) if parts else None
