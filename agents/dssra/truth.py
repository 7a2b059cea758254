"""DSSRA on the true system: its decisions if everything were known ([X])."""

from __future__ import annotations

from .policy import DSSRA


class DSSRATruth(DSSRA):
    """DSSRA that sees the truth, an oracle for scenarios whose gains are known late or with errors.

    Where everything is known it is :class:`DSSRA`.

    Args:
        options: Options of :class:`DSSRA`.

    Raises:
        AllocationError: If an argument is out of range.
    """

    name = "DSSRA on the truth"
    sees = "truth"
