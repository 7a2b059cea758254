"""Pipeline schedules as points of a small space, with a short text form, and the search in that space ([X]).

FlexPipe (arXiv 2510.05112) describes schedules in a language of its own, whose grammar is not public. The
notation here is ours and covers what the simulator can run:

    1f1b k=link v=1 m=16 d=2,0,1

The first word is the schedule; ``k`` its caps (``ordinary``, ``link``, ``room`` or a number for all stages),
``v`` the chunks of each device, ``m`` the number of micro-batches and ``d`` the device of each stage. ``m``
and ``d`` may be left out: the search chooses them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, get_args

from collapipe_env.ground.errors import AllocationError, nearest_name
from collapipe_env.physics.allocation import ScheduleName

from .chain_problem import ChainProblem
from .plan_search import (
    Found,
    best_plan,
    device_sets,
    next_numbers,
    quickest,
    rearranged,
    resized_devices,
    shifted_blocks,
    usable_devices,
)
from .scheduled_plan import CapRule, ScheduledPlan, caps_of

SYNCHRONOUS: tuple[ScheduleName, ...] = ("gpipe", "1f1b", "interleaved", "zb-h1")
"""Schedules in the space."""

RULES: tuple[CapRule, ...] = get_args(CapRule)


@dataclass(frozen=True)
class ScheduleTuple:
    """One schedule without a partition; micro-batches flow in one direction.

    Attributes:
        schedule: The simulator's name of the order of operations: all forwards before the first backward
            (``gpipe``), or backward as soon as possible, with a whole or a split (``zb-h1``) backward pass.
        chunks: ``v``, above 1 for interleaved stages.
        caps: Rule for the caps ``K_s``, or one number for all stages; ``None`` under ``gpipe``.
        micro_batches: ``M``; ``None`` if open.
        devices: Device of each stage, all different; ``None`` if open.

    Raises:
        AllocationError: If the simulator has no such schedule; says why.
    """

    schedule: ScheduleName = "1f1b"
    chunks: int = 1
    caps: CapRule | int | None = "ordinary"
    micro_batches: int | None = None
    devices: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        v, k, m, d = self.chunks, self.caps, self.micro_batches, self.devices
        several, gpipe = self.schedule == "interleaved", self.schedule == "gpipe"
        unknown = isinstance(k, str) and k not in RULES
        odd = d is not None and (not d or len(set(d)) < len(d) or min(d) < 0)
        falling = "stages wait for each other unless the caps fall along the pipe: use 'ordinary' or 'link'"
        needed = "'gpipe' runs all forwards first and has no caps, all others need them"
        for wrong, fault in (
            (v < 1, f"v = {v}: a device has 1 chunk or more"),
            ((v > 1) != several, f"v = {v}: v is 2 or more under 'interleaved' and 1 under the others"),
            ((k is None) != gpipe, f"k = {k}: {needed}"),
            (isinstance(k, int) and k < 1, f"k = {k}: at least 1 micro-batch is in flight"),
            (unknown, f"k = {k}: a number or a rule, {nearest_name(str(k), RULES)}"),
            (v > 1 and k not in ("ordinary", "link"), f"k = {k}: 'interleaved' {falling}"),
            (m is not None and m < 1, f"m = {m}: at least 1 micro-batch"),
            (odd, f"d = {d}: different devices, counted from 0, at least one"),
        ):
            if wrong:
                raise AllocationError(fault)

    def plan(
        self, micro_batches: int, devices: tuple[int, ...], held: tuple[int, ...] = (), origin: int = 0
    ) -> ScheduledPlan:
        """A draft of this schedule, on these devices and with this ``M`` where they are open."""
        M, own, v = self.micro_batches or micro_batches, self.devices or devices, self.chunks
        caps = caps_of(self.caps or "ordinary", self.schedule, len(own), v, M)
        return ScheduledPlan(own, held, self.schedule, caps, M, v, origin)

    def __str__(self) -> str:
        """The text form; :func:`parse_schedule` reads it back."""
        devices = None if self.devices is None else ",".join(str(k) for k in self.devices)
        words = {"k": self.caps, "v": self.chunks, "m": self.micro_batches, "d": devices}
        given = [f"{key}={value}" for key, value in words.items() if value is not None]
        return " ".join([self.schedule, *given])


def parse_schedule(text: str) -> ScheduleTuple:
    """Read the text form of a schedule.

    Args:
        text: As in ``"1f1b k=link v=1 m=16"``. Left out, ``k`` is ``ordinary`` and ``v`` is 1 (2 under
            ``interleaved``).

    Raises:
        AllocationError: Names the word at fault, and what may stand there.
    """
    try:
        return _parsed(*text.split() or [""])
    except AllocationError as error:
        raise AllocationError(f"schedule {text!r}: {error}") from None


def _parsed(name: str, *words: str) -> ScheduleTuple:
    if name not in SYNCHRONOUS:
        raise AllocationError(f"{name!r} is not a schedule: " + nearest_name(name, SYNCHRONOUS))
    values: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not value or key not in ("k", "v", "m", "d"):
            raise AllocationError(f"{word!r} is not understood: k=, v=, m= or d= and a value, no spaces")
        if key in values:
            raise AllocationError(f"{key} is given twice")
        values[key] = value
    caps: str | int | None = values.get("k", None if name == "gpipe" else "ordinary")
    if caps is not None and caps not in RULES:
        caps = _number("k", str(caps), f" or a rule ({', '.join(RULES)})")
    chunks = _number("v", values.get("v", "2" if name == "interleaved" else "1"))
    micro_batches = _number("m", values["m"]) if "m" in values else None
    devices = tuple(_number("d", k) for k in values["d"].split(",")) if "d" in values else None
    return ScheduleTuple(name, chunks, caps, micro_batches, devices)


def _number(key: str, value: str, otherwise: str = "") -> int:
    if not (value.isascii() and value.isdigit()) or len(value) > 9:
        raise AllocationError(f"{key}={value} needs a whole number{otherwise}")
    return int(value)


class Space(NamedTuple):
    """Space that is searched.

    Attributes:
        schedules: Schedules; the search decides what they leave open and keeps what they fix.
        micro_batches: Numbers of micro-batches for those that leave ``m`` open, ascending.
    """

    schedules: tuple[ScheduleTuple, ...]
    micro_batches: tuple[int, ...]

    @classmethod
    def of(cls, schedules: Sequence[str], micro_batches: Sequence[int]) -> Space:
        """The space of schedules in the notation of this module, each once."""
        return cls(tuple(dict.fromkeys(parse_schedule(text) for text in schedules)), tuple(micro_batches))

    def numbers(self) -> tuple[int, ...]:
        """All numbers of micro-batches that a plan may have, ascending."""
        fixed = (s.micro_batches for s in self.schedules if s.micro_batches is not None)
        return tuple(sorted({*self.micro_batches, *fixed}))

    def first(self, sets: Sequence[tuple[int, ...]]) -> Iterator[ScheduledPlan]:
        """Every schedule with every number of micro-batches on every set of devices, in pipeline order."""
        for origin, schedule in enumerate(self.schedules):
            numbers = self.micro_batches if schedule.micro_batches is None else (schedule.micro_batches,)
            for M in numbers:
                for devices in sets if schedule.devices is None else [schedule.devices]:
                    yield schedule.plan(M, devices, origin=origin)

    def neighbours(self, plan: ScheduledPlan, usable: Sequence[int]) -> Iterator[ScheduledPlan]:
        """Plans that differ in one part: a boundary, a device, the schedule or the micro-batches."""
        devices, held, M, origin = plan.devices, plan.held, plan.micro_batches, plan.origin
        template = self.schedules[origin]
        # The plan's own caps may have been lowered to its memories; a neighbour's begin with the rule again.
        own = template.plan(M, devices, held, origin)
        for shifted in shifted_blocks(held, range(len(held))):
            if min(shifted) > 0:
                yield own._replace(held=shifted)
        if template.devices is None:
            yield from rearranged(own, usable)
            for other in resized_devices(devices, usable):
                yield template.plan(M, other, origin=origin)
        if template.micro_batches is None:
            for number in next_numbers(self.micro_batches, M):
                yield template.plan(number, devices, held, origin)
        for place, schedule in enumerate(self.schedules):
            if place != origin and (schedule.micro_batches is not None or M in self.micro_batches):
                draft = schedule.plan(M, devices, origin=place)
                keeps = draft.devices == devices and min(held) >= schedule.chunks
                yield draft._replace(held=held) if keeps else draft


def search(problem: ChainProblem, space: Space, width: int) -> Found:
    """Beam search: sets of devices, then schedules on them, then all parts one at a time.

    Sets are ranked with a balanced partition under 1F1B and caps that count the links. The search follows
    ``width`` plans at a time. No neighbour of the plan that it returns is quicker.

    Raises:
        AllocationError: If no plan in the space fits the memories.
    """
    numbers, probe = space.numbers(), ScheduleTuple(caps="link")
    usable = usable_devices(problem, numbers[-1])
    sets = device_sets(problem, usable)
    # The best number of micro-batches for all devices, and the next ones, stand for all numbers.
    M = quickest(problem, [probe.plan(M, usable) for M in numbers])[0].plan.micro_batches
    near = (M, *next_numbers(numbers, M))
    probes = [probe.plan(number, devices) for devices in sets for number in near]
    # Enough of them for the wanted number of sets, each with its best number first.
    ranked = [found.plan.devices for found in quickest(problem, probes, keep=(width - 1) * len(near) + 1)]
    best = dict.fromkeys([*list(dict.fromkeys(ranked))[:width], usable])
    for starts in (tuple(best), sets):
        moves = [[lambda plan: space.neighbours(plan, usable)]]
        found = best_plan(problem, list(space.first(starts)), moves, width)
        if found is not None:
            return found
    texts = ", ".join(repr(str(schedule)) for schedule in space.schedules)
    raise AllocationError(f"its devices have no memory for any plan among {texts}: allow another schedule")
