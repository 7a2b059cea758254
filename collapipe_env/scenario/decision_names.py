"""Decisions that a scenario leaves to schedulers, by name; a row is imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from collapipe_env.ground.registry import Registry

COLLAPIPE = ("segments", "micro_batches", "bandwidth", "powers")
"""Decisions of every plan, CollaPipe's own."""
ROWS: Registry[Any] = Registry(
    "decision",
    {
        "recompute": "collapipe_env.decisions.recompute:RECOMPUTE",
        "schedule": "collapipe_env.decisions.schedule:SCHEDULE",
        "server_blocks": "collapipe_env.decisions.server_blocks:SERVER_BLOCKS",
        "participation": "collapipe_env.decisions.participation:PARTICIPATION",
        "local_steps": "collapipe_env.decisions.local_steps:LOCAL_STEPS",
        "clock_cap": "collapipe_env.decisions.clock_cap:CLOCK_CAP",
    },
    reserved=COLLAPIPE,
    hint="one of your own is known once its file is imported: commands do that for a scenario named as "
    "file.py:Name",
    check="collapipe_env.simulator.decision:check_decision",
)
"""Rows (:class:`collapipe_env.simulator.decision.Decision`) of the decisions that a scenario may open beyond
CollaPipe's own, in the order of their entries in an action."""
OPENED = ROWS.shipped()
"""Names of the package's own decisions that a scenario may open."""
DECISIONS = (*COLLAPIPE, *OPENED)
"""All decisions of the package, in the order in which scenarios list them."""


def ordered_decisions(decisions: Iterable[str]) -> tuple[str, ...]:
    """Return decisions in the common order.

    Raises:
        ValueError: If one is unknown or named twice, or one of CollaPipe's own is missing.
    """
    named = tuple(decisions)
    for name in named:
        if name not in COLLAPIPE and name not in ROWS:
            raise ROWS.unknown(name, COLLAPIPE)
        if named.count(name) > 1:
            raise ValueError(f"{name} is named twice; name every decision once")
    missing = [name for name in COLLAPIPE if name not in named]
    if missing:
        raise ValueError(
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing: every plan decides "
            f"{', '.join(COLLAPIPE)}; {', '.join(ROWS)} can be added"
        )
    # By name, so that results do not depend on which module was imported first.
    return tuple(name for name in (*DECISIONS, *sorted(ROWS.added())) if name in named)


class Deciding(Protocol):
    """A scenario, or anything else that names decisions."""

    @property
    def decisions(self) -> tuple[str, ...]:
        """Decisions that are left to schedulers."""


def opens(scenario: Deciding, decision: str) -> bool:
    """Whether a scenario leaves a decision to schedulers."""
    return decision in scenario.decisions


def judged_by_target(scenario: Deciding) -> bool:
    """Whether schedulers are judged by the time to a target: the shortest rounds train least.

    This holds where schedulers decide about participation or local steps.
    """
    return opens(scenario, "participation") or opens(scenario, "local_steps")
