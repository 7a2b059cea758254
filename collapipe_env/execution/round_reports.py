"""Reports of executed rounds as plain data: records of operations, and scripts of recoveries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, get_type_hints

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter

from collapipe_env.execution.scripts import ClusterScript


class Recorded(NamedTuple):
    """An operation or a transfer that took place, numbered as in the round's timeline.

    Attributes:
        cluster: Cluster.
        step: Local step.
        element: Element of the cluster's chain.
        micro_batch: Micro-batch.
        direction: 0 forward, 1 backward, 2 weight gradient.
        chunk: Chunk of a stage; 0 for messages.
        start_s: Time at which the start was due, since the round began [s].
        end_s: Time at which the end was due, since the round began [s].
        measured_end_s: End by the machine's clock [s]; the priced end under the virtual clock. For a message,
            the time at which its receiver was handed it, less the priced latency.
        worked_s: Wall time of the computation itself [s]; 0 for messages.
        began_s: Start by the machine's clock [s]; for a message, the time at which its sender sent it.
        there_s: Time by the machine's clock at which a message was handed to its receiver [s]; 0 for
            operations.
        samples: Samples in it; 0 if unknown.
    """

    cluster: int
    step: int
    element: int
    micro_batch: int
    direction: int
    chunk: int
    start_s: float
    end_s: float
    measured_end_s: float
    worked_s: float
    began_s: float
    there_s: float
    samples: int


EVENT = np.dtype([(name, np.dtype(kind)) for name, kind in get_type_hints(Recorded).items()])
"""A row of the table of events, with the fields of :class:`Recorded`."""
_SCRIPT = TypeAdapter(ClusterScript)


def event_table(rows: Iterable[Sequence[float]]) -> npt.NDArray[np.void]:
    """Return records of operations and transfers as a table of :data:`EVENT`."""
    return np.array([tuple(row) for row in rows], dtype=EVENT)


def remaining_script(recovery: Mapping[str, Any]) -> ClusterScript:
    """Return the script of the work that a recovery in a report leaves."""
    return _SCRIPT.validate_python(recovery["script"])
