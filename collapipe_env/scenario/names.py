"""Names of scenarios, both the package's and registered ones."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

from collapipe_env.ground.errors import ScenarioError, shown
from collapipe_env.ground.registry import Registry
from collapipe_env.scenario.schema import Scenario

LADDER = ("small", "medium", "large", "xlarge")
"""Scenarios of growing size, smallest first."""
PUBLISHED = ("bert-small", "bert-base", "transformer-base")
"""Scenarios with a published model on the clusters of ``medium``."""
REALISTIC = ("boards", "phones")
"""Scenarios with radios of measured power consumption."""
LANGUAGE = ("llm-boards", "llm-phones")
"""Scenarios that fine-tune a published language model."""
TIERS = ("migration", "channel", "thermal", "mobile", "stale", "churn", "wild")
"""Tiers: scenarios in which rounds affect later ones, or information is hidden, devices move or fail."""
TIER_SIZES = LADDER[:3]
"""Sizes of every tier."""
WHOLE_TIERS = ("stale", "wild")
"""Tiers in all sizes of the ladder."""


def sizes_of(tier: str) -> tuple[str, ...]:
    """Return the sizes of a tier, smallest first."""
    return LADDER if tier in WHOLE_TIERS else TIER_SIZES


def _check(name: str, scenario: object) -> None:
    if not isinstance(scenario, Scenario | Mapping | PathLike):
        raise ScenarioError(
            f"scenario {name!r} is {shown(scenario)}: give a mapping of sections, a path or a Scenario"
        )


TRACED = tuple(f"{size}-trace-like" for size in TIER_SIZES)
"""Scenarios whose uplinks follow synthetic traces that resemble measured ones."""
TIERED = tuple(f"{size}-{tier}" for tier in TIERS for size in sizes_of(tier))
"""Scenarios of the tiers."""
TARGETS = ("small-target", "medium-target")
"""Scenarios with open participation and local steps, which are over when the loss reaches a target."""
PRESETS = LADDER + PUBLISHED + REALISTIC + LANGUAGE + TRACED + TIERED + TARGETS
"""Names of the files in ``presets``."""
SHIPPED = "; ".join(
    ", ".join(names) for names in (LADDER, PUBLISHED, REALISTIC, LANGUAGE, TRACED, TIERED, TARGETS)
)
"""All names, as help texts show them."""

SCENARIOS: Registry[Any] = Registry(
    "scenario", dict.fromkeys(PRESETS), group="collapipe_env.scenarios", check=_check
)
"""Scenarios by name: ``None`` for the package's own, whose files are read on use, and a mapping, a path or a
scenario for others."""


def scenario_names() -> tuple[str, ...]:
    """Return the names of the presets (the ladder in ascending order), then those of registered scenarios."""
    return SCENARIOS.names()


def is_tier(name: str) -> bool:
    """Return whether a scenario is one of the tiers, also with another task, as ``small-thermal-ner`` is."""
    return any(f"{name}-".startswith(f"{tier}-") for tier in TIERED)
