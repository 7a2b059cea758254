"""Decisions that a scenario leaves to schedulers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from collapipe_env.scenario.schema import Scenario

Decision = Literal[
    "segments", "micro_batches", "bandwidth", "powers", "recompute", "schedule", "order", "server_blocks"
]
DECISIONS: tuple[Decision, ...] = get_args(Decision)
"""All decisions, in the order in which scenarios list them."""
COLLAPIPE: tuple[Decision, ...] = DECISIONS[:4]
"""Decisions of every plan, CollaPipe's own."""
OPENED: tuple[Decision, ...] = DECISIONS[4:]
"""Decisions that a scenario may open beside them, in the order of their entries in an action."""


def ordered_decisions(decisions: Iterable[Decision]) -> tuple[Decision, ...]:
    """Return decisions in the common order.

    Args:
        decisions: Their names.

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


def without_neutral_decisions(sections: dict[str, Any]) -> None:
    """Leave CollaPipe's own decisions out of a scenario's plain data, so that its digest is as before.

    Args:
        sections: Plain data of a whole scenario, changed in place.
    """
    if tuple(sections["decisions"]) == COLLAPIPE:
        del sections["decisions"]


def opens(scenario: Scenario, decision: Decision) -> bool:
    """Whether a scenario leaves a decision to schedulers.

    Args:
        scenario: Any scenario.
        decision: The decision.
    """
    return decision in scenario.decisions
