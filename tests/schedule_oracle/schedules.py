"""Pipeline schedules beyond GPipe: simulated exactly, with their memory and the period they settle at.

``gpipe``, ``1f1b`` (caps ``K_s``), ``interleaved`` (v chunks), ``zb-h1`` (split backward) and ``async`` (1F1B
that does not flush between mini-batches), through the recurrence of `algorithms.md` section 5.1 [R], [X].
:func:`simulate` gives the events, :func:`stored_micro_batches` the memory; the closed forms and estimates are
in :mod:`schedule_oracle.periods`.

    >>> times = StageTimes(forward=(1.0,) * 4, backward=(2.0,) * 4)
    >>> simulate("1f1b", times, 8).makespan_s
    33.0
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import cast

import numpy as np
from numpy.typing import NDArray

from collapipe_env.ground.errors import AllocationError, ScenarioError, nearest_name
from collapipe_env.physics.allocation import SCHEDULES, ScheduleName
from collapipe_env.physics.memory import device_memory
from collapipe_env.physics.schedules.timeline import Element
from schedule_oracle import orders as forms
from schedule_oracle.periods import (
    estimated_makespan,
    gpipe_makespan,
    gpipe_period,
    steady_period,
)
from schedule_oracle.recurrence import Duplex, ScheduleEvent, StageTimes, run_orders


@dataclass(frozen=True)
class Schedule:
    """A pipeline schedule and its settings.

    Attributes:
        name: One of :data:`SCHEDULES`.
        caps: In-flight caps (P,) of ``1f1b``, ``async`` and (as caps on stored micro-batches, until their
            weight gradient is done) ``zb-h1``; ``None`` for the default of ``P - s``, of ``zb-h1`` ``P``.
        link_aware: With the default caps, count links as stages: ``2 (P - s) - 1``.
        chunks: v of ``interleaved``.
        mini_batches: Mini-batches that ``async`` runs without a flush in between.
        gap_filling: Let ``zb-h1`` try, beside its uniform order, orders that put weight gradients into gaps.

    Raises:
        ScenarioError: The name is unknown.
        AllocationError: A setting that the named schedule does not have, or a count below 1.
    """

    name: ScheduleName
    caps: tuple[int, ...] | None = None
    link_aware: bool = False
    chunks: int = 1
    mini_batches: int = 1
    gap_filling: bool = True

    def __post_init__(self) -> None:
        if self.name not in SCHEDULES:
            raise ScenarioError(f"schedule is {self.name!r}; {nearest_name(self.name, SCHEDULES)}")
        for field, count, owner in (
            ("chunks", self.chunks, "interleaved"),
            ("mini_batches", self.mini_batches, "async"),
        ):
            if count < 1:
                raise AllocationError(f"{field} is {count}; give at least 1")
            if count > 1 and self.name != owner:
                raise AllocationError(
                    f"{field} is {count}, but schedule {self.name!r} takes 1; see {owner!r}"
                )
        if (self.caps is not None or self.link_aware) and self.name in ("gpipe", "interleaved"):
            raise AllocationError(
                f"schedule {self.name!r} fixes how many micro-batches are in flight; "
                "leave out caps and link_aware, or use '1f1b'"
            )
        if self.caps is not None and self.link_aware:
            raise AllocationError("link_aware chooses caps; give it or caps, not both")


@dataclass(frozen=True)
class ScheduleRun:
    """One simulated local step (``async``: several without a flush).

    Attributes:
        events: What stages and links did, in order of completion.
        makespan_s: When the last of it ended [s].
        peak_in_flight: (P,) most micro-batches whose activations each stage held at once, counted from the
            events; a chunk counts 1/v, and with a split backward a micro-batch counts until its W is done.
        period_s: Time per micro-batch in the steady phase as estimated by section 5.3 [s]; ``None`` for
            ``interleaved`` and ``zb-h1``, for which there is no such formula.
        estimate_s: Makespan estimated from the period [s], for GPipe exact; ``None`` as above.
        measured_period_s: Time per micro-batch measured over the later mini-batches [s], ``None`` with fewer
            than three.
    """

    events: tuple[ScheduleEvent, ...]
    makespan_s: float
    peak_in_flight: tuple[float, ...]
    period_s: float | None
    estimate_s: float | None
    measured_period_s: float | None


def simulate(
    schedule: Schedule | str, times: StageTimes, micro_batches: int, *, duplex: Duplex = "full"
) -> ScheduleRun:
    """Run a schedule on given stages and links.

    Args:
        schedule: The schedule, or the name of one with default settings.
        times: Seconds per micro-batch; ``weight`` is needed by ``zb-h1``, the others add it to ``backward``.
            ``interleaved`` with several chunks takes links with the wrap-around, or none.
        micro_batches: M >= 1 per mini-batch.
        duplex: ``"full"`` for links with a queue per direction, ``"half"`` for one shared queue.

    Returns:
        The run. Half duplex never ends earlier than full.

    Raises:
        ScenarioError: The schedule's name is unknown.
        AllocationError: M < 1, bad caps, P does not divide M under ``interleaved``, no ``weight`` for
            ``zb-h1``, no wrap-around link for ``interleaved``, or an unknown duplex mode.
    """
    spec = _spec(schedule)
    P = times.stages
    _check_micro_batches(micro_batches)
    total = micro_batches * spec.mini_batches
    if spec.name == "zb-h1":
        if times.weight is None:
            raise AllocationError("'zb-h1' splits the backward pass, but weight is None; give W_s per stage")
        events = _zero_bubble(spec, times, micro_batches, duplex)
        period = estimate = None
    elif spec.name == "interleaved":
        times = _unsplit(times)
        for name, links in (("link_forward", times.link_forward), ("link_backward", times.link_backward)):
            if spec.chunks > 1 and P > 1 and len(links) == P - 1:
                raise AllocationError(
                    f"{name} has {P - 1} entries, but 'interleaved' also sends from the last stage to the "
                    f"first; give {P}, the last one for that link"
                )
        order = forms.interleaved_orders(P, micro_batches, spec.chunks)
        events = run_orders(order, times, chunks=spec.chunks, duplex=duplex)
        period = estimate = None
    else:
        times = _unsplit(times)
        caps = schedule_caps(spec, P, micro_batches)
        events = run_orders(forms.one_f_one_b_orders(caps, total), times, duplex=duplex)
        if spec.name == "gpipe":
            period, estimate = gpipe_period(times), gpipe_makespan(times, micro_batches)
        else:
            period = steady_period(times, caps, duplex=duplex)
            estimate = estimated_makespan(times, total, period)
    return ScheduleRun(
        events=tuple(events),
        makespan_s=_end(events),
        peak_in_flight=peak_in_flight(events, P, chunks=spec.chunks),
        period_s=period,
        estimate_s=estimate,
        measured_period_s=_measured_period(events, micro_batches, spec.mini_batches),
    )


def schedule_caps(schedule: Schedule | str, stages: int, micro_batches: int) -> tuple[int, ...]:
    """In-flight caps in force under ``gpipe``, ``1f1b`` and ``async``.

    Args:
        schedule: The schedule.
        stages: P.
        micro_batches: M of a mini-batch.

    Returns:
        ``K_s`` (P,): given or default ones, limited to the micro-batches that there are and to the caps of
        earlier stages (which is no loss, see :func:`~schedule_oracle.orders.effective_caps`).

    Raises:
        AllocationError: Bad caps, or a schedule that has none.
    """
    spec = _spec(schedule)
    _check_micro_batches(micro_batches)
    if spec.name not in ("gpipe", "1f1b", "async"):
        raise AllocationError(f"schedule {spec.name!r} has no such caps; see stored_micro_batches")
    total = micro_batches * spec.mini_batches
    if spec.name == "gpipe":
        return (micro_batches,) * stages
    caps = spec.caps
    if caps is None:
        caps = forms.default_caps(stages, total, link_aware=spec.link_aware)
    return forms.effective_caps(caps, stages, total)


def stored_micro_batches(schedule: Schedule | str, stages: int, micro_batches: int) -> tuple[float, ...]:
    """Micro-batches whose activations each stage must have room for.

    GPipe ``M``; 1F1B and async ``min(K_s, M)``; interleaved ``min(2 (P - s - 1) + (v - 1) P + 1, M v) / v``;
    ZB-H1 its limit ``min(P, M)`` or cap (an upper bound; every other one is attained).

    Args:
        schedule: The schedule.
        stages: P >= 1.
        micro_batches: M >= 1 per mini-batch.

    Returns:
        (P,) micro-batches, fractions of 1/v where there are chunks.

    Raises:
        AllocationError: As for :func:`simulate`.
    """
    spec = _spec(schedule)
    _check_micro_batches(micro_batches)
    if spec.name == "zb-h1":
        plan = forms.zero_bubble_plan(spec.caps, stages, micro_batches, link_aware=spec.link_aware)
        return tuple(map(float, plan.limits))
    if spec.name == "interleaved":
        v = spec.chunks
        warm_ups = (forms.interleaved_warm_up(s, stages, micro_batches, v) for s in range(stages))
        return tuple(min(warm_up + 1, micro_batches * v) / v for warm_up in warm_ups)
    return tuple(map(float, schedule_caps(spec, stages, micro_batches)))


def stage_memory(
    stored: Sequence[float],
    blocks: Sequence[int],
    samples: float,
    block_state_bytes: float,
    activation_bytes: float,
    *,
    weight_copy_bytes: float = 0.0,
) -> NDArray[np.float64]:
    """Bytes of each stage under a schedule, ``delta_s (16 w + m_s b alpha)``.

    Args:
        stored: ``m_s`` (P,), from :func:`stored_micro_batches` or ``peak_in_flight`` of a run.
        blocks: ``delta_s`` (P,).
        samples: b, samples of a micro-batch on the device.
        block_state_bytes: ``16 w`` of one block.
        activation_bytes: ``alpha`` per sample and block.
        weight_copy_bytes: Bytes of a second copy of a block's weights, which ``async`` keeps [R].

    Returns:
        (P,) bytes.

    Raises:
        AllocationError: ``stored`` and ``blocks`` differ in length.
    """
    if len(stored) != len(blocks):
        raise AllocationError(
            f"stored has {len(stored)} entries, blocks {len(blocks)}; both take one a stage"
        )
    in_flight = samples * np.asarray(stored, dtype=np.float64)
    state = block_state_bytes + weight_copy_bytes
    return cast(
        NDArray[np.float64],
        device_memory(np.asarray(blocks, dtype=np.float64), in_flight, state, activation_bytes),
    )


def peak_in_flight(events: Iterable[ScheduleEvent], stages: int, *, chunks: int = 1) -> tuple[float, ...]:
    """Count from events how many micro-batches each stage holds at most.

    Args:
        events: Events in order of completion.
        stages: P.
        chunks: v; a chunk counts 1/v.

    Returns:
        (P,) peaks. Activations are held from the start of F to the end of B, or of W where there is one.
    """
    own: defaultdict[int, list[str]] = defaultdict(list)
    for event in events:
        if not event.is_link:
            own[event.element // 2].append(event.kind)
    peaks: list[float] = []
    for stage in range(stages):
        release = "W" if "W" in own[stage] else "B"
        # A stage does one thing at a time, so the order of its operations is all that matters.
        steps = ((kind == "F") - (kind == release) for kind in own[stage])
        peaks.append(max(accumulate(steps), default=0) / chunks)
    return tuple(peaks)


def chain_times(elements: Sequence[Element]) -> StageTimes:
    """Stages and links of a cluster's chain as drawn by :mod:`~collapipe_env.physics.schedules.timeline`.

    Compute elements and the server are stages, hops and the uplink are links. Where a link begins the chain,
    ends it or follows another one, the CU there is a stage that takes no time.

    Args:
        elements: The pipeline in forward order, at least one element.

    Returns:
        The times; stages that take no time count as stages in caps, too.

    Raises:
        AllocationError: No element, or a time that is negative or not finite.
    """
    stages: list[tuple[float, float]] = []
    links: list[tuple[float, float]] = []
    for element in elements:
        pair = element.forward_s, element.backward_s
        if element.kind in ("hop", "uplink"):
            if len(stages) == len(links):
                stages.append((0.0, 0.0))
            links.append(pair)
        else:
            if len(stages) > len(links):
                links.append((0.0, 0.0))
            stages.append(pair)
    if links and len(stages) == len(links):
        stages.append((0.0, 0.0))
    return StageTimes(
        forward=tuple(f for f, _ in stages),
        backward=tuple(b for _, b in stages),
        link_forward=tuple(f for f, _ in links),
        link_backward=tuple(b for _, b in links),
    )


def _spec(schedule: Schedule | str) -> Schedule:
    return schedule if isinstance(schedule, Schedule) else Schedule(cast(ScheduleName, schedule))


def _check_micro_batches(micro_batches: int) -> None:
    if micro_batches < 1:
        raise AllocationError(f"micro_batches is {micro_batches}; a local step has at least one micro-batch")


def _unsplit(times: StageTimes) -> StageTimes:
    return replace(times, backward=times.whole_backward, weight=None)


def _end(events: Sequence[ScheduleEvent]) -> float:
    return events[-1].end_s if events else 0.0


def _zero_bubble(
    spec: Schedule, times: StageTimes, micro_batches: int, duplex: Duplex
) -> list[ScheduleEvent]:
    plan = forms.zero_bubble_plan(spec.caps, times.stages, micro_batches, link_aware=spec.link_aware)
    best = run_orders(forms.zero_bubble_orders(plan, micro_batches), times, duplex=duplex)
    if not spec.gap_filling:
        return best
    longer = forms.longer_warm_up(plan)
    for tried in (plan,) if plan == longer else (plan, longer):
        for overrun in (False, True):
            for keep_lags in (False, True):
                order = forms.gap_filling_orders(
                    times, tried, micro_batches, overrun=overrun, keep_lags=keep_lags
                )
                events = run_orders(order, times, duplex=duplex)
                if _end(events) < _end(best):
                    best = events
    return best


def _measured_period(events: Iterable[ScheduleEvent], micro_batches: int, mini_batches: int) -> float | None:
    if mini_batches < 3:
        return None
    # Starts at the first stage feel neither the drain at the end nor, past the middle, the fill.
    middle = (mini_batches - 1) // 2
    wanted = {middle * micro_batches: 0.0, (mini_batches - 1) * micro_batches: 0.0}
    for event in events:
        if event.element == 0 and event.kind == "F" and event.micro_batch in wanted:
            wanted[event.micro_batch] = event.start_s
    first, last = wanted.values()
    return (last - first) / ((mini_batches - 1 - middle) * micro_batches)
