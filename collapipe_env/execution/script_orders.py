"""Orders of operations of a cluster's stages in plain Python ([R], [X]).

These are the lists that :func:`collapipe_env.physics.schedules.orders.fill_orders` writes, but without
compiled code, so that executing a plan need not wait for a compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TypeAlias

from collapipe_env.execution.scripts import BACKWARD, FORWARD, WEIGHT
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import ScheduleName

Order: TypeAlias = tuple[tuple[int, int, int], ...]
"""Operations of a stage: kind, micro-batch and chunk."""

ORDERED: tuple[ScheduleName, ...] = ("gpipe", "1f1b", "interleaved", "zb-h1")
"""Schedules whose orders are known: all that flush the pipeline at the end of a local step."""


def stage_orders(
    schedule: ScheduleName, caps: Sequence[int], micro_batches: int, chunks: int = 1, variant: int = 0
) -> list[Order]:
    """Return the orders of all stages and, last, of the server.

    Args:
        schedule: One of ``ORDERED``.
        caps: (S,) caps of the device stages, >= 1; not read under GPipe.
        micro_batches: ``M`` >= 1.
        chunks: ``v`` >= 1; 1 unless ``interleaved``.
        variant: Only for ``zb-h1``, 0 to 3: bit 0 leaves out the weight gradients, which then fill gaps; bit
            1 warms up longer.

    Returns:
        S + 1 orders.

    Raises:
        AllocationError: If the schedule has no flush, or a number is out of its range.
    """
    if schedule not in ORDERED:
        raise AllocationError(
            f"schedule {schedule!r} has no order for a single local step; use one of {', '.join(ORDERED)}"
        )
    if micro_batches < 1 or chunks < 1 or not caps or (schedule != "gpipe" and min(caps) < 1):
        raise AllocationError(
            f"micro_batches {micro_batches}, chunks {chunks} and caps {list(caps)} of schedule {schedule!r}: "
            "there is at least one stage, and all are 1 or more"
        )
    S, M = len(caps), micro_batches
    if schedule == "gpipe":
        return [_one_f_one_b(M, M, None)] * (S + 1)
    if schedule == "interleaved":
        if M % S:
            raise AllocationError(
                f"micro_batches {M} under 'interleaved' with {S} stages: use a multiple of the stages"
            )
        warm_ups = _not_increasing(caps, M * chunks)
        return [*(_interleaved(S, warm, M, chunks) for warm in warm_ups), _one_f_one_b(1, M, None)]
    if schedule == "zb-h1":
        warm_ups, lags = _warm_ups_and_lags(caps, M, longer=bool(variant & 2))
        gaps = bool(variant & 1)
        stages = [
            _one_f_one_b(warm, M, None if gaps else lag) for warm, lag in zip(warm_ups, lags, strict=True)
        ]
        return [*stages, _one_f_one_b(1, M, None if gaps else S)]
    return [*(_one_f_one_b(cap, M, None) for cap in _not_increasing(caps, M)), _one_f_one_b(1, M, None)]


def _not_increasing(caps: Sequence[int], most: int) -> list[int]:
    """Return the caps that a strict order can use: later stages never have more in flight."""
    return list(accumulate((min(cap, most) for cap in caps), min))


def _warm_ups_and_lags(
    caps: Sequence[int], micro_batches: int, *, longer: bool
) -> tuple[list[int], list[int]]:
    """Return each stage's forwards before the first backward, and delayed weight gradients, under ZB-H1."""
    wanted = []
    for s, cap in enumerate(caps):
        room, depth = min(cap, micro_batches), len(caps) + 1 - s
        want = max(depth, min(2 * depth - 1, room - s)) if longer else depth
        wanted.append(min(want, room))
    warm_ups = _not_increasing(wanted, micro_batches)
    return warm_ups, [max(min(s, min(caps[s], micro_batches) - warm_ups[s]), 0) for s in range(len(caps))]


def _one_f_one_b(warm_up: int, micro_batches: int, lag: int | None) -> Order:
    """Return forwards, then B and F in turn; weight gradients ``lag`` micro-batches after B, or none."""
    order = [(FORWARD, m, 0) for m in range(warm_up)]
    for m in range(micro_batches):
        order.append((BACKWARD, m, 0))
        if lag is not None and m >= lag:
            order.append((WEIGHT, m - lag, 0))
        if warm_up + m < micro_batches:
            order.append((FORWARD, warm_up + m, 0))
    if lag is not None:
        order += [(WEIGHT, m, 0) for m in range(max(micro_batches - lag, 0), micro_batches)]
    return tuple(order)


def _interleaved(stages: int, warm_up: int, micro_batches: int, chunks: int) -> Order:
    """Return Megatron's order with ``warm_up`` chunk-forwards before the first backward."""
    total, group = micro_batches * chunks, stages * chunks

    def operation(kind: int, j: int) -> tuple[int, int, int]:
        chunk, place = divmod(j % group, stages)
        m = (j // group) * stages + place
        return kind, m, chunk if kind == FORWARD else chunks - 1 - chunk

    order = [operation(FORWARD, j) for j in range(warm_up)]
    for j in range(total):
        order.append(operation(BACKWARD, j))
        if warm_up + j < total:
            order.append(operation(FORWARD, warm_up + j))
    return tuple(order)
