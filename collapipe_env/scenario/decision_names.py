"""Decisions that a scenario leaves to schedulers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Protocol, get_args

Decision = Literal[
    "segments",
    "micro_batches",
    "bandwidth",
    "powers",
    "recompute",
    "schedule",
    "server_blocks",
    "participation",
    "local_steps",
    "clock_cap",
]
DECISIONS: tuple[Decision, ...] = get_args(Decision)
"""All decisions, in the order in which scenarios list them."""
COLLAPIPE: tuple[Decision, ...] = DECISIONS[:4]
"""Decisions of every plan, CollaPipe's own."""
OPENED: tuple[Decision, ...] = DECISIONS[4:]
"""Further decisions that a scenario may open, in the order of their entries in an action."""
STEP_CHOICES = (1, 2, 4, 8, 16)
"""Numbers of local steps that clusters may take by default, where that is a decision."""
PARTICIPATION_MIN = 0.5
"""Default of the smallest share of rounds in which a cluster must take part, where that is a decision."""
CLOCK_CAP_MIN = 0.2
"""Default of the smallest cap on a device's clock, over its full clock, where that is a decision."""


def ordered_decisions(decisions: Iterable[Decision]) -> tuple[Decision, ...]:
    """Return decisions in the common order.

    Raises:
        ValueError: If one is named twice, or one of CollaPipe's own is missing.
    """
    named = tuple(decisions)
    for name in named:
        if named.count(name) > 1:
            raise ValueError(f"{name} is named twice; name every decision once")
    missing = [name for name in COLLAPIPE if name not in named]
    if missing:
        raise ValueError(
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing: every plan decides "
            f"{', '.join(COLLAPIPE)}; {', '.join(OPENED)} can be added"
        )
    return tuple(name for name in DECISIONS if name in named)


class Deciding(Protocol):
    """A scenario, or anything else that names decisions."""

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Decisions that are left to schedulers."""


def opens(scenario: Deciding, decision: Decision) -> bool:
    """Whether a scenario leaves a decision to schedulers."""
    return decision in scenario.decisions


def judged_by_target(scenario: Deciding) -> bool:
    """Whether schedulers are judged by the time to a target: the shortest rounds train least.

    This holds where schedulers decide about participation or local steps.
    """
    return opens(scenario, "participation") or opens(scenario, "local_steps")
