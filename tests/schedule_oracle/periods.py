"""The period at which a pipeline schedule settles, and makespans from it (`algorithms.md` section 5).

Closed forms and estimates to rank plans with; :mod:`schedule_oracle.schedules` is exact [R].
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from schedule_oracle.recurrence import Duplex, StageTimes


def version_gaps(caps: Sequence[int], micro_batches: int) -> tuple[int, ...]:
    """Optimiser steps by which ``async`` computes with weights too old, ``ceil((K_s - 1) / M)`` [R].

    Args:
        caps: ``K_s`` (P,).
        micro_batches: M per mini-batch.

    Returns:
        (P,) steps.
    """
    return tuple(-((1 - cap) // micro_batches) for cap in caps)


def steady_period(times: StageTimes, caps: Sequence[int], *, duplex: Duplex = "full") -> float:
    """Time per micro-batch at which 1F1B settles, by section 5.3.

    The slowest stage, the slowest link, and the round trip from each stage shared by ``K_s`` micro-batches.
    It leaves out round trips that turn around before the last stage, which also bind strict orders: a lower
    bound of the true period.

    Args:
        times: Stages and links.
        caps: ``K_s`` (P,) effective caps.
        duplex: With ``"half"`` a link's two directions add up.

    Returns:
        Seconds.
    """
    whole = [f + b for f, b in zip(times.forward, times.whole_backward, strict=True)]
    there, back = times.inner_links
    both = [f + b for f, b in zip(there, back, strict=True)]
    # Round trip from each stage: its own and all later stages and links.
    trips = list(accumulate(w + c for w, c in zip(reversed(whole), reversed([*both, 0.0]), strict=True)))[
        ::-1
    ]
    links = both if duplex == "half" else [*there, *back]
    return max(*whole, *links, *(trip / cap for trip, cap in zip(trips, caps, strict=True)), 0.0)


def estimated_makespan(times: StageTimes, micro_batches: int, period_s: float) -> float:
    """``sum (F + B) + sum (c^f + c^b) + (M - 1) period``, within about 0.84 to 1.14 of the exact makespan.

    Args:
        times: Stages and links.
        micro_batches: M.
        period_s: From :func:`steady_period`.

    Returns:
        Seconds; for ranking only.
    """
    there, back = times.inner_links
    once = sum(times.forward) + sum(times.whole_backward) + sum(there) + sum(back)
    return once + (micro_batches - 1) * period_s


def gpipe_period(times: StageTimes) -> float:
    """``max(F, c^f) + max(B, c^b)``, seconds that one more micro-batch costs under GPipe.

    Args:
        times: Stages and links.

    Returns:
        Seconds, exact for both duplex modes (forwards and backwards never meet on a link).
    """
    there, back = times.inner_links
    return max(*times.forward, *there, 0.0) + max(*times.whole_backward, *back, 0.0)


def gpipe_makespan(times: StageTimes, micro_batches: int) -> float:
    """GPipe's makespan, exact: ``sum + (M - 1) period``.

    Args:
        times: Stages and links.
        micro_batches: M >= 1.

    Returns:
        Seconds.
    """
    return estimated_makespan(times, micro_batches, gpipe_period(times))
