"""Pipeline schedules as points of a small space, with a short text form.

FlexPipe (arXiv 2510.05112) describes schedules in a language of its own, whose grammar is not public. The
notation here is ours ([X]) and covers what the simulator can run:

    1f1b k=link v=1 m=16 d=2,0,1

The first word is the schedule; ``k`` its caps (``ordinary``, ``link``, ``room`` or a number for all stages),
``v`` the chunks of each device, ``m`` the number of micro-batches and ``d`` the device of each stage. ``m``
and ``d`` may be left out: a search chooses them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import get_args

from collapipe_env.ground.errors import AllocationError, nearest_name
from collapipe_env.physics.allocation import ScheduleName

from .schedule_search import CapRule, caps_of
from .scheduled_plan import ScheduledPlan

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
        if self.chunks < 1:
            raise AllocationError(f"v = {self.chunks}: a device has 1 chunk or more")
        if (self.chunks > 1) != (self.schedule == "interleaved"):
            raise AllocationError(
                f"v = {self.chunks}: v is 2 or more under 'interleaved' and 1 under the others"
            )
        if (self.caps is None) != (self.schedule == "gpipe"):
            raise AllocationError(
                f"k = {self.caps}: 'gpipe' runs all forwards first and has no caps, all others need them"
            )
        if isinstance(self.caps, int) and self.caps < 1:
            raise AllocationError(f"k = {self.caps}: at least 1 micro-batch is in flight")
        if isinstance(self.caps, str) and self.caps not in RULES:
            raise AllocationError(f"k = {self.caps}: a number or a rule, {nearest_name(self.caps, RULES)}")
        if self.chunks > 1 and self.caps not in ("ordinary", "link"):
            raise AllocationError(
                f"k = {self.caps}: 'interleaved' stages wait for each other unless the caps fall along the "
                "pipe: use 'ordinary' or 'link'"
            )
        if self.micro_batches is not None and self.micro_batches < 1:
            raise AllocationError(f"m = {self.micro_batches}: at least 1 micro-batch")
        if self.devices is not None and (
            not self.devices or len(set(self.devices)) < len(self.devices) or min(self.devices) < 0
        ):
            raise AllocationError(f"d = {self.devices}: different devices, counted from 0, at least one")

    def plan(self, held: tuple[int, ...] = ()) -> ScheduledPlan:
        """A candidate plan of this schedule.

        Args:
            held: Blocks of each stage (S,); empty for a balanced split.

        Raises:
            AllocationError: Micro-batches or devices are open.
        """
        if self.devices is None or self.micro_batches is None:
            raise AllocationError(f"{str(self)!r} leaves m or d open: a plan needs both")
        S, M = len(self.devices), self.micro_batches
        caps = caps_of(self.caps or "ordinary", self.schedule, S, self.chunks, M)
        return ScheduledPlan(self.devices, held, self.schedule, caps, M, self.chunks)

    def __str__(self) -> str:
        """The text form; :func:`parse_schedule` reads it back."""
        words: list[str] = [self.schedule]
        if self.caps is not None:
            words.append(f"k={self.caps}")
        words.append(f"v={self.chunks}")
        if self.micro_batches is not None:
            words.append(f"m={self.micro_batches}")
        if self.devices is not None:
            words.append("d=" + ",".join(str(k) for k in self.devices))
        return " ".join(words)


def parse_schedule(text: str) -> ScheduleTuple:
    """Read the text form of a schedule.

    Args:
        text: As in ``"1f1b k=link v=1 m=16"``. Left out, ``k`` is ``ordinary`` and ``v`` is 1 (2 under
            ``interleaved``).

    Raises:
        AllocationError: Names the word at fault, and what may stand there.
    """
    words = text.split()
    name = words[0] if words else ""
    if name not in SYNCHRONOUS:
        raise AllocationError(
            f"schedule {text!r}: {name!r} is not a schedule: " + nearest_name(name, SYNCHRONOUS)
        )
    values: dict[str, str] = {}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if not equals or not value or key not in ("k", "v", "m", "d"):
            raise AllocationError(
                f"schedule {text!r}: {word!r} is not understood: k=, v=, m= or d= and a value, no spaces"
            )
        if key in values:
            raise AllocationError(f"schedule {text!r}: {key} is given twice")
        values[key] = value
    if "k" not in values and name != "gpipe":
        values["k"] = "ordinary"
    caps: str | int | None = values.get("k")
    if caps is not None and caps not in RULES:
        caps = _number(text, "k", str(caps), f" or a rule ({', '.join(RULES)})")
    chunks = _number(text, "v", values.get("v", "2" if name == "interleaved" else "1"))
    micro_batches = _number(text, "m", values["m"]) if "m" in values else None
    devices = tuple(_number(text, "d", k) for k in values["d"].split(",")) if "d" in values else None
    try:
        return ScheduleTuple(name, chunks, caps, micro_batches, devices)
    except AllocationError as error:
        raise AllocationError(f"schedule {text!r}: {error}") from None


def placed(schedule: ScheduleTuple, micro_batches: int, devices: tuple[int, ...]) -> ScheduleTuple:
    """The schedule with its open parts filled in."""
    return replace(
        schedule,
        micro_batches=schedule.micro_batches or micro_batches,
        devices=schedule.devices or devices,
    )


def _number(text: str, key: str, value: str, otherwise: str = "") -> int:
    if not (value.isascii() and value.isdigit()) or len(value) > 9:
        raise AllocationError(f"schedule {text!r}: {key}={value} needs a whole number{otherwise}")
    return int(value)
