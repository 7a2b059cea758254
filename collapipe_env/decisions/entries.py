"""Entries of opened decisions in an action: names, positions and meanings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from collapipe_env.ground.arrays import Array
from collapipe_env.physics.allocation import GPIPE, ONE_F_ONE_B, SCHEDULES, ZERO_BUBBLE
from collapipe_env.scenario.decision_names import Decision

SCHEDULE_CHOICES = (GPIPE, ONE_F_ONE_B, ZERO_BUBBLE)
"""Schedules that an action can name, in the order in which their entry names them."""
_NAMES = ", ".join(SCHEDULES[choice] for choice in SCHEDULE_CHOICES)


class OpenedPart(NamedTuple):
    """A part of an action that an opened decision adds.

    Attributes:
        name: Its name.
        per_device: Whether each device has an entry, rather than each cluster.
        description: Meaning of its entries, with ``{last}`` for ``L - 1``, ``{steps}`` for the allowed
            numbers of steps and ``{clock}`` for the least cap on a clock.
    """

    name: str
    per_device: bool
    description: str


_PARTS: Mapping[Decision, tuple[OpenedPart, ...]] = MappingProxyType(
    {
        "recompute": (
            OpenedPart(
                "recompute",
                False,
                "recomputation: at 0 and above devices store only the inputs of blocks and recompute the "
                "rest, below 0 they store all activations if the encoder then fits",
            ),
        ),
        "schedule": (
            OpenedPart(
                "schedule",
                False,
                f"schedule of the micro-batches: the nearest of {_NAMES}, spaced evenly over [-1, 1], or "
                "1f1b if the encoder does not fit under it",
            ),
            OpenedPart(
                "caps",
                True,
                "micro-batches in flight on the device under 1f1b and zb-h1: -1 for one, 1 for all, at most "
                "as many as fit in the memory that its blocks leave",
            ),
        ),
        "server_blocks": (
            OpenedPart(
                "server_blocks",
                False,
                "number of the encoder's last blocks that the server runs: the nearest of 0..{last}, spaced "
                "evenly over [-1, 1], fewer if the server's memory is too small for all clusters",
            ),
        ),
        "participation": (
            OpenedPart(
                "participation",
                False,
                "participation: at 0 and above the cluster takes part in the round if its devices can hold "
                "its blocks, below 0 it sits the round out; if all are below 0, the highest takes part",
            ),
        ),
        "local_steps": (
            OpenedPart(
                "local_steps",
                False,
                "local steps of the cluster: the nearest of {steps}, spaced evenly over [-1, 1]",
            ),
        ),
        "clock_cap": (
            OpenedPart(
                "clock_cap",
                True,
                "cap on the device's clock as a share of its full clock, on a geometric scale: "
                "-1 for {clock:g}, 1 for no cap",
            ),
        ),
    }
)
"""Parts that each decision adds, in their order."""


@dataclass(frozen=True)
class OpenedLayout:
    """Positions of opened decisions among the entries of a cluster.

    Attributes:
        opened: Decisions that the scenario opens beyond CollaPipe's own, in their order.
        devices: ``K``.
        blocks: ``L``.
        first: Number of entries of CollaPipe's own decisions, which come first.
        step_choices: Allowed numbers of local steps, ascending, needed where these are open.
        clock_cap_min: Least cap on a clock, in (0, 1], where these are open.
    """

    opened: tuple[Decision, ...]
    devices: int
    blocks: int
    first: int
    step_choices: tuple[int, ...] = ()
    clock_cap_min: float = 1.0

    def __iter__(self) -> Iterator[OpenedPart]:
        """Parts in their order."""
        return (part for name in self.opened for part in _PARTS[name])

    def __contains__(self, decision: object) -> bool:
        return decision in self.opened

    @cached_property
    def width(self) -> int:
        """Number of a cluster's entries for all opened decisions together."""
        return sum(self.devices if part.per_device else 1 for part in self)

    @cached_property
    def places(self) -> dict[str, int | slice]:
        """Position of each part among the entries of a cluster."""
        found: dict[str, int | slice] = {}
        at = self.first
        for part in self:
            found[part.name] = slice(at, at + self.devices) if part.per_device else at
            at += self.devices if part.per_device else 1
        return found

    def describe(self, part: OpenedPart) -> str:
        """Meaning of a part's entries."""
        steps = ", ".join(map(str, self.step_choices))
        return part.description.format(last=self.blocks - 1, steps=steps, clock=self.clock_cap_min)

    def entries(self, name: str, rows: Array) -> Array:
        """Return a part's entries, (..., N) or (..., N, K), from those of clusters (..., N, A / N)."""
        return rows[..., self.places[name]]
