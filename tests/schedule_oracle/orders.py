"""Orders of operations of pipeline schedules, and the memory they need (`algorithms.md` section 5.1).

All schedules are standard forms; which of them the paper's system uses is not public [R], [X]. Stages ``s``
count from 0 along the pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from collapipe_env.ground.errors import AllocationError
from schedule_oracle.recurrence import Operation, OperationKind, StageTimes, run_orders

Order = tuple[Operation, ...]


def default_caps(stages: int, micro_batches: int, *, link_aware: bool = False) -> tuple[int, ...]:
    """Caps on in-flight micro-batches: ``min(P - s, M)``, or ``min(2 (P - s) - 1, M)`` that counts links.

    Args:
        stages: P >= 1.
        micro_batches: M >= 1.
        link_aware: Count every link as a stage, as slow links need at about twice the memory.

    Returns:
        ``K_s`` (P,).
    """
    depths = range(stages, 0, -1)
    return tuple(min(2 * d - 1 if link_aware else d, micro_batches) for d in depths)


def effective_caps(caps: Sequence[int], stages: int, micro_batches: int) -> tuple[int, ...]:
    """Caps that a strict order can use: ``min(K_0, ..., K_s, M)``.

    Whatever is in flight at a stage is in flight at every stage before it, so a cap above an earlier stage's
    can never be used; a strict order that waited for it would deadlock.

    Args:
        caps: (P,) caps >= 1.
        stages: P.
        micro_batches: M >= 1.

    Returns:
        (P,) caps, not increasing.

    Raises:
        AllocationError: A wrong number of caps, or a cap below 1.
    """
    if len(caps) != stages:
        raise AllocationError(f"caps has {len(caps)} entries, but there are {stages} stages; pass one each")
    for s, cap in enumerate(caps):
        if cap < 1:
            raise AllocationError(f"caps[{s}] is {cap}; a stage needs room for at least 1 micro-batch")
    return tuple(accumulate((min(cap, micro_batches) for cap in caps), min))


def gpipe_orders(stages: int, micro_batches: int) -> tuple[Order, ...]:
    """All forwards, then all backwards.

    Args:
        stages: P >= 1.
        micro_batches: M >= 1.

    Returns:
        P orders of 2 M operations.
    """
    return one_f_one_b_orders([micro_batches] * stages, micro_batches)


def one_f_one_b_orders(caps: Sequence[int], micro_batches: int) -> tuple[Order, ...]:
    """``K_s`` forwards, then B and F in turn, then the remaining backwards.

    Args:
        caps: (P,) effective caps, see :func:`effective_caps`.
        micro_batches: M >= 1.

    Returns:
        P orders of 2 M operations.
    """
    orders: list[Order] = []
    for cap in caps:
        order = [Operation("F", m) for m in range(cap)]
        for m in range(micro_batches):
            order.append(Operation("B", m))
            if cap + m < micro_batches:
                order.append(Operation("F", cap + m))
        orders.append(tuple(order))
    return tuple(orders)


def interleaved_warm_up(stage: int, stages: int, micro_batches: int, chunks: int) -> int:
    """Chunk-forwards before a stage's first backward, ``min(2 (P - s - 1) + (v - 1) P, M v)``.

    Args:
        stage: s.
        stages: P.
        micro_batches: M.
        chunks: v.

    Returns:
        A whole number; in the steady phase one more chunk is in flight.
    """
    return min(2 * (stages - stage - 1) + (chunks - 1) * stages, micro_batches * chunks)


def interleaved_orders(stages: int, micro_batches: int, chunks: int) -> tuple[Order, ...]:
    """Interleaved 1F1B in Megatron's order.

    The k-th forward is of group ``k // (P v)`` and, with ``i`` its place in the group, of chunk ``i // P``
    and micro-batch ``group P + i mod P``; backwards likewise with the chunks reversed.

    Args:
        stages: P >= 1.
        micro_batches: M, a multiple of P.
        chunks: v >= 1.

    Returns:
        P orders of 2 M v operations.

    Raises:
        AllocationError: P does not divide M, or v < 1.
    """
    if chunks < 1:
        raise AllocationError(f"chunks is {chunks}; a stage has at least 1 chunk")
    if micro_batches % stages:
        raise AllocationError(
            f"micro_batches is {micro_batches}, no multiple of the {stages} stages; interleaving takes "
            "micro-batches in groups of P: change M or the number of stages, or use '1f1b'"
        )

    def operation(kind: OperationKind, k: int) -> Operation:
        group, i = divmod(k, stages * chunks)
        chunk, within = divmod(i, stages)
        return Operation(kind, group * stages + within, chunk if kind == "F" else chunks - 1 - chunk)

    total = micro_batches * chunks
    orders: list[Order] = []
    for stage in range(stages):
        warm_up = interleaved_warm_up(stage, stages, micro_batches, chunks)
        order = [operation("F", k) for k in range(warm_up)]
        for k in range(total):
            if warm_up + k < total:
                order.append(operation("F", warm_up + k))
            order.append(operation("B", k))
        orders.append(tuple(order))
    return tuple(orders)


@dataclass(frozen=True)
class ZeroBubblePlan:
    """How ZB-H1 divides a stage's room for stored micro-batches.

    Attributes:
        warm_ups: (P,) forwards before the first backward, not increasing.
        lags: (P,) weight gradients that a stage keeps waiting.
        limits: (P,) stored micro-batches (forward done, weight gradient not), at least the other two's sum.
    """

    warm_ups: tuple[int, ...]
    lags: tuple[int, ...]
    limits: tuple[int, ...]


def zero_bubble_plan(
    caps: Sequence[int] | None, stages: int, micro_batches: int, *, link_aware: bool = False
) -> ZeroBubblePlan:
    """Warm-up ``P - s`` and lag ``s``, both within the caps.

    Args:
        caps: (P,) caps on stored micro-batches; ``None`` for ``P`` everywhere.
        stages: P.
        micro_batches: M.
        link_aware: Warm up with ``2 (P - s) - 1`` forwards instead; the default cap is then ``2 P - 1``.

    Returns:
        The plan.

    Raises:
        AllocationError: As for :func:`effective_caps`.
    """
    if caps is None:
        caps = [2 * stages - 1 if link_aware else stages] * stages
    effective_caps(caps, stages, micro_batches)
    limits = tuple(min(cap, micro_batches) for cap in caps)
    return _divide(limits, default_caps(stages, micro_batches, link_aware=link_aware))


def longer_warm_up(plan: ZeroBubblePlan) -> ZeroBubblePlan:
    """Warm up with up to ``2 (P - s) - 1`` forwards where the limits leave room, as slow links want.

    The warm-up still falls from stage to stage: two stages of equal warm-up would work in lockstep, each
    backward of the first waiting for the second's forward just sent.

    Args:
        plan: A plan.

    Returns:
        A plan of the same limits, the same plan if there is no room.
    """
    P = len(plan.limits)
    wanted = [
        max(warm_up, min(2 * (P - s) - 1, limit - s))
        for s, (warm_up, limit) in enumerate(zip(plan.warm_ups, plan.limits, strict=True))
    ]
    return _divide(plan.limits, wanted)


def _divide(limits: tuple[int, ...], wanted: Sequence[int]) -> ZeroBubblePlan:
    warm_ups = effective_caps(list(map(min, wanted, limits)), len(limits), max(limits))
    lags = tuple(min(s, limit - warm) for s, (limit, warm) in enumerate(zip(limits, warm_ups, strict=True)))
    return ZeroBubblePlan(warm_ups, lags, limits)


def zero_bubble_orders(plan: ZeroBubblePlan, micro_batches: int) -> tuple[Order, ...]:
    """1F1B with B the input gradient only; after ``B_j`` runs ``W_{j - lag}``, what is left over runs last.

    Args:
        plan: Warm-ups and lags.
        micro_batches: M >= 1.

    Returns:
        P orders of 3 M operations.
    """
    orders: list[Order] = []
    for lag, base in zip(plan.lags, one_f_one_b_orders(plan.warm_ups, micro_batches), strict=True):
        order: list[Operation] = []
        for x in base:
            order.append(x)
            if x.kind == "B" and x.micro_batch >= lag:
                order.append(Operation("W", x.micro_batch - lag))
        order += [Operation("W", m) for m in range(max(micro_batches - lag, 0), micro_batches)]
        orders.append(tuple(order))
    return tuple(orders)


@dataclass(frozen=True)
class _GapFilling:
    """Weight gradients into gaps before operations that wait for their input, and wherever memory is full."""

    weight: Sequence[float]
    limits: Sequence[int]
    lags: Sequence[int] | None
    overrun: bool

    def count(
        self, stage: int, kind: OperationKind, now: float, arrival: float, stored: int, pending: int
    ) -> int:
        chosen = 0
        while chosen < pending:
            full = kind == "F" and stored - chosen >= self.limits[stage]
            due = self.lags is not None and pending - chosen > self.lags[stage]
            fits = now + self.weight[stage] <= arrival or (self.overrun and now < arrival)
            if not (full or due or fits):
                break
            now += self.weight[stage]
            chosen += 1
        return chosen


def gap_filling_orders(
    times: StageTimes, plan: ZeroBubblePlan, micro_batches: int, *, overrun: bool, keep_lags: bool
) -> tuple[Order, ...]:
    """Split-backward orders for heterogeneous times: W goes where a stage would wait for an input.

    A greedy in the spirit of the zero-bubble schedulers' [R]: before an F or B whose input is not there yet,
    pending W that fit the gap run; where memory is full, W is forced. Times are those of full duplex.

    Args:
        times: Stages and links, with ``weight``.
        plan: Warm-ups, lags and limits; each limit at least the warm-up.
        micro_batches: M >= 1.
        overrun: Start a last W also where it does not quite fit.
        keep_lags: Also run every W that is further behind than the plan's lag, as the uniform order does.

    Returns:
        P orders of 3 M operations.
    """
    fill = _GapFilling(times.weight or (), plan.limits, plan.lags if keep_lags else None, overrun)
    made: list[list[Operation]] = [[] for _ in range(times.stages)]
    for event in run_orders(one_f_one_b_orders(plan.warm_ups, micro_batches), times, fill=fill):
        if not event.is_link:
            made[event.element // 2].append(Operation(event.kind, event.micro_batch))
    return tuple(map(tuple, made))
